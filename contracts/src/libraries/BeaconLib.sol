// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @notice Hashes of past blocks: 8191 where EIP-2935 is live, elsewhere the last 256.
library BeaconLib {
    /// @notice EIP-2935's history of block hashes.
    address internal constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    /// @notice The hash of a past block, or zero where the chain does not know it (any more, or yet).
    /// @dev The history comes first: it is state, and so survives what a client keeps only in memory. An Anvil that
    /// was killed and restarted answers BLOCKHASH of older blocks with a hash that no one can recompute.
    function beacon(uint256 blockNumber) internal view returns (bytes32 found) {
        if (blockNumber >= block.number) return 0;
        (bool known, bytes memory answer) = HISTORY.staticcall(abi.encode(blockNumber));
        if (known && answer.length == 32) found = abi.decode(answer, (bytes32));
        if (found == 0) found = blockhash(blockNumber);
    }
}
