// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../../src/interfaces/IAdjudicator.sol";
import {IAppeals} from "../../src/interfaces/IAppeals.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Appeal} from "../Appeal.sol";

/// @notice What a re-verification does to a job, by what the parties are.
contract ReverificationsTest is Appeal {
    uint256 private constant ALL = type(uint256).max;
    uint256 private constant WAGE = 20 ether / uint256(14);

    // ── The committee was captured ──────────────────────────────────────────────────────────────

    function test_capturedCommittee_acceptsACheat_isOverturned() public {
        uint256 before = _deposited();
        Case memory c = _case(1, Kind.Captured, Kind.Captured);
        _claim(c, Outcome.Accept, 0);
        Case memory d = _heard(c, ALL);
        _untilDue(c);
        (Outcome outcome, uint8 reason, bool stands, uint8 strangers) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Slash));
        assertEq(reason, VerdictLib.STATES_DIFFER);
        assertEq(stands, false);
        assertEq(strangers, 7, "all three liars");
        assertEq(_deposited(), before, "client refunded");
        for (uint256 k = 1; k <= 3; ++k) {
            assertLe(_balance(c.parties[k].owner), STAKE - LOCK + WAGE, "a liar's lock");
        }
        assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
        assertEq(_balance(claimer), STAKE - terms.claimBond, "who claimed it");
        assertGt(d.parties.length, 10);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_capturedCommittee_framesTheHonest_isOverturned() public {
        Case memory c = _case(1, Kind.Honest, Kind.Captured);
        _claim(c, Outcome.Slash, VerdictLib.STATES_DIFFER);
        _heard(c, ALL);
        _untilDue(c);
        (Outcome outcome,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(stands, false);
        assertEq(strangers, 7);
        uint256 share = c.sealing.fee * uint256(7000) / 10_000;
        assertEq(_balance(workers[0]), STAKE + share, "paid after all");
        // The wrong claim's bond pays the committee's wages as far as it goes, the requester the rest.
        uint256 captured = _capturedAmong(c);
        uint256 wages = (7 - captured) * WAGE;
        uint256 due = wages > terms.claimBond ? wages - terms.claimBond : 0;
        uint256 reward = wages < terms.claimBond ? terms.claimBond - wages : 0;
        assertEq(_balance(requester), STAKE - due + reward, "requester");
        _assertNothingLocked();
        _assertConserved();
    }

    function _capturedAmong(Case memory c) private view returns (uint256 count) {
        (,, Member[] memory members) = network.appealOf(c.id);
        for (uint256 i = 0; i < members.length; ++i) {
            if (kinds[members[i].owner] == Kind.Captured) ++count;
        }
    }

    // ── It was not ──────────────────────────────────────────────────────────────────────────────

    function test_withoutCause_theRequesterPays() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _heard(c, ALL);
        uint256 burnt = token.balanceOf(address(0xdEaD));
        (Outcome outcome,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(stands, true);
        assertEq(strangers, 0);
        assertEq(_balance(requester), STAKE - terms.reverifyBond, "bond forfeited");
        assertEq(
            token.balanceOf(address(0xdEaD)) - burnt, terms.reverifyBond - 7 * WAGE, "rest burnt"
        );
        assertGe(_balance(workers[0]), STAKE + c.sealing.fee * uint256(7000) / 10_000);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_loneDissenter_losesItsLockThoughTheClaimStands() public {
        Case memory c = _case(1, Kind.Honest, [Kind.Strange, Kind.Honest, Kind.Honest]);
        _claimWith(c, Outcome.Accept, 0, 6, new bytes[](0));
        _heard(c, ALL);
        address dissenter = c.parties[1].owner;
        uint256 before = _balance(dissenter);
        _untilDue(c);
        (,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(stands, true);
        assertEq(strangers, 1);
        assertEq(_balance(dissenter), before - LOCK);
        _assertNothingLocked();
        _assertConserved();
    }

    // ── Framed by a scheduler ───────────────────────────────────────────────────────────────────

    /// @notice Whoever ran another prompt than the job's is not judged by its states before it had the whole of the
    /// opening window, whoever opens for it: until then it shows its task, and the scheduler pays.
    function test_stranger_hasTheOpeningWindowToShowItsTask() public {
        Case memory c = _case(1, Kind.Honest, [Kind.Strange, Kind.Honest, Kind.Honest]);
        _claimWith(c, Outcome.Accept, 0, 6, new bytes[](0));
        address framed = c.parties[1].owner;
        _heard(c, ALL);
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy - 1);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.DeadlineNotReached.selector, openBy));
        network.conclude(c.posting, c.sealing, c.claiming);
        uint256 bond = _balance(scheduler);
        network.convict(c.posting, c.sealing, c.claiming, 255, VerdictLib.TASK_DIFFERS, framed);
        assertEq(uint8(_status(c)), uint8(Status.Final));
        assertGe(_balance(framed), STAKE + c.sealing.fee, "the finder's, and its own lock");
        assertEq(_balance(scheduler), bond - c.posting.bond, "who framed it");
        _assertNothingLocked();
        _assertConserved();
    }

    /// @notice And nobody escapes by it for less: a scheduler's bond is more than any one lock and all that comes back.
    function test_leagueOfSchedulerAndLiar_losesMoreThanTheLiarsLock() public {
        Case memory c = _case(1, Kind.Honest, [Kind.Strange, Kind.Honest, Kind.Honest]);
        _claimWith(c, Outcome.Accept, 0, 6, new bytes[](0));
        address liar = c.parties[1].owner;
        uint256 league = _balance(liar) + _balance(scheduler);
        _heard(c, ALL);
        uint256 snapshot = vm.snapshotState();
        _untilDue(c);
        _conclude(c);
        uint256 caught = league - _balance(liar) - _balance(scheduler);
        vm.revertToState(snapshot);
        network.convict(c.posting, c.sealing, c.claiming, 255, VerdictLib.TASK_DIFFERS, liar);
        assertGt(league - _balance(liar) - _balance(scheduler), caught);
    }

    // ── Several at once ─────────────────────────────────────────────────────────────────────────

    /// @notice Whoever is still busy with other re-verifications when it is drawn has nothing to lose by being late.
    function test_busyMember_standsWithoutALock() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        uint256 snapshot = vm.snapshotState();
        Case memory d = _convene(c);
        address busy = d.parties[1].owner;
        bytes32 slot = _rerunSlot(busy);
        uint256 latest = vm.getBlockTimestamp() + terms.openingWindow / 2;
        for (uint256 late = 0; late < 2; ++late) {
            vm.revertToState(snapshot);
            vm.store(address(network), slot, bytes32(latest + late));
            d = _convene(c);
            (,, Member[] memory members) = network.appealOf(c.id);
            assertEq(members[0].owner, busy);
            assertEq(members[0].lock, late == 0 ? LOCK : 0, "the busy one");
            assertEq(members[1].lock, LOCK, "another");
            assertEq(uint256(vm.load(address(network), slot)), latest + late, "owes no more");
        }
        uint256 before = _balance(busy);
        _recommit(d, 126); // all but the busy one
        _start(c, d);
        _reveal(d);
        _compareAll(d, ((1 << d.parties.length) - 1) & ~uint256(2));
        _untilDue(c);
        _conclude(c);
        assertEq(_balance(busy), before, "it was late and lost nothing");
        _assertNothingLocked();
        _assertConserved();
    }

    /// @dev Where the contract keeps until when an owner is busy: drawn for nothing long, that is now.
    function _rerunSlot(address owner) private view returns (bytes32 slot) {
        uint256 now_ = vm.getBlockTimestamp();
        for (uint256 base = 0; base < 64; ++base) {
            slot = keccak256(abi.encode(owner, base));
            if (uint256(vm.load(address(network), slot)) == now_) return slot;
        }
        revert("no such slot");
    }

    // ── Silence ─────────────────────────────────────────────────────────────────────────────────

    function test_silentMembers_loseTheirLocks() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        address silent = d.parties[1].owner;
        address closed = d.parties[2].owner;
        (uint256 silentHad, uint256 closedHad) = (_balance(silent), _balance(closed));
        _recommit(d, 126); // all but the first one
        _start(c, d);
        _reveal(d);
        _compareAll(d, ((1 << d.parties.length) - 1) & ~uint256(6)); // the second does not open
        pass(terms.openingWindow);
        (,, bool stands,) = _conclude(c);
        assertEq(stands, true);
        assertLe(_balance(silent), silentHad - LOCK + 1 ether, "did not commit");
        assertLe(_balance(closed), closedHad - LOCK + 1 ether, "did not open");
        _assertNothingLocked();
        _assertConserved();
    }

    function test_whoDidNotCommit_losesItsLockThoughNothingIsRevealed() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        address absent = d.parties[1].owner;
        uint256 had = _balance(absent);
        _recommit(d, 126); // all but the first one
        _start(c, d);
        pass(2 * uint256(terms.openingWindow));
        (, uint8 reason,,) = _conclude(c);
        assertEq(reason, VerdictLib.WITHHELD);
        assertLe(_balance(absent), had - LOCK + 1 ether, "did not commit");
        _assertNothingLocked();
        _assertConserved();
    }

    function test_silentInferencer_isSlashed() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _opened(c);
        pass(2 * uint256(terms.openingWindow));
        (Outcome outcome, uint8 reason, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Slash));
        assertEq(reason, VerdictLib.WITHHELD);
        assertEq(stands, false);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_nobodyCommits_theClaimStandsAndTheBondIsLost() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        _recommit(d, 0);
        (Outcome outcome,, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(stands, true);
        assertEq(_balance(requester), STAKE - terms.reverifyBond);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_noContents_theClaimStandsAndTheBondIsLost() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
        vm.expectPartialRevert(ILedger.DeadlineNotReached.selector);
        network.conclude(c.posting, c.sealing, c.claiming);
        pass(terms.openingWindow);
        (,, bool stands,) = _conclude(c);
        assertEq(stands, true);
        assertEq(_balance(requester), STAKE - terms.reverifyBond);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_inconclusiveRound_costsTheWagesOnly() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        _recommit(d, 127);
        _start(c, d);
        _reveal(d);
        // Everybody opens, nobody compares: served one by one.
        uint32[] memory positions = _positions(d, 0);
        for (uint256 p = 0; p < positions.length; ++p) {
            for (uint256 k = 0; k < d.parties.length; ++k) {
                _serve(d, k, 0, p, positions[p]);
            }
        }
        pass(2 * uint256(terms.openingWindow));
        (Outcome outcome,, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(stands, true);
        assertEq(_balance(requester), STAKE - 7 * WAGE);
        _assertNothingLocked();
        _assertConserved();
    }

    // ── Tokens ──────────────────────────────────────────────────────────────────────────────────

    function test_tokensRejectedByAMajority_refund() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        Case memory d = _opened(c);
        _reveal(d);
        for (uint256 i = 0; i < 4; ++i) {
            vm.prank(d.parties[i + 1].owner);
            network.rejectTokens(c.id, i, VerdictLib.MARGIN_MEAN);
        }
        _compareAll(d, (1 << d.parties.length) - 1);
        (Outcome outcome, uint8 reason, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, VerdictLib.MARGIN_MEAN);
        assertEq(stands, false);
        _assertNothingLocked();
        _assertConserved();
    }

    function test_tokensRejectedByAMinority_changeNothing() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        Case memory d = _opened(c);
        _reveal(d);
        for (uint256 i = 0; i < 3; ++i) {
            vm.prank(d.parties[i + 1].owner);
            network.rejectTokens(c.id, i, VerdictLib.MARGIN_MEAN);
        }
        _compareAll(d, (1 << d.parties.length) - 1);
        (Outcome outcome,, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(stands, true);
    }

    // ── Every refusal by its error ──────────────────────────────────────────────────────────────

    function test_reverify_revertsOnceTheWindowIsOver() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        pass(terms.disputeWindow);
        Content[] memory contents = _contents(c);
        vm.expectPartialRevert(ILedger.DeadlinePassed.selector);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function test_reverify_revertsForASecondOne() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        vm.expectPartialRevert(ILedger.StatusWrong.selector);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
    }

    function test_reverify_revertsWhereTooFewOwnersHoldSeats() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        for (uint32 seat = 7; seat < OWNERS; ++seat) {
            vm.prank(workers[seat]);
            network.leave(modelId, seat);
        }
        Content[] memory contents = _contents(c);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooFewOwners.selector, 7, 8));
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function test_reverify_revertsWithoutTheBond() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        vm.expectPartialRevert(ILedger.StakeInsufficient.selector);
        vm.prank(person("poor"));
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
    }

    function test_fuzz_supply_revertsForAnotherText(uint256 where, uint8 flip) public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        Content[] memory contents = _contents(c);
        bytes memory text = where % 2 == 0 ? contents[0].tokens : contents[0].output;
        uint256 at = (where / 2) % text.length;
        text[at] = bytes1(uint8(text[at]) ^ (flip == 0 ? 1 : flip));
        vm.expectRevert(
            abi.encodeWithSelector(
                IAppeals.ContentInvalid.selector,
                0,
                where % 2 == 0 ? bytes32("request") : bytes32("output")
            )
        );
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function test_supply_revertsForMoreThanIsChecked() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        Content[] memory twice = new Content[](2);
        twice[0] = twice[1] = _contents(c)[0];
        vm.expectRevert(abi.encodeWithSelector(IAppeals.ContentsExceeded.selector, 2, 1));
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, twice);
    }

    function test_convene_revertsInTheBlockOfTheContents() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        vm.expectPartialRevert(ILedger.BeaconUnavailable.selector);
        network.convene(c.posting, c.sealing, c.claiming);
    }

    function test_recommit_revertsForStrangersAndCopies() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        Inner memory first = d.parties[1].inner;
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotOperator.selector, d.parties[2].owner));
        vm.prank(d.parties[2].owner);
        network.recommit(c.id, 0, first);
        vm.expectPartialRevert(IAppeals.TaskHashWrong.selector);
        vm.prank(d.parties[2].owner);
        network.recommit(c.id, 1, first);
        vm.expectRevert(abi.encodeWithSelector(IAppeals.MemberUnknown.selector, 7));
        network.recommit(c.id, 7, first);
        vm.prank(d.parties[1].owner);
        network.recommit(c.id, 0, first);
        vm.expectRevert(abi.encodeWithSelector(IAppeals.AlreadyCommitted.selector, 0));
        vm.prank(d.parties[1].owner);
        network.recommit(c.id, 0, first);
        vm.expectPartialRevert(ILedger.DeadlineNotReached.selector);
        network.closeCommits(c.id);
        vm.expectPartialRevert(IAppeals.PhaseWrong.selector);
        network.startRound(c.posting, c.sealing, c.claiming);
        vm.expectPartialRevert(IAppeals.PhaseWrong.selector);
        network.conclude(c.posting, c.sealing, c.claiming);
    }

    function test_rejectTokens_revertsWithoutACommitmentOrAReason() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        _reverify(c);
        Case memory d = _convene(c);
        _recommit(d, 126);
        _start(c, d);
        vm.expectRevert(abi.encodeWithSelector(IAppeals.NotCommitted.selector, 0));
        vm.prank(d.parties[1].owner);
        network.rejectTokens(c.id, 0, VerdictLib.MARGIN_MEAN);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        vm.prank(d.parties[2].owner);
        network.rejectTokens(c.id, 1, VerdictLib.STATES_DIFFER);
    }

    function test_reverify_revertsForAForcedJobThatSawNoRound() public {
        terms.forcedEvery = 1;
        network = _deployNetwork();
        _furnish();
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.RoundForced.selector, c.id));
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
    }

    function _furnish() private {
        network.registerModel(_spec());
        _stake(scheduler, STAKE);
        _stake(claimer, STAKE);
        _deposit(client, 1000 ether);
        for (uint256 i = 0; i < OWNERS; ++i) {
            _stake(workers[i], STAKE);
            vm.prank(workers[i]);
            network.join(modelId, PRICE);
        }
        pass(12);
    }
}
