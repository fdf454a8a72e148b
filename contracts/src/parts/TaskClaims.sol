// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IWages} from "../interfaces/IWages.sol";
import {
    Claiming,
    Inner,
    Item,
    ItemLeaf,
    Job,
    JobId,
    ModelId,
    Outcome,
    Posting,
    Quote,
    Sealing,
    Status,
    Task
} from "../interfaces/Types.sol";
import {ClaimLib} from "../libraries/ClaimLib.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Panels} from "./Panels.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice A worker's claim for a task that its scheduler never posted.
abstract contract TaskClaims is IWages, Panels {
    using JobLib for JobLib.State;
    using SafeCast for uint256;

    /// @dev How a job answers a claim.
    enum Relation {
        None,
        Holds, // its post or its seal has the commitment
        Refutes, // the worker knew that nothing is due
        Supersedes // the task was done by another
    }

    /// @inheritdoc IWages
    function claimTask(
        Task calldata task,
        Item[] calldata items,
        address scheduler,
        uint32 seat,
        Inner calldata inner,
        ItemLeaf[] calldata leaves,
        bytes[] calldata outputs,
        bytes[2] calldata signatures
    ) external {
        _requireDue(task.deadline);
        _requireSigned(scheduler, _hashTypedDataV4(inner.taskHash), signatures[0]);
        ClaimLib.requireWork(task, items, inner, leaves, outputs);
        bytes32 commitment = HashLib.hashCommitment(task.taskId, HashLib.hashInner(inner));
        _requireSigned(task.worker, _hashTypedDataV4(commitment), signatures[1]);
        _openNew(task, scheduler, seat, commitment, inner);
        _taskClaims[commitment].outputsRoot = ClaimLib.outputsRoot(leaves);
        _taskClaims[commitment].requestsRoot = ClaimLib.requestsRoot(items);
        _announce(commitment, scheduler, task, inner, leaves, outputs, signatures[1]);
    }

    /// @inheritdoc IWages
    function contestTask(
        bytes32 commitment,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming
    ) external {
        TaskClaim storage claim = _openClaim(commitment);
        JobId jobId = _jobIdOf(posting.job);
        Status stage = _requireRecord(jobId, posting, sealing, claiming);
        Relation relation = Relation.Holds;
        bool first = posting.postedBlock < claim.claimedBlock;
        if (posting.commitment != commitment) {
            bool known = stage != Status.Posted;
            first = known && sealing.sealedBlock < claim.claimedBlock;
            relation =
                known ? _relationToSeal(commitment, claim, jobId, posting, sealing) : Relation.None;
            if (relation == Relation.None && _wasReplaced(jobId, claim, posting)) {
                relation = Relation.Refutes;
            }
            if (relation == Relation.Supersedes && !_wasAccepted(jobId, stage, claiming)) {
                relation = Relation.None;
            }
        }
        require(relation != Relation.None, NotContested(commitment));
        if (relation != Relation.Refutes) _requirePriced(commitment, claim, posting, relation);
        bool fined = relation == Relation.Refutes || (relation == Relation.Holds && first);
        uint256 burnt = fined ? Math.min(claim.amount, claim.exposure) : 0;
        emit TaskContested(commitment, jobId, burnt);
        _release(commitment, claim, 0, burnt);
    }

    /// @inheritdoc IWages
    function postClaimed(Job memory job, Quote memory quote, bytes32 commitment)
        external
        returns (JobId jobId)
    {
        TaskClaim storage claim = _openClaim(commitment);
        address scheduler = claim.scheduler;
        require(_actsFor(msg.sender, scheduler), NotOperator(msg.sender));
        bool same = quote.scheduler == scheduler
            && ModelId.unwrap(quote.modelId) == ModelId.unwrap(claim.modelId);
        require(same && HashLib.hashQuote(quote) == job.quote, QuoteMismatch());
        Posting memory posting;
        posting.job = job;
        posting.quote = quote;
        posting.commitment = commitment;
        _requirePriced(commitment, claim, posting, Relation.Holds);
        posting.seat = claim.seat;
        posting.worker = claim.worker;
        posting.outputsRoot = claim.outputsRoot;
        posting.lock = claim.exposure;
        posting.slots = _models[quote.modelId].slots;
        posting.postedAt = _from(0);
        posting.postedBlock = block.number.toUint40();
        jobId = _jobIdOf(job);
        _moveToJob(jobId, commitment, claim, posting);
        _jobs[jobId].post(jobId, RecordLib.posted(posting), _from(SEAL_WINDOW));
        emit TaskContested(commitment, jobId, 0);
        emit Posted(jobId, scheduler, job.client, posting);
    }

    /// @inheritdoc IWages
    function collectTask(bytes32 commitment) external {
        TaskClaim storage claim = _openClaim(commitment);
        JobLib.requireAfter(claim.collectableAt);
        emit TaskCollected(commitment, claim.amount);
        _release(commitment, claim, claim.amount, 0);
    }

    /// @inheritdoc IWages
    function taskClaimOf(bytes32 commitment)
        external
        view
        returns (
            address scheduler,
            address worker,
            bytes32 taskId,
            uint96 amount,
            uint96 exposure,
            uint40 collectableAt
        )
    {
        TaskClaim storage claim = _taskClaims[commitment];
        return (
            claim.scheduler,
            claim.worker,
            claim.taskId,
            claim.amount,
            claim.exposure,
            claim.collectableAt
        );
    }

    // ── Steps ───────────────────────────────────────────────────────────────────────────────────

    function _requireDue(uint256 deadline) private view {
        uint256 from = deadline + SEAL_WINDOW;
        JobLib.requireAfter(from);
        JobLib.requireBefore(from + UNBONDING);
    }

    /// @dev Locks what is claimed on the scheduler, and the task's exposure on the worker.
    function _openNew(
        Task calldata task,
        address scheduler,
        uint32 seat,
        bytes32 commitment,
        Inner calldata inner
    ) private {
        uint256 tokens = uint256(inner.promptTokens) + inner.newTokens;
        uint256 due = Math.min(task.fee, tokens * _priceOf(task, seat));
        TaskClaim storage claim = _taskClaims[commitment];
        require(claim.worker == address(0), AlreadyClaimed(commitment));
        uint96 amount = _lockUpTo(scheduler, due);
        require(amount != 0, StakeInsufficient(scheduler, 0, due));
        _lock(task.worker, task.lock);
        claim.seat = seat;
        claim.due = due.toUint96(); // at most the task's fee
        claim.promptTokens = inner.promptTokens;
        claim.newTokens = inner.newTokens;
        claim.scheduler = scheduler;
        claim.amount = amount;
        claim.worker = task.worker;
        claim.exposure = task.lock;
        claim.claimedBlock = block.number.toUint40();
        claim.collectableAt = _from(UNBONDING);
        claim.taskId = task.taskId;
        claim.modelId = task.modelId;
    }

    function _announce(
        bytes32 commitment,
        address scheduler,
        Task calldata task,
        Inner calldata inner,
        ItemLeaf[] calldata leaves,
        bytes[] calldata outputs,
        bytes calldata signature
    ) private {
        TaskClaim storage claim = _taskClaims[commitment];
        emit TaskClaimed(
            commitment,
            scheduler,
            task.worker,
            claim.amount,
            claim.collectableAt,
            claim.seat,
            task,
            inner,
            leaves,
            outputs,
            signature
        );
    }

    /// @dev The exposure becomes the job's lock; the scheduler pays for the client, and the bond.
    function _moveToJob(
        JobId jobId,
        bytes32 commitment,
        TaskClaim storage claim,
        Posting memory posting
    ) private {
        (address scheduler, uint96 maxFee) = (claim.scheduler, posting.job.maxFee);
        // A smaller lock could not pay a committee.
        uint256 required = _demand(maxFee, KAPPA_BPS);
        require(posting.lock >= required, LockTooSmall(posting.lock, required));
        uint256 bond = _demand(uint256(posting.lock) + maxFee, BOND_BPS);
        posting.bond = bond.toUint96();
        _close(JobId.wrap(commitment), scheduler, claim.amount, 0, 0);
        claim.amount = 0;
        claim.exposure = 0;
        _lock(scheduler, bond + maxFee);
        _close(jobId, scheduler, maxFee, maxFee, 0); // into escrow
    }

    /// @dev A job answers a claim if it could pay for the work at its own price. Of a member's task that is the text
    /// that it was shown: what it generated beside it is no part of the job. An honest scheduler takes no job whose
    /// maxFee is less than all tokens asked for; one in league with a client would have the work for nothing.
    function _requirePriced(
        bytes32 commitment,
        TaskClaim storage claim,
        Posting memory posting,
        Relation relation
    ) private view {
        bool whole = relation == Relation.Supersedes || posting.commitment == commitment;
        uint256 tokens = uint256(claim.promptTokens) + (whole ? claim.newTokens : 0);
        uint256 least = Math.min(posting.quote.unitPrice * tokens, claim.due);
        require(posting.job.maxFee >= least, Underpriced(posting.job.maxFee, least));
    }

    function _openClaim(bytes32 commitment) private view returns (TaskClaim storage claim) {
        claim = _taskClaims[commitment];
        require(claim.amount != 0, ClaimUnknown(commitment));
    }

    /// @dev Closes a claim: `pay` goes from the scheduler to the worker, `burnt` is the worker's.
    function _release(bytes32 commitment, TaskClaim storage claim, uint256 pay, uint256 burnt)
        private
    {
        (uint256 amount, uint256 exposure) = (claim.amount, claim.exposure);
        claim.amount = 0;
        claim.exposure = 0;
        JobId id = JobId.wrap(commitment);
        _close(id, claim.scheduler, amount, pay, 0);
        _close(id, claim.worker, exposure, burnt, pay);
        _burn(id, burnt);
    }

    function _priceOf(Task calldata task, uint32 seat) private view returns (uint256) {
        Seat storage held = _seats[task.modelId][seat];
        require(held.owner == task.worker, SeatNotOwned(task.modelId, seat, task.worker));
        return held.price;
    }

    /// @dev How far the record says that the job has come: Posted, Sealed or Claimed.
    function _requireRecord(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming
    ) private view returns (Status stage) {
        bytes32 kept = _jobs[jobId].record;
        bytes32 record = RecordLib.posted(posting);
        if (kept == record) return Status.Posted;
        record = RecordLib.sealedRecord(record, sealing);
        if (kept == record) return Status.Sealed;
        require(kept == RecordLib.claimed(record, claiming), RecordMismatch(jobId));
        return Status.Claimed;
    }

    /// @dev Looks through all parties of a seal for the commitment, and for the task. A task's id is its scheduler's
    /// choice: it says nothing against a worker that is not the one in the job, and nothing for other requests.
    function _relationToSeal(
        bytes32 commitment,
        TaskClaim storage claim,
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing
    ) private view returns (Relation) {
        bytes32 wanted = claim.taskId;
        if (HashLib.taskId(sealing.secret, jobId, 0) == wanted) {
            if (posting.worker == claim.worker) return Relation.Refutes;
            bool same = posting.job.requestsRoot == claim.requestsRoot;
            bool other = posting.outputsRoot != claim.outputsRoot;
            return same && other ? Relation.Supersedes : Relation.None;
        }
        for (uint256 i = 0; i < sealing.committee.length; ++i) {
            bytes32 task = HashLib.taskId(sealing.secret, jobId, _numberOf(jobId, i + 1));
            if (task != wanted) continue;
            bytes32 held = HashLib.hashCommitment(task, sealing.committee[i].inner);
            if (held == commitment) return Relation.Holds;
            return sealing.committee[i].owner == claim.worker ? Relation.Refutes : Relation.None;
        }
        return Relation.None;
    }

    /// @dev Whether the job ended as accepted: no round, no proof and no committee's word took that back.
    function _wasAccepted(JobId jobId, Status stage, Claiming memory claiming)
        private
        view
        returns (bool)
    {
        if (stage != Status.Claimed || _jobs[jobId].status != Status.Final) return false;
        if (_punished[jobId] & (1 | (1 << SCHEDULER)) != 0) return false;
        Dispute storage dispute = _disputes[jobId];
        if (dispute.outcome == Outcome.None) return claiming.outcome == Outcome.Accept;
        bool attested = dispute.reason != 0 || VerdictLib.isAttested(claiming.reason);
        return dispute.outcome == Outcome.Accept && (dispute.appealed || !attested);
    }

    /// @dev Whether the worker was drawn for the task and put out of its place for silence.
    function _wasReplaced(JobId jobId, TaskClaim storage claim, Posting memory posting)
        private
        view
        returns (bool)
    {
        Panel storage panel = _panels[jobId];
        uint256 size = panel.places.length;
        uint256 drawn = size + panel.replaced;
        for (uint256 number = 1; number <= drawn; ++number) {
            if (HashLib.taskId(panel.secret, jobId, number) != claim.taskId) continue;
            for (uint256 i = 0; i < size; ++i) {
                if (panel.places[i].number == number) return false;
            }
            bytes32 draw = DrawLib.draw(panel.secret, posting.commitment, panel.beacon);
            (, address[] memory owners) = _drawSeats(posting, draw, drawn);
            return owners[number - 1] == claim.worker;
        }
        return false;
    }
}
