// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../../src/interfaces/IAdjudicator.sol";
import {IAppeals} from "../../src/interfaces/IAppeals.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Appeal} from "../Appeal.sol";
import {Trees} from "../Trees.sol";

/// @notice How a re-verification ends where somebody is missing or ran another text, and what it then costs.
contract ReverificationEndsTest is Appeal {
    uint256 private constant NEW = 7;
    uint256 private constant WAGE = 20 ether / uint256(14);

    // ── Contents that come apart ────────────────────────────────────────────────────────────────

    function test_supply_completesWhatWasAskedWithoutContents() public {
        Case memory c = _claimed(3, Kind.Honest, Kind.Honest);
        Content[] memory contents = _contents(c);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
        for (uint256 i = 0; i < contents.length; ++i) {
            (AppealPhase phase,,) = network.appealOf(c.id);
            assertEq(uint8(phase), uint8(AppealPhase.Asked));
            Content[] memory one = new Content[](1);
            one[0] = contents[i];
            network.supply(c.posting, c.sealing, c.claiming, one);
        }
        (AppealPhase complete,,) = network.appealOf(c.id);
        assertEq(uint8(complete), uint8(AppealPhase.Complete));
        vm.expectPartialRevert(IAppeals.PhaseWrong.selector);
        network.supply(c.posting, c.sealing, c.claiming, contents);
    }

    function test_supply_revertsAfterItsWindow() public {
        Case memory c = _claimed(1, Kind.Honest, Kind.Honest);
        Content[] memory contents = _contents(c);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
        pass(terms.openingWindow);
        vm.expectPartialRevert(ILedger.DeadlinePassed.selector);
        network.supply(c.posting, c.sealing, c.claiming, contents);
    }

    // ── Another text ────────────────────────────────────────────────────────────────────────────

    /// @notice Where most ran another text than the inferencer says it did, its text is not the chain's.
    function test_majorityOfAnotherText_isTheInferencersFault() public {
        Case memory c = _claimed(1, Kind.Honest, Kind.Honest);
        (Outcome outcome, uint8 reason, bool stands, uint8 strangers) = _concludeMismatched(c, NEW);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        assertEq(reason, VerdictLib.OUTPUT_MISMATCH);
        assertEq(stands, false);
        assertEq(strangers, 0, "who agreed with nobody because nobody could");
        _assertNothingLocked();
        _assertConserved();
    }

    function test_halfOfAnotherText_saysNothing() public {
        Case memory c = _claimed(1, Kind.Honest, Kind.Honest);
        (Outcome outcome, uint8 reason, bool stands,) = _concludeMismatched(c, 3);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(reason, VerdictLib.TASK_MISMATCH);
        assertEq(stands, true);
        _assertNothingLocked();
        _assertConserved();
    }

    /// @notice A first member whose item was another text is no liar, and is not paid.
    function test_witnessOfAnotherText_isNeitherNearNorAStranger() public {
        Case memory c = _order(1);
        c.job.requestsRoot = Trees.root(_requestLeaves(1));
        c.id = network.jobIdOf(c.job);
        _post(c);
        pass(12);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        longer[owners[1]] = 1;
        _commit(c);
        _sealWith(c, scheduler);
        _claimWith(c, Outcome.Accept, 0, 5, new bytes[](0));
        longer[owners[1]] = 0;
        Case memory d = _opened(c);
        _reveal(d);
        Party memory witness = d.parties[NEW + 2];
        assertEq(witness.owner, owners[1]);
        _serve(d, NEW + 2, 0, 0, _positions(d, 0)[0]);
        _compareAll(d, ~(uint256(4) << NEW) & ((1 << d.parties.length) - 1));
        (,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(stands, true);
        assertEq(strangers, 0);
        _assertNothingLocked();
        _assertConserved();
    }

    // ── Witnesses that nobody heard ─────────────────────────────────────────────────────────────

    function test_witnessThatDoesNotOpen_isWaitedForAndThenAStranger() public {
        Case memory c = _claimed(1, Kind.Honest, Kind.Honest);
        Case memory d = _opened(c);
        _reveal(d);
        _compareAll(d, ((1 << d.parties.length) - 1) & ~(uint256(2) << NEW));
        (, uint40 openBy,) = network.jobState(c.id);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.DeadlineNotReached.selector, openBy));
        network.conclude(c.posting, c.sealing, c.claiming);
        vm.warp(openBy);
        (,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(stands, true);
        assertEq(strangers, 1);
        _assertNothingLocked();
        _assertConserved();
    }

    /// @notice One that opened, and that nobody set beside a member, keeps its lock and has no share.
    function test_witnessThatNobodyCompared_isNeitherNearNorAStranger() public {
        Case memory c = _claimed(1, Kind.Captured, Kind.Captured);
        Case memory d = _opened(c);
        _reveal(d);
        uint32[] memory positions = _positions(d, 0);
        for (uint256 p = 0; p < positions.length; ++p) {
            _serve(d, NEW + 1, 0, p, positions[p]);
        }
        _compareAll(d, ((1 << d.parties.length) - 1) & ~(uint256(2) << NEW));
        address alone = c.parties[1].owner;
        uint256 member = _firstHonest(d);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.NotCompared.selector, member, NEW + 1));
        network.conclude(c.posting, c.sealing, c.claiming);
        pass(2 * uint256(terms.openingWindow));
        uint256 locked = _locked(alone);
        uint256 had = _balance(alone);
        (,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(stands, false);
        assertEq(strangers, 6, "the two that were compared");
        assertGt(locked, 0);
        assertGe(_balance(alone), had, "keeps its lock");
        _assertNothingLocked();
        _assertConserved();
    }

    // ── Too few for a round ─────────────────────────────────────────────────────────────────────

    function test_fewCommit_theyArePaidAndTheOthersLoseTheirLocks() public {
        Case memory c = _claimed(1, Kind.Honest, Kind.Honest);
        _reverify(c);
        Case memory d = _convene(c);
        (uint256 first, uint256 last) =
            (_balance(d.parties[1].owner), _balance(d.parties[NEW].owner));
        uint256 burnt = token.balanceOf(address(0xdEaD));
        uint256 locks = _locksOf(c, 2);
        _recommit(d, 3);
        (Outcome outcome,, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(stands, true);
        assertGe(_balance(d.parties[1].owner), first + WAGE, "committed");
        assertLt(_balance(d.parties[NEW].owner), last, "silent");
        assertEq(
            token.balanceOf(address(0xdEaD)) - burnt,
            terms.reverifyBond - 2 * WAGE + locks,
            "what the silent had locked, and the bond less two wages"
        );
        _assertNothingLocked();
        _assertConserved();
    }

    // ── Money ───────────────────────────────────────────────────────────────────────────────────

    /// @notice Whoever claimed that the inferencer withheld pays half, burnt: nobody gains by asking.
    function test_claimOfWithheld_thatIsOverturned_burnsHalfAndTheRequesterPaysTheWages() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Slash, VerdictLib.WITHHELD);
        _heard(c, type(uint256).max);
        uint256 burnt = token.balanceOf(address(0xdEaD));
        (Outcome outcome,, bool stands,) = _conclude(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(stands, false);
        assertEq(_balance(claimer), STAKE - terms.claimBond / 2);
        assertEq(_balance(requester), STAKE - NEW * WAGE);
        assertEq(token.balanceOf(address(0xdEaD)) - burnt, terms.claimBond / 2);
        _assertNothingLocked();
        _assertConserved();
    }

    /// @notice Where a captured committee turned a right claim over, the challenge's bond is the requester's.
    function test_verdictAgainstARightClaim_costsTheChallengerAndPaysWhoAsked() public {
        Case memory c = _case(1, Kind.Honest, Kind.Captured);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 15);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        Case memory d = _heard(c, type(uint256).max);
        uint256 wages = _wagesOf(d);
        _untilDue(c);
        vm.recordLogs();
        network.conclude(c.posting, c.sealing, c.claiming);
        (Outcome outcome,) = abi.decode(_logged(ILedger.Finalized.selector), (Outcome, uint8));
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        assertGe(_balance(requester), STAKE - wages + terms.challengeBond);
        _assertNothingLocked();
        assertEq(_locked(challenger), 0);
        _assertConserved();
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _claimed(uint16 requests, Kind inferencer, Kind committee)
        private
        returns (Case memory c)
    {
        c = _case(requests, inferencer, committee);
        _claim(c, Outcome.Accept, 0);
    }

    function _honest(Party memory party) private view returns (bool) {
        return kinds[party.owner] == Kind.Honest;
    }

    function _firstHonest(Case memory d) private view returns (uint256 member) {
        for (member = 1; !_honest(d.parties[member]); ++member) {}
    }

    function _wagesOf(Case memory d) private view returns (uint256 wages) {
        for (uint256 i = 1; i <= NEW; ++i) {
            if (_honest(d.parties[i])) wages += WAGE;
        }
    }

    /// @dev What the new members from `first` on have locked.
    function _locksOf(Case memory c, uint256 first) private view returns (uint256 locks) {
        (,, Member[] memory members) = network.appealOf(c.id);
        for (uint256 i = first; i < members.length; ++i) {
            locks += members[i].lock;
        }
    }

    /// @dev A round in which the first `count` new members ran another text, and no other two the same model.
    function _concludeMismatched(Case memory c, uint256 count)
        private
        returns (Outcome, uint8, bool, uint8)
    {
        _reverify(c);
        Case memory d = _convene(c);
        for (uint256 i = 1; i <= NEW; ++i) {
            if (i <= count) ++d.parties[i].leaves[0].promptTokens;
            else kinds[d.parties[i].owner] = Kind.Strange;
            _resetRoots(d.parties[i]);
        }
        _recommit(d, (1 << NEW) - 1);
        _start(c, d);
        _reveal(d);
        uint32[] memory positions = _positions(d, 0);
        uint256 opening = 1;
        for (uint256 i = 1; i < d.parties.length; ++i) {
            if (i <= count) _serve(d, i, 0, 0, positions[0]);
            // A first member that was drawn again runs another model now.
            else if (i <= NEW || _honest(d.parties[i])) opening |= 1 << i;
        }
        _compareAll(d, opening);
        pass(terms.openingWindow);
        return _conclude(c);
    }
}

/// @notice Terms under which a wrong claim's bond pays more than a second committee.
contract LargeClaimBondTest is Appeal {
    function _terms() internal view override returns (Config memory config) {
        config = super._terms();
        config.claimBond = 15 ether;
    }

    function test_bondBeyondTheWages_isTheRequesters() public {
        Case memory c = _case(1, Kind.Honest, Kind.Captured);
        _claim(c, Outcome.Slash, VerdictLib.STATES_DIFFER);
        Case memory d = _heard(c, type(uint256).max);
        uint256 wages = 0;
        for (uint256 i = 1; i <= 7; ++i) {
            if (kinds[d.parties[i].owner] == Kind.Honest) {
                wages += terms.reverifyBond / uint256(14);
            }
        }
        _untilDue(c);
        (,, bool stands,) = _conclude(c);
        assertEq(stands, false);
        assertEq(_balance(requester), STAKE + terms.claimBond - wages);
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        _assertNothingLocked();
        _assertConserved();
    }
}
