// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proving} from "./Proving.sol";

/// @notice What a worker signed convicts it, and no honest twin: a refused proof changes nothing.
/// @dev Calls are transactions of their own, so that what a proof costs is seen; what the network then does is not in.
/// forge-config: default.isolate = true
contract ProverTest is Proving {
    // ── Lengths ─────────────────────────────────────────────────────────────────────────────────

    function test_lengthsDiffer_convictsAnInferencerOfAnotherPromptLength() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].leaves[1].promptTokens += 1;
        w.sides[0].leaves[1].newTokens -= 1;
        _root(w.sides[0]);
        _repost(w);
        _lengths(w, 0, 1, 0);
        _note("lengthsDiffer");
        _expectConvicted(w, 0, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_convictsAMemberOfAnotherPromptLength() public {
        Whole memory w = _honest(_greedy);
        w.sides[2].leaves[1].promptTokens -= 1;
        w.sides[2].leaves[1].newTokens += 1;
        _root(w.sides[2]);
        _sealMember(w, 2);
        _lengths(w, 2, 1, 0);
        _expectConvicted(w, 2, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_convictsOfMoreTokensThanAskedFor() public {
        Whole memory w = _honest(_greedy);
        w.outputs[0] = new uint32[](NEW + 3); // asked for NEW + 2
        w.sides[0].tokens[0] = _concat(w.prompts[0], w.outputs[0], NEW + 3);
        _recommit(w);
        _lengths(w, 0, 0, 0);
        _expectConvicted(w, 0, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_convictsOfNoTokenAtAll() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].leaves[0].newTokens = 0;
        _root(w.sides[0]);
        _repost(w);
        _lengths(w, 0, 0, 0);
        _expectConvicted(w, 0, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_convictsOfAnotherOrder() public {
        Whole memory w = _honest(_greedy);
        (w.sides[0].leaves[0].item, w.sides[0].leaves[1].item) = (1, 0);
        _root(w.sides[0]);
        _repost(w);
        _lengths(w, 0, 0, 0);
        _expectConvicted(w, 0, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_convictsOfAnotherNumberOfItems() public {
        Whole memory w = _honest(_greedy);
        w.sides[1].inner.items = 1;
        _sealMember(w, 1);
        _lengths(w, 1, 0, 0);
        _expectConvicted(w, 1, VerdictLib.LENGTH);
    }

    function test_lengthsDiffer_refusesHonestItems() public {
        Whole memory w = _honest(_greedy);
        for (uint256 q = 0; q < REQUESTS; ++q) {
            _lengths(w, 0, q, IProver.NothingDiffers.selector);
        }
        for (uint256 k = 1; k < 4; ++k) {
            _lengths(w, k, k % 2, IProver.NothingDiffers.selector);
        }
        // The longest output that was asked for is one, too.
        w.outputs[0] = new uint32[](NEW + 2);
        w.sides[0].tokens[0] = _concat(w.prompts[0], w.outputs[0], NEW + 2);
        _recommit(w);
        _lengths(w, 0, 0, IProver.NothingDiffers.selector);
        _expectSilence();
    }

    function test_lengthsDiffer_refusesAnothersTaskItemOrLeaf() public {
        Whole memory w = _honest(_greedy);
        Given memory given = _given(w, 0, 0);
        Made memory made = _made(w, 0, 0);
        given.task.lock += 1;
        _callLengths(w, 0, given, made, _invalid("task"));
        given.task.lock -= 1;
        given = _given(w, 1, 0);
        _callLengths(w, 0, given, made, _invalid("inner"));
        _callLengths(w, 4, given, made, _invalid("party"));
        given = _given(w, 0, 0);
        given.item.length += 1;
        _callLengths(w, 0, given, made, _invalid("item"));
        given.item.length -= 1;
        given.index = 3;
        _callLengths(w, 0, given, made, _invalid("item"));
        given.index = 0;
        made.leaf.promptTokens += 1;
        _callLengths(w, 0, given, made, _invalid("leaf"));
        made.leaf.promptTokens -= 1;
        made = _made(w, 0, 1);
        _callLengths(w, 0, given, made, _invalid("leaf"));
        _expectSilence();
    }

    // ── Traces ──────────────────────────────────────────────────────────────────────────────────

    function test_traceDiffers_convictsAnInferencerThatRanAnotherPrompt() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].tokens[0] = _copy(w.sides[0].tokens[0]);
        w.sides[0].tokens[0][33] = 7;
        _recommit(w);
        uint256 before = vm.snapshotState();
        _traceAt(w, 0, 0, 33, 33, 0);
        _expectConvicted(w, 0, VerdictLib.TRACE_DIFFERS);
        vm.revertToState(before);
        _traceAt(w, 0, 0, 33, 32, 0); // the position before names it, too
        _expectConvicted(w, 0, VerdictLib.TRACE_DIFFERS);
        vm.revertToState(before);
        _traceAt(w, 0, 0, 34, 34, IProver.NothingDiffers.selector);
        _traceAt(w, 0, 0, 32, 32, IProver.NothingDiffers.selector);
    }

    function test_traceDiffers_convictsAMemberThatRanAnotherPrompt() public {
        Whole memory w = _honest(_greedy);
        w.sides[3].tokens[1] = _copy(w.sides[3].tokens[1]);
        w.sides[3].tokens[1][2] = 7;
        _make(w, 3);
        _sealMember(w, 3);
        _traceAt(w, 3, 1, 2, 1, 0);
        _note("traceDiffers");
        _expectConvicted(w, 3, VerdictLib.TRACE_DIFFERS);
    }

    function test_traceDiffers_refusesHonestTracesAtEveryToken() public {
        Whole memory w = _honest(_greedy);
        for (uint256 k = 0; k < 4; ++k) {
            for (uint256 at = 0; at < w.sides[k].prompts[0].length; ++at) {
                _traceAt(w, k, 0, at, at, IProver.NothingDiffers.selector);
                if (at != 0) _traceAt(w, k, 0, at, at - 1, IProver.NothingDiffers.selector);
            }
        }
        _expectSilence();
    }

    function test_traceDiffers_refusesWhatIsOutOfPlace() public {
        Whole memory w = _honest(_greedy);
        Given memory given = _given(w, 0, 0);
        Made memory made = _made(w, 0, 0);
        Piece memory piece = _piece(0, w.sides[0].prompts[0], 3);
        Entry memory entry = _entry(w, 0, 0, 3);
        _callTrace(w, 0, given, made, 5, piece, entry, _invalid("at"));
        _callTrace(w, 0, given, made, 2, piece, entry, _invalid("at"));
        _callTrace(w, 0, given, made, 40, piece, entry, _invalid("piece"));
        _callTrace(w, 0, given, made, 33, piece, entry, _invalid("piece"));
        entry.token += 1;
        _callTrace(w, 0, given, made, 3, piece, entry, _invalid("entry"));
        _expectSilence();
    }

    // ── Outputs ─────────────────────────────────────────────────────────────────────────────────

    function test_outputDiffers_convictsATraceOfOtherTokensThanTheOutput() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].tokens[1] = _copy(w.sides[0].tokens[1]);
        uint256 first = w.prompts[1].length;
        w.sides[0].tokens[1][first + 2] = 9;
        _recommit(w);
        uint256 before = vm.snapshotState();
        _outputAt(w, 1, first + 1, 0);
        _expectConvicted(w, 0, VerdictLib.OUTPUT_MISMATCH);
        vm.revertToState(before);
        _outputAt(w, 1, first + 2, 0);
        _expectConvicted(w, 0, VerdictLib.OUTPUT_MISMATCH);
        vm.revertToState(before);
        _outputAt(w, 1, first, IProver.NothingDiffers.selector);
    }

    function test_outputDiffers_convictsOfAnotherLengthThanTheOutputs() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].leaves[1].newTokens += 1;
        _root(w.sides[0]);
        _repost(w);
        Entry memory nothing;
        _callOutput(w, 1, _made(w, 0, 1), _packed(w.outputs[1]), nothing, "");
        _expectConvicted(w, 0, VerdictLib.OUTPUT_MISMATCH);
    }

    function test_outputDiffers_refusesHonestOutputsAtEveryPosition() public {
        Whole memory w = _honest(_greedy);
        for (uint256 at = 0; at + 1 < w.sides[0].tokens[2].length; ++at) {
            _outputAt(w, 2, at, IProver.NothingDiffers.selector);
        }
        bytes memory other = _packed(w.outputs[0]);
        other[3] = 0;
        Entry memory entry = _entry(w, 0, 0, 40);
        _callOutput(w, 0, _made(w, 0, 0), other, entry, _invalid("output"));
        _callOutput(
            w, 0, _made(w, 0, 0), abi.encodePacked(other, uint8(1)), entry, _invalid("output")
        );
        _callOutput(w, 1, _made(w, 0, 0), _packed(w.outputs[0]), entry, _invalid("leaf"));
        _expectSilence();
    }

    function test_afterEnd_convictsOfTokensAfterTheEnd() public {
        Whole memory w = _honest(_greedy);
        _tell(w, 0, 3, END);
        uint256 before = vm.snapshotState();
        _end(w, 0, 3, "");
        _expectConvicted(w, 0, VerdictLib.AFTER_END);
        vm.revertToState(before);
        _end(w, 0, 2, abi.encodeWithSelector(IProver.NothingDiffers.selector));
        _end(w, 0, 4, abi.encodeWithSelector(IProver.NothingDiffers.selector));
        _end(w, 0, uint32(NEW), _invalid("at"));
        _expectSilence();
    }

    function test_afterEnd_convictsOfATokenThatIsNone() public {
        Whole memory w = _honest(_greedy);
        _tell(w, 2, NEW - 1, VOCABULARY);
        _end(w, 2, uint32(NEW) - 1, "");
        _note("afterEnd");
        _expectConvicted(w, 0, VerdictLib.OUTSIDE_NUCLEUS);
    }

    function test_afterEnd_refusesAnEndWhereItBelongs() public {
        Whole memory w = _honest(_greedy);
        _tell(w, 0, NEW - 1, END);
        for (uint32 at = 0; at < NEW; ++at) {
            _end(w, 0, at, abi.encodeWithSelector(IProver.NothingDiffers.selector));
        }
        _expectSilence();
    }

    /// @notice What ends an output is another model's business where the task names another model: the
    /// scheduler's fault, and no slash of the worker.
    function test_afterEnd_refusesATaskOfAnotherModel() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].task.modelId = ModelId.wrap(keccak256("another"));
        _rehash(w.sides[0]);
        _tell(w, 0, 2, END);
        _end(w, 0, 2, _invalid("model"));
        _expectSilence();
        _task(w, 0, 0, 0);
        _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
    }

    function test_afterEnd_refusesAnotherSpec() public {
        Whole memory w = _honest(_greedy);
        w.spec.endTokens[1] = BEST;
        bytes4 selector = IProver.SpecMismatch.selector;
        ModelId actual = ModelId.wrap(keccak256(abi.encode(w.spec)));
        _end(w, 0, 0, abi.encodeWithSelector(selector, w.posting.quote.modelId, actual));
        _expectSilence();
    }
}
