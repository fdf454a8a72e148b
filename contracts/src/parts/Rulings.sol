// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "../interfaces/IAdjudicator.sol";
import {Claiming, JobId, Member, Outcome, Posting, Sealing, Status} from "../interfaces/Types.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Docket} from "./Docket.sol";

/// @notice How a public round begins, and what its verdict does to the claim, the bonds and the job.
abstract contract Rulings is Docket {
    using JobLib for JobLib.State;

    /// @dev `record` is that of the claim, empty where nobody claimed.
    function _openRound(JobId jobId, bytes32 record, bytes32 beacon, Dispute memory dispute)
        internal
    {
        uint40 openBy = _from(OPENING_WINDOW);
        _jobs[jobId].challenge(record, openBy);
        _disputes[jobId] = dispute;
        emit ChallengeOpened(jobId, dispute.challenger, openBy, beacon, dispute.reason);
        IAdjudicator(ADJUDICATOR)
            .open(
                jobId, record, _from(OPENING_WINDOW / 2), openBy, _from(2 * uint256(OPENING_WINDOW))
            );
    }

    function _requireReason(
        JobId jobId,
        Member[] memory committee,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) internal view {
        bool attestable =
            VerdictLib.isAttested(reason) && VerdictLib.isClaimable(outcome, reason);
        require(attestable, OutcomeInvalid());
        bytes32 attestation = HashLib.hashAttestation(jobId, outcome, reason, bundle);
        _requireAttested(committee, attestation, attestations);
    }

    /// @dev The job of these values, with a round that is not settled yet.
    function _disputed(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        internal
        view
        returns (JobId jobId)
    {
        Status status = _jobs[_jobIdOf(posting.job)].status;
        bool appealed = status == Status.Judged || status == Status.Reverifying;
        uint256 deadline;
        (jobId, deadline) = _at(appealed ? status : Status.Challenged, posting, sealing, claiming);
        if (status == Status.Judged) JobLib.requireBefore(deadline);
    }

    /// @dev A round that was opened without it gets its reason, once; a verdict then has its window anew.
    function _support(JobId jobId, Claiming memory claiming, uint8 reason, address finder)
        internal
    {
        Dispute storage dispute = _disputes[jobId];
        uint8 known = VerdictLib.isAttested(claiming.reason) ? claiming.reason : dispute.reason;
        require(known == 0, AlreadySupported(jobId, known));
        dispute.reason = reason;
        dispute.finder = finder;
        JobLib.State storage job = _jobs[jobId];
        if (job.status == Status.Judged) job.judge(_from(DISPUTE_WINDOW));
        emit Supported(jobId, finder, reason, job.deadline);
    }

    /// @dev What the committee attested and the chain cannot recompute refunds what the states do not reject, and never
    /// slashes. Returns the outcome of both, whether the claim was right, in its outcome and in whom it pays,
    /// and whether the reason decided.
    function _weigh(Claiming memory claiming, Dispute memory dispute)
        internal
        pure
        returns (Verdict memory verdict, bool upheld, bool byReason)
    {
        verdict = Verdict(dispute.outcome, dispute.cause, dispute.lost, dispute.paid);
        bool attested = VerdictLib.isAttested(claiming.reason);
        uint8 reason = attested ? claiming.reason : dispute.reason;
        upheld = verdict.outcome == claiming.outcome;
        // A larger committee has judged the tokens, too, and what it rejects them for is in its verdict.
        if (dispute.appealed) reason = 0;
        if (reason != 0 && verdict.outcome != Outcome.Slash && verdict.outcome != Outcome.Refund) {
            verdict.outcome = Outcome.Refund;
            verdict.reason = reason;
            upheld = attested;
            byReason = true;
        }
        // Where parties fell silent other cliques may have grown: then a claim is only wrong to pay too many.
        uint8 wrong = claiming.paid & ~verdict.paid & ~(verdict.lost >> 1);
        if (verdict.lost == 0) wrong = claiming.paid ^ verdict.paid;
        upheld = upheld && wrong == 0;
    }

    /// @dev Ends the job by its round's verdict.
    function _conclude(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming
    ) internal {
        Dispute memory dispute = _disputes[jobId];
        Ending memory ending;
        bool upheld;
        bool byReason;
        (ending.verdict, upheld, byReason) = _weigh(claiming, dispute);
        bool found = dispute.finder != address(0) && (byReason || dispute.appealed);
        address winner = found ? dispute.finder : dispute.challenger;
        ending.finder = upheld ? claiming.claimer : winner;
        if (dispute.appealed) ending.finder = winner;
        ending.claimer = upheld ? claiming.claimer : address(0);
        ending.forced = _isForced(posting, sealing);
        uint256 burnt = 0;
        if (claiming.claimer == address(0)) {
            // Nobody claimed: the scheduler pays what a wrong claim would have cost, and to who had to open: whoever
            // challenges may be the scheduler itself. Its bond is still locked, so this is there.
            uint256 forfeit = CLAIM_BOND < posting.bond ? CLAIM_BOND : posting.bond;
            _close(jobId, posting.quote.scheduler, 0, forfeit, 0);
            _shareOut(ending, sealing.committee.length, forfeit);
        } else if (upheld) {
            _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
            if (dispute.bonded) {
                _close(jobId, dispute.challenger, CHALLENGE_BOND, CHALLENGE_BOND, 0);
                if (dispute.appealed) _close(jobId, winner, 0, 0, CHALLENGE_BOND);
                else _shareOut(ending, sealing.committee.length, CHALLENGE_BOND);
            }
        } else {
            // That openings could not be had off chain cannot be shown on chain. So nobody gains by it: half the
            // bond burns, or a false claim would be free and a worker could withhold in order to win it.
            bool withheld = claiming.reason == VerdictLib.WITHHELD;
            if (withheld) burnt = (uint256(CLAIM_BOND) + 1) / 2;
            _close(jobId, claiming.claimer, CLAIM_BOND, withheld ? burnt : CLAIM_BOND, 0);
            if (dispute.bonded) _close(jobId, dispute.challenger, CHALLENGE_BOND, 0, 0);
            if (!withheld) _close(jobId, winner, 0, 0, CLAIM_BOND);
        }
        _settle(jobId, posting, sealing, ending);
        _burn(jobId, burnt);
    }
}
