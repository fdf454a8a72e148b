// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "../interfaces/IAdjudicator.sol";
import {IRecourse} from "../interfaces/IRecourse.sol";
import {Claiming, JobId, Outcome, Posting, Sealing, Status} from "../interfaces/Types.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Docket} from "./Docket.sol";

/// @notice The end of a job that was not sealed; the way into the public round and out of it. The round itself is the
/// Adjudicator's.
abstract contract Disputes is IRecourse, Docket {
    using JobLib for JobLib.State;

    /// @inheritdoc IRecourse
    function refund(Posting memory posting) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        job.requireAt(jobId, Status.Posted, RecordLib.posted(posting));
        JobLib.requireAfter(job.deadline);
        job.end();
        // The bond is 5/4 of lock and fee, so it covers the share.
        uint256 share = _share(posting.job.maxFee, INFERENCER_BPS);
        emit Finalized(jobId, Outcome.Refund, VerdictLib.NOT_SEALED);
        _close(jobId, posting.worker, posting.lock, 0, share);
        _close(jobId, posting.quote.scheduler, posting.bond, posting.bond, 0);
        _refund(jobId, posting.job.client, posting.quote.scheduler, posting.job.maxFee);
        _burn(jobId, posting.bond - share);
    }

    /// @inheritdoc IRecourse
    function challenge(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        bytes32 record = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        address challenger = _operatorOf(msg.sender);
        if (job.status == Status.Sealed) {
            job.requireAt(jobId, Status.Sealed, record);
            JobLib.requireAfter(job.deadline);
            claiming = Claiming(address(0), Outcome.None, 0, 0, 0, _beacon(sealing.sealedBlock));
            if (claiming.beacon == 0) return _endLost(jobId, posting, sealing);
            record = RecordLib.claimed(record, claiming);
        } else {
            record = RecordLib.claimed(record, claiming);
            job.requireAt(jobId, Status.Claimed, record);
            JobLib.requireBefore(job.deadline);
            _lock(challenger, CHALLENGE_BOND);
        }
        if (reason != 0) {
            bool attestable =
                VerdictLib.isAttested(reason) && VerdictLib.isClaimable(outcome, reason);
            require(attestable, OutcomeInvalid());
            bytes32 attestation = HashLib.hashAttestation(jobId, outcome, reason, bundle);
            _requireAttested(sealing.committee, attestation, attestations);
        }
        uint40 openBy = _from(OPENING_WINDOW);
        job.challenge(record, openBy);
        _challenges[jobId] = Challenge(challenger, reason);
        emit ChallengeOpened(jobId, challenger, openBy, claiming.beacon, reason);
        IAdjudicator(ADJUDICATOR)
            .open(
                jobId, record, _from(OPENING_WINDOW / 2), openBy, _from(2 * uint256(OPENING_WINDOW))
            );
    }

    /// @inheritdoc IRecourse
    function adjudicate(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId,) = _at(Status.Challenged, posting, sealing, claiming);
        JobLib.State storage job = _jobs[jobId];
        Ending memory ending;
        ending.verdict = IAdjudicator(ADJUDICATOR)
            .verdict(
                job.record, posting.quote.modelId, posting.job.requests, sealing.committee.length
            );
        job.end();
        Challenge memory opened = _challenges[jobId];
        bool upheld = _weigh(ending.verdict, claiming, opened.reason);
        ending.finder = upheld ? claiming.claimer : opened.challenger;
        ending.claimer = upheld ? claiming.claimer : address(0);
        uint256 forfeit = CLAIM_BOND;
        uint256 burnt = 0;
        if (claiming.claimer == address(0)) {
            // Nobody claimed: the scheduler pays what a wrong claim would have cost. Its bond is still locked, so
            // this is there, and what is left of the bond is unlocked below.
            if (forfeit > posting.bond) forfeit = posting.bond;
            _close(jobId, posting.quote.scheduler, 0, forfeit, 0);
            _close(jobId, opened.challenger, 0, 0, forfeit);
        } else if (upheld) {
            _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
            _close(jobId, opened.challenger, CHALLENGE_BOND, CHALLENGE_BOND, 0);
            _shareBond(ending, sealing.committee.length);
        } else {
            // That openings could not be had off chain cannot be shown on chain. So nobody gains by it: half the
            // bond burns, or a false claim would be free and a worker could withhold in order to win it.
            if (claiming.reason == VerdictLib.WITHHELD) burnt = (forfeit + 1) / 2;
            _close(jobId, claiming.claimer, CLAIM_BOND, burnt != 0 ? burnt : forfeit, 0);
            _close(jobId, opened.challenger, CHALLENGE_BOND, 0, burnt != 0 ? 0 : forfeit);
        }
        _settle(jobId, posting, sealing, ending);
        _burn(jobId, burnt);
    }

    /// @dev Puts in what the committee attested and the chain cannot recompute: it refunds what the states do not
    /// reject, and never slashes. Returns whether the claim was right, in its outcome and in whom it pays.
    function _weigh(Verdict memory verdict, Claiming memory claiming, uint8 reason)
        private
        pure
        returns (bool upheld)
    {
        bool attested = VerdictLib.isAttested(claiming.reason);
        if (attested) reason = claiming.reason;
        upheld = verdict.outcome == claiming.outcome;
        if (reason != 0 && verdict.outcome != Outcome.Slash && verdict.outcome != Outcome.Refund) {
            verdict.outcome = Outcome.Refund;
            verdict.reason = reason;
            upheld = attested;
        }
        // Where parties fell silent other cliques may have grown: then a claim is only wrong to pay too many.
        uint8 wrong = claiming.paid & ~verdict.paid & ~(verdict.lost >> 1);
        if (verdict.lost == 0) wrong = claiming.paid ^ verdict.paid;
        return upheld && wrong == 0;
    }

    /// @dev Nobody kept the beacon, so no positions exist, and the job ends here.
    function _endLost(JobId jobId, Posting memory posting, Sealing memory sealing) private {
        _jobs[jobId].end();
        Ending memory ending;
        ending.verdict = Verdict(Outcome.Inconclusive, VerdictLib.BEACON_LOST, 0, type(uint8).max);
        _settle(jobId, posting, sealing, ending);
    }

    /// @dev A challenge without cause pays those who had to open, in equal parts.
    function _shareBond(Ending memory ending, uint256 size) private view {
        uint256 opened = 0;
        for (uint256 party = 0; party <= size; ++party) {
            opened += ((ending.verdict.lost >> party) & 1) ^ 1;
        }
        if (opened != 0) ending.bonus = CHALLENGE_BOND / opened;
        ending.dust = CHALLENGE_BOND - ending.bonus * opened;
    }
}
