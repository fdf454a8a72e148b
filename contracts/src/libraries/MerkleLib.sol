// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice The one tree shape of the protocol (docs/protocol.md §2): SHA-256, tagged leaves and nodes,
/// zero leaves as padding, depth from the count.
library MerkleLib {
    uint8 internal constant TRACE = 1;
    uint8 internal constant ITEMS = 2;
    uint8 internal constant REQUESTS = 3;
    uint8 internal constant OUTPUTS = 4;
    uint8 internal constant TOKENS = 5;
    uint8 internal constant HEAD = 17;

    function leaf(uint8 kind, bytes memory payload) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x00), kind, payload));
    }

    function node(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x01), left, right));
    }

    /// @notice Siblings in a proof for a tree of `count` leaves.
    function depth(uint256 count) internal pure returns (uint256) {
        return Math.log2(count, Math.Rounding.Ceil);
    }

    /// @notice The root over `level`, a power of two of leaves and padding; uses the list up.
    function fold(bytes32[] memory level) internal pure returns (bytes32) {
        for (uint256 size = level.length / 2; size > 0; size /= 2) {
            for (uint256 i = 0; i < size; ++i) {
                level[i] = node(level[2 * i], level[2 * i + 1]);
            }
        }
        return level[0];
    }

    /// @notice Whether `path` leads from the leaf at `index` of `count` to `root`; false where count or
    /// index or the path's length is impossible.
    function verify(
        bytes32 root,
        bytes32 leafHash,
        uint256 index,
        uint256 count,
        bytes32[] calldata path
    ) internal pure returns (bool) {
        if (index >= count || path.length != depth(count)) return false;
        bytes32 hash = leafHash;
        for (uint256 i = 0; i < path.length; ++i) {
            hash = (index >> i) & 1 == 0 ? node(hash, path[i]) : node(path[i], hash);
        }
        return hash == root;
    }
}
