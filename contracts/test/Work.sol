// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/Types.sol";
import {HashLib} from "../src/libraries/HashLib.sol";
import {MerkleLib} from "../src/libraries/MerkleLib.sol";
import {TaskLib} from "../src/libraries/TaskLib.sol";
import {Network} from "./Network.sol";
import {Trees} from "./Trees.sol";

/// @notice Calldata twins of what tests hash.
contract Hashes {
    function item(Item calldata value) external pure returns (bytes32) {
        return TaskLib.hashItem(value);
    }

    function task(Task calldata value) external pure returns (bytes32) {
        return TaskLib.hashTask(value);
    }

    function root(bytes32 salt, bytes calldata tokens) external pure returns (bytes32) {
        return TaskLib.tokensRoot(salt, tokens);
    }

    function request(Asked calldata value) external pure returns (bytes32) {
        return
            TaskLib.requestLeaf(value.tokensRoot, value.length, value.maxNewTokens, value.sampling);
    }

    function output(bytes32 taskId, bytes calldata tokens) external pure returns (bytes32) {
        return TaskLib.outputHash(taskId, tokens);
    }
}

/// @notice Tasks with their tokens, and what workers make of them.
abstract contract Work is Network {
    /// @notice A task as a scheduler signs it, with all that its hash covers.
    struct Given {
        Task task;
        Item[] items;
        bytes[] tokens;
        bytes signature;
    }

    /// @notice What a worker made of it.
    struct Made {
        Inner inner;
        ItemLeaf[] leaves;
        bytes[] outputs;
        bytes32 commitment;
        bytes signature;
    }

    Hashes internal hashes = new Hashes();
    uint256 internal schedulerKey;

    function setUp() public virtual override {
        super.setUp();
        (, schedulerKey) = account("scheduler");
    }

    /// @dev A task of `count` items of `length` tokens each; `newTokens` at most.
    function _given(
        bytes32 taskId,
        address worker,
        uint256 count,
        uint32 length,
        uint32 newTokens,
        uint256 deadline
    ) internal view returns (Given memory given) {
        given.task.taskId = taskId;
        given.task.worker = worker;
        given.task.modelId = modelId;
        given.task.deadline = uint40(deadline);
        given.task.lock = LOCK;
        given.task.fee = MAX_FEE;
        given.items = new Item[](count);
        given.tokens = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            Item memory item = given.items[i];
            item.salt = keccak256(abi.encode("salt", i));
            item.length = length;
            item.maxNewTokens = newTokens;
            item.sampling = Sampling(1_000_000, 0, 1_000_000, 0);
            item.seed = keccak256(abi.encode("seed", i));
            given.tokens[i] = _tokens(length, i);
        }
        _sign(given);
    }

    /// @dev Hashes what was changed anew, and signs it.
    function _sign(Given memory given) internal view {
        given.task.items = new bytes32[](given.items.length);
        for (uint256 i = 0; i < given.items.length; ++i) {
            given.items[i].tokensRoot = hashes.root(given.items[i].salt, given.tokens[i]);
            given.task.items[i] = hashes.item(given.items[i]);
        }
        given.signature = signature(schedulerKey, _digest(hashes.task(given.task)));
    }

    /// @dev `newTokens` of each item, honestly committed to.
    function _made(Given memory given, uint32 newTokens, uint256 key)
        internal
        view
        returns (Made memory made)
    {
        uint256 count = given.items.length;
        made.leaves = new ItemLeaf[](count);
        made.outputs = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            made.outputs[i] = _tokens(newTokens, 100 + i);
            made.leaves[i] = ItemLeaf(
                uint32(i),
                given.items[i].length,
                newTokens,
                keccak256("trace"),
                hashes.output(given.task.taskId, made.outputs[i])
            );
            made.inner.promptTokens += given.items[i].length;
            made.inner.newTokens += newTokens;
        }
        made.inner.items = uint32(count);
        made.inner.taskHash = hashes.task(given.task);
        _commit(given, made, key);
    }

    function _commit(Given memory given, Made memory made, uint256 key) internal view {
        bytes32[] memory leaves = new bytes32[](made.leaves.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            ItemLeaf memory leaf = made.leaves[i];
            leaves[i] = MerkleLib.leaf(
                MerkleLib.ITEMS,
                abi.encodePacked(
                    leaf.item, leaf.promptTokens, leaf.newTokens, leaf.traceRoot, leaf.outputHash
                )
            );
        }
        made.inner.itemsRoot = Trees.root(leaves);
        made.commitment = HashLib.hashCommitment(given.task.taskId, HashLib.hashInner(made.inner));
        made.signature = signature(key, _digest(made.commitment));
    }

    function _tokens(uint256 count, uint256 salt) internal pure returns (bytes memory packed) {
        packed = new bytes(4 * count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 token = uint256(keccak256(abi.encode(salt, i))) % 512;
            (packed[4 * i + 2], packed[4 * i + 3]) =
            (bytes1(uint8(token >> 8)), bytes1(uint8(token)));
        }
    }

    function _requestsRoot(Given memory given) internal pure returns (bytes32) {
        bytes32[] memory leaves = new bytes32[](given.items.length);
        for (uint256 i = 0; i < leaves.length; ++i) {
            Item memory item = given.items[i];
            Sampling memory how = item.sampling;
            bytes memory asked =
                abi.encodePacked(item.tokensRoot, item.length, item.maxNewTokens, how.temperature);
            leaves[i] = MerkleLib.leaf(
                MerkleLib.REQUESTS, abi.encodePacked(asked, how.topK, how.topP, how.minP)
            );
        }
        return Trees.root(leaves);
    }
}
