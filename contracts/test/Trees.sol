// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @notice The protocol's trees, built plainly: roots and proofs for tests.
library Trees {
    function root(bytes32[] memory leaves) internal pure returns (bytes32) {
        bytes32[] memory level = _padded(leaves);
        while (level.length > 1) level = _up(level);
        return level[0];
    }

    function path(bytes32[] memory leaves, uint256 index)
        internal
        pure
        returns (bytes32[] memory siblings)
    {
        bytes32[] memory level = _padded(leaves);
        uint256 depth = 0;
        for (uint256 size = level.length; size > 1; size /= 2) {
            ++depth;
        }
        siblings = new bytes32[](depth);
        for (uint256 i = 0; i < depth; ++i) {
            siblings[i] = level[index ^ 1];
            level = _up(level);
            index /= 2;
        }
    }

    function _padded(bytes32[] memory leaves) private pure returns (bytes32[] memory level) {
        uint256 size = 1;
        while (size < leaves.length) size *= 2;
        level = new bytes32[](size);
        for (uint256 i = 0; i < leaves.length; ++i) {
            level[i] = leaves[i];
        }
    }

    function _up(bytes32[] memory level) private pure returns (bytes32[] memory above) {
        above = new bytes32[](level.length / 2);
        for (uint256 i = 0; i < above.length; ++i) {
            above[i] = sha256(abi.encodePacked(bytes1(0x01), level[2 * i], level[2 * i + 1]));
        }
    }
}
