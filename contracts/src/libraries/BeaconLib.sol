// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Blockhash} from "@openzeppelin/contracts/utils/Blockhash.sol";

/// @notice Hashes of past blocks: the last 256 from the chain itself, 8191 where EIP-2935 is live.
library BeaconLib {
    /// @notice The hash of a past block, or zero where the chain does not know it (any more, or yet).
    function beacon(uint256 blockNumber) internal view returns (bytes32) {
        return blockNumber < block.number ? Blockhash.blockHash(blockNumber) : bytes32(0);
    }
}
