// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @notice Philox4x32-10 (Salmon et al., SC'11) and the streams that a seed gives (docs/protocol.md §4).
library PhiloxLib {
    uint256 private constant M0 = 0xD2511F53;
    uint256 private constant M1 = 0xCD9E8D57;
    uint256 private constant W0 = 0x9E3779B9;
    uint256 private constant W1 = 0xBB67AE85;
    uint256 private constant MASK = type(uint32).max;

    function block10(uint32[4] memory counter, uint32[2] memory key)
        internal
        pure
        returns (uint32[4] memory)
    {
        uint256 c0 = counter[0];
        uint256 c1 = counter[1];
        uint256 c2 = counter[2];
        uint256 c3 = counter[3];
        uint256 k0 = key[0];
        uint256 k1 = key[1];
        for (uint256 round = 0; round < 10; ++round) {
            uint256 p0 = M0 * c0;
            uint256 p1 = M1 * c2;
            (c0, c1, c2, c3) = ((p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK);
            k0 = (k0 + W0) & MASK;
            k1 = (k1 + W1) & MASK;
        }
        // Each is masked, or the xor of numbers below 2^32.
        return [uint32(c0), uint32(c1), uint32(c2), uint32(c3)];
    }

    /// @notice The word of vocabulary entry `id` for the state at an absolute position.
    function word(bytes32 seed, uint32 position, uint32 id) internal pure returns (uint32) {
        return _at(uint256(seed) >> 128, position, id);
    }

    /// @notice The word that decides whether dimension `dimension` of a committed layer is in the slice.
    function sliceWord(bytes32 seed, uint32 layer, uint32 dimension)
        internal
        pure
        returns (uint32)
    {
        return _at(uint256(seed) & type(uint128).max, layer, dimension);
    }

    /// @dev `half` is key and last two words of the counter, big-endian.
    function _at(uint256 half, uint32 second, uint32 id) private pure returns (uint32) {
        uint32[2] memory key = [uint32(half >> 96), uint32(half >> 64)];
        uint32[4] memory counter = [id / 4, second, uint32(half >> 32), uint32(half)];
        return block10(counter, key)[id % 4];
    }
}
