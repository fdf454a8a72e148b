// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Asked, Entry, Item, ModelId, Piece, Receipt, Task} from "../../src/interfaces/Types.sol";
import {TaskLib} from "../../src/libraries/TaskLib.sol";
import {Test} from "../Test.sol";
import {Trees} from "../Trees.sol";

/// @notice Calldata twins of what the library takes from calldata.
contract TaskCalls {
    function hashItem(Item calldata item) external pure returns (bytes32) {
        return TaskLib.hashItem(item);
    }

    function hashTask(Task calldata task) external pure returns (bytes32) {
        return TaskLib.hashTask(task);
    }

    function hashReceipt(Receipt calldata receipt) external pure returns (bytes32) {
        return TaskLib.hashReceipt(receipt);
    }

    function requestLeaf(Asked calldata asked) external pure returns (bytes32) {
        return
            TaskLib.requestLeaf(asked.tokensRoot, asked.length, asked.maxNewTokens, asked.sampling);
    }

    function entryLeaf(bytes32 taskHash, uint32 item, Entry calldata entry)
        external
        pure
        returns (bytes32)
    {
        return TaskLib.entryLeaf(taskHash, item, entry);
    }

    function outputHash(bytes32 taskId, bytes calldata tokens) external pure returns (bytes32) {
        return TaskLib.outputHash(taskId, tokens);
    }

    function isPiece(bytes32 root, uint256 length, uint256 at, Piece calldata piece)
        external
        pure
        returns (bool)
    {
        return TaskLib.isPiece(root, length, at, piece);
    }

    function tokensRoot(bytes32 salt, bytes calldata tokens) external pure returns (bytes32) {
        return TaskLib.tokensRoot(salt, tokens);
    }

    function token(bytes calldata tokens, uint256 at) external pure returns (uint32) {
        return TaskLib.token(tokens, at);
    }
}

/// @notice Tasks, requests and tokens hash as in Python.
contract TaskLibTest is Test {
    /// @dev A task as Python encodes it: the items themselves, not their hashes.
    struct Whole {
        bytes32 taskId;
        address worker;
        ModelId modelId;
        Item[] items;
        uint40 deadline;
        uint96 lock;
        uint96 fee;
    }

    TaskCalls private _calls = new TaskCalls();

    function test_tasksAndReceipts_areTheVectors() public view {
        string memory json = vectors("digests.json");
        Whole memory whole = abi.decode(vm.parseJsonBytes(json, ".task.abi"), (Whole));
        bytes32[] memory expected = vm.parseJsonBytes32Array(json, ".itemStructHashes");
        Task memory task = Task(
            whole.taskId,
            whole.worker,
            whole.modelId,
            new bytes32[](whole.items.length),
            whole.deadline,
            whole.lock,
            whole.fee
        );
        assertGt(expected.length, 0);
        for (uint256 i = 0; i < expected.length; ++i) {
            task.items[i] = _calls.hashItem(whole.items[i]);
            assertEq(task.items[i], expected[i], "item");
        }
        assertEq(_calls.hashTask(task), vm.parseJsonBytes32(json, ".task.structHash"), "task");
        assertEq(TaskLib.TASK_TYPEHASH, vm.parseJsonBytes32(json, ".task.typeHash"), "type");
        Receipt memory receipt = abi.decode(vm.parseJsonBytes(json, ".receipt.abi"), (Receipt));
        assertEq(
            _calls.hashReceipt(receipt), vm.parseJsonBytes32(json, ".receipt.structHash"), "receipt"
        );
        bytes32[] memory leaves = vm.parseJsonBytes32Array(json, ".requestLeaves");
        bytes32[] memory seeds = vm.parseJsonBytes32Array(json, ".seeds");
        for (uint256 i = 0; i < leaves.length; ++i) {
            bytes32 secret = vm.parseJsonBytes32(json, ".secret");
            assertEq(TaskLib.seed(secret, leaves[i], i), seeds[i], "seed");
            assertEq(whole.items[i].seed, seeds[i], "the task's, too");
            Item memory item = whole.items[i];
            Asked memory asked = Asked(
                item.tokensRoot, item.length, item.maxNewTokens, item.sampling, new bytes32[](0)
            );
            assertEq(_calls.requestLeaf(asked), leaves[i], "request");
        }
    }

    function test_leaves_areTheVectors() public view {
        string memory json = vectors("leaves.json");
        bytes[] memory slices = vm.parseJsonBytesArray(json, ".slices");
        bytes[] memory finals = vm.parseJsonBytesArray(json, ".finals");
        uint256[] memory tokens = vm.parseJsonUintArray(json, ".tokens");
        bytes32[] memory expected = vm.parseJsonBytes32Array(json, ".traceLeaves");
        bytes32 taskHash = vm.parseJsonBytes32(json, ".taskHash");
        uint32 item = uint32(vm.parseJsonUint(json, ".item"));
        for (uint32 i = 0; i < slices.length; ++i) {
            Entry memory entry = Entry(
                i,
                uint32(tokens[i]),
                uint32(tokens[i + 1]),
                sha256(slices[i]),
                sha256(finals[i]),
                new bytes32[](0)
            );
            assertEq(_calls.entryLeaf(taskHash, item, entry), expected[i], "entry");
        }
        bytes32 taskId = vm.parseJsonBytes32(json, ".taskId");
        bytes memory output = _packed(vm.parseJsonUintArray(json, ".output"));
        bytes32 hash = vm.parseJsonBytes32(json, ".outputHash");
        assertEq(_calls.outputHash(taskId, output), hash, "output");
        uint32 request = uint32(vm.parseJsonUint(json, ".outputRequest"));
        assertEq(
            TaskLib.outputLeaf(request, hash), vm.parseJsonBytes32(json, ".outputLeafHash"), "leaf"
        );
    }

    function test_tokens_areTheVectors() public view {
        string memory json = vectors("leaves.json");
        uint256[] memory tokens = vm.parseJsonUintArray(json, ".requestTokens");
        bytes32 root = vm.parseJsonBytes32(json, ".tokensRoot");
        bytes memory packed = _packed(tokens);
        assertEq(_calls.tokensRoot(vm.parseJsonBytes32(json, ".salt"), packed), root, "root");
        bytes32[] memory salts = vm.parseJsonBytes32Array(json, ".pieceSalts");
        bytes[] memory pieces = vm.parseJsonBytesArray(json, ".pieceTokens");
        bytes32[] memory leaves = vm.parseJsonBytes32Array(json, ".pieceLeafHashes");
        for (uint256 at = 0; at < tokens.length; ++at) {
            uint256 index = at / 32;
            Piece memory piece = Piece(salts[index], pieces[index], Trees.path(leaves, index));
            assertTrue(_calls.isPiece(root, tokens.length, at, piece), "its piece");
            uint256 other = (at + 32) % 96;
            assertFalse(_calls.isPiece(root, tokens.length, other, piece), "another's");
            assertFalse(_calls.isPiece(root, tokens.length - 1, 69, piece), "another length");
            assertEq(_calls.token(packed, at), tokens[at], "token");
            assertEq(_calls.token(piece.tokens, at % 32), tokens[at], "token of a piece");
        }
    }

    function test_fuzz_tokensRoot_isTheTreeOfPieces(uint8 count, bytes32 salt) public view {
        count = uint8(bound(count, 1, 200));
        uint256[] memory tokens = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            tokens[i] = uint32(uint256(keccak256(abi.encode(salt, i))));
        }
        uint256 pieces = (uint256(count) + 31) / 32;
        bytes32[] memory leaves = new bytes32[](pieces);
        for (uint256 i = 0; i < pieces; ++i) {
            bytes memory part;
            for (uint256 j = 32 * i; j < 32 * (i + 1) && j < count; ++j) {
                part = bytes.concat(part, bytes4(uint32(tokens[j])));
            }
            bytes32 pieceSalt = sha256(abi.encodePacked(salt, uint32(i)));
            leaves[i] = sha256(abi.encodePacked(bytes1(0x00), uint8(5), pieceSalt, part));
        }
        assertEq(_calls.tokensRoot(salt, _packed(tokens)), Trees.root(leaves));
    }

    function _packed(uint256[] memory tokens) private pure returns (bytes memory packed) {
        for (uint256 i = 0; i < tokens.length; ++i) {
            packed = bytes.concat(packed, bytes4(uint32(tokens[i])));
        }
    }
}
