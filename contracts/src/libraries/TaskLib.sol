// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Entry, Item, Piece, Receipt, Sampling, Task} from "../interfaces/Types.sol";
import {MerkleLib} from "./MerkleLib.sol";

/// @notice Tasks, items and tokens as they are hashed (docs/protocol.md §2, §3).
library TaskLib {
    uint256 internal constant PIECE = 32; // tokens
    bytes32 internal constant SAMPLING_TYPEHASH =
        keccak256("Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)");
    bytes32 internal constant ITEM_TYPEHASH = keccak256(
        "Item(bytes32 salt,bytes32 tokensRoot,uint32 length,uint32 maxNewTokens,Sampling sampling,bytes32 seed)Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)"
    );
    bytes32 internal constant TASK_TYPEHASH = keccak256(
        "Task(bytes32 taskId,address worker,bytes32 modelId,Item[] items,uint40 deadline,uint96 lock,uint96 fee)Item(bytes32 salt,bytes32 tokensRoot,uint32 length,uint32 maxNewTokens,Sampling sampling,bytes32 seed)Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)"
    );
    bytes32 internal constant RECEIPT_TYPEHASH =
        keccak256("Receipt(bytes32 jobId,bytes32 taskId,uint32 request,bytes32 outputHash)");

    function hashItem(Item calldata item) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                ITEM_TYPEHASH,
                item.salt,
                item.tokensRoot,
                item.length,
                item.maxNewTokens,
                keccak256(abi.encode(SAMPLING_TYPEHASH, item.sampling)),
                item.seed
            )
        );
    }

    function hashTask(Task calldata task) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                TASK_TYPEHASH,
                task.taskId,
                task.worker,
                task.modelId,
                keccak256(abi.encodePacked(task.items)),
                task.deadline,
                task.lock,
                task.fee
            )
        );
    }

    function hashReceipt(Receipt calldata receipt) internal pure returns (bytes32) {
        return keccak256(abi.encode(RECEIPT_TYPEHASH, receipt));
    }

    function requestLeaf(
        bytes32 root,
        uint32 length,
        uint32 maxNewTokens,
        Sampling calldata sampling
    ) internal pure returns (bytes32) {
        return MerkleLib.leaf(
            MerkleLib.REQUESTS,
            abi.encodePacked(
                root,
                length,
                maxNewTokens,
                sampling.temperature,
                sampling.topK,
                sampling.topP,
                sampling.minP
            )
        );
    }

    function outputLeaf(uint32 request, bytes32 hash) internal pure returns (bytes32) {
        return MerkleLib.leaf(MerkleLib.OUTPUTS, abi.encodePacked(request, hash));
    }

    /// @notice The hash of an output, bound to its task.
    function outputHash(bytes32 taskId, bytes calldata tokens) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(taskId, tokens));
    }

    function entryLeaf(bytes32 taskHash, uint32 item, Entry calldata entry)
        internal
        pure
        returns (bytes32)
    {
        return MerkleLib.leaf(
            MerkleLib.TRACE,
            abi.encodePacked(
                taskHash,
                item,
                entry.position,
                entry.token,
                entry.next,
                entry.slices,
                entry.finalState
            )
        );
    }

    /// @notice The seed of a request: neither client nor scheduler alone chooses it.
    function seed(bytes32 secret, bytes32 leaf, uint256 request) internal pure returns (bytes32) {
        return keccak256(abi.encode(secret, leaf, request));
    }

    /// @notice Number `at` of tokens that stand as u32, big-endian.
    function token(bytes calldata tokens, uint256 at) internal pure returns (uint32) {
        return uint32(bytes4(tokens[4 * at:4 * at + 4]));
    }

    /// @notice Whether `piece` is the one with token `at` of the `length` tokens under `root`.
    function isPiece(bytes32 root, uint256 length, uint256 at, Piece calldata piece)
        internal
        pure
        returns (bool)
    {
        if (at >= length) return false;
        uint256 index = at / PIECE;
        uint256 left = length - index * PIECE;
        if (piece.tokens.length != 4 * (left < PIECE ? left : PIECE)) return false;
        bytes32 leaf = MerkleLib.leaf(MerkleLib.TOKENS, abi.encodePacked(piece.salt, piece.tokens));
        return MerkleLib.verify(root, leaf, index, (length + PIECE - 1) / PIECE, piece.path);
    }

    /// @notice The salted root of tokens that stand as u32, big-endian; at least one.
    function tokensRoot(bytes32 salt, bytes calldata tokens) internal pure returns (bytes32) {
        uint256 bytesEach = 4 * PIECE;
        uint256 count = (tokens.length + bytesEach - 1) / bytesEach;
        bytes32[] memory level = new bytes32[](1 << MerkleLib.depth(count));
        for (uint256 i = 0; i < count; ++i) {
            uint256 from = i * bytesEach;
            uint256 to = from + bytesEach < tokens.length ? from + bytesEach : tokens.length;
            bytes32 pieceSalt = sha256(abi.encodePacked(salt, uint32(i))); // tokens are calldata
            level[i] =
                MerkleLib.leaf(MerkleLib.TOKENS, abi.encodePacked(pieceSalt, tokens[from:to]));
        }
        return MerkleLib.fold(level);
    }
}
