// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IWages} from "../interfaces/IWages.sol";
import {Inner, Item, ItemLeaf, Task} from "../interfaces/Types.sol";
import {MerkleLib} from "./MerkleLib.sol";
import {OpeningLib} from "./OpeningLib.sol";
import {TaskLib} from "./TaskLib.sol";

/// @notice Whether a worker did what it claims the fee of: its task, its leaves and its tokens hang together.
library ClaimLib {
    /// @notice Checks all down to the tokens, and that `inner` counts them.
    function requireWork(
        Task calldata task,
        Item[] calldata items,
        Inner calldata inner,
        ItemLeaf[] calldata leaves,
        bytes[] calldata outputs
    ) internal pure {
        _require(TaskLib.hashTask(task) == inner.taskHash, "taskHash");
        uint256 count = task.items.length;
        _require(count != 0 && items.length == count && inner.items == count, "items");
        _require(leaves.length == count, "leaves");
        _require(outputs.length == count, "outputs");
        uint256 prompts = 0;
        uint256 tokens = 0;
        for (uint256 i = 0; i < count; ++i) {
            _require(TaskLib.hashItem(items[i]) == task.items[i], "items");
            _requireItem(task.taskId, i, items[i], leaves[i], outputs[i]);
            prompts += leaves[i].promptTokens;
            tokens += leaves[i].newTokens;
        }
        _require(inner.promptTokens == prompts, "promptTokens");
        _require(inner.newTokens == tokens, "newTokens");
        _require(inner.itemsRoot == _itemsRoot(leaves), "itemsRoot");
    }

    /// @notice What a posting of the same outputs names them by.
    function outputsRoot(ItemLeaf[] calldata leaves) internal pure returns (bytes32) {
        bytes32[] memory level = _level(leaves.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            level[i] = TaskLib.outputLeaf(uint32(i), leaves[i].outputHash); // at most 4096 items
        }
        return MerkleLib.fold(level);
    }

    /// @notice What a job of the same requests names them by.
    function requestsRoot(Item[] calldata items) internal pure returns (bytes32) {
        bytes32[] memory level = _level(items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            Item calldata item = items[i];
            level[i] =
                TaskLib.requestLeaf(item.tokensRoot, item.length, item.maxNewTokens, item.sampling);
        }
        return MerkleLib.fold(level);
    }

    function _requireItem(
        bytes32 taskId,
        uint256 index,
        Item calldata item,
        ItemLeaf calldata leaf,
        bytes calldata output
    ) private pure {
        _require(leaf.item == index, "item");
        _require(leaf.promptTokens == item.length, "promptTokens");
        _require(leaf.newTokens != 0 && leaf.newTokens <= item.maxNewTokens, "newTokens");
        _require(output.length == 4 * uint256(leaf.newTokens), "outputs");
        _require(leaf.outputHash == TaskLib.outputHash(taskId, output), "outputHash");
    }

    function _itemsRoot(ItemLeaf[] calldata leaves) private pure returns (bytes32) {
        bytes32[] memory level = _level(leaves.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            level[i] = OpeningLib.itemLeaf(leaves[i]);
        }
        return MerkleLib.fold(level);
    }

    function _level(uint256 count) private pure returns (bytes32[] memory) {
        return new bytes32[](1 << MerkleLib.depth(count));
    }

    function _require(bool holds, bytes32 field) private pure {
        require(holds, IWages.WorkInvalid(field));
    }
}
