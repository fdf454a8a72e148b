// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proving} from "./Proving.sol";

/// @notice Who took a task that no worker can run is convicted by it, and nobody by one that any worker can.
/// forge-config: default.isolate = true
contract ProverBoundsTest is Proving {
    uint32 private constant CONTEXT = 4096;

    function test_outOfBounds_convictsOfSamplingThatIsNone() public {
        _expectTaken(Sampling(2_000_001, 0, 1_000_000, 0));
        _expectTaken(Sampling(0, 0, 0, 0));
        _expectTaken(Sampling(0, 0, 1_000_001, 0));
        _expectTaken(Sampling(0, 0, 1_000_000, 1_000_001));
    }

    function test_outOfBounds_convictsOfMoreThanTheContext() public {
        Whole memory w = _most(1, CONTEXT - 6 + 1);
        _bounds(w, 0, 1, 0, "");
        _note("outOfBounds");
        _expectConvicted(w, 0, VerdictLib.OUT_OF_BOUNDS);
    }

    function test_outOfBounds_convictsOfNoNewToken() public {
        Whole memory w = _most(0, 0);
        _bounds(w, 0, 0, 0, "");
        _expectConvicted(w, 0, VerdictLib.OUT_OF_BOUNDS);
    }

    /// @notice Nothing of the piece is looked at: an item without a prompt has none.
    function test_outOfBounds_convictsOfNoPrompt() public {
        Whole memory w = _honest(_greedy);
        w.sides[0].items[0].length = 0;
        _rehash(w.sides[0]);
        _recommit(w);
        Piece memory nothing;
        _callBounds(w, 0, _given(w, 0, 0), 0, nothing, "");
        _expectConvicted(w, 0, VerdictLib.OUT_OF_BOUNDS);
    }

    function test_outOfBounds_convictsOfAPromptTokenThatIsNone() public {
        vocabulary = 15; // prompts count up to 15, again and again
        Whole memory w = _honest(_greedy);
        uint256 before = vm.snapshotState();
        _bounds(w, 0, 0, 15, "");
        _expectConvicted(w, 0, VerdictLib.OUT_OF_BOUNDS);
        vm.revertToState(before);
        for (uint256 at = 0; at < 40; ++at) {
            if (at % 16 != 15) _bounds(w, 0, 0, at, _plain(IProver.NothingDiffers.selector));
        }
        _expectSilence();
        _bounds(w, 0, 0, 31, "");
        _expectConvicted(w, 0, VerdictLib.OUT_OF_BOUNDS);
    }

    /// @notice A member that committed to what nobody can run is none that computed.
    function test_outOfBounds_convictsAMember() public {
        Whole memory w = _honest(_greedy);
        w.sides[2].items[1].sampling.topP = 0;
        _rehash(w.sides[2]);
        _make(w, 2);
        _sealMember(w, 2);
        uint256 before = vm.snapshotState();
        _bounds(w, 2, 1, 0, "");
        _expectConvicted(w, 2, VerdictLib.OUT_OF_BOUNDS);
        vm.revertToState(before);
        _bounds(w, 2, 0, 0, _plain(IProver.NothingDiffers.selector));
        _bounds(w, 1, 1, 0, _plain(IProver.NothingDiffers.selector));
        _expectSilence();
    }

    function test_outOfBounds_refusesHonestTasksAtEveryToken() public {
        Whole memory w = _honest(_greedy);
        for (uint256 k = 0; k < 4; ++k) {
            for (uint256 at = 0; at < w.sides[k].prompts[0].length; ++at) {
                _bounds(w, k, 0, at, _plain(IProver.NothingDiffers.selector));
            }
        }
        _expectSilence();
    }

    function test_outOfBounds_refusesWhatLiesAtEachBound() public {
        Whole memory w = _honest(Sampling(2_000_000, type(uint32).max, 1, 1_000_000));
        w.sides[0].items[1].maxNewTokens = CONTEXT - 6;
        _rehash(w.sides[0]);
        _recommit(w);
        _bounds(w, 0, 1, 0, _plain(IProver.NothingDiffers.selector));
        w = _honest(Sampling(0, 0, 1_000_000, 0));
        _bounds(w, 0, 1, 0, _plain(IProver.NothingDiffers.selector));
        _expectSilence();
    }

    function test_outOfBounds_refusesWhatIsNotTheParties() public {
        Whole memory w = _honest(Sampling(0, 0, 0, 0));
        Piece memory piece = _piece(0, w.prompts[0], 3);
        Given memory given = _given(w, 1, 0);
        _callBounds(w, 0, given, 3, piece, _invalid("inner"));
        given = _given(w, 0, 0);
        _callBounds(w, 4, given, 3, piece, _invalid("party"));
        given.task.lock += 1;
        _callBounds(w, 0, given, 3, piece, _invalid("task"));
        given.task.lock -= 1;
        given.index = 1;
        _callBounds(w, 0, given, 3, piece, _invalid("item"));
        w = _honest(_greedy);
        given = _given(w, 0, 0);
        _callBounds(w, 0, given, 33, piece, _invalid("piece"));
        _callBounds(w, 0, given, 40, piece, _invalid("piece"));
        piece.tokens[3] ^= 0x01;
        _callBounds(w, 0, given, 3, piece, _invalid("piece"));
        _expectSilence();
    }

    /// @notice What another model cannot run is no fault of who runs this one: its scheduler's, by `taskDiffers`.
    function test_outOfBounds_refusesATaskOfAnotherModel() public {
        Whole memory w = _most(0, CONTEXT);
        w.sides[0].task.modelId = ModelId.wrap(keccak256("another"));
        _rehash(w.sides[0]);
        _recommit(w);
        _bounds(w, 0, 0, 0, _invalid("model"));
        w.spec.context = 2 * CONTEXT;
        bytes4 selector = IProver.SpecMismatch.selector;
        ModelId actual = ModelId.wrap(keccak256(abi.encode(w.spec)));
        _bounds(w, 0, 0, 0, abi.encodeWithSelector(selector, w.posting.quote.modelId, actual));
        _expectSilence();
    }

    /// @notice Where client and scheduler ask for what nobody can run and give the worker what it can, they cannot
    /// make the worker pay for it.
    function test_outOfBounds_ofTheRequestAlone_isTheSchedulersFault() public {
        Whole memory w = _honest(Sampling(0, 0, 0, 0));
        for (uint256 q = 0; q < REQUESTS; ++q) {
            w.sides[0].items[q].sampling = _greedy;
        }
        _rehash(w.sides[0]);
        _recommit(w);
        _bounds(w, 0, 0, 0, _plain(IProver.NothingDiffers.selector));
        _expectSilence();
        _task(w, 0, 0, 0);
        _expectConvicted(w, SCHEDULER, VerdictLib.TASK_DIFFERS);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    /// @dev Inferencer and committee took what this asks for.
    function _expectTaken(Sampling memory sampling) private {
        Whole memory w = _honest(sampling);
        uint256 before = vm.snapshotState();
        for (uint8 k = 0; k < 4; ++k) {
            _bounds(w, k, 1, 0, "");
            _expectConvicted(w, k, VerdictLib.OUT_OF_BOUNDS);
            vm.revertToState(before);
        }
    }

    /// @dev The inferencer took an item of at most this many new tokens.
    function _most(uint256 q, uint32 newTokens) private view returns (Whole memory w) {
        w = _honest(_greedy);
        w.sides[0].items[q].maxNewTokens = newTokens;
        _rehash(w.sides[0]);
        _recommit(w);
    }
}
