// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proving} from "./Proving.sol";
import {Trees} from "./Trees.sol";

/// @notice What a scheduler signed and posted convicts it, and no honest twin.
/// @dev Calls are transactions of their own, so that what a proof costs is seen; what the network then does is not in.
/// forge-config: default.isolate = true
contract ProverSchedulerTest is Proving {
    // ── The scheduler's tasks ───────────────────────────────────────────────────────────────────

    function test_taskDiffers_convictsOfAFirstTaskThatIsNotTheRequest() public {
        for (uint256 field = 0; field < 8; ++field) {
            Whole memory w = _honest(_greedy);
            Item memory item = w.sides[0].items[2];
            if (field == 0) item.tokensRoot = keccak256("other tokens");
            if (field == 1) item.length += 1;
            if (field == 2) item.maxNewTokens += 1;
            if (field == 3) item.sampling.temperature = 1;
            if (field == 4) item.sampling.topK = 1;
            if (field == 5) item.sampling.topP -= 1;
            if (field == 6) item.sampling.minP = 1;
            if (field == 7) item.seed = keccak256("another seed");
            _rehash(w.sides[0]);
            _recommit(w);
            _task(w, 0, 2, 0);
            _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
            _task(w, 0, 1, IProver.NothingDiffers.selector);
        }
    }

    function test_taskDiffers_convictsOfAFirstTaskWithOtherFields() public {
        for (uint256 field = 0; field < 5; ++field) {
            Whole memory w = _honest(_greedy);
            Task memory task = w.sides[0].task;
            if (field == 0) task.worker = person("another");
            if (field == 1) task.modelId = ModelId.wrap(keccak256("another"));
            if (field == 2) task.taskId = keccak256("another");
            if (field == 3) task.lock -= 1;
            if (field == 4) w.sides[0].items = _shorter(w.sides[0].items);
            _rehash(w.sides[0]);
            _recommit(w);
            _task(w, 0, 0, 0);
            _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
        }
    }

    function test_taskDiffers_convictsOfAVerifiersTaskThatIsNotTheRequestAndItsOutput() public {
        for (uint256 field = 0; field < 6; ++field) {
            Whole memory w = _honest(_greedy);
            Side memory side = w.sides[2];
            if (field == 0) side.items[1].length += 1;
            if (field == 1) side.items[1].sampling.temperature = 1;
            if (field == 2) side.items[1].seed = keccak256("another seed");
            if (field == 3) side.task.worker = w.sides[1].owner;
            if (field == 4) side.task.lock -= 1;
            if (field == 5) side.items = _shorter(side.items);
            _rehash(side);
            _make(w, 2);
            _sealMember(w, 2);
            _task(w, 2, field == 5 ? 0 : 1, 0);
            if (field == 0) _note("taskDiffers");
            _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
        }
    }

    function test_taskDiffers_refusesHonestTasks() public {
        Whole memory w = _honest(_greedy);
        for (uint256 k = 0; k < 4; ++k) {
            for (uint256 i = 0; i < w.sides[k].items.length; ++i) {
                _task(w, k, i, IProver.NothingDiffers.selector);
            }
        }
        // More at stake than was locked is no fault, nor are a verifier's new tokens.
        w.sides[1].task.lock += 1;
        w.sides[1].items[0].maxNewTokens += 7;
        _rehash(w.sides[1]);
        _make(w, 1);
        _sealMember(w, 1);
        _task(w, 1, 0, IProver.NothingDiffers.selector);
        _expectSilence();
    }

    function test_taskDiffers_refusesOtherRequestsAndOutputs() public {
        Whole memory w = _honest(_greedy);
        Asked memory asked = _asked(w, 0);
        Output memory output = _output(w, 0);
        Given memory given = _given(w, 0, 0);
        asked.length += 1;
        _callTask(w, 0, given, asked, output, _invalid("request"));
        asked = _asked(w, 1);
        _callTask(w, 0, given, asked, output, _invalid("request"));
        uint256 q = w.checked[0];
        given = _given(w, 1, 0);
        output = _output(w, (q + 1) % 3);
        _callTask(w, 1, given, _asked(w, q), output, _invalid("output"));
        output = _output(w, q);
        output.tokens[3] = 0x01;
        _callTask(w, 1, given, _asked(w, q), output, _invalid("output"));
        _expectSilence();
    }

    function test_promptDiffers_convictsOfAVerifiersTaskWithAnotherToken() public {
        for (uint256 part = 0; part < 2; ++part) {
            Whole memory w = _honest(_greedy);
            uint256 q = w.checked[1];
            uint256 at = part == 0 ? 3 : w.prompts[q].length + 1;
            uint32[] memory tokens = _copy(w.sides[1].prompts[1]);
            tokens[at] = 7;
            w.sides[1].prompts[1] = tokens;
            w.sides[1].items[1].tokensRoot = _tokensRoot(_salt(q), tokens);
            _rehash(w.sides[1]);
            _make(w, 1);
            _sealMember(w, 1);
            _prompt(w, 1, 1, at, 0);
            if (part == 1) _note("promptDiffers");
            _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
            _prompt(w, 1, 1, at - 1, IProver.NothingDiffers.selector);
            _task(w, 1, 1, IProver.NothingDiffers.selector);
        }
    }

    function test_promptDiffers_refusesHonestPromptsAtEveryToken() public {
        Whole memory w = _honest(_greedy);
        for (uint256 i = 0; i < w.checked.length; ++i) {
            for (uint256 at = 0; at < w.sides[3].prompts[i].length; ++at) {
                _prompt(w, 3, i, at, IProver.NothingDiffers.selector);
            }
        }
        _expectSilence();
    }

    /// @notice A worker whose trace says otherwise does not make its scheduler guilty.
    function test_promptDiffers_isNotFooledByTheInferencersTrace() public {
        Whole memory w = _honest(_greedy);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            w.sides[0].tokens[q] = _copy(w.sides[0].tokens[q]);
            w.sides[0].tokens[q][w.prompts[q].length] = 3;
        }
        _recommit(w);
        for (uint256 at = 0; at < w.sides[1].prompts[0].length; ++at) {
            _prompt(w, 1, 0, at, IProver.NothingDiffers.selector);
        }
        _expectSilence();
        uint256 checked = w.checked[0];
        _outputAt(w, checked, w.prompts[checked].length, 0);
        _note("outputDiffers");
        _expectConvicted(w, 0, VerdictLib.OUTPUT_MISMATCH);
    }

    function test_promptDiffers_refusesTheInferencer() public {
        Whole memory w = _honest(_greedy);
        Piece memory piece = _piece(0, w.prompts[0], 0);
        _callPrompt(w, 0, 0, _given(w, 0, 0), Told(0, piece, piece), _invalid("party"));
    }

    function test_outputsDiffer_convictsOfAnotherOutputThanTheInferencers() public {
        Whole memory w = _honest(_greedy);
        w.outputHashes[1] = keccak256("another output");
        _postOutputs(w);
        _verify(w);
        bytes32[] memory path = Trees.path(w.outputLeaves, 1);
        _callOutputs(w, 1, w.outputHashes[1], path, "");
        _note("outputsDiffer");
        _expectConvicted(w, SCHEDULER, VerdictLib.OUTPUT_MISMATCH);
    }

    function test_outputsDiffer_refusesTheInferencersOutput() public {
        Whole memory w = _honest(_greedy);
        bytes memory nothing = abi.encodeWithSelector(IProver.NothingDiffers.selector);
        for (uint32 q = 0; q < REQUESTS; ++q) {
            _callOutputs(w, q, w.outputHashes[q], Trees.path(w.outputLeaves, q), nothing);
        }
        bytes32[] memory path = Trees.path(w.outputLeaves, 1);
        _callOutputs(w, 1, keccak256("another output"), path, _invalid("output"));
        _expectSilence();
    }

    // ── Lengths ─────────────────────────────────────────────────────────────────────────────────

    function test_leafDiffers_convictsWhoPostsOtherLengthsThanTheClients() public {
        for (uint256 field = 0; field < 4; ++field) {
            Whole memory w = _honest(_greedy);
            ItemLeaf memory leaf = w.sides[0].leaves[1];
            if (field == 0) leaf.promptTokens += 1;
            if (field == 1) leaf.promptTokens -= 1;
            if (field == 2) leaf.newTokens = 0;
            if (field == 3) leaf.newTokens = _asked(w, 1).maxNewTokens + 1;
            _root(w.sides[0]);
            _repost(w);
            _leaf(w, 1, _asked(w, 1), "");
            if (field == 0) _note("leafDiffers");
            _expectConvicted(w, SCHEDULER, VerdictLib.LENGTH);
            _leaf(w, 0, _asked(w, 0), abi.encodeWithSelector(IProver.NothingDiffers.selector));
        }
    }

    function test_leafDiffers_refusesHonestLeavesAndOtherRequests() public {
        Whole memory w = _honest(_greedy);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            _leaf(w, q, _asked(w, q), abi.encodeWithSelector(IProver.NothingDiffers.selector));
        }
        Asked memory asked = _asked(w, 1);
        asked.length += 1;
        _leaf(w, 1, asked, _invalid("request"));
        _leaf(w, 1, _asked(w, 0), _invalid("request"));
        _expectSilence();
    }

    // ── Receipts ────────────────────────────────────────────────────────────────────────────────

    function test_receiptDiffers_convictsASchedulerThatPostsAnotherOutput() public {
        Whole memory w = _honest(_greedy);
        (, uint256 key) = account("scheduler");
        Receipt memory receipt = _receipt(w, 2, keccak256("what the client got"));
        _callReceipt(w, receipt, _sign(receipt, key), "");
        _note("receiptDiffers");
        _expectConvicted(w, SCHEDULER, VerdictLib.RECEIPT_DIFFERS);
    }

    function test_receiptDiffers_knowsTheSchedulersHotKey() public {
        Whole memory w = _honest(_greedy);
        (address hot, uint256 key) = account("hot");
        Receipt memory receipt = _receipt(w, 2, keccak256("what the client got"));
        bytes memory signed = _sign(receipt, key);
        bytes4 selector = IProver.SignatureInvalid.selector;
        bytes memory refusal = abi.encodeWithSelector(selector, w.posting.quote.scheduler);
        _callReceipt(w, receipt, signed, refusal);
        _expectSilence();
        ear.setKey(hot, w.posting.quote.scheduler);
        _callReceipt(w, receipt, signed, "");
        _expectConvicted(w, SCHEDULER, VerdictLib.RECEIPT_DIFFERS);
    }

    function test_receiptDiffers_refusesAnHonestReceiptAndAnotherJobs() public {
        Whole memory w = _honest(_greedy);
        (, uint256 key) = account("scheduler");
        Receipt memory receipt = _receipt(w, 2, w.outputHashes[2]);
        bytes memory nothing = abi.encodeWithSelector(IProver.NothingDiffers.selector);
        _callReceipt(w, receipt, _sign(receipt, key), nothing);
        receipt.jobId = JobId.wrap(keccak256("another"));
        _callReceipt(w, receipt, _sign(receipt, key), _invalid("job"));
        receipt = _receipt(w, 2, keccak256("forged"));
        bytes memory signed = _sign(receipt, key);
        receipt.outputHash = keccak256("forged again");
        bytes4 selector = IProver.SignatureInvalid.selector;
        _callReceipt(
            w, receipt, signed, abi.encodeWithSelector(selector, w.posting.quote.scheduler)
        );
        _expectSilence();
    }
}
