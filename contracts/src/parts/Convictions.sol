// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Verdict} from "../interfaces/IAdjudicator.sol";
import {IRecourse} from "../interfaces/IRecourse.sol";
import {Claiming, JobId, Outcome, Posting, Sealing, Status} from "../interfaces/Types.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Rulings} from "./Rulings.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice What objective proofs do to jobs. The prover checks them and holds nothing; here no proof is looked at.
abstract contract Convictions is IRecourse, Rulings {
    using JobLib for JobLib.State;

    modifier onlyProver() {
        require(msg.sender == PROVER, NotProver(msg.sender));
        _;
    }

    /// @inheritdoc IRecourse
    function convict(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        uint8 party,
        uint8 reason,
        address finder
    ) external onlyProver {
        (JobId jobId, Status status) = _sealedJob(posting, sealing, claiming);
        finder = _operatorOf(finder);
        uint256 size = sealing.committee.length;
        require(party == SCHEDULER || party <= size, PartyUnknown(party));
        require(_punished[jobId] & (1 << party) == 0, AlreadyConvicted(jobId, party));
        JobLib.requireBefore(uint256(posting.postedAt) + UNBONDING);
        bool ends = status != Status.Final;
        // A member's fault decides nothing: it is in the sums, or it is not.
        require(!ends || party == 0 || party == SCHEDULER, StatusWrong(jobId, status, Status.Final));
        _punish(jobId, 1 << party);
        emit Convicted(jobId, party, reason, finder);
        if (!ends) {
            (address owner, uint256 stake) = _atStake(posting, sealing, party);
            return _take(jobId, owner, stake, sealing.fee, finder);
        }
        Ending memory ending;
        ending.verdict = Verdict(Outcome.Refund, reason, 0, type(uint8).max);
        ending.finder = finder;
        if (_disputes[jobId].outcome != Outcome.None) {
            // Whoever fell silent in the round, or opened another model's states, is not saved by another's fault.
            (ending.verdict.lost, ending.verdict.paid) =
            (_disputes[jobId].lost, _disputes[jobId].paid);
        }
        _jobs[jobId].end();
        _returnBonds(jobId, status, claiming);
        if (party == 0) {
            ending.verdict.outcome = Outcome.Slash;
            _settle(jobId, posting, sealing, ending);
        } else {
            _settleAtScheduler(jobId, posting, sealing, ending);
        }
    }

    /// @inheritdoc IRecourse
    function overrule(
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming,
        address finder
    ) external onlyProver {
        JobId jobId = _jobIdOf(posting.job);
        finder = _operatorOf(finder);
        JobLib.State storage job = _jobs[jobId];
        if (job.status != Status.Claimed) {
            jobId = _disputed(posting, sealing, claiming);
            return _support(jobId, claiming, VerdictLib.MARGIN_MAX, finder);
        }
        _at(Status.Claimed, posting, sealing, claiming);
        if (!_isForced(posting, sealing)) JobLib.requireBefore(job.deadline);
        // A claim that refunds or slashes says no less already.
        bool milder = claiming.outcome == Outcome.Accept || claiming.outcome == Outcome.Inconclusive;
        require(milder, OutcomeInvalid());
        Dispute memory dispute;
        dispute.challenger = finder;
        dispute.reason = VerdictLib.MARGIN_MAX;
        _openRound(jobId, job.record, claiming.beacon, dispute);
    }

    /// @dev The job of these values, sealed at least. Where it ended before a claim, its record is the seal's.
    function _sealedJob(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        private
        view
        returns (JobId jobId, Status status)
    {
        jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        status = job.status;
        bool early = status == Status.None || status == Status.Posted || status == Status.Summoned;
        require(!early, StatusWrong(jobId, status, Status.Sealed));
        bytes32 record = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        if (job.record == record) return (jobId, status);
        require(job.record == RecordLib.claimed(record, claiming), RecordMismatch(jobId));
    }

    /// @dev Whose fault it is, and the most that it may cost.
    function _atStake(Posting memory posting, Sealing memory sealing, uint256 party)
        private
        pure
        returns (address owner, uint256 stake)
    {
        if (party == SCHEDULER) return (posting.quote.scheduler, posting.bond);
        if (party == 0) return (posting.worker, posting.lock);
        return (sealing.committee[party - 1].owner, sealing.committee[party - 1].lock);
    }

    /// @dev After the end nothing of this job is locked: other jobs' locks stay as they are, seats do not.
    function _take(JobId jobId, address owner, uint256 stake, uint256 fee, address finder) private {
        Account storage account = _accounts[owner];
        uint256 slash = Math.min(stake, account.balance - account.locked);
        uint256 found = Math.min(slash, fee);
        _close(jobId, owner, 0, slash, 0);
        _close(jobId, finder, 0, 0, found);
        _burn(jobId, slash - found);
    }

    /// @dev What a dispute locked that the proof made void.
    function _returnBonds(JobId jobId, Status status, Claiming memory claiming) private {
        if (status == Status.Sealed) return;
        if (claiming.claimer != address(0)) _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
        if (status == Status.Demanded) {
            _close(jobId, _demands[jobId].demander, CHALLENGE_BOND, 0, 0);
        } else if (_disputes[jobId].bonded) {
            _close(jobId, _disputes[jobId].challenger, CHALLENGE_BOND, 0, 0);
        }
        if (status != Status.Reverifying) return;
        Appeal storage appeal = _appeals[jobId];
        _close(jobId, appeal.requester, REVERIFY_BOND, 0, 0);
        for (uint256 i = 0; i < appeal.committee.length; ++i) {
            _close(jobId, appeal.committee[i].owner, appeal.committee[i].lock, 0, 0);
        }
    }

    /// @dev The client gets all back, and who worked is paid from the scheduler's bond, which covers more than that.
    /// It is above lock and fee, so whoever is in league with an inferencer saves nothing by taking its fault.
    function _settleAtScheduler(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Ending memory ending
    ) private {
        emit Finalized(jobId, Outcome.Refund, ending.verdict.reason);
        _punish(jobId, ending.verdict.lost);
        (uint256 paid, uint256 burnt) =
            _settleCommittee(jobId, sealing.committee, _each(sealing), ending);
        uint256 share = 0;
        if (ending.verdict.lost & 1 == 0) share = _share(sealing.fee, INFERENCER_BPS);
        uint256 rest = posting.bond - paid - share;
        uint256 found = Math.min(rest, sealing.fee);
        _close(jobId, posting.worker, posting.lock, 0, share);
        _close(jobId, posting.quote.scheduler, posting.bond, posting.bond, 0);
        _close(jobId, ending.finder, 0, 0, found);
        _refund(jobId, posting.job.client, posting.quote.scheduler, posting.job.maxFee);
        _burn(jobId, burnt + rest - found);
    }
}
