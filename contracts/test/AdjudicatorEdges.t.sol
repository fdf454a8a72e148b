// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator} from "../src/interfaces/IAdjudicator.sol";
import "../src/interfaces/ILedger.sol";
import "../src/interfaces/Types.sol";
import {VerdictLib} from "../src/libraries/VerdictLib.sol";
import {Cases} from "./Cases.sol";
import {Trees} from "./Trees.sol";

/// @notice Openings of what no honest party commits to, and draws that find nobody.
contract AdjudicatorEdgesTest is Cases {
    function test_reveal_refusesLengthsThatNoTraceHas() public {
        uint32[2][3] memory lengths =
            [[uint32(0), 5], [uint32(6), 0], [uint32(6), type(uint32).max - 5]];
        for (uint256 i = 0; i < 3; ++i) {
            uint256 snapshot = vm.snapshotState();
            Case memory c = _ofLengths(lengths[i][0], lengths[i][1]);
            vm.expectRevert(_invalid(0, "lengths"));
            _revealOne(c);
            vm.revertToState(snapshot);
        }
    }

    /// @notice The longest and the shortest that there can be.
    function test_reveal_takesLengthsThatATraceHas() public {
        uint32[2][2] memory lengths = [[uint32(6), type(uint32).max - 6], [uint32(1), 1]];
        for (uint256 i = 0; i < 2; ++i) {
            uint256 snapshot = vm.snapshotState();
            _revealOne(_ofLengths(lengths[i][0], lengths[i][1]));
            vm.revertToState(snapshot);
        }
    }

    function test_verifierOfAnotherNumberOfItems_isMismatchedByItsCommitment() public {
        Case memory c = _committedAs(2, 0);
        _claimWith(c, Outcome.Accept, 0, 5, new bytes[](0));
        _challenge(c);
        _reveal(c);
        _serve(c, 2, 0, 0, 1);
        _compareAll(c, ALL & ~uint256(4));
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(_balance(c.parties[2].owner), STAKE + terms.challengeBond / 4, "no pay, no slash");
        _assertConserved();
    }

    function test_mismatchedItem_isNeitherComparedNorServedLate() public {
        Case memory c = _committedAs(2, 1);
        _claimWith(c, Outcome.Accept, 0, 5, new bytes[](0));
        _challenge(c);
        _reveal(c);
        uint32[] memory positions = _positions(c, 0);
        Opening[] memory openings = new Opening[](1);
        openings[0] = _opening(c, 2, 0, positions[0]);
        vm.expectRevert(_invalid(2, "mismatched"));
        adjudicator.compare(
            address(network), c.posting, c.sealing, c.claiming, _spec(), _place(0), 0, openings
        );
        (, uint40 openBy,) = network.jobState(c.id);
        vm.warp(openBy);
        vm.expectRevert(abi.encodeWithSelector(IAdjudicator.DeadlinePassed.selector, openBy));
        _serveOpening(c, 0, 0, openings[0]);
    }

    /// @notice Seats that came after the job make no committee.
    function test_drawOf_revertsWhereTooFewSeatsAreActive() public {
        Case memory c = _committed();
        c.posting.postedAt = 0;
        bytes32 beacon = c.sealing.beacon;
        vm.expectRevert(abi.encodeWithSelector(ILedger.DrawExhausted.selector, 0, 3));
        adjudicator.drawOf(address(network), c.posting, SECRET, beacon);
    }

    function _revealOne(Case memory c) private {
        ItemLeaf memory leaf = c.parties[0].leaves[0];
        adjudicator.reveal(
            address(network), c.posting, c.sealing, c.claiming, 0, leaf, new bytes32[](0)
        );
    }

    /// @dev A challenged job whose inferencer committed to these lengths.
    function _ofLengths(uint32 prompt, uint32 output) private returns (Case memory c) {
        c = _order(1);
        ItemLeaf memory leaf = c.parties[0].leaves[0];
        leaf.promptTokens = prompt;
        leaf.newTokens = output;
        c.parties[0].itemHashes[0] = sha256(
            abi.encodePacked(
                bytes1(0x00),
                uint8(2),
                leaf.item,
                leaf.promptTokens,
                leaf.newTokens,
                leaf.traceRoot,
                leaf.outputHash
            )
        );
        c.parties[0].inner.itemsRoot = Trees.root(c.parties[0].itemHashes);
        _post(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
    }

    /// @dev Sealed; a member committed to another number of items, or to a longer prompt.
    function _committedAs(uint256 member, uint32 extra) private returns (Case memory c) {
        c = _order(1);
        _post(c);
        pass(12);
        (, address[] memory owners,) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        longer[owners[member - 1]] = extra;
        _commit(c);
        if (extra == 0) ++c.parties[member].inner.items;
        _sealWith(c, scheduler);
    }

    function _invalid(uint256 party, bytes32 fact) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IAdjudicator.OpeningInvalid.selector, party, fact);
    }
}

/// @notice A model that wants more positions than one request has.
contract FewPositionsTest is Cases {
    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.checkedRequests = 2;
        spec.profile.minPositions = 5;
    }

    function test_fewerPositionsThanTheModelWants_areInconclusive() public {
        Case memory c = _judged(1);
        (Outcome outcome, uint8 reason) = _settle(c);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(reason, VerdictLib.TOO_FEW_POSITIONS);
        _assertConserved();
    }

    function test_asManyPositionsAsTheModelWants_areJudged() public {
        Case memory c = _judged(2);
        (Outcome outcome,) = _settle(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        _assertConserved();
    }

    function _judged(uint16 requests) private returns (Case memory c) {
        c = _sealed(requests);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _openAll(c);
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }
}

/// @notice A model that holds means over many positions a request to less; a request here has nine.
contract ManyPositionsTest is Cases {
    uint16 private _many;

    function _spec() internal view override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.positions = 12;
        spec.checkedRequests = 2;
        if (_many == 0) return spec;
        spec.profile.manyPositions = _many;
        spec.profile.meanRefundMany = 1_600_000;
        spec.profile.meanSlashMany = 1_600_000;
    }

    function test_coarseStates_areRefundedWithoutASecondPairOfMeans() public {
        assertEq(uint8(_outcome(0, 1, true)), uint8(Outcome.Refund));
    }

    function test_coarseStates_areSlashedOverManyPositions() public {
        assertEq(uint8(_outcome(9, 1, true)), uint8(Outcome.Slash));
    }

    function test_coarseStates_areSlashedOverManyPositionsOfEachRequest() public {
        assertEq(uint8(_outcome(9, 2, true)), uint8(Outcome.Slash));
    }

    /// @notice Short requests of one job are alike: together they are not many.
    function test_coarseStates_areRefundedOverFewPositionsOfManyRequests() public {
        assertEq(uint8(_outcome(10, 1, true)), uint8(Outcome.Refund));
        assertEq(uint8(_outcome(10, 2, true)), uint8(Outcome.Refund));
    }

    function test_honestStates_areAcceptedOverManyPositions() public {
        assertEq(uint8(_outcome(9, 1, false)), uint8(Outcome.Accept));
    }

    function _outcome(uint16 many, uint16 requests, bool coarse) private returns (Outcome outcome) {
        _many = many;
        setUp();
        if (coarse) kinds[workers[0]] = Kind.Coarse;
        Case memory c = _sealed(requests);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _openAll(c);
        (outcome,) = _adjudicate(c);
    }
}
