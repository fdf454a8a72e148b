// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ISummons} from "../interfaces/ISummons.sol";
import {
    Inner,
    Item,
    JobId,
    Member,
    ModelId,
    ModelSpec,
    Outcome,
    Posting,
    Sealing,
    Status,
    Task
} from "../interfaces/Types.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {SummonsLib} from "../libraries/SummonsLib.sol";
import {TaskLib} from "../libraries/TaskLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Panels} from "./Panels.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice A job whose committee had to be summoned, from the first summons to its seal or its end.
abstract contract Summonses is ISummons, Panels {
    using JobLib for JobLib.State;
    using SafeCast for uint256;

    /// @dev Bounds how far a draw goes on, and how long a job can hang.
    uint256 internal constant MAX_REPLACED = 8;

    /// @inheritdoc ISummons
    function summon(
        Posting memory posting,
        bytes32 secret,
        Inner memory inner,
        uint256 index,
        ModelSpec calldata spec,
        Task calldata task,
        Item[] calldata items,
        bytes[] calldata tokens,
        bytes calldata signature
    ) external {
        JobId jobId = _convene(posting, secret, inner);
        Place storage place = _placeOf(jobId, index);
        require(place.answerBy == 0, AlreadySummoned(index));
        _requireTask(posting, secret, jobId, place, spec, task);
        _requireSigned(posting.quote.scheduler, _hashTypedDataV4(place.taskHash), signature);
        uint40 answerBy =
            _await(posting, jobId, place, SummonsLib.requireItems(spec, task, items, tokens));
        emit Summoned(jobId, place.owner, index, answerBy, task, items, tokens, signature);
    }

    /// @inheritdoc ISummons
    function answer(JobId jobId, uint256 index, Inner calldata inner, bytes calldata signature)
        external
    {
        _requireOpen(jobId);
        Place storage place = _placeOf(jobId, index);
        _requirePending(place, index);
        require(inner.taskHash == place.taskHash, CommitmentMismatch(index + 1));
        bytes32 hash = HashLib.hashInner(inner);
        Panel storage panel = _panels[jobId];
        bytes32 task = HashLib.taskId(panel.secret, jobId, place.number);
        bytes32 digest = _hashTypedDataV4(HashLib.hashCommitment(task, hash));
        _requireSigned(place.owner, digest, signature);
        place.inner = hash;
        emit Answered(jobId, place.owner, index, inner, signature);
        _close(jobId, panel.scheduler, ANSWER_FEE, ANSWER_FEE, 0);
        _close(jobId, place.owner, 0, 0, ANSWER_FEE);
    }

    /// @inheritdoc ISummons
    function replace(Posting memory posting, uint256 index) external {
        JobId jobId = _jobIdOf(posting.job);
        _requireOpen(jobId);
        require(_jobs[jobId].record == RecordLib.posted(posting), RecordMismatch(jobId));
        Place storage place = _placeOf(jobId, index);
        _requirePending(place, index);
        JobLib.requireAfter(place.answerBy);
        Panel storage panel = _panels[jobId];
        require(panel.replaced < MAX_REPLACED, TooManyReplaced(panel.replaced));
        uint256 number = panel.places.length + ++panel.replaced;
        (uint32[] memory seats, address[] memory owners) = _drawSeats(
            posting, DrawLib.draw(panel.secret, posting.commitment, panel.beacon), number
        );
        (address owner, uint256 lock) = (place.owner, place.lock);
        (uint32 seat, address successor) = (seats[number - 1], owners[number - 1]);
        delete panel.places[index];
        (place.owner, place.seat, place.number) = (successor, seat, uint16(number));
        emit Replaced(jobId, owner, index, number, seat, successor);
        _close(jobId, owner, lock, lock, 0);
        _close(jobId, posting.quote.scheduler, ANSWER_FEE, 0, 0);
        _burn(jobId, lock);
    }

    /// @inheritdoc ISummons
    function sealSummoned(
        Posting memory posting,
        Inner memory inner,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) external {
        JobId jobId = _jobIdOf(posting.job);
        bytes32 posted = RecordLib.posted(posting);
        JobLib.State storage job = _jobs[jobId];
        job.requireAt(jobId, Status.Summoned, posted);
        JobLib.requireBefore(job.deadline);
        Panel storage panel = _panels[jobId];
        Sealing memory sealing;
        sealing.secret = panel.secret;
        sealing.beacon = panel.beacon;
        sealing.inner = inner;
        _requireInferencer(jobId, posting, sealing.secret, inner);
        sealing.fee = _feeOf(posting, inner);
        sealing.sealedBlock = block.number.toUint40();
        sealing.committee = _members(jobId, posting, inners, signatures);
        job.seal(RecordLib.sealedRecord(posted, sealing), _from(CLAIM_WINDOW));
        emit Sealed(jobId, sealing);
    }

    /// @inheritdoc ISummons
    function dismiss(Posting memory posting) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        job.requireAt(jobId, Status.Summoned, RecordLib.posted(posting));
        JobLib.requireAfter(job.deadline);
        job.end();
        emit Finalized(jobId, Outcome.Refund, VerdictLib.NOT_SEALED);
        // The bond is 5/4 of lock and fee, so it covers all shares.
        uint256 share = _share(posting.job.maxFee, INFERENCER_BPS);
        (uint256 paid, uint256 pending, uint256 burnt) = _dismissMembers(jobId, posting);
        uint256 bond = posting.bond;
        _close(jobId, posting.worker, posting.lock, 0, share);
        _close(jobId, posting.quote.scheduler, bond + pending * ANSWER_FEE, bond, 0);
        _refund(jobId, posting.job.client, posting.quote.scheduler, posting.job.maxFee);
        _burn(jobId, bond - share - paid + burnt);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc ISummons
    function taskNumberOf(JobId jobId, uint256 k) external view returns (uint256) {
        return _numberOf(jobId, k);
    }

    /// @inheritdoc ISummons
    function placeOf(JobId jobId, uint256 index)
        external
        view
        returns (
            address owner,
            uint32 seat,
            uint16 number,
            uint96 lock,
            uint40 answerBy,
            bytes32 taskHash,
            bytes32 inner
        )
    {
        Place storage place = _placeOf(jobId, index);
        return (
            place.owner,
            place.seat,
            place.number,
            place.lock,
            place.answerBy,
            place.taskHash,
            place.inner
        );
    }

    /// @inheritdoc ISummons
    function panelOf(JobId jobId) external view returns (uint256 size, uint256 replaced) {
        Panel storage panel = _panels[jobId];
        return (panel.places.length, panel.replaced);
    }

    // ── Steps ───────────────────────────────────────────────────────────────────────────────────

    /// @dev Checks who calls and what it shows; the first time it draws the committee, as `seal` would.
    function _convene(Posting memory posting, bytes32 secret, Inner memory inner)
        private
        returns (JobId jobId)
    {
        jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        bool first = job.status == Status.Posted;
        Status expected = first ? Status.Posted : Status.Summoned;
        job.requireAt(jobId, expected, RecordLib.posted(posting));
        JobLib.requireBefore(job.deadline);
        require(_actsFor(msg.sender, posting.quote.scheduler), NotOperator(msg.sender));
        require(HashLib.drawCommit(secret) == posting.quote.drawCommit, DrawCommitMismatch());
        _requireInferencer(jobId, posting, secret, inner);
        if (!first) return jobId;
        Panel storage panel = _panels[jobId];
        panel.scheduler = posting.quote.scheduler;
        panel.secret = secret;
        panel.beacon = _beaconOf(posting.postedBlock);
        (uint32[] memory seats, address[] memory owners) =
            _drawSeats(posting, DrawLib.draw(secret, posting.commitment, panel.beacon));
        for (uint256 i = 0; i < owners.length; ++i) {
            Place storage place = panel.places.push();
            (place.owner, place.seat, place.number) = (owners[i], seats[i], uint16(i + 1));
        }
        emit Convened(jobId, secret, inner, seats, owners);
    }

    /// @dev Takes the task of a place's member into the place.
    function _requireTask(
        Posting memory posting,
        bytes32 secret,
        JobId jobId,
        Place storage place,
        ModelSpec calldata spec,
        Task calldata task
    ) private {
        bytes32 taskId = HashLib.taskId(secret, jobId, place.number);
        (ModelId modelId, uint256 requests) = (posting.quote.modelId, posting.job.requests);
        SummonsLib.requireTask(
            SummonsLib.Expected(taskId, place.owner, modelId, requests), spec, task
        );
        place.taskHash = TaskLib.hashTask(task);
    }

    /// @dev Puts the member under its lock and the job's end behind its answer.
    function _await(Posting memory posting, JobId jobId, Place storage place, uint256 work)
        private
        returns (uint40 answerBy)
    {
        answerBy = _queue(place.owner, work);
        uint256 latest = _latestSeal(posting.postedAt) - SEAL_WINDOW;
        require(answerBy <= latest, SummonsTooLate(answerBy, latest));
        place.answerBy = answerBy;
        JobLib.State storage job = _jobs[jobId];
        job.summon(Math.max(job.deadline, uint256(answerBy) + SEAL_WINDOW).toUint40());
        place.lock = _lockUpTo(place.owner, posting.lock);
        _lock(posting.quote.scheduler, ANSWER_FEE);
    }

    function _placeOf(JobId jobId, uint256 index) private view returns (Place storage place) {
        Place[] storage places = _panels[jobId].places;
        require(index < places.length, PlaceUnknown(index));
        return places[index];
    }

    function _requireOpen(JobId jobId) private view {
        JobLib.State storage job = _jobs[jobId];
        job.requireStatus(jobId, Status.Summoned);
        JobLib.requireBefore(job.deadline);
    }

    function _requirePending(Place storage place, uint256 index) private view {
        require(place.answerBy != 0, NotSummoned(index));
        require(place.inner == 0, AlreadyAnswered(index));
    }

    /// @dev When a member has to answer: what it computes for summonses it computes one after the other. Only
    /// computing queues, so that nobody can put an answer off far by summoning for little.
    function _queue(address owner, uint256 work) private returns (uint40 answerBy) {
        uint256 start = Math.max(_busyUntil[owner], block.timestamp);
        uint256 done = start + Math.ceilDiv(work, SummonsLib.TOKENS_PER_SECOND);
        _busyUntil[owner] = done.toUint40();
        return (done + OPENING_WINDOW).toUint40();
    }

    function _members(
        JobId jobId,
        Posting memory posting,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) private returns (Member[] memory committee) {
        Panel storage panel = _panels[jobId];
        uint256 size = panel.places.length;
        require(inners.length == size, CommitteeSizeWrong(inners.length, size));
        require(signatures.length == size, CommitteeSizeWrong(signatures.length, size));
        committee = new Member[](size);
        uint256 pending = 0;
        for (uint256 i = 0; i < size; ++i) {
            Place storage place = panel.places[i];
            Member memory member = Member(place.seat, place.owner, place.inner, place.lock);
            committee[i] = member;
            if (member.inner != 0) continue;
            member.inner = inners[i];
            bytes32 task = HashLib.taskId(panel.secret, jobId, place.number);
            bytes32 digest = _hashTypedDataV4(HashLib.hashCommitment(task, member.inner));
            _requireSigned(member.owner, digest, signatures[i]);
            if (place.answerBy == 0) member.lock = _lockUpTo(member.owner, posting.lock);
            else ++pending;
        }
        _close(jobId, posting.quote.scheduler, pending * ANSWER_FEE, 0, 0);
    }

    /// @dev Those who answered are paid as members; those who should have lose their locks.
    function _dismissMembers(JobId jobId, Posting memory posting)
        private
        returns (uint256 paid, uint256 pending, uint256 burnt)
    {
        Place[] storage places = _panels[jobId].places;
        uint256 each = _share(posting.job.maxFee, COMMITTEE_BPS) / places.length;
        for (uint256 i = 0; i < places.length; ++i) {
            Place storage place = places[i];
            if (place.answerBy == 0) continue;
            if (place.inner != 0) {
                _close(jobId, place.owner, place.lock, 0, each);
                paid += each;
            } else {
                _close(jobId, place.owner, place.lock, place.lock, 0);
                burnt += place.lock;
                ++pending;
            }
        }
    }
}
