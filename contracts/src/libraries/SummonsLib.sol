// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ISummons} from "../interfaces/ISummons.sol";
import {Item, ModelId, ModelSpec, Sampling, Task} from "../interfaces/Types.sol";
import {TaskLib} from "./TaskLib.sol";

/// @notice What a summoned task must be, so that an honest member can run it in the time that it is given.
library SummonsLib {
    /// @notice Tokens that a member prefills a second, at least.
    uint256 internal constant TOKENS_PER_SECOND = 50;
    /// @notice For how many of them a new token counts: those of a verifier are there to hide its role, and decoding
    /// is slow.
    uint256 internal constant NEW_TOKEN = 10;
    uint256 private constant PPM = 1_000_000;

    /// @notice What the chain knows of a task.
    struct Expected {
        bytes32 taskId;
        address worker;
        ModelId modelId;
        uint256 requests;
    }

    /// @notice The task itself: whose it is, of which job and model, and how many items it has.
    function requireTask(Expected memory expected, ModelSpec calldata spec, Task calldata task)
        internal
        pure
    {
        _require(task.taskId == expected.taskId, "taskId");
        _require(task.worker == expected.worker, "worker");
        bytes32 modelId = ModelId.unwrap(expected.modelId);
        _require(ModelId.unwrap(task.modelId) == modelId, "modelId");
        _require(keccak256(abi.encode(spec)) == modelId, "spec");
        uint256 checked = spec.checkedRequests;
        if (expected.requests < checked) checked = expected.requests;
        _require(task.items.length == checked, "items");
    }

    /// @notice The items with their tokens: within the bounds that every worker demands; returns the work,
    /// in prefilled tokens.
    function requireItems(
        ModelSpec calldata spec,
        Task calldata task,
        Item[] calldata items,
        bytes[] calldata tokens
    ) internal pure returns (uint256 work) {
        _require(items.length == task.items.length, "items");
        _require(tokens.length == items.length, "tokens");
        for (uint256 i = 0; i < items.length; ++i) {
            Item calldata item = items[i];
            _require(TaskLib.hashItem(item) == task.items[i], "items");
            _requireBounds(spec, item);
            _require(tokens[i].length == 4 * uint256(item.length), "tokens");
            _requireVocabulary(tokens[i], spec.vocabulary);
            _require(TaskLib.tokensRoot(item.salt, tokens[i]) == item.tokensRoot, "tokensRoot");
            work += uint256(item.length) + NEW_TOKEN * item.maxNewTokens;
        }
    }

    function _requireBounds(ModelSpec calldata spec, Item calldata item) private pure {
        Sampling calldata sampling = item.sampling;
        _require(sampling.temperature <= 2 * PPM, "temperature");
        _require(sampling.topP != 0 && sampling.topP <= PPM, "topP");
        _require(sampling.minP <= PPM, "minP");
        _require(item.length != 0, "length");
        _require(item.maxNewTokens != 0, "maxNewTokens");
        _require(uint256(item.length) + item.maxNewTokens <= spec.context, "context");
    }

    function _requireVocabulary(bytes calldata tokens, uint256 vocabulary) private pure {
        for (uint256 at = 0; at < tokens.length; at += 4) {
            _require(uint32(bytes4(tokens[at:at + 4])) < vocabulary, "vocabulary");
        }
    }

    function _require(bool holds, bytes32 field) private pure {
        require(holds, ISummons.TaskInvalid(field));
    }
}
