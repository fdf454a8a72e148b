// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../../src/interfaces/IAdjudicator.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Cases} from "../Cases.sol";

/// @notice The verdict before the money, and what may still be said in between.
contract DisputesTest is Cases {
    // ── The way in ──────────────────────────────────────────────────────────────────────────────

    function test_challenge_opensARoundWithItsWindows() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        uint40 start = uint40(vm.getBlockTimestamp());
        uint40 window = terms.openingWindow;
        vm.expectCall(
            address(adjudicator),
            abi.encodeCall(
                IAdjudicator.open,
                (c.id, _record(c), start + window / 2, start + window, start + 2 * window)
            )
        );
        vm.expectEmit(address(network));
        emit ILedger.ChallengeOpened(c.id, challenger, start + window, c.claiming.beacon, 0);
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
    }

    function test_challenge_ofAnUnclaimedJob_revertsForAnotherSeal() public {
        Case memory c = _unclaimed();
        c.sealing.fee = MAX_FEE;
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
    }

    // ── Two steps ───────────────────────────────────────────────────────────────────────────────

    function test_adjudicate_paysNobodyAndTellsTheVerdict() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _opened(Outcome.Accept, 0);
        uint256 before = _balance(workers[0]);
        uint256 settleAfter = vm.getBlockTimestamp() + terms.disputeWindow;
        vm.expectEmit(address(network));
        emit ILedger.Judged(c.id, Outcome.Slash, VerdictLib.STATES_DIFFER, 0, 7, settleAfter);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        (Status status, uint40 deadline,) = network.jobState(c.id);
        assertEq(uint8(status), uint8(Status.Judged));
        assertEq(deadline, settleAfter);
        assertEq(_balance(workers[0]), before, "nothing is paid yet");
        assertEq(_locked(workers[0]), LOCK, "nor unlocked");
        _settle(c);
        assertEq(_balance(workers[0]), before - LOCK);
        _assertConserved();
    }

    function test_deadlineGuard_settleRevertsWithinTheWindow() public {
        Case memory c = _judged(Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, deadline));
        network.settle(c.posting, c.sealing, c.claiming);
    }

    function test_settle_revertsBeforeAVerdictAndTwice() public {
        Case memory c = _opened(Outcome.Accept, 0);
        _expectStatus(c, Status.Challenged, Status.Judged);
        network.settle(c.posting, c.sealing, c.claiming);
        _adjudicate(c);
        _expectStatus(c, Status.Final, Status.Judged);
        network.settle(c.posting, c.sealing, c.claiming);
    }

    function test_settle_revertsForAnotherClaim() public {
        Case memory c = _judged(Outcome.Accept, 0);
        c.claiming.paid = 0;
        pass(terms.disputeWindow);
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        network.settle(c.posting, c.sealing, c.claiming);
    }

    function test_settle_paysWhoCallsIt() public {
        Case memory c = _judged(Outcome.Accept, 0);
        pass(terms.disputeWindow);
        address stranger = person("stranger");
        vm.prank(stranger);
        network.settle(c.posting, c.sealing, c.claiming);
        assertGt(_balance(stranger), 0);
    }

    // ── The committee's word, brought later ─────────────────────────────────────────────────────

    function test_attest_saysWhatAWeakChallengeLeftOut() public {
        Case memory c = _opened(Outcome.Accept, 0);
        address stranger = person("stranger");
        vm.prank(stranger);
        _attest(c, 7, 3);
        (Outcome outcome, uint8 reason) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, 7);
        assertEq(_balance(stranger), terms.claimBond, "who brought it");
        assertEq(_balance(challenger), STAKE, "the weak challenge gets its bond, and no more");
        assertEq(_balance(claimer), STAKE - terms.claimBond);
    }

    function test_attest_isHeardAfterTheOpeningsToo() public {
        Case memory c = _opened(Outcome.Accept, 0);
        (, uint40 openBy,) = network.jobState(c.id);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        vm.warp(openBy);
        vm.expectEmit(address(network));
        emit ILedger.Supported(c.id, person("stranger"), 7, openBy);
        vm.prank(person("stranger"));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
    }

    function test_attest_isPossibleUntilTheVerdictsWindowEndsAndOpensItAnew() public {
        Case memory c = _judged(Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        vm.warp(deadline - 1);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
        (, uint40 later,) = network.jobState(c.id);
        assertEq(later, deadline - 1 + terms.disputeWindow);
        (Outcome outcome,) = _settle(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
    }

    function test_deadlineGuard_attestRevertsAfterTheVerdictsWindow() public {
        Case memory c = _judged(Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
    }

    function test_attest_revertsTwiceWithoutAMajorityOrAReason() public {
        Case memory c = _opened(Outcome.Accept, 0);
        bytes[] memory one = _attestations(c, Outcome.Refund, 7, 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AttestationsInsufficient.selector, 1, 2));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, one);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Slash, 1, BUNDLE, one);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.None, 0, BUNDLE, one);
        bytes[] memory two = _attestations(c, Outcome.Refund, 7, 3);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, two);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AlreadySupported.selector, c.id, 7));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, two);
    }

    function test_attest_revertsWhereNoRoundIsOpen() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        _expectStatus(c, Status.Claimed, Status.Challenged);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
    }

    function test_attest_leavesASlashByStatesToTheChallenger() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _opened(Outcome.Accept, 0);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        vm.prank(person("stranger"));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Slash));
        assertEq(_balance(person("stranger")), 0);
        assertEq(_balance(challenger), STAKE + terms.claimBond + c.sealing.fee);
    }

    function test_attest_leavesARefundByStatesToTheChallengerToo() public {
        kinds[workers[0]] = Kind.Coarse;
        Case memory c = _opened(Outcome.Accept, 0);
        bytes[] memory words = _attestations(c, Outcome.Refund, 7, 3);
        vm.prank(person("stranger"));
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, words);
        (Outcome outcome, uint8 reason) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, VerdictLib.STATES_DIFFER, "not the committee's");
        assertEq(_balance(person("stranger")), 0);
        assertEq(_balance(challenger), STAKE + terms.claimBond);
    }

    /// @notice Where everybody opened, who is paid is as much of a claim as its outcome.
    function test_claimThatPaysTooFew_isNotUpheld() public {
        Case memory c = _committed();
        _claimWith(c, Outcome.Accept, 0, 3, new bytes[](0));
        _challenge(c);
        _openAll(c);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        assertEq(_balance(challenger), STAKE + terms.claimBond);
        assertGt(_balance(c.parties[3].owner), STAKE, "paid all the same");
        _assertConserved();
    }

    // ── A round that nobody opened for gain ─────────────────────────────────────────────────────

    function test_unclaimedJob_challengedByItsOwnScheduler_paysWhoOpened() public {
        Case memory c = _unclaimed();
        vm.prank(scheduler);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        _openAll(c);
        _adjudicate(c);
        assertLt(_balance(scheduler), STAKE - terms.claimBond + c.sealing.fee, "no way around");
        assertGt(_balance(c.parties[1].owner), STAKE + terms.claimBond / 5, "to who opened");
        _assertConserved();
    }

    /// @notice Whatever a round finds: money in is money out and burnt, and nothing stays locked.
    function test_fuzz_settle_losesNothing(uint8 kind, uint8 who, uint8 silent, uint8 claimed)
        public
    {
        kinds[workers[who % 5]] = Kind(kind % 4);
        Outcome outcome = Outcome(1 + claimed % 4);
        uint8 reason = 0;
        if (outcome == Outcome.Refund || outcome == Outcome.Slash) reason = 1;
        if (outcome == Outcome.Inconclusive) reason = VerdictLib.DIVIDED;
        if (claimed > 200 && outcome == Outcome.Slash) reason = VerdictLib.WITHHELD;
        Case memory c = _claimed(outcome, reason);
        _challenge(c);
        _reveal(c);
        if (silent % 16 != 0) _compareAll(c, silent % 16);
        pass(2 * terms.openingWindow);
        _adjudicate(c);
        _assertConserved();
    }
}

/// @notice Every job is drawn for a public round.
contract ForcedTest is Cases {
    function _terms() internal view override returns (Config memory config) {
        config = super._terms();
        config.forcedEvery = 1;
    }

    function test_finalize_revertsForAForcedRound() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        pass(terms.disputeWindow);
        vm.expectRevert(abi.encodeWithSelector(ILedger.RoundForced.selector, c.id));
        network.finalize(c.posting, c.sealing, c.claiming);
    }

    function test_forcedRound_needsNoBondAndPaysWhoOpensTheSchedulersShare() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        pass(30 * terms.disputeWindow); // at any time: nothing else ends it
        address poor = person("poor");
        vm.prank(poor);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        _openAll(c);
        _adjudicate(c);
        uint256 fee = c.sealing.fee;
        uint256 each = (fee * 2000 / 10_000) / 3;
        uint256 share = fee * 7000 / 10_000;
        uint256 left = fee - share - 3 * each;
        left -= 2 * (left / 2); // both callers take half of it
        assertEq(_balance(workers[0]), STAKE + share + left / 4, "inferencer");
        assertEq(_balance(c.parties[1].owner), STAKE + each + left / 4, "member");
        assertEq(_balance(scheduler), STAKE, "scheduler");
        _assertConserved();
    }

    function test_forcedRound_catchesACapturedCommittee() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _claimed(Outcome.Accept, 0);
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        assertEq(_locked(challenger), 0);
        _openAll(c);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Slash));
        assertEq(_balance(challenger), STAKE + terms.claimBond + c.sealing.fee);
        _assertConserved();
    }

    function test_forcedRound_ofAnUnclaimedJobPaysTheShareToo() public {
        Case memory c = _unclaimed();
        _challenge(c);
        _openAll(c);
        _adjudicate(c);
        assertEq(_balance(scheduler), STAKE - terms.claimBond, "no share");
        _assertConserved();
    }

    /// @notice Nothing else ends such a job, so a margin opens its round as late as anybody may.
    function test_overrule_ofAForcedJob_isHeardAtAnyTime() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        pass(30 * terms.disputeWindow);
        network.overrule(c.posting, c.sealing, c.claiming, challenger);
        assertEq(uint8(_status(c)), uint8(Status.Challenged));
    }
}

/// @notice One job in four.
contract SometimesForcedTest is Cases {
    function _terms() internal view override returns (Config memory config) {
        config = super._terms();
        config.forcedEvery = 4;
    }

    function test_aJobIsForced_whereItsDrawSaysSo() public {
        uint256 forced = 0;
        for (uint256 i = 0; i < 32; ++i) {
            Case memory c = _claimed(Outcome.Accept, 0);
            bytes32 draw =
                keccak256(abi.encode(c.sealing.secret, c.posting.commitment, c.sealing.beacon));
            pass(terms.disputeWindow);
            if (uint256(keccak256(abi.encode(draw, uint256(3)))) % 4 == 0) {
                vm.expectRevert(abi.encodeWithSelector(ILedger.RoundForced.selector, c.id));
                ++forced;
            }
            network.finalize(c.posting, c.sealing, c.claiming);
        }
        assertGt(forced, 0);
        assertLt(forced, 32);
    }

    function test_challenge_needsABondWhereTheRoundIsNotForced() public {
        for (uint256 i = 0; i < 12; ++i) {
            Case memory c = _claimed(Outcome.Accept, 0);
            bytes32 draw =
                keccak256(abi.encode(c.sealing.secret, c.posting.commitment, c.sealing.beacon));
            bool free = uint256(keccak256(abi.encode(draw, uint256(3)))) % 4 == 0;
            address poor = person("poor");
            bytes memory failure = abi.encodeWithSelector(
                ILedger.StakeInsufficient.selector, poor, 0, terms.challengeBond
            );
            if (!free) vm.expectRevert(failure);
            vm.prank(poor);
            network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        }
    }
}
