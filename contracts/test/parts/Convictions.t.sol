// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Cases} from "../Cases.sol";

/// @notice What a proof does, in whatever state the job is. These tests are the prover.
contract ConvictionsTest is Cases {
    uint8 private constant SCHEDULER = 255;
    uint8 private constant REASON = 8;
    address private finder;

    function setUp() public override {
        super.setUp();
        finder = person("stranger");
    }

    // ── The inferencer, before the end ──────────────────────────────────────────────────────────

    function test_convict_endsAnOpenJobAsASlash_inEveryState() public {
        for (uint256 state = 0; state < 5; ++state) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = _at(state);
            uint256 before = _deposited();
            vm.expectEmit(address(network));
            emit ILedger.Convicted(c.id, 0, REASON, finder);
            vm.expectEmit(address(network));
            emit ILedger.Finalized(c.id, Outcome.Slash, REASON);
            _convict(c, 0);
            uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
            assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
            assertEq(_balance(c.parties[2].owner), STAKE + each, "member");
            assertEq(_balance(finder), c.sealing.fee, "finder");
            assertEq(_deposited(), before + MAX_FEE, "client");
            assertEq(_balance(claimer) + _balance(challenger), 2 * STAKE, "bonds go back");
            assertEq(token.balanceOf(DEAD), LOCK - 3 * each - c.sealing.fee, "burnt");
            assertEq(uint8(_status(c)), uint8(Status.Final));
            _assertConserved();
            vm.revertToState(snapshot);
        }
    }

    /// @notice Nodes send with their hot keys, as everywhere else.
    function test_convict_andOverrule_payTheOperatorOfAHotKey() public {
        vm.prank(challenger);
        network.setHotKey(finder);
        uint256 snapshot = vm.snapshotState();
        Case memory c = _at(1);
        vm.expectEmit(address(network));
        emit ILedger.Convicted(c.id, 0, REASON, challenger);
        _convict(c, 0);
        assertEq(_balance(challenger), STAKE + c.sealing.fee, "before the end");
        vm.revertToState(snapshot);
        c = _claimed(Outcome.Accept, 0);
        _overrule(c);
        _openAll(c);
        _adjudicate(c);
        assertEq(_balance(challenger), STAKE + terms.claimBond, "overruled");
        _convict(c, 1);
        uint256 earned = terms.claimBond + c.sealing.fee;
        assertEq(_balance(challenger), STAKE + earned, "after the end");
        assertEq(_balance(finder), 0);
        _assertConserved();
    }

    function test_convict_doesNotSaveWhoFellSilentInTheRound() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 11);
        pass(terms.openingWindow);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        _convict(c, 0);
        assertEq(_balance(c.parties[2].owner), STAKE - LOCK);
        _assertConserved();
    }

    // ── The scheduler, before the end ───────────────────────────────────────────────────────────

    function test_convict_ofTheScheduler_paysWhoWorkedFromItsBond_inEveryState() public {
        for (uint256 state = 0; state < 5; ++state) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = _at(state);
            uint256 before = _deposited();
            vm.expectEmit(address(network));
            emit ILedger.Finalized(c.id, Outcome.Refund, REASON);
            _convict(c, SCHEDULER);
            uint256 fee = c.sealing.fee;
            uint256 each = (fee * 2000 / 10_000) / 3;
            assertEq(_balance(workers[0]), STAKE + fee * 7000 / 10_000, "inferencer");
            assertEq(_balance(c.parties[1].owner), STAKE + each, "member");
            assertEq(_balance(scheduler), STAKE - c.posting.bond, "scheduler");
            assertEq(_balance(finder), fee, "finder");
            assertEq(_deposited(), before + MAX_FEE, "client");
            assertEq(_balance(claimer) + _balance(challenger), 2 * STAKE, "bonds go back");
            _assertConserved();
            vm.revertToState(snapshot);
        }
    }

    /// @notice In league, the scheduler's fault costs more than the slash that it saves.
    function test_convict_ofTheScheduler_costsALeagueMoreThanTheSlash() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _judged(Outcome.Accept, 0);
        uint256 snapshot = vm.snapshotState();
        _settle(c);
        uint256 slashed = 2 * STAKE - _balance(workers[0]) - _balance(scheduler);
        vm.revertToState(snapshot);
        _convict(c, SCHEDULER);
        uint256 all = _balance(workers[0]) + _balance(scheduler) + _balance(finder);
        assertGt(2 * STAKE - all, slashed);
    }

    // ── A member ────────────────────────────────────────────────────────────────────────────────

    function test_convict_ofAMember_waitsForTheEnd() public {
        Case memory c = _at(1);
        _expectStatus(c, Status.Claimed, Status.Final);
        _convict(c, 2);
        _finalize(c);
        uint256 before = _balance(c.parties[2].owner);
        _convict(c, 2);
        assertEq(_balance(c.parties[2].owner), before - LOCK);
        assertEq(_balance(finder), c.sealing.fee);
        _assertConserved();
    }

    // ── After the end ───────────────────────────────────────────────────────────────────────────

    function test_convict_afterTheEnd_takesTheLockFromWhatIsFree() public {
        for (uint256 who = 0; who < 5; ++who) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = _at(1);
            _finalize(c);
            address owner = who == 4 ? scheduler : c.parties[who].owner;
            uint256 before = _balance(owner);
            uint256 burnt = token.balanceOf(DEAD);
            uint256 stake = who == 4 ? c.posting.bond : LOCK;
            _convict(c, who == 4 ? SCHEDULER : uint8(who));
            assertEq(before - _balance(owner), stake);
            assertEq(_balance(finder), c.sealing.fee);
            assertEq(token.balanceOf(DEAD) - burnt, stake - c.sealing.fee);
            _assertConserved();
            vm.revertToState(snapshot);
        }
    }

    function test_convict_afterTheEnd_leavesTheLocksOfOtherJobsAlone() public {
        Case memory c = _at(1);
        _finalize(c);
        uint256 free = _balance(workers[0]) - terms.reserveBps * uint256(SEAT) / 10_000;
        _deposit(client, 1000 ether);
        _stake(scheduler, 4000 ether);
        Case memory other = _order(1);
        uint96 lock = uint96(free);
        _postWith(
            other,
            0,
            _commitment(other, 0),
            lock,
            signature(clientKey, JobId.unwrap(other.id)),
            scheduler
        );
        uint256 left = _balance(workers[0]) - lock;
        assertGt(left, LOCK, "the reserve is more than the lock here");
        _convict(c, 0);
        (uint96 balance, uint96 locked,,,,) = network.accountOf(workers[0]);
        assertEq(balance - locked, left - LOCK);
        assertEq(locked, lock);
    }

    function test_fuzz_convict_afterTheEnd_neverTakesMoreThanIsFree(uint96 gone) public {
        Case memory c = _at(1);
        _finalize(c);
        (uint96 balance,, uint96 staked,,,) = network.accountOf(workers[0]);
        uint96 amount = uint96(bound(gone, 1, balance - staked));
        vm.prank(workers[0]);
        network.requestStakeWithdrawal(amount);
        _convict(c, 0);
        (uint96 after_, uint96 locked,,,,) = network.accountOf(workers[0]);
        assertEq(balance - after_, LOCK, "a withdrawal that waits is no way out");
        assertLe(locked, after_);
    }

    function test_convict_reachesAJobThatEndedWithoutAClaim() public {
        Case memory c = _committed();
        vm.roll(vm.getBlockNumber() + 9000);
        pass(terms.claimWindow);
        _challenge(c); // the beacon is lost: the job ends
        assertEq(uint8(_status(c)), uint8(Status.Final));
        uint256 before = _balance(workers[0]);
        _convict(c, 0);
        assertEq(_balance(workers[0]), before - LOCK);
    }

    // ── Once, in time, by the prover, of a party ────────────────────────────────────────────────

    function test_convict_revertsTwice() public {
        Case memory c = _at(1);
        _convict(c, 0);
        _expectConvicted(c, 0);
        _convict(c, 0);
        _convict(c, SCHEDULER); // another party's own fault
        _expectConvicted(c, SCHEDULER);
        _convict(c, SCHEDULER);
    }

    function test_convict_revertsForWhoLostItsLockInTheRound() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _opened(Outcome.Accept, 0);
        _adjudicate(c);
        _expectConvicted(c, 0);
        _convict(c, 0);
        c = _claimed(Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 11);
        pass(terms.openingWindow);
        _adjudicate(c);
        _expectConvicted(c, 2);
        _convict(c, 2);
    }

    function test_convict_revertsForAStranger() public {
        Case memory c = _at(1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotProver.selector, finder));
        vm.prank(finder);
        network.convict(c.posting, c.sealing, c.claiming, 0, REASON, finder);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotProver.selector, finder));
        vm.prank(finder);
        network.overrule(c.posting, c.sealing, c.claiming, finder);
    }

    function test_convict_revertsForNoParty() public {
        Case memory c = _at(1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.PartyUnknown.selector, 4));
        _convict(c, 4);
    }

    function test_convict_revertsBeforeSeal() public {
        Case memory c = _order(1);
        c.posting.job = c.job;
        _expectStatus(c, Status.None, Status.Sealed);
        _convict(c, 0);
        _post(c);
        _expectStatus(c, Status.Posted, Status.Sealed);
        _convict(c, 0);
    }

    function test_convict_revertsForAnotherRecord() public {
        Case memory c = _at(1);
        c.claiming.paid = 1;
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        _convict(c, 0);
    }

    function test_deadlineGuard_convictRevertsAfterUnbonding() public {
        Case memory c = _at(1);
        _finalize(c);
        uint256 last = uint256(c.posting.postedAt) + terms.unbonding;
        vm.warp(last);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, last));
        _convict(c, 0);
        vm.warp(last - 1);
        _convict(c, 0);
    }

    // ── Overruled ───────────────────────────────────────────────────────────────────────────────

    function test_overrule_opensTheRoundAndRefundsWhatTheStatesAccept() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        _overrule(c);
        assertEq(uint8(_status(c)), uint8(Status.Challenged));
        _openAll(c);
        (Outcome outcome, uint8 reason) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, VerdictLib.MARGIN_MAX);
        assertEq(_balance(finder), terms.claimBond);
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        _assertConserved();
    }

    function test_overrule_revertsForAnotherClaim() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        c.claiming.paid = 3;
        vm.expectRevert(abi.encodeWithSelector(ILedger.RecordMismatch.selector, c.id));
        _overrule(c);
    }

    /// @notice Nobody saves its lock by overruling itself.
    function test_overrule_doesNotSaveFromASlashByStates() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _claimed(Outcome.Accept, 0);
        _overrule(c);
        _openAll(c);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Slash));
        _assertConserved();
    }

    function test_overrule_helpsAWeakChallenge() public {
        Case memory c = _opened(Outcome.Accept, 0);
        _overrule(c);
        (Outcome outcome, uint8 reason) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, VerdictLib.MARGIN_MAX);
        assertEq(_balance(finder), terms.claimBond);
        _assertConserved();
    }

    function test_overrule_isHeardUntilTheVerdictsWindowEnds() public {
        Case memory c = _judged(Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline - 1);
        uint256 snapshot = vm.snapshotState();
        _overrule(c);
        (Outcome outcome,) = _settle(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        vm.revertToState(snapshot);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        _overrule(c);
    }

    function test_overrule_revertsWhereTheClaimSaysNoLess() public {
        Case memory c = _claimed(Outcome.Refund, VerdictLib.STATES_DIFFER);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        _overrule(c);
        c = _claimed(Outcome.Slash, VerdictLib.STATES_DIFFER);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        _overrule(c);
    }

    function test_overrule_revertsLateTwiceOrWithoutAClaim() public {
        Case memory c = _committed();
        _expectStatus(c, Status.Sealed, Status.Challenged);
        _overrule(c);
        _claim(c, Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        uint256 snapshot = vm.snapshotState();
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        _overrule(c);
        vm.revertToState(snapshot);
        _overrule(c);
        bytes memory known =
            abi.encodeWithSelector(ILedger.AlreadySupported.selector, c.id, VerdictLib.MARGIN_MAX);
        vm.expectRevert(known);
        _overrule(c);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    /// @dev Sealed, Claimed, Demanded, Challenged, Judged.
    function _at(uint256 state) private returns (Case memory c) {
        if (state == 0) return _committed();
        c = _claimed(Outcome.Accept, 0);
        if (state == 2) {
            vm.prank(challenger);
            network.demand(c.posting, c.sealing, c.claiming);
        }
        if (state >= 3) _challenge(c);
        if (state == 4) {
            _openAll(c);
            network.adjudicate(c.posting, c.sealing, c.claiming);
        }
    }

    function _convict(Case memory c, uint8 party) private {
        network.convict(c.posting, c.sealing, c.claiming, party, REASON, finder);
    }

    function _overrule(Case memory c) private {
        network.overrule(c.posting, c.sealing, c.claiming, finder);
    }

    function _expectConvicted(Case memory c, uint256 party) private {
        vm.expectRevert(abi.encodeWithSelector(ILedger.AlreadyConvicted.selector, c.id, party));
    }
}
