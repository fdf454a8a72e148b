// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Sampling} from "../interfaces/Types.sol";

/// @notice What every worker demands of a request before it runs it (docs/protocol.md §3).
/// @dev Whoever is named in the open loses a lock by not running a text, so a contract may only name somebody for one
/// within these bounds; and whoever signed one outside of them is convicted by them.
library BoundsLib {
    uint256 private constant PPM = 1_000_000;
    uint256 private constant MAX_TEMPERATURE = 2 * PPM;
    /// @dev A word of tokens is looked at in two halves, four lanes of 64 bits each with a token in the lower 32: what
    /// a lane adds up to carries into its bit 32 iff the token is none.
    uint256 private constant ONES =
        0x0000000000000001000000000000000100000000000000010000000000000001;
    uint256 private constant TOKENS = ONES * type(uint32).max;
    uint256 private constant CARRIES = ONES << 32;

    /// @notice The first bound that a request is outside of; 0 where it is within all of them.
    function fault(
        Sampling calldata sampling,
        uint256 length,
        uint256 maxNewTokens,
        uint256 context
    ) internal pure returns (bytes32) {
        if (sampling.temperature > MAX_TEMPERATURE) return "temperature";
        if (sampling.topP == 0 || sampling.topP > PPM) return "topP";
        if (sampling.minP > PPM) return "minP";
        if (length == 0) return "length";
        if (maxNewTokens == 0) return "maxNewTokens";
        if (length + maxNewTokens > context) return "context";
        return 0;
    }

    /// @notice Whether tokens, u32 big-endian each, are all below `vocabulary`, which is not 0.
    function areTokens(bytes calldata tokens, uint32 vocabulary) internal pure returns (bool) {
        uint256 complement = ONES * ((1 << 32) - uint256(vocabulary));
        uint256 sums = 0;
        for (uint256 at = 0; at < tokens.length; at += 32) {
            uint256 word = uint256(bytes32(tokens[at:])); // behind the last token there are zeros
            sums |= (word & TOKENS) + complement;
            sums |= ((word >> 32) & TOKENS) + complement;
        }
        return sums & CARRIES == 0;
    }
}
