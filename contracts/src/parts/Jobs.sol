// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Verdict} from "../interfaces/IAdjudicator.sol";
import {
    Claiming,
    IVeriLLM,
    Inner,
    Job,
    JobId,
    Member,
    Outcome,
    Posting,
    Quote,
    Sealing,
    Status
} from "../interfaces/IVeriLLM.sol";
import {BeaconLib} from "../libraries/BeaconLib.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Seats} from "./Seats.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {BitMaps} from "@openzeppelin/contracts/utils/structs/BitMaps.sol";

/// @notice A job from post to its end, and the money of each outcome.
abstract contract Jobs is Seats, EIP712 {
    using BitMaps for BitMaps.BitMap;
    using JobLib for JobLib.State;
    using SafeCast for uint256;

    /// @dev How a job ends. `bonus` is what each party that opened gets of a forfeited challenge bond, `dust` what
    /// its division leaves to the client.
    struct Ending {
        Verdict verdict;
        address finder;
        address claimer;
        uint256 bonus;
        uint256 dust;
    }

    /// @dev The bond over lock and fee: aborting must cost more than the cheat that it would hide.
    uint256 internal constant BOND_BPS = 12_500;
    uint256 internal constant MAX_REQUESTS = 4096;

    mapping(JobId => JobLib.State) internal _jobs;
    mapping(uint256 blockNumber => bytes32) private _kept;
    mapping(address client => mapping(address scheduler => BitMaps.BitMap)) private _nonces;

    constructor() EIP712("VeriLLM", "1") {}

    // ── A job's life ────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLM
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

    /// @inheritdoc IVeriLLM
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
        bytes32 task = HashLib.taskId(secret, jobId, 0);
        bytes32 rebuilt = HashLib.hashCommitment(task, HashLib.hashInner(inner));
        require(
            rebuilt == posting.commitment && inner.items == posting.job.requests,
            CommitmentMismatch(0)
        );
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

    /// @inheritdoc IVeriLLM
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
            claimer: operatorOf(msg.sender),
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

    /// @inheritdoc IVeriLLM
    function finalize(Posting memory posting, Sealing memory sealing, Claiming memory claiming)
        external
    {
        (JobId jobId, uint256 deadline) = _at(Status.Claimed, posting, sealing, claiming);
        JobLib.requireAfter(deadline);
        _jobs[jobId].end();
        _close(jobId, claiming.claimer, CLAIM_BOND, 0, 0);
        Ending memory ending;
        ending.verdict = Verdict(claiming.outcome, claiming.reason, 0, claiming.paid);
        ending.finder = claiming.claimer;
        ending.claimer = claiming.claimer;
        _settle(jobId, posting, sealing, ending);
    }

    /// @inheritdoc IVeriLLM
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

    /// @inheritdoc IVeriLLM
    function keep(uint256 blockNumber) external {
        bytes32 beacon = _beaconOf(blockNumber);
        _kept[blockNumber] = beacon;
        emit BeaconKept(blockNumber, beacon);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLM
    function jobState(JobId jobId)
        external
        view
        returns (Status status, uint40 deadline, bytes32 record)
    {
        JobLib.State storage job = _jobs[jobId];
        return (job.status, job.deadline, job.record);
    }

    /// @inheritdoc IVeriLLM
    function jobIdOf(Job memory job) external view returns (JobId) {
        return _jobIdOf(job);
    }

    /// @inheritdoc IVeriLLM
    function nonceUsed(address client, address scheduler, uint256 nonce)
        external
        view
        returns (bool)
    {
        return _nonces[client][scheduler].get(nonce);
    }

    // ── Money ───────────────────────────────────────────────────────────────────────────────────

    /// @dev Money in is maxFee from escrow and what is slashed; all of it goes to a party, back or to the dead
    /// address. Payments round down, and the rest of each division goes to the scheduler or the client.
    function _settle(
        JobId jobId,
        Posting memory posting,
        Sealing memory sealing,
        Ending memory ending
    ) internal {
        emit Finalized(jobId, ending.verdict.outcome, ending.verdict.reason);
        uint256 each = _share(sealing.fee, COMMITTEE_BPS) / sealing.committee.length;
        // Of verifiers at most maxFee, and so at most the lock and the bond.
        (uint256 verifiers, uint256 burnt) =
            _settleCommittee(jobId, sealing.committee, each, ending);
        uint256 rest = posting.job.maxFee; // of the escrow
        uint256 pay = ending.verdict.lost & 1 == 0 ? ending.bonus : 0; // to the inferencer
        uint256 slash = 0; // from it
        uint256 toScheduler = 0;
        uint256 fromScheduler = 0;
        if (ending.verdict.outcome == Outcome.Accept) {
            uint256 share = _share(sealing.fee, INFERENCER_BPS);
            // Dust of the committee's division goes to the scheduler, shares of the unpaid to the client.
            toScheduler = sealing.fee - share - each * sealing.committee.length;
            rest -= share + toScheduler + verifiers;
            pay += share;
            toScheduler -= _payCallers(jobId, ending.claimer, toScheduler);
        } else if (ending.verdict.outcome == Outcome.Refund) {
            slash = verifiers;
        } else if (ending.verdict.outcome == Outcome.Slash) {
            slash = posting.lock;
            uint256 found = slash - verifiers;
            if (found > sealing.fee) found = sealing.fee;
            burnt += slash - verifiers - found;
            _close(jobId, ending.finder, 0, 0, found);
        } else if (ending.verdict.reason == VerdictLib.BEACON_LOST) {
            fromScheduler = verifiers; // it could have kept the beacon
        } else {
            rest -= verifiers;
        }
        _close(jobId, posting.worker, posting.lock, slash, pay);
        _close(jobId, posting.quote.scheduler, posting.bond, fromScheduler, toScheduler);
        _refund(jobId, posting.job.client, posting.quote.scheduler, rest + ending.dust);
        _burn(jobId, burnt);
    }

    /// @dev Pays who deserves it; takes and burns the lock of who lost.
    function _settleCommittee(
        JobId jobId,
        Member[] memory committee,
        uint256 each,
        Ending memory ending
    ) private returns (uint256 paid, uint256 burnt) {
        for (uint256 i = 0; i < committee.length; ++i) {
            uint256 lock = committee[i].lock;
            if ((ending.verdict.lost >> (i + 1)) & 1 != 0) {
                _close(jobId, committee[i].owner, lock, lock, 0);
                burnt += lock;
            } else {
                uint256 pay = (ending.verdict.paid >> i) & 1 == 0 ? 0 : each;
                _close(jobId, committee[i].owner, lock, 0, pay + ending.bonus);
                paid += pay;
            }
        }
    }

    /// @dev A fixed fee each to who claimed and to who finalizes, from the scheduler's share as far as it goes.
    function _payCallers(JobId jobId, address claimer, uint256 available)
        private
        returns (uint256 paid)
    {
        uint256 each = CALLER_FEE;
        if (2 * each > available) each = available / 2;
        if (claimer != address(0)) {
            _close(jobId, claimer, 0, 0, each);
            paid += each;
        }
        _close(jobId, operatorOf(msg.sender), 0, 0, each);
        paid += each;
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

    function _feeOf(Posting memory posting, Inner memory inner) private pure returns (uint96) {
        uint256 tokens = uint256(inner.promptTokens) + inner.newTokens;
        uint256 fee = posting.quote.unitPrice * tokens;
        return fee < posting.job.maxFee ? uint96(fee) : posting.job.maxFee; // at most maxFee
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

    /// @dev One entry a member, in drawn order; empty where a member did not sign.
    function _requireAttested(
        Member[] memory committee,
        bytes32 attestation,
        bytes[] calldata attestations
    ) internal view {
        bytes32 digest = _hashTypedDataV4(attestation);
        require(
            attestations.length == committee.length,
            CommitteeSizeWrong(attestations.length, committee.length)
        );
        uint256 valid = 0;
        for (uint256 i = 0; i < committee.length; ++i) {
            bytes calldata signature = attestations[i];
            if (signature.length != 0 && _signed(committee[i].owner, digest, signature)) ++valid;
        }
        uint256 required = VerdictLib.majority(committee.length);
        require(valid >= required, AttestationsInsufficient(valid, required));
    }

    // ── For the public round ────────────────────────────────────────────────────────────────────

    /// @dev The job of these values, checked to stand at `status`.
    function _at(
        Status status,
        Posting memory posting,
        Sealing memory sealing,
        Claiming memory claiming
    ) internal view returns (JobId jobId, uint256 deadline) {
        jobId = _jobIdOf(posting.job);
        JobLib.State storage job = _jobs[jobId];
        bytes32 sealedRecord = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        job.requireAt(jobId, status, RecordLib.claimed(sealedRecord, claiming));
        deadline = job.deadline;
    }

    function _jobIdOf(Job memory job) internal view returns (JobId) {
        return JobId.wrap(_hashTypedDataV4(HashLib.hashJob(job)));
    }

    /// @dev Zero where neither the chain nor `keep` knows it.
    function _beacon(uint256 blockNumber) internal view returns (bytes32 beacon) {
        beacon = BeaconLib.beacon(blockNumber);
        if (beacon == 0) beacon = _kept[blockNumber];
    }

    function _beaconOf(uint256 blockNumber) internal view returns (bytes32 beacon) {
        beacon = _beacon(blockNumber);
        require(beacon != 0, BeaconUnavailable(blockNumber));
    }
}
