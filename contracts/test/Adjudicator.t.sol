// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "../src/interfaces/IAdjudicator.sol";
import "../src/interfaces/ILedger.sol";
import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Round} from "./Round.sol";
import {Trees} from "./Trees.sol";

/// @notice Whole public rounds on synthetic states: who lies, who is silent, who pays.
contract AdjudicatorTest is Round {
    uint256 private constant ALL = 15;
    address private constant DEAD = 0x000000000000000000000000000000000000dEaD;

    // ── Verdicts ────────────────────────────────────────────────────────────────────────────────

    function test_honestInferencer_isAcceptedAndTheChallengerPaysWhoOpened() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(challenger), STAKE - terms.challengeBond, "challenger");
        uint256 bonus = terms.challengeBond / 4;
        uint256 fee = c.sealing.fee;
        assertEq(_balance(workers[0]), STAKE + fee * 7000 / 10_000 + bonus, "inferencer");
        assertEq(_balance(c.parties[1].owner), STAKE + (fee * 2000 / 10_000) / 3 + bonus, "member");
        _assertConserved(c);
    }

    function test_cheatingInferencer_isSlashedAndTheWrongClaimerPays() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Slash, VerdictLib.STATES_DIFFER);
        assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
        assertEq(_balance(claimer), STAKE - terms.claimBond, "claimer");
        uint256 found = terms.claimBond + c.sealing.fee;
        assertEq(_balance(challenger), STAKE + found, "challenger finds");
        _assertConserved(c);
    }

    function test_coarseInferencer_isRefundedWithoutSlash() public {
        kinds[workers[0]] = Kind.Coarse;
        Case memory c = _challenged(3, Outcome.Refund, VerdictLib.STATES_DIFFER);
        _reveal(c);
        _compareAll(c, ALL);
        PairStatistics memory sums = adjudicator.pairOf(address(network), _record(c), 0, 1);
        assertGt(sums.sum / sums.cells, 1_600_000, "beyond the refund tier");
        assertLt(sums.sum / sums.cells, 2_400_000, "within the slash tier");
        _assertVerdict(c, Outcome.Refund, VerdictLib.STATES_DIFFER);
        uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
        uint256 bonus = terms.challengeBond / 4;
        assertEq(_balance(workers[0]), STAKE - 3 * each + bonus);
        _assertConserved(c);
    }

    function test_silentInferencer_isSlashedAsWithheld() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        _compareAll(c, 14);
        (, uint40 openBy,) = network.jobState(c.id);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.DeadlineNotReached.selector, openBy));
        network.adjudicate(c.posting, c.sealing, c.claiming);
        vm.warp(openBy);
        _assertVerdict(c, Outcome.Slash, VerdictLib.WITHHELD);
        assertEq(_balance(workers[0]), STAKE - LOCK);
        _assertConserved(c);
    }

    function test_inferencerThatRevealsNothing_isSlashedAfterHalfTheWindow() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        vm.expectRevert();
        network.adjudicate(c.posting, c.sealing, c.claiming);
        pass(terms.openingWindow / 2);
        _assertVerdict(c, Outcome.Slash, VerdictLib.WITHHELD);
        // Nobody could open anything, so the whole committee is paid.
        uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
        for (uint256 i = 1; i < 4; ++i) {
            assertEq(_balance(c.parties[i].owner), STAKE + each);
        }
        _assertConserved(c);
    }

    function test_silentVerifier_losesItsLockAndMovesNothing() public {
        for (uint256 who = 1; who < 4; ++who) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = _challenged(3, Outcome.Accept, 0);
            _reveal(c);
            _compareAll(c, ALL & ~(1 << who));
            pass(terms.openingWindow);
            _assertVerdict(c, Outcome.Accept, 0);
            assertEq(_balance(c.parties[who].owner), STAKE - LOCK, "silent");
            uint256 other = who == 1 ? 2 : 1;
            assertGt(_balance(c.parties[other].owner), STAKE, "opened");
            assertEq(_balance(claimer) > STAKE - terms.claimBond, true, "upheld");
            assertEq(token.balanceOf(DEAD), LOCK, "burnt");
            _assertConserved(c);
            vm.revertToState(snapshot);
        }
    }

    function test_oneLyingVerifier_cannotConvictFromAnySeat() public {
        for (uint256 who = 1; who < 4; ++who) {
            _lie(who, Kind.Honest, Outcome.Accept, 0, terms.challengeBond / 4);
        }
    }

    function test_oneLyingVerifier_cannotAcquitFromAnySeat() public {
        for (uint256 who = 1; who < 4; ++who) {
            _lie(who, Kind.Strange, Outcome.Slash, VerdictLib.STATES_DIFFER, 0);
        }
    }

    function _lie(uint256 who, Kind inferencer, Outcome outcome, uint8 reason, uint256 bonus)
        private
    {
        uint256 snapshot = vm.snapshotState();
        kinds[workers[0]] = inferencer;
        Case memory c = _posted(3);
        kinds[_committeeOf(c)[who - 1]] = Kind.Strange;
        _challenge(c, Outcome.Accept, 0, uint8(7 & ~(1 << (who - 1))));
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, outcome, reason);
        assertEq(_balance(c.parties[who].owner), STAKE + bonus, "not paid");
        _assertConserved(c);
        vm.revertToState(snapshot);
    }

    function test_claimThatPaysALiar_isNotUpheld() public {
        Case memory c = _posted(3);
        kinds[_committeeOf(c)[0]] = Kind.Strange;
        _challenge(c, Outcome.Accept, 0, 7);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(claimer), STAKE - terms.claimBond, "claimer");
        assertEq(_balance(challenger), STAKE + terms.claimBond, "challenger");
        assertEq(_balance(c.parties[1].owner), STAKE, "liar");
        _assertConserved(c);
    }

    function test_threeStrangers_areInconclusive() public {
        Case memory c = _posted(3);
        address[] memory owners = _committeeOf(c);
        kinds[owners[0]] = Kind.Strange;
        kinds[owners[1]] = Kind.Strange;
        _challenge(c, Outcome.Inconclusive, VerdictLib.NO_CLIQUE, 7);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Inconclusive, VerdictLib.NO_CLIQUE);
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        _assertConserved(c);
    }

    function test_nonFiniteInferencer_isSlashed() public {
        kinds[workers[0]] = Kind.Infinite;
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Slash, VerdictLib.NON_FINITE);
        _assertConserved(c);
    }

    function test_nonFiniteVerifier_losesItsLockAndMovesNothing() public {
        Case memory c = _posted(3);
        kinds[_committeeOf(c)[1]] = Kind.Infinite;
        _challenge(c, Outcome.Accept, 0, 5);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(c.parties[2].owner), STAKE - LOCK);
        _assertConserved(c);
    }

    function test_verifierOfOtherTokens_dropsOutAndIsNotSlashed() public {
        Case memory c = _posted(3);
        otherTokens[_committeeOf(c)[1]] = 1;
        _challenge(c, Outcome.Accept, 0, 5);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(c.parties[2].owner), STAKE + terms.challengeBond / 4, "no pay, no slash");
        _assertConserved(c);
    }

    function test_verifierOfAnotherLength_isMarkedFromItsLeafAndNeverSilent() public {
        Case memory c = _posted(3);
        address framed = _committeeOf(c)[1];
        longer[framed] = 1;
        _challenge(c, Outcome.Accept, 0, 5);
        _reveal(c);
        Opening memory opening = _opening(c, 2, 0, 1);
        opening.slices = "";
        opening.finalState = "";
        _serveOpening(c, 0, 0, opening);
        _compareAll(c, 11);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(framed), STAKE + terms.challengeBond / 4);
        _assertConserved(c);
    }

    function test_twoMismatchedVerifiers_makeATaskMismatch() public {
        Case memory c = _posted(3);
        address[] memory owners = _committeeOf(c);
        otherTokens[owners[1]] = 1;
        otherTokens[owners[2]] = 1;
        _challenge(c, Outcome.Accept, 0, 1);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Inconclusive, VerdictLib.TASK_MISMATCH);
        _assertConserved(c);
    }

    function test_challengedTokenReject_refundsAndNeverSlashes() public {
        Case memory c = _posted(3);
        _commitAndSeal(c);
        _claimWith(c, Outcome.Slash, 6, 7, _attestations(c, Outcome.Slash, 6, 3));
        _challenge(c);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Refund, 6);
        uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
        uint256 bonus = terms.challengeBond / 4;
        assertEq(_balance(workers[0]), STAKE - 3 * each + bonus, "not slashed");
        assertEq(_balance(challenger), STAKE - terms.challengeBond, "the claim stands");
        _assertConserved(c);
    }

    function test_attestedChallenge_turnsAnAcceptIntoARefund() public {
        Case memory c = _posted(3);
        _commitAndSeal(c);
        _claim(c, Outcome.Accept, 0);
        bytes[] memory one = _attestations(c, Outcome.Refund, 7, 1);
        vm.startPrank(challenger);
        vm.expectRevert(abi.encodeWithSelector(ILedger.AttestationsInsufficient.selector, 1, 2));
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, one);
        vm.expectRevert(ILedger.OutcomeInvalid.selector);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.Slash, 1, BUNDLE, one);
        bytes[] memory two = _attestations(c, Outcome.Refund, 7, 6);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.Refund, 7, BUNDLE, two);
        vm.stopPrank();
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Refund, 7);
        assertEq(_balance(challenger), STAKE + terms.claimBond);
        assertEq(_balance(claimer), STAKE - terms.claimBond);
        _assertConserved(c);
    }

    function test_claimOfWithheld_burnsHalfTheBondWhenTheInferencerOpens() public {
        Case memory c = _challenged(3, Outcome.Slash, VerdictLib.WITHHELD);
        _reveal(c);
        _compareAll(c, ALL);
        uint256 burntBefore = token.balanceOf(DEAD);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(claimer), STAKE - terms.claimBond / 2);
        assertEq(_balance(challenger), STAKE);
        assertEq(token.balanceOf(DEAD) - burntBefore, terms.claimBond / 2);
        _assertConserved(c);
    }

    function test_unclaimedJob_isJudgedAtTheSchedulersCost() public {
        Case memory c = _posted(3);
        _commitAndSeal(c);
        (, uint40 claimBy,) = network.jobState(c.id);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlineNotReached.selector, claimBy));
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
        pass(12);
        network.keep(c.sealing.sealedBlock);
        c.claiming.beacon = blockhash(c.sealing.sealedBlock);
        pass(terms.claimWindow);
        _challenge(c);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
        assertEq(_balance(challenger), STAKE, "whoever challenges may be the scheduler");
        uint256 share = c.sealing.fee * 7000 / uint256(10_000);
        assertEq(_balance(workers[0]), STAKE + share + terms.claimBond / 4, "who opened");
        assertLt(_balance(scheduler), STAKE - terms.claimBond + c.sealing.fee);
        _assertConserved(c);
    }

    function test_lostBeacon_endsAnUnclaimedJobAtTheSchedulersCost() public {
        Case memory c = _posted(3);
        _commitAndSeal(c);
        vm.roll(vm.getBlockNumber() + 9000);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.BeaconUnavailable.selector, c.sealing.sealedBlock)
        );
        vm.prank(claimer);
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
        pass(terms.claimWindow);
        vm.recordLogs();
        _challenge(c);
        (Outcome outcome, uint8 reason) =
            abi.decode(_logged(ILedger.Finalized.selector), (Outcome, uint8));
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(reason, VerdictLib.BEACON_LOST);
        uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
        assertEq(_balance(scheduler), STAKE - 3 * each);
        assertEq(_deposited(), 1000 ether);
        _assertConserved(c);
    }

    function test_uncomparedPairs_areInconclusiveAfterAnotherWindow() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        for (uint256 who = 0; who < 4; ++who) {
            _compareAll(c, 1 << who);
        }
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.NotCompared.selector, 0, 1));
        network.adjudicate(c.posting, c.sealing, c.claiming);
        pass(terms.openingWindow);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.NotCompared.selector, 0, 1));
        network.adjudicate(c.posting, c.sealing, c.claiming);
        pass(terms.openingWindow);
        _assertVerdict(c, Outcome.Inconclusive, VerdictLib.NOT_COMPARED);
        _assertConserved(c);
    }

    function test_comparingIsStillPossibleAfterOpenBy() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        for (uint256 who = 0; who < 4; ++who) {
            _compareAll(c, 1 << who);
        }
        pass(terms.openingWindow);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
    }

    // ── Counting once ───────────────────────────────────────────────────────────────────────────

    function test_compare_countsAPairOnceAPosition() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        uint32[] memory positions = _positions(c, _checked(c)[0]);
        _compare(c, 3, 0, 0, positions[0]);
        _compare(c, ALL, 0, 0, positions[0]);
        _compare(c, ALL, 0, 0, positions[0]);
        for (uint256 b = 1; b < 4; ++b) {
            for (uint256 a = 0; a < b; ++a) {
                PairStatistics memory sums = adjudicator.pairOf(address(network), _record(c), a, b);
                assertEq(sums.cells, 2, "layers of one position");
            }
        }
        (,,,,, uint16[16] memory served) = adjudicator.roundOf(address(network), _record(c));
        for (uint256 k = 0; k < 4; ++k) {
            assertEq(served[k], 1);
        }
    }

    function test_reveal_revertsTwiceLateOrWrong() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        uint16[] memory checked = _checked(c);
        Party memory party = c.parties[0];
        bytes32[] memory path = Trees.path(party.itemHashes, checked[0]);
        ItemLeaf memory leaf = party.leaves[checked[0]];
        leaf.newTokens += 1;
        _expectReveal(c, 0, leaf, path, _invalid(0, "item"));
        leaf.newTokens -= 1;
        _expectReveal(
            c, 2, leaf, path, abi.encodeWithSelector(IAdjudicator.CheckedOutOfBounds.selector, 2, 2)
        );
        _reveal(c);
        _expectReveal(
            c, 0, leaf, path, abi.encodeWithSelector(IAdjudicator.AlreadyRevealed.selector, 0)
        );
        (, uint40 openBy,) = network.jobState(c.id);
        uint256 revealBy = openBy - terms.openingWindow / 2;
        vm.warp(revealBy);
        _expectReveal(
            c, 0, leaf, path, abi.encodeWithSelector(IAdjudicator.DeadlinePassed.selector, revealBy)
        );
    }

    // ── False openings ──────────────────────────────────────────────────────────────────────────

    function test_serve_revertsForEveryFalsehood() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        uint256 position = _positions(c, _checked(c)[0])[0];
        Opening memory opening = _opening(c, 1, 0, position);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.NotRevealed.selector, 0));
        _serveOpening(c, 0, 0, opening);
        _reveal(c);
        opening.party = 4;
        _expectServe(c, opening, _invalid(4, "party"));
        opening.party = 2;
        _expectServe(c, opening, _invalid(2, "inner"));
        opening.party = 1;
        opening.inner.newTokens += 1;
        _expectServe(c, opening, _invalid(1, "inner"));
        opening.inner.newTokens -= 1;
        opening.leaf.outputHash = ~opening.leaf.outputHash;
        _expectServe(c, opening, _invalid(1, "item"));
        opening.leaf.outputHash = ~opening.leaf.outputHash;
        opening = _opening(c, 1, 0, position - 1);
        _expectServe(c, opening, _invalid(1, "position"));
        opening.position = uint32(position);
        _expectServe(c, opening, _invalid(1, "trace"));
        opening = _opening(c, 1, 0, position);
        opening.slices = abi.encodePacked(opening.slices, bytes32(0));
        _expectServe(c, opening, _invalid(1, "slices"));
        opening = _opening(c, 1, 0, position);
        opening.finalState = abi.encodePacked(opening.finalState, bytes2(0));
        _expectServe(c, opening, _invalid(1, "finalState"));
        opening = _opening(c, 1, 0, position);
        opening.token += 1;
        _expectServe(c, opening, _invalid(1, "trace"));
        opening = _opening(c, 1, 0, position);
        opening.finalState[0] ^= 0x01;
        _expectServe(c, opening, _invalid(1, "trace"));
        opening = _opening(c, 1, 0, position);
        opening.path = new bytes32[](opening.path.length + 1);
        _expectServe(c, opening, _invalid(1, "trace"));
        _serve(c, 1, 0, 0, position);
    }

    function test_serve_revertsForAnotherSpecPlaceOrNetwork() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        Opening memory opening = _opening(c, 1, 0, _positions(c, _checked(c)[0])[0]);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.PositionOutOfBounds.selector, 4, 4));
        _serveOpening(c, 0, 4, opening);
        ModelSpec memory spec = _spec();
        spec.profile.layers[0].cap[0] = 60_000;
        vm.expectPartialRevert(IAdjudicator.SpecMismatch.selector);
        adjudicator.serve(
            address(network), c.posting, c.sealing, c.claiming, spec, _place(0), 0, opening
        );
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.RoundUnknown.selector, _record(c)));
        adjudicator.serve(
            address(this), c.posting, c.sealing, c.claiming, _spec(), _place(0), 0, opening
        );
        c.claiming.paid = 0;
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.RoundUnknown.selector, _record(c)));
        _serveOpening(c, 0, 0, opening);
    }

    function test_serve_revertsAfterOpenBy() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy);
        Opening memory opening = _opening(c, 1, 0, _positions(c, _checked(c)[0])[0]);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.DeadlinePassed.selector, openBy));
        _serveOpening(c, 0, 0, opening);
    }

    function test_compare_revertsForPartiesOutOfOrder() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        _reveal(c);
        uint256 position = _positions(c, _checked(c)[0])[0];
        Opening[] memory openings = new Opening[](2);
        openings[0] = _opening(c, 1, 0, position);
        openings[1] = openings[0];
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.PartiesNotAscending.selector, 1));
        adjudicator.compare(
            address(network), c.posting, c.sealing, c.claiming, _spec(), _place(0), 0, openings
        );
    }

    function test_challenge_revertsAfterTheWindow() public {
        Case memory c = _posted(3);
        _commitAndSeal(c);
        _claim(c, Outcome.Accept, 0);
        (, uint40 deadline,) = network.jobState(c.id);
        vm.warp(deadline);
        vm.expectRevert(abi.encodeWithSelector(ILedger.DeadlinePassed.selector, deadline));
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
    }

    function test_adjudicate_revertsTwice() public {
        Case memory c = _challenged(1, Outcome.Accept, 0);
        _reveal(c);
        _compareAll(c, ALL);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        vm.expectRevert(
            abi.encodeWithSelector(
                ILedger.StatusWrong.selector, c.id, Status.Judged, Status.Challenged
            )
        );
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }

    function test_strangersRound_isNobodyElses() public {
        Case memory c = _challenged(3, Outcome.Accept, 0);
        vm.prank(person("stranger"));
        adjudicator.open(c.id, _record(c), 1, 1, 1);
        _reveal(c);
        _compareAll(c, ALL);
        _assertVerdict(c, Outcome.Accept, 0);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _posted(uint16 requests) private returns (Case memory c) {
        c = _order(requests);
        _post(c);
        pass(12);
    }

    function _committeeOf(Case memory c) private view returns (address[] memory owners) {
        (, owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
    }

    function _commitAndSeal(Case memory c) private {
        _seal(c);
    }

    function _challenge(Case memory c, Outcome outcome, uint8 reason, uint8 paid) private {
        _seal(c);
        _claimWith(c, outcome, reason, paid, new bytes[](0));
        _challenge(c);
    }

    function _challenged(uint16 requests, Outcome outcome, uint8 reason)
        private
        returns (Case memory c)
    {
        c = _posted(requests);
        _challenge(c, outcome, reason, 7);
    }

    function _assertVerdict(Case memory c, Outcome outcome, uint8 reason) private {
        (Outcome judged, uint8 why) = _adjudicate(c);
        assertEq(uint8(judged), uint8(outcome), "outcome");
        assertEq(why, reason, "reason");
        assertEq(uint8(_status(c)), uint8(Status.Final), "final");
    }

    /// @dev Nothing stays locked, and all money is with somebody or dead.
    function _assertConserved(Case memory) private view {
        uint256 sum = _deposited();
        for (uint256 i = 0; i < 5; ++i) {
            sum += _balance(workers[i]);
            assertEq(_locked(workers[i]), 0, "worker");
        }
        address[4] memory others = [scheduler, claimer, challenger, address(this)];
        for (uint256 i = 0; i < 4; ++i) {
            sum += _balance(others[i]);
            assertEq(_locked(others[i]), 0, "other");
        }
        assertEq(sum, token.balanceOf(address(network)), "held");
        assertEq(sum + token.balanceOf(DEAD), 9000 ether, "in = held + burnt");
    }

    function _invalid(uint256 party, bytes32 fact) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IAdjudicator.OpeningInvalid.selector, party, fact);
    }

    function _expectServe(Case memory c, Opening memory opening, bytes memory fact) private {
        vm.expectRevert(fact);
        _serveOpening(c, 0, 0, opening);
    }

    function _expectReveal(
        Case memory c,
        uint16 index,
        ItemLeaf memory leaf,
        bytes32[] memory path,
        bytes memory fact
    ) private {
        vm.expectRevert(fact);
        adjudicator.reveal(address(network), c.posting, c.sealing, c.claiming, index, leaf, path);
    }
}
