// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "../interfaces/IAdjudicator.sol";
import {IRecourse} from "../interfaces/IRecourse.sol";
import {Claiming, JobId, Outcome, Posting, Sealing, Status} from "../interfaces/Types.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Rulings} from "./Rulings.sol";

/// @notice The end of a job that was not sealed; the way into the public round and out of it. The round itself is the
/// Adjudicator's.
abstract contract Disputes is IRecourse, Rulings {
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
        Dispute memory dispute;
        dispute.challenger = _operatorOf(msg.sender);
        if (job.status == Status.Sealed) {
            job.requireAt(jobId, Status.Sealed, record);
            JobLib.requireAfter(job.deadline);
            claiming = Claiming(address(0), Outcome.None, 0, 0, 0, _beacon(sealing.sealedBlock));
            if (claiming.beacon == 0) return _endLost(jobId, posting, sealing);
            record = RecordLib.claimed(record, claiming);
        } else {
            record = RecordLib.claimed(record, claiming);
            job.requireAt(jobId, Status.Claimed, record);
            // Nothing else ends a job whose round is forced, so it may be opened at any time.
            dispute.bonded = !_isForced(posting, sealing);
            if (dispute.bonded) {
                JobLib.requireBefore(job.deadline);
                _lock(dispute.challenger, CHALLENGE_BOND);
            }
        }
        if (reason != 0) {
            _requireReason(jobId, sealing.committee, outcome, reason, bundle, attestations);
            dispute.reason = reason;
        }
        _openRound(jobId, record, claiming.beacon, dispute);
    }

    /// @inheritdoc IRecourse
    function attest(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external {
        JobId jobId = _disputed(posting, sealing, claiming);
        _requireReason(jobId, sealing.committee, outcome, reason, bundle, attestations);
        _support(jobId, claiming, reason, _operatorOf(msg.sender));
    }

    /// @inheritdoc IRecourse
    function adjudicate(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId,) = _at(Status.Challenged, posting, sealing, claiming);
        Verdict memory verdict = IAdjudicator(ADJUDICATOR)
            .verdict(
                _jobs[jobId].record,
                posting.quote.modelId,
                posting.job.requests,
                sealing.committee.length
            );
        uint40 settleAfter = _from(DISPUTE_WINDOW);
        _jobs[jobId].judge(settleAfter);
        Dispute storage dispute = _disputes[jobId];
        dispute.outcome = verdict.outcome;
        dispute.cause = verdict.reason;
        dispute.lost = verdict.lost;
        dispute.paid = verdict.paid;
        (verdict,,) = _weigh(claiming, dispute);
        emit Judged(jobId, verdict.outcome, verdict.reason, verdict.lost, verdict.paid, settleAfter);
    }

    /// @inheritdoc IRecourse
    function settle(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Judged, posting, sealing, claiming);
        JobLib.requireAfter(deadline);
        _jobs[jobId].end();
        _conclude(jobId, posting, sealing, claiming);
    }

    /// @dev Nobody kept the beacon, so no positions exist, and the job ends here.
    function _endLost(JobId jobId, Posting memory posting, Sealing memory sealing) private {
        _jobs[jobId].end();
        Ending memory ending;
        ending.verdict = Verdict(Outcome.Inconclusive, VerdictLib.BEACON_LOST, 0, type(uint8).max);
        _settle(jobId, posting, sealing, ending);
    }
}
