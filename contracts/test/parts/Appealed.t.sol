// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Appeal} from "../Appeal.sol";

/// @notice A re-verification of a public round's verdict, and what proofs and the committee's word do meanwhile.
contract AppealedTest is Appeal {
    uint256 private constant ALL = type(uint256).max;

    function test_verdictOfACapturedCommittee_isOverturnedAndWhoAskedIsInTheChallengersPlace()
        public
    {
        Case memory c = _judged(Kind.Captured, Kind.Captured);
        uint256 before = _deposited();
        _heard(c, ALL);
        _untilDue(c);
        _finalizedAs(c, Outcome.Slash);
        assertEq(_deposited(), before + MAX_FEE, "client refunded");
        assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
        assertEq(_balance(claimer), STAKE - terms.claimBond, "the claim was wrong after all");
        assertEq(_balance(challenger), STAKE, "the challenge was not");
        assertGt(_balance(requester), STAKE - terms.reverifyBond / 2 + terms.claimBond - 1);
        for (uint256 k = 1; k <= 3; ++k) {
            assertLt(_balance(c.parties[k].owner), STAKE, "a liar's lock");
        }
        _assertAllFree();
    }

    /// @notice The claim was right, and the round turned it over: what it found is of who had it turned back.
    function test_rightClaimOfASlash_thatTheRoundTurnedOver_paysTheFinderToWhoAsked() public {
        Case memory c = _case(1, Kind.Captured, Kind.Captured);
        _claim(c, Outcome.Slash, VerdictLib.STATES_DIFFER);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 15);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        _heard(c, ALL);
        _untilDue(c);
        _finalizedAs(c, Outcome.Slash);
        assertEq(_balance(claimer), STAKE, "its bond, and no more");
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        uint256 least = STAKE - terms.reverifyBond / 2 + terms.challengeBond + c.sealing.fee;
        assertGe(_balance(requester), least);
        _assertAllFree();
    }

    /// @notice What a captured committee signed of the tokens is answered by those who ran them again.
    function test_claimOfRejectedTokens_thatNewMembersAccept_isOverturned() public {
        Case memory c = _case(1, Kind.Honest, Kind.Honest);
        bytes[] memory words = _attestations(c, Outcome.Slash, VerdictLib.MARGIN_MAX, 3);
        _claimWith(c, Outcome.Slash, VerdictLib.MARGIN_MAX, 7, words);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 15);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        _heard(c, ALL);
        _finalizedAs(c, Outcome.Accept);
        assertGt(_balance(workers[0]), STAKE, "paid");
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        _assertAllFree();
    }

    function test_verdictThatStands_paysAsTheRoundDidAndTheRequesterLosesItsBond() public {
        Case memory c = _judged(Kind.Honest, Kind.Honest);
        _heard(c, ALL);
        _finalizedAs(c, Outcome.Accept);
        assertEq(_balance(requester), STAKE - terms.reverifyBond);
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        uint256 share = c.sealing.fee * uint256(7000) / 10_000;
        assertGe(_balance(workers[0]), STAKE + share + terms.challengeBond / 4);
        _assertAllFree();
    }

    function test_reverification_thatNobodySupplies_leavesTheVerdict() public {
        Case memory c = _judged(Kind.Honest, Kind.Honest);
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, new Content[](0));
        pass(terms.openingWindow);
        _finalizedAs(c, Outcome.Accept);
        assertEq(_balance(requester), STAKE - terms.reverifyBond);
        _assertAllFree();
    }

    function test_attest_isHeardWhileAReverificationRuns() public {
        for (uint256 judged = 0; judged < 2; ++judged) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = judged == 1 ? _judged(Kind.Honest, Kind.Honest) : _plain();
            _heard(c, ALL);
            _attest(c, 7, 7);
            _finalizedAs(c, Outcome.Refund);
            _assertAllFree();
            vm.revertToState(snapshot);
        }
    }

    /// @notice Whatever is proven ends the job at once, and nobody's lock or bond stays behind.
    function test_convict_duringAReverification_freesEverybody() public {
        for (uint256 i = 0; i < 8; ++i) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = i & 1 == 0 ? _plain() : _judged(Kind.Honest, Kind.Honest);
            _reverify(c);
            if (i & 2 != 0) _convene(c);
            uint8 party = i & 4 == 0 ? 0 : 255;
            network.convict(c.posting, c.sealing, c.claiming, party, 8, challenger);
            assertEq(uint8(_status(c)), uint8(Status.Final));
            assertEq(_balance(requester), STAKE, "requester");
            assertEq(_balance(claimer), STAKE, "claimer");
            assertEq(_balance(challenger), STAKE + c.sealing.fee, "finder");
            _assertAllFree();
            vm.revertToState(snapshot);
        }
    }

    function _plain() private returns (Case memory c) {
        c = _case(1, Kind.Honest, Kind.Honest);
        _claim(c, Outcome.Accept, 0);
    }

    function _judged(Kind inferencer, Kind committee) private returns (Case memory c) {
        c = _case(1, inferencer, committee);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 15);
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }

    function _finalizedAs(Case memory c, Outcome expected) private {
        vm.recordLogs();
        network.conclude(c.posting, c.sealing, c.claiming);
        (Outcome outcome,) = abi.decode(_logged(ILedger.Finalized.selector), (Outcome, uint8));
        assertEq(uint8(outcome), uint8(expected));
    }

    function _assertAllFree() private view {
        _assertNothingLocked();
        assertEq(_locked(challenger), 0, "unlocked");
        _assertConserved();
    }
}
