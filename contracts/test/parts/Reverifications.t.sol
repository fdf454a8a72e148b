// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

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
        (,, bool stands, uint8 strangers) = _conclude(c);
        assertEq(stands, true);
        assertEq(strangers, 1);
        assertEq(_balance(dissenter), before - LOCK);
        _assertNothingLocked();
        _assertConserved();
    }
}
