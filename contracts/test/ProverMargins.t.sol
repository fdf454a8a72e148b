// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IProver.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Proving} from "./Proving.sol";

/// @notice A token that a state does not choose convicts or overrules, and no honest twin.
/// @dev Calls are transactions of their own, so that what a proof costs is seen; what the network then does is not in.
/// forge-config: default.isolate = true
contract ProverMarginsTest is Proving {
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
}
