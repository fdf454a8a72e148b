// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Verdict} from "../interfaces/IAdjudicator.sol";
import {IVeriLLMCore} from "../interfaces/IVeriLLMCore.sol";
import {
    Claiming,
    Inner,
    Job,
    JobId,
    Member,
    Outcome,
    Posting,
    Quote,
    Sealing,
    Status
} from "../interfaces/Types.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Docket} from "./Docket.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {BitMaps} from "@openzeppelin/contracts/utils/structs/BitMaps.sol";

/// @notice A job on the happy path: post, seal, claim, finalize.
abstract contract Jobs is IVeriLLMCore, Docket {
    using BitMaps for BitMaps.BitMap;
    using JobLib for JobLib.State;
    using SafeCast for uint256;

    // ── A job's life ────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLMCore
    function post(
        Job memory job,
        Quote memory quote,
        uint32 seat,
        bytes32 commitment,
        bytes32 outputsRoot,
        uint96 lock,
        bytes calldata clientSignature,
        bytes calldata workerSignature
    ) external returns (JobId jobId) {
        _requireOrder(job, quote);
        Posting memory posting;
        posting.job = job;
        posting.quote = quote;
        posting.seat = seat;
        posting.commitment = commitment;
        posting.outputsRoot = outputsRoot;
        posting.lock = lock;
        jobId = _jobIdOf(job);
        _requireSigned(_inferencerOf(posting), _hashTypedDataV4(commitment), workerSignature);
        _requireClient(job.client, jobId, clientSignature);
        _take(posting);
        _jobs[jobId].post(jobId, RecordLib.posted(posting), _from(SEAL_WINDOW));
        emit Posted(jobId, posting.quote.scheduler, posting.job.client, posting);
    }

    /// @inheritdoc IVeriLLMCore
    function seal(
        Posting memory posting,
        bytes32 secret,
        Inner memory inner,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        bytes32 posted = RecordLib.posted(posting);
        job.requireAt(jobId, Status.Posted, posted);
        JobLib.requireBefore(job.deadline);
        require(HashLib.drawCommit(secret) == posting.quote.drawCommit, DrawCommitMismatch());
        _requireInferencer(jobId, posting, secret, inner);
        Sealing memory sealing;
        sealing.secret = secret;
        sealing.inner = inner;
        sealing.beacon = _beaconOf(posting.postedBlock);
        sealing.fee = _feeOf(posting, inner);
        sealing.sealedBlock = block.number.toUint40();
        sealing.committee =
            _seat(posting, DrawLib.draw(secret, posting.commitment, sealing.beacon), inners);
        _requireCommitted(jobId, sealing, signatures);
        job.seal(RecordLib.sealedRecord(posted, sealing), _from(CLAIM_WINDOW));
        emit Sealed(jobId, sealing);
    }

    /// @inheritdoc IVeriLLMCore
    function claim(
        Posting memory posting,
        Sealing memory sealing,
        Outcome outcome,
        uint8 reason,
        uint8 paid,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external {
        JobId jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        bytes32 sealedRecord = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        job.requireAt(jobId, Status.Sealed, sealedRecord);
        JobLib.requireBefore(job.deadline);
        bool known = paid < 1 << sealing.committee.length;
        require(known && VerdictLib.isClaimable(outcome, reason), OutcomeInvalid());
        Claiming memory claiming = Claiming({
            claimer: _operatorOf(msg.sender),
            outcome: outcome,
            reason: reason,
            paid: paid,
            bundle: bundle,
            beacon: _beaconOf(sealing.sealedBlock)
        });
        if (VerdictLib.isAttested(reason)) {
            bytes32 attestation = HashLib.hashAttestation(jobId, outcome, reason, bundle);
            _requireAttested(sealing.committee, attestation, attestations);
        }
        _lock(claiming.claimer, CLAIM_BOND);
        job.claim(RecordLib.claimed(sealedRecord, claiming), _from(DISPUTE_WINDOW));
        emit Claimed(jobId, claiming);
    }

    /// @inheritdoc IVeriLLMCore
    function finalize(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Claimed, posting, sealing, claiming);
        JobLib.requireAfter(deadline);
        require(!_isForced(posting, sealing), RoundForced(jobId));
        _jobs[jobId].end();
        _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
        Ending memory ending;
        ending.verdict = Verdict(claiming.outcome, claiming.reason, 0, claiming.paid);
        ending.finder = claiming.claimer;
        ending.claimer = claiming.claimer;
        _settle(jobId, posting, sealing, ending);
    }

    /// @inheritdoc IVeriLLMCore
    function keep(uint256 blockNumber) external {
        bytes32 beacon = _beaconOf(blockNumber);
        _kept[blockNumber] = beacon;
        emit BeaconKept(blockNumber, beacon);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLMCore
    function jobState(JobId jobId)
        external
        view
        returns (Status status, uint40 deadline, bytes32 record)
    {
        JobLib.State storage job = _jobs[jobId];
        return (job.status, job.deadline, job.record);
    }

    /// @inheritdoc IVeriLLMCore
    function jobIdOf(Job memory job) external view returns (JobId) {
        return _jobIdOf(job);
    }

    /// @inheritdoc IVeriLLMCore
    function nonceUsed(address client, address scheduler, uint256 nonce)
        external
        view
        returns (bool)
    {
        return _nonces[client][scheduler].get(nonce);
    }

    // ── Checks of post and seal ─────────────────────────────────────────────────────────────────

    function _requireOrder(Job memory job, Quote memory quote) private view {
        require(_actsFor(msg.sender, quote.scheduler), NotOperator(msg.sender));
        require(HashLib.hashQuote(quote) == job.quote, QuoteMismatch());
        require(block.timestamp <= quote.expiry, QuoteExpired(quote.expiry));
        require(block.timestamp <= job.deadline, DeadlinePassed(job.deadline));
        uint256 latest = block.timestamp + JOB_WINDOW;
        require(job.deadline <= latest, DeadlineTooFar(job.deadline, latest));
        require(
            job.requests != 0 && job.requests <= MAX_REQUESTS, RequestsOutOfBounds(job.requests)
        );
    }

    /// @dev Fills in what the chain knows of the seat; returns its owner.
    function _inferencerOf(Posting memory posting) private view returns (address owner) {
        Model storage model = _knownModel(posting.quote.modelId);
        uint256 required = uint256(model.committee) + 1;
        require(model.owners >= required, TooFewOwners(model.owners, required));
        posting.slots = model.slots;
        Seat storage seat = _seats[posting.quote.modelId][posting.seat];
        require(
            _activeAt(seat, block.timestamp), SeatNotActive(posting.quote.modelId, posting.seat)
        );
        require(
            seat.price <= posting.quote.unitPrice,
            SeatTooExpensive(seat.price, posting.quote.unitPrice)
        );
        owner = seat.owner;
        posting.worker = owner;
    }

    function _requireClient(address client, JobId jobId, bytes calldata signature) private view {
        require(
            SignatureChecker.isValidSignatureNowCalldata(client, JobId.unwrap(jobId), signature),
            SignatureInvalid(client)
        );
    }

    /// @dev Takes the nonce, the fee, the exposure and the bond.
    function _take(Posting memory posting) private {
        BitMaps.BitMap storage nonces = _nonces[posting.job.client][posting.quote.scheduler];
        require(!nonces.get(posting.job.nonce), NonceUsed(posting.job.client, posting.job.nonce));
        uint256 required = _demand(posting.job.maxFee, KAPPA_BPS);
        require(posting.lock >= required, LockTooSmall(posting.lock, required));
        uint256 bond = _demand(uint256(posting.lock) + posting.job.maxFee, BOND_BPS);
        nonces.set(posting.job.nonce);
        _escrow(posting.job.client, posting.quote.scheduler, posting.job.maxFee);
        _lockExposure(posting.worker, posting.lock);
        _lock(posting.quote.scheduler, bond);
        posting.bond = bond.toUint96();
        posting.postedAt = _from(0);
        posting.postedBlock = block.number.toUint40();
    }

    /// @dev An inferencer's lock leaves the part of its stake that is reserved for verification.
    function _lockExposure(address worker, uint256 amount) private {
        Account storage account = _accounts[worker];
        uint256 reserve = _demand(account.staked, RESERVE_BPS);
        uint256 free = _free(account);
        free = free > reserve ? free - reserve : 0;
        require(amount <= free, StakeInsufficient(worker, free, amount));
        account.locked += uint96(amount); // at most the balance
    }

    /// @dev The drawn members with what they committed to, each locked with what it has left of the lock.
    function _seat(Posting memory posting, bytes32 draw, bytes32[] calldata inners)
        private
        returns (Member[] memory committee)
    {
        (uint32[] memory seats, address[] memory owners) = _drawSeats(posting, draw);
        uint256 size = owners.length;
        require(inners.length == size, CommitteeSizeWrong(inners.length, size));
        committee = new Member[](size);
        for (uint256 i = 0; i < size; ++i) {
            committee[i] =
                Member(seats[i], owners[i], inners[i], _lockUpTo(owners[i], posting.lock));
        }
    }

    function _requireCommitted(JobId jobId, Sealing memory sealing, bytes[] calldata signatures)
        private
        view
    {
        uint256 size = sealing.committee.length;
        require(signatures.length == size, CommitteeSizeWrong(signatures.length, size));
        for (uint256 i = 0; i < size; ++i) {
            Member memory member = sealing.committee[i];
            bytes32 task = HashLib.taskId(sealing.secret, jobId, i + 1);
            bytes32 commitment = HashLib.hashCommitment(task, member.inner);
            _requireSigned(member.owner, _hashTypedDataV4(commitment), signatures[i]);
        }
    }
}
