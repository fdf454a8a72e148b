// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proofs} from "./Proofs.sol";
import {Trees} from "./Trees.sol";

/// @notice A network that remembers what it was asked to do.
contract Ear is IProvable {
    uint256 public calls;
    uint8 public party;
    uint8 public reason;
    address public finder;
    bytes32 public about;
    bool public overruled;
    mapping(address key => address operator) public operatorOf;

    function setKey(address key, address operator) external {
        operatorOf[key] = operator;
    }

    function jobIdOf(Job calldata job) external pure returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }

    function convict(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party_,
        uint8 reason_,
        address finder_
    ) external {
        (party, reason, finder) = (party_, reason_, finder_);
        about = keccak256(abi.encode(posting, sealing, claiming));
        ++calls;
    }

    function overrule(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        address finder_
    ) external {
        (overruled, finder) = (true, finder_);
        about = keccak256(abi.encode(posting, sealing, claiming));
        ++calls;
    }
}

/// @notice Each proof convicts who did it, and no honest twin: a refused proof changes nothing.
/// @dev Calls are transactions of their own, so that what a proof costs is seen; what the network then does is not in.
/// forge-config: default.isolate = true
contract ProverTest is Proofs {
    uint8 private constant SCHEDULER = 255;
    uint256 private constant PPM = 1_000_000;
    IProver private prover;
    Ear private ear;
    address private finder;
    Sampling private _greedy = Sampling(0, 0, 1_000_000, 0);

    function setUp() public {
        ear = new Ear();
        bytes memory code = vm.getCode("Prover.sol:Prover");
        address at;
        assembly ("memory-safe") {
            at := create(0, add(code, 32), mload(code))
        }
        prover = IProver(at);
        finder = person("finder");
    }

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

    // ── Margins on the inferencer's own state ───────────────────────────────────────────────────

    function test_marginOwn_slashesATokenThatItsOwnStateDoesNotChoose() public {
        Whole memory w = _honest(_greedy);
        _tell(w, 0, 2, 11);
        uint256 position = w.prompts[0].length + 1;
        _own(w, 0, position, 11, BEST, "");
        _expectConvicted(w, 0, VerdictLib.MARGIN_MAX);
    }

    function test_marginOwn_refusesTheBestTokenAtEveryGeneratedPosition() public {
        Whole memory w = _honest(_greedy);
        uint256 first = w.prompts[2].length - 1;
        for (uint256 i = 0; i < NEW; ++i) {
            // The nearest rival is one logit behind; rounding: 2 rows · 32 products · 15 · 2^-24, and constants.
            bytes memory refusal = _within(-1_000_000, 400_000 + _rounding(BEST + BEST - 1));
            _own(w, 2, first + i, BEST, BEST - 1, refusal);
            _own(w, 2, first + i, BEST, BEST, _within(0, 400_000 + _rounding(2 * BEST)));
        }
        _expectSilence();
    }

    function test_marginOwn_refusesPositionsThatGeneratedNothing() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].tokens[0] = _copy(w.sides[0].tokens[0]);
        w.sides[0].tokens[0][38] = 3;
        _recommit(w);
        _own(w, 0, 37, 3, BEST, _invalid("position"));
        _expectSilence();
    }

    /// @notice With noise and without truncation the engine's own rule decides; here in Solidity for every rival.
    /// forge-config: default.fuzz.runs = 16
    /// forge-config: ci.fuzz.runs = 500
    function test_marginOwn_refusesEveryRivalOfASampledToken(bytes32 salt) public {
        Sampling memory sampling = Sampling(1_500_000, 0, 1_000_000, 0);
        Whole memory w = _honest(sampling);
        uint256 q = uint256(salt) % REQUESTS;
        uint256 position = w.prompts[q].length + uint256(salt >> 8) % (NEW - 1);
        uint32 best = _sampled(w, q, position);
        w.outputs[q] = _copy(w.outputs[q]);
        _tell(w, q, position + 1 - w.prompts[q].length, best);
        for (uint32 rival = 0; rival < VOCABULARY; ++rival) {
            bytes memory refusal = _tokenError(w, q, position, best, rival);
            _own(w, q, position, best, rival, refusal);
        }
        _expectSilence();
        uint32 other = (best + 1) % VOCABULARY;
        Margin memory found = _marginOf(w, q, position, other, best);
        if (found.margin <= int256(400_000 + found.rounding)) return;
        _tell(w, q, position + 1 - w.prompts[q].length, other);
        _own(w, q, position, other, best, "");
        _expectConvicted(w, 0, VerdictLib.MARGIN_MAX);
    }

    function test_marginOwn_underTruncation_countsOnlyRivalsClearlyAbove() public {
        Sampling memory sampling = Sampling(1, 3, 1_000_000, 0); // next to no noise
        Whole memory w = _honest(sampling);
        _tell(w, 1, 1, BEST - 1);
        uint256 position = w.prompts[1].length;
        // One logit above is not clearly above: τ is 1.5.
        bytes4 selector = IProver.NotARival.selector;
        bytes memory refusal = abi.encodeWithSelector(selector, int256(1_000_000), 1_500_000);
        _own(w, 1, position, BEST - 1, BEST, refusal);
        _expectSilence();
        _tell(w, 1, 1, BEST - 2);
        _own(w, 1, position, BEST - 2, BEST, "");
        _expectConvicted(w, 0, VerdictLib.MARGIN_MAX);
    }

    function test_marginOwn_refusesAHeadWithoutTokenProof() public {
        Whole memory w = _honest(_greedy);
        w.spec.tokenProof = false;
        _another(w);
        _own(w, 0, 40, BEST, 3, abi.encodeWithSelector(IProver.NoTokenProof.selector, _model(w)));
        w = _honest(_greedy);
        w.spec.headScale = 2_000_000;
        _another(w);
        _own(w, 0, 40, BEST, 3, abi.encodeWithSelector(IProver.NoTokenProof.selector, _model(w)));
    }

    function test_marginOwn_refusesAnotherStateAndOtherRows() public {
        Whole memory w = _honest(_greedy);
        _tell(w, 0, 2, 11);
        uint256 position = w.prompts[0].length + 1;
        bytes memory state = _state(0, position);
        state[1] = 0x81;
        _callOwn(w, 0, position, state, _rival(11, BEST), _invalid("finalState"));
        state = abi.encodePacked(_state(0, position), bytes32(0));
        _callOwn(w, 0, position, state, _rival(11, BEST), _invalid("finalState"));
        state = _state(0, position);
        Rival memory rival = _rival(11, BEST);
        rival.token = rival.rival;
        _callOwn(w, 0, position, state, rival, _invalid("row"));
        rival = _rival(11, BEST);
        rival.id = BEST - 1;
        _callOwn(w, 0, position, state, rival, _invalid("row"));
        rival = _rival(11, BEST);
        rival.rival.bits = abi.encodePacked(rival.rival.bits, bytes32(0));
        _callOwn(w, 0, position, state, rival, _invalid("row"));
        rival = _rival(11, BEST);
        rival.rival.bits[1] = 0x71;
        _callOwn(w, 0, position, state, rival, _invalid("row"));
        _expectSilence();
    }

    function test_marginOwn_refusesAStateThatIsNotFinite_orProductsTooLarge() public {
        for (uint256 i = 0; i < 2; ++i) {
            _odd = i == 0 ? bytes2(0x7f80) : bytes2(0x7f00); // infinite; 2^127, times rows of 1 and more
            Whole memory w = _honest(_greedy);
            bytes4 selector = i == 0 ? IProver.NotFinite.selector : IProver.ProductTooLarge.selector;
            _own(w, 0, 40, BEST, 3, abi.encodeWithSelector(selector));
        }
        _expectSilence();
    }

    // ── Margins on a committee majority's states ────────────────────────────────────────────────

    function test_marginCommittee_overrulesATokenThatAMajoritysStatesDoNotChoose() public {
        Whole memory w = _honest(_greedy);
        uint256 q = _checkedWith(w, 2, 11);
        uint256 position = w.prompts[q].length + 1;
        uint256 before = vm.snapshotState();
        _committee(w, q, position, 11, BEST, 0x6, "");
        _expectOverruled(w);
        vm.revertToState(before);
        _committee(w, q, position, 11, BEST, 0xe, "");
        _expectOverruled(w);
        vm.revertToState(before);
        _committee(w, q, position, 11, BEST, 0xa, "");
        _expectOverruled(w);
    }

    function test_marginCommittee_refusesTheTokenThatTheStatesChoose() public {
        Whole memory w = _honest(_greedy);
        for (uint256 i = 0; i < w.checked.length; ++i) {
            uint256 q = w.checked[i];
            for (uint256 n = 0; n < NEW; ++n) {
                uint256 position = w.prompts[q].length - 1 + n;
                _committee(w, q, position, BEST, BEST - 1, 0x6, _within(-1_000_000, 250_000));
            }
        }
        _expectSilence();
    }

    function test_marginCommittee_needsAMajority() public {
        Whole memory w = _honest(_greedy);
        uint256 q = _checkedWith(w, 2, 11);
        bytes memory refusal = abi.encodeWithSelector(IProver.TooFewMembers.selector, 1, 2);
        _committee(w, q, w.prompts[q].length + 1, 11, BEST, 0x4, refusal);
        Witness[] memory witnesses = _witnesses(w, q, w.prompts[q].length + 1, 0x6);
        witnesses[1] = witnesses[0];
        refusal = abi.encodeWithSelector(IProver.PartiesNotAscending.selector, 1);
        _callCommittee(w, q, witnesses, _rival(11, BEST), refusal);
        _expectSilence();
    }

    /// @notice Members that were handed other tokens, or ran them, say nothing about this output.
    function test_marginCommittee_refusesMembersOfAnotherPrompt() public {
        Whole memory w = _honest(_greedy);
        uint256 q = _checkedWith(w, 2, 11);
        uint256 position = w.prompts[q].length + 1;
        Witness[] memory witnesses = _witnesses(w, q, position, 0x6);
        uint256 place = witnesses[1].given.index;
        uint32[] memory tokens = _copy(w.sides[2].prompts[place]);
        tokens[0] += 1;
        w.sides[2].items[place].tokensRoot = _tokensRoot(_salt(q), tokens);
        _rehash(w.sides[2]);
        _make(w, 2);
        _sealMember(w, 2);
        witnesses = _witnesses(w, q, position, 0x6);
        _callCommittee(w, q, witnesses, _rival(11, BEST), _invalid("verification"));
        _expectSilence();
    }

    function test_marginCommittee_refusesPromptPositionsAndOtherTokens() public {
        Whole memory w = _honest(_greedy);
        uint256 q = _checkedWith(w, 2, 11);
        uint256 position = w.prompts[q].length - 2;
        _committee(w, q, position, BEST, BEST - 1, 0x6, _invalid("position"));
        position = w.prompts[q].length + 1;
        Witness[] memory witnesses = _witnesses(w, q, position, 0x6);
        witnesses[1].entry = _entry(w, 2, witnesses[1].given.index, position - 1);
        _callCommittee(w, q, witnesses, _rival(11, BEST), _invalid("position"));
        witnesses = _witnesses(w, q, position, 0x6);
        witnesses[1].entry.token += 1;
        _callCommittee(w, q, witnesses, _rival(11, BEST), _invalid("token"));
        witnesses = _witnesses(w, q, position, 0x6);
        witnesses[1].entry.next += 1;
        _callCommittee(w, q, witnesses, _rival(11, BEST), _invalid("entry"));
        _expectSilence();
    }

    // ── Calls ───────────────────────────────────────────────────────────────────────────────────

    bytes2 private _odd;

    function _state(uint256 k, uint256 position)
        internal
        view
        override
        returns (bytes memory state)
    {
        state = super._state(k, position);
        if (_odd != 0) (state[0], state[1]) = (_odd[0], _odd[1]);
    }

    function _jobId(Job memory job) internal pure override returns (JobId) {
        return JobId.wrap(keccak256(abi.encode(job)));
    }

    /// @dev The network hears what comes next, or the call reverts with exactly `refusal`.
    function _expect(bytes memory refusal) private {
        if (refusal.length != 0) vm.expectRevert(refusal);
        vm.prank(finder);
    }

    function _plain(bytes4 selector) private pure returns (bytes memory) {
        return selector == 0 ? bytes("") : abi.encodeWithSelector(selector);
    }

    function _lengths(Whole memory w, uint256 k, uint256 i, bytes4 refusal) private {
        _callLengths(w, k, _given(w, k, i), _made(w, k, i), _plain(refusal));
    }

    function _callLengths(
        Whole memory w,
        uint256 k,
        Given memory given,
        Made memory made,
        bytes memory refusal
    ) private {
        _expect(refusal);
        prover.lengthsDiffer(address(ear), w.posting, w.sealing, w.claiming, uint8(k), given, made);
    }

    function _traceAt(
        Whole memory w,
        uint256 k,
        uint256 i,
        uint256 at,
        uint256 position,
        bytes4 refusal
    ) private {
        uint256 q = k == 0 ? i : w.checked[i];
        Piece memory piece = _piece(q, w.sides[k].prompts[i], at);
        Entry memory entry = _entry(w, k, i, position);
        _callTrace(w, k, _given(w, k, i), _made(w, k, i), uint32(at), piece, entry, _plain(refusal));
    }

    function _callTrace(
        Whole memory w,
        uint256 k,
        Given memory given,
        Made memory made,
        uint32 at,
        Piece memory piece,
        Entry memory entry,
        bytes memory refusal
    ) private {
        _expect(refusal);
        prover.traceDiffers(
            address(ear), w.posting, w.sealing, w.claiming, uint8(k), given, made, at, piece, entry
        );
    }

    function _outputAt(Whole memory w, uint256 q, uint256 position, bytes4 refusal) private {
        Entry memory entry = _entry(w, 0, q, position);
        _callOutput(w, q, _made(w, 0, q), _packed(w.outputs[q]), entry, _plain(refusal));
    }

    function _callOutput(
        Whole memory w,
        uint256 q,
        Made memory made,
        bytes memory output,
        Entry memory entry,
        bytes memory refusal
    ) private {
        _expect(refusal);
        prover.outputDiffers(
            address(ear), w.posting, w.sealing, w.claiming, uint32(q), made, output, entry
        );
    }

    function _end(Whole memory w, uint256 q, uint32 at, bytes memory refusal) private {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        bytes memory output = _packed(w.outputs[q]);
        _expect(refusal);
        prover.afterEnd(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, given, made, output, at
        );
    }

    function _task(Whole memory w, uint256 k, uint256 i, bytes4 refusal) private {
        uint256 q = k == 0 ? i : w.checked[i];
        _callTask(w, k, _given(w, k, i), _asked(w, q), _output(w, q), _plain(refusal));
    }

    function _callTask(
        Whole memory w,
        uint256 k,
        Given memory given,
        Asked memory asked,
        Output memory output,
        bytes memory refusal
    ) private {
        _expect(refusal);
        prover.taskDiffers(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, uint8(k), given, asked, output
        );
    }

    function _prompt(Whole memory w, uint256 k, uint256 i, uint256 at, bytes4 refusal) private {
        uint256 q = w.checked[i];
        Told memory told;
        told.at = uint32(at);
        told.given = _piece(q, w.sides[k].prompts[i], at);
        if (at < w.prompts[q].length) told.asked = _piece(q, w.prompts[q], at);
        _callPrompt(w, k, q, _given(w, k, i), told, _plain(refusal));
    }

    function _callPrompt(
        Whole memory w,
        uint256 k,
        uint256 q,
        Given memory given,
        Told memory told,
        bytes memory refusal
    ) private {
        Asked memory asked = _asked(w, q);
        Output memory output = _output(w, q);
        _expect(refusal);
        prover.promptDiffers(
            address(ear),
            w.posting,
            w.sealing,
            w.claiming,
            w.spec,
            uint8(k),
            given,
            asked,
            told,
            output
        );
    }

    function _callOutputs(
        Whole memory w,
        uint32 q,
        bytes32 hash,
        bytes32[] memory path,
        bytes memory refusal
    ) private {
        Made memory made = _made(w, 0, q);
        _expect(refusal);
        prover.outputsDiffer(address(ear), w.posting, w.sealing, w.claiming, q, made, hash, path);
    }

    function _receipt(Whole memory w, uint32 q, bytes32 hash)
        private
        pure
        returns (Receipt memory)
    {
        return Receipt(_jobId(w.posting.job), w.sides[0].task.taskId, q, hash);
    }

    function _sign(Receipt memory receipt, uint256 key) private view returns (bytes memory) {
        bytes32 kind =
            keccak256("Receipt(bytes32 jobId,bytes32 taskId,uint32 request,bytes32 outputHash)");
        bytes32 separator = keccak256(
            abi.encode(
                keccak256(
                    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
                ),
                keccak256("VeriLLM"),
                keccak256("1"),
                block.chainid,
                address(ear)
            )
        );
        bytes32 structHash = keccak256(abi.encode(kind, receipt));
        return signature(key, keccak256(abi.encodePacked(hex"1901", separator, structHash)));
    }

    function _callReceipt(
        Whole memory w,
        Receipt memory receipt,
        bytes memory signed,
        bytes memory refusal
    ) private {
        bytes32[] memory path = Trees.path(w.outputLeaves, receipt.request);
        bytes32 hash = w.outputHashes[receipt.request];
        _expect(refusal);
        prover.receiptDiffers(
            address(ear), w.posting, w.sealing, w.claiming, receipt, signed, hash, path
        );
    }

    function _own(
        Whole memory w,
        uint256 q,
        uint256 position,
        uint32 token,
        uint32 rival,
        bytes memory refusal
    ) private {
        _callOwn(w, q, position, _state(0, position), _rival(token, rival), refusal);
    }

    function _callOwn(
        Whole memory w,
        uint256 q,
        uint256 position,
        bytes memory state,
        Rival memory rival,
        bytes memory refusal
    ) private {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        Entry memory entry = _entry(w, 0, q, position);
        _expect(refusal);
        prover.marginOwn(
            address(ear), w.posting, w.sealing, w.claiming, w.spec, given, made, entry, state, rival
        );
    }

    function _witnesses(Whole memory w, uint256 q, uint256 position, uint256 who)
        private
        view
        returns (Witness[] memory witnesses)
    {
        uint256 place = w.checked[0] == q ? 0 : 1;
        uint256 count = 0;
        for (uint256 k = 1; k < 4; ++k) {
            count += (who >> k) & 1;
        }
        witnesses = new Witness[](count);
        count = 0;
        for (uint256 k = 1; k < 4; ++k) {
            if ((who >> k) & 1 == 0) continue;
            witnesses[count++] = Witness(
                uint8(k),
                _given(w, k, place),
                _made(w, k, place),
                _entry(w, k, place, position),
                _state(k, position)
            );
        }
    }

    function _committee(
        Whole memory w,
        uint256 q,
        uint256 position,
        uint32 token,
        uint32 rival,
        uint256 who,
        bytes memory refusal
    ) private {
        Witness[] memory witnesses = _witnesses(w, q, position, who);
        _callCommittee(w, q, witnesses, _rival(token, rival), refusal);
    }

    function _callCommittee(
        Whole memory w,
        uint256 q,
        Witness[] memory witnesses,
        Rival memory rival,
        bytes memory refusal
    ) private {
        Given memory given = _given(w, 0, q);
        Made memory made = _made(w, 0, q);
        bytes memory tokens = abi.encodePacked(_packed(w.prompts[q]), _packed(w.outputs[q]));
        _expect(refusal);
        prover.marginCommittee(
            address(ear),
            w.posting,
            w.sealing,
            w.claiming,
            w.spec,
            given,
            made,
            tokens,
            witnesses,
            rival
        );
    }

    // ── Changes ─────────────────────────────────────────────────────────────────────────────────

    /// @dev The inferencer commits anew to what it has, and all that follows is done again.
    function _recommit(Whole memory w) private view {
        _make(w, 0);
        _repost(w);
    }

    function _repost(Whole memory w) private view {
        _post(w);
        _verify(w);
    }

    /// @dev The inferencer chooses another token, in output and trace.
    function _tell(Whole memory w, uint256 q, uint256 index, uint32 token) private view {
        w.outputs[q] = _copy(w.outputs[q]);
        w.outputs[q][index] = token;
        w.sides[0].tokens[q] = _concat(w.prompts[q], w.outputs[q], NEW);
        _recommit(w);
    }

    /// @dev The same for a request that is checked, whichever that is afterwards.
    function _checkedWith(Whole memory w, uint256 index, uint32 token)
        private
        view
        returns (uint256 q)
    {
        for (q = 0; q < REQUESTS; ++q) {
            _tell(w, q, index, token);
        }
        return w.checked[1];
    }

    /// @dev The job of the spec as it is.
    function _another(Whole memory w) private view {
        w.posting.quote.modelId = _model(w);
        _give(w, 0);
        _recommit(w);
    }

    function _shorter(Item[] memory items) private pure returns (Item[] memory fewer) {
        fewer = new Item[](items.length - 1);
        for (uint256 i = 0; i < fewer.length; ++i) {
            fewer[i] = items[i];
        }
    }

    function _copy(uint32[] memory tokens) private pure returns (uint32[] memory) {
        return _concat(tokens, tokens, 0);
    }

    function _note(string memory proof) private {
        assertLt(vm.snapshotGasLastCall("proofs", proof), 15_000_000);
    }

    // ── What is expected ────────────────────────────────────────────────────────────────────────

    function _expectConvicted(Whole memory w, uint256 party, uint8 reason) private view {
        assertEq(ear.party(), party, "party");
        assertEq(ear.reason(), reason, "reason");
        assertEq(ear.finder(), finder, "finder");
        assertEq(ear.about(), keccak256(abi.encode(w.posting, w.sealing, w.claiming)), "about");
        assertFalse(ear.overruled());
    }

    function _expectOverruled(Whole memory w) private view {
        assertTrue(ear.overruled());
        assertEq(ear.finder(), finder, "finder");
        assertEq(ear.about(), keccak256(abi.encode(w.posting, w.sealing, w.claiming)), "about");
    }

    function _expectSilence() private view {
        assertEq(ear.calls(), 0, "the network heard nothing");
    }

    function _invalid(bytes32 fact) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IProver.ProofInvalid.selector, fact);
    }

    function _within(int256 margin, uint256 allowed) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IProver.MarginWithin.selector, margin, allowed);
    }

    function _model(Whole memory w) private pure returns (ModelId) {
        return ModelId.wrap(keccak256(abi.encode(w.spec)));
    }

    /// @dev What float32 may round of two logits that add up to `magnitudes`.
    function _rounding(uint256 magnitudes) private view returns (uint256) {
        return (((((magnitudes << 84) >> 24) + 1) * (hidden + 32) * PPM) >> 84) + 32;
    }

    function _marginOf(Whole memory w, uint256 q, uint256 position, uint32 token, uint32 rival)
        private
        view
        returns (Margin memory)
    {
        return prover.marginOf(
            _state(0, position),
            _row(token),
            _row(rival),
            w.sides[0].items[q].seed,
            uint32(position),
            token,
            rival,
            w.sampling.temperature
        );
    }

    /// @dev The token with the best score.
    function _sampled(Whole memory w, uint256 q, uint256 position)
        private
        view
        returns (uint32 best)
    {
        for (uint32 rival = 1; rival < VOCABULARY; ++rival) {
            if (_marginOf(w, q, position, best, rival).margin > 0) best = rival;
        }
    }

    function _tokenError(Whole memory w, uint256 q, uint256 position, uint32 token, uint32 rival)
        private
        view
        returns (bytes memory)
    {
        Margin memory found = _marginOf(w, q, position, token, rival);
        assertLe(found.margin, 0, "the best has no rival");
        return _within(found.margin, 400_000 + found.rounding);
    }
}
