// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ISummons} from "../interfaces/ISummons.sol";
import {Item, ModelId, ModelSpec, Task} from "../interfaces/Types.sol";
import {BoundsLib} from "./BoundsLib.sol";
import {TaskLib} from "./TaskLib.sol";

/// @notice What a summoned task must be, so that an honest member can run it in the time that it is given.
library SummonsLib {
    /// @notice Tokens that a member prefills a second, at least.
    uint256 internal constant TOKENS_PER_SECOND = 50;
    /// @notice For how many of them a new token counts: those of a verifier are there to hide its role, and decoding
    /// is slow.
    uint256 internal constant NEW_TOKEN = 10;

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
            bytes32 fault =
                BoundsLib.fault(item.sampling, item.length, item.maxNewTokens, spec.context);
            _require(fault == 0, fault);
            _require(tokens[i].length == 4 * uint256(item.length), "tokens");
            _require(BoundsLib.areTokens(tokens[i], spec.vocabulary), "vocabulary");
            _require(TaskLib.tokensRoot(item.salt, tokens[i]) == item.tokensRoot, "tokensRoot");
            work += uint256(item.length) + NEW_TOKEN * item.maxNewTokens;
        }
    }

    function _require(bool holds, bytes32 field) private pure {
        require(holds, ISummons.TaskInvalid(field));
    }
}
