// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Cases} from "../Cases.sol";

/// @notice Corners of rounds and convictions: whom a rule leaves alone, and who gets the last of the money.
contract RecourseEdgesTest is Cases {
    uint8 private constant SCHEDULER = 255;

    // ── Rounds ──────────────────────────────────────────────────────────────────────────────────

    /// @notice Where nobody claimed the round is over no claim, whatever claim its opener hands in.
    function test_challenge_ofAnUnclaimedJob_isOverNoClaim() public {
        Case memory c = _unclaimed();
        bytes32 beacon = c.claiming.beacon;
        c.claiming = Claiming(challenger, Outcome.Slash, VerdictLib.WITHHELD, 7, BUNDLE, beacon);
        _challenge(c);
        c.claiming = Claiming(address(0), Outcome.None, 0, 0, 0, beacon);
        _openAll(c);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        _assertConserved();
    }

    function test_adjudicate_tellsWhatTheCommitteesWordMakesOfTheVerdict() public {
        Case memory c = _opened(Outcome.Accept, 0);
        _attest(c, VerdictLib.OUTSIDE_NUCLEUS, 3);
        uint256 settleAfter = vm.getBlockTimestamp() + terms.disputeWindow;
        vm.expectEmit(address(network));
        emit ILedger.Judged(c.id, Outcome.Refund, VerdictLib.OUTSIDE_NUCLEUS, 0, 7, settleAfter);
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }

    /// @notice A challenge in vain finds nothing: who said it first does.
    function test_claimOfASlash_thatIsUpheld_findsIt() public {
        kinds[workers[0]] = Kind.Strange;
        Case memory c = _opened(Outcome.Slash, VerdictLib.STATES_DIFFER);
        _adjudicate(c);
        assertEq(_balance(claimer), STAKE + c.sealing.fee);
        assertEq(_balance(challenger), STAKE - terms.challengeBond);
        _assertConserved();
    }

    /// @notice The silent inferencer has no part in what a challenge forfeits that spoke for it.
    function test_claimOfWithheld_thatIsUpheld_paysTheChallengeToWhoOpened() public {
        Case memory c = _claimed(Outcome.Slash, VerdictLib.WITHHELD);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 14);
        pass(terms.openingWindow);
        (, uint8 reason) = _adjudicate(c);
        assertEq(reason, VerdictLib.WITHHELD);
        assertEq(_balance(workers[0]), STAKE - LOCK, "inferencer");
        uint256 each = (c.sealing.fee * 2000 / uint256(10_000)) / 3;
        assertEq(_balance(c.parties[1].owner), STAKE + each + terms.challengeBond / 3, "member");
        _assertConserved();
    }

    function test_forfeit_isAllOfTheOnesWhoOpenedAlone() public {
        Case memory c = _unclaimed();
        _challenge(c);
        _reveal(c);
        _compareAll(c, 1);
        pass(terms.openingWindow);
        (Outcome outcome,) = _adjudicate(c);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(_balance(workers[0]), STAKE + terms.claimBond);
        _assertConserved();
    }

    // ── Convictions ─────────────────────────────────────────────────────────────────────────────

    /// @notice Before a claim there is none to name: whoever is named keeps what another job locked.
    function test_convict_beforeAClaim_freesNobodysBond() public {
        _claimed(Outcome.Accept, 0);
        Case memory c = _committed();
        c.claiming.claimer = claimer;
        _convict(c, 0);
        assertEq(_locked(claimer), terms.claimBond);
    }

    function test_convict_inARoundWithoutAClaim_freesEverybody() public {
        Case memory c = _unclaimed();
        _challenge(c);
        _convict(c, 0);
        assertEq(_balance(workers[0]), STAKE - LOCK);
        _assertConserved();
    }

    /// @notice The scheduler's fault pays an inferencer for its work, not for silence, which stays its own.
    function test_convict_ofTheScheduler_paysNothingToAnInferencerThatFellSilent() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 14);
        pass(terms.openingWindow);
        network.adjudicate(c.posting, c.sealing, c.claiming);
        _convict(c, SCHEDULER);
        assertEq(_balance(workers[0]), STAKE);
        uint8[2] memory punished = [0, SCHEDULER];
        for (uint256 i = 0; i < 2; ++i) {
            vm.expectRevert(
                abi.encodeWithSelector(ILedger.AlreadyConvicted.selector, c.id, punished[i])
            );
            _convict(c, punished[i]);
        }
        _assertConserved();
    }

    /// @notice Where another job locked nearly all of it, a conviction takes the rest and no more.
    function test_convict_afterTheEnd_takesWhatIsFreeWhereThatIsLess() public {
        Case memory c = _claimed(Outcome.Accept, 0);
        _finalize(c);
        Case memory other = _order(1);
        _postWith(
            other,
            0,
            _commitment(other, 0),
            780 ether,
            signature(clientKey, JobId.unwrap(other.id)),
            scheduler
        );
        uint256 locked = other.posting.bond;
        assertLt(_balance(scheduler) - locked, c.posting.bond, "less is free than is at stake");
        _convict(c, SCHEDULER);
        assertEq(_balance(scheduler), locked);
        assertEq(_locked(scheduler), locked);
    }

    // ── Overruled ───────────────────────────────────────────────────────────────────────────────

    function test_overrule_speaksAgainstAClaimThatDecidesNothing() public {
        Case memory c = _claimed(Outcome.Inconclusive, VerdictLib.DIVIDED);
        network.overrule(c.posting, c.sealing, c.claiming, challenger);
        assertEq(uint8(_status(c)), uint8(Status.Challenged));
    }

    function _convict(Case memory c, uint8 party) private {
        network.convict(c.posting, c.sealing, c.claiming, party, VerdictLib.LENGTH, challenger);
    }
}

/// @notice The least that may be at stake: the lock is the fee.
contract LeastLockTest is Cases {
    function _terms() internal view override returns (Config memory config) {
        config = super._terms();
        config.kappaBps = 10_000;
    }

    function test_slash_paysTheFinderWhatTheCommitteeLeavesOfTheLock() public {
        Case memory c = _order(1);
        c.parties[0].inner.newTokens = 1_000_000;
        _postWith(
            c, 0, _commitment(c, 0), MAX_FEE, signature(clientKey, JobId.unwrap(c.id)), scheduler
        );
        _seal(c);
        assertEq(c.sealing.fee, MAX_FEE);
        _claim(c, Outcome.Slash, VerdictLib.STATES_DIFFER);
        _finalize(c);
        uint256 each = (uint256(MAX_FEE) * 2000 / 10_000) / 3;
        assertEq(_balance(workers[0]), STAKE - MAX_FEE, "inferencer");
        assertEq(_balance(claimer), STAKE + MAX_FEE - 3 * each, "finder");
        _assertConserved();
    }
}
