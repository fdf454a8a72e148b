// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Verdict} from "../interfaces/IAdjudicator.sol";
import {
    AppealPhase,
    Claiming,
    Inner,
    Job,
    JobId,
    Member,
    Outcome,
    Posting,
    Sealing,
    Status
} from "../interfaces/Types.sol";
import {BeaconLib} from "../libraries/BeaconLib.sol";
import {DrawLib} from "../libraries/DrawLib.sol";
import {HashLib} from "../libraries/HashLib.sol";
import {JobLib} from "../libraries/JobLib.sol";
import {RecordLib} from "../libraries/RecordLib.sol";
import {VerdictLib} from "../libraries/VerdictLib.sol";
import {Roster} from "./Roster.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {BitMaps} from "@openzeppelin/contracts/utils/structs/BitMaps.sol";

/// @notice The docket of jobs: their records, what post and seal check, and the money of each outcome.
abstract contract Docket is Roster, EIP712 {
    using BitMaps for BitMaps.BitMap;
    using JobLib for JobLib.State;
    using SafeCast for uint256;

    /// @dev How a job ends. `bonus` is what each party that opened gets of a forfeited bond, `dust` what its division
    /// leaves to the client. Of a forced round the scheduler's share goes to them, too.
    struct Ending {
        Verdict verdict;
        address finder;
        address claimer;
        uint256 bonus;
        uint256 dust;
        bool forced;
    }

    /// @dev A public round: who opened it and whether for a bond; a reason that the chain cannot recompute, and who
    /// brought it later, if so; from Judged on the verdict of the states, its own reason as `cause`. `appealed`: a
    /// re-verification gave that verdict, and `finder` asked for it.
    struct Dispute {
        address challenger;
        bool bonded;
        bool appealed;
        uint8 reason;
        Outcome outcome;
        uint8 cause;
        uint8 lost;
        uint8 paid;
        address finder;
    }

    /// @dev The demands of a job so far; of the last one, who demanded, what was served, and whether all was.
    struct Demand {
        address demander;
        uint8 count;
        bool answered;
        uint256 served;
    }

    /// @dev A re-verification. `blockNumber` is where the contents were complete and, from Closed on, where the
    /// commitments were; `at` and `slots` are what the draw needs of the former. `tokens` counts those to run again.
    struct Appeal {
        address requester;
        AppealPhase phase;
        bool ofClaim;
        uint8 supplied;
        uint8 committed;
        uint32 slots;
        uint40 at;
        uint40 blockNumber;
        uint64 tokens;
        bytes32 round;
        uint8[8] objections;
        Member[] committee;
    }

    /// @dev The bond over lock and fee: aborting must cost more than the cheat that it would hide.
    uint256 internal constant BOND_BPS = 12_500;
    uint256 internal constant MAX_REQUESTS = 4096;
    /// @dev The scheduler where parties are numbered; the inferencer is 0, members are 1..m.
    uint256 internal constant SCHEDULER = 255;

    mapping(JobId => JobLib.State) internal _jobs;
    mapping(uint256 blockNumber => bytes32) internal _kept;
    mapping(address client => mapping(address scheduler => BitMaps.BitMap)) internal _nonces;
    mapping(JobId => Dispute) internal _disputes;
    mapping(JobId => Demand) internal _demands;
    /// @dev Bit p: party p has lost what it had at stake in the job.
    mapping(JobId => uint256 parties) internal _punished;

    mapping(JobId => Appeal) internal _appeals;

    constructor() EIP712("VeriLLM", "1") {}

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

    /// @dev Whether nobody may settle this job without a public round: a captured committee cannot know in time.
    function _isForced(Posting memory posting, Sealing memory sealing)
        internal
        view
        returns (bool)
    {
        if (FORCED_EVERY == 0) return false;
        bytes32 draw = DrawLib.draw(sealing.secret, posting.commitment, sealing.beacon);
        return DrawLib.isForced(draw, FORCED_EVERY);
    }

    /// @dev Whether `inner` is what the inferencer committed to, in this job, for all of its requests.
    function _requireInferencer(
        JobId jobId,
        Posting memory posting,
        bytes32 secret,
        Inner memory inner
    ) internal pure {
        bytes32 task = HashLib.taskId(secret, jobId, 0);
        bytes32 rebuilt = HashLib.hashCommitment(task, HashLib.hashInner(inner));
        require(
            rebuilt == posting.commitment && inner.items == posting.job.requests,
            CommitmentMismatch(0)
        );
    }

    function _feeOf(Posting memory posting, Inner memory inner) internal pure returns (uint96) {
        uint256 tokens = uint256(inner.promptTokens) + inner.newTokens;
        uint256 fee = posting.quote.unitPrice * tokens;
        return fee < posting.job.maxFee ? uint96(fee) : posting.job.maxFee; // at most maxFee
    }

    // ── What was signed ─────────────────────────────────────────────────────────────────────────

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
        uint256 each = _each(sealing);
        uint256 rest = posting.job.maxFee; // of the escrow
        uint256 pay = 0; // to the inferencer
        uint256 slash = 0; // from it
        uint256 toScheduler = 0;
        uint256 fromScheduler = 0;
        if (ending.verdict.outcome == Outcome.Accept) {
            pay = _share(sealing.fee, INFERENCER_BPS);
            // Dust of the committee's division goes to the scheduler, shares of the unpaid to the client.
            toScheduler = sealing.fee - pay - each * sealing.committee.length;
            rest -= pay + toScheduler;
            toScheduler -= _payCallers(jobId, ending.claimer, toScheduler);
            if (ending.forced) {
                _shareOut(ending, sealing.committee.length, toScheduler);
                toScheduler = 0;
            }
        }
        if (ending.verdict.lost & 1 == 0) pay += ending.bonus;
        // Of verifiers at most maxFee, and so at most the lock and the bond.
        (uint256 verifiers, uint256 burnt) =
            _settleCommittee(jobId, sealing.committee, each, ending);
        if (ending.verdict.outcome == Outcome.Accept) {
            rest -= verifiers;
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
        bool slashed = ending.verdict.outcome == Outcome.Slash;
        _punish(jobId, ending.verdict.lost | (slashed ? 1 : 0));
        _close(jobId, posting.worker, posting.lock, slash, pay);
        _close(jobId, posting.quote.scheduler, posting.bond, fromScheduler, toScheduler);
        _refund(jobId, posting.job.client, posting.quote.scheduler, rest + ending.dust);
        _burn(jobId, burnt);
    }

    /// @dev What each member is paid.
    function _each(Sealing memory sealing) internal view returns (uint256) {
        return _share(sealing.fee, COMMITTEE_BPS) / sealing.committee.length;
    }

    /// @dev Adds `amount`, in equal parts, to what those get who opened what they had to.
    function _shareOut(Ending memory ending, uint256 size, uint256 amount) internal pure {
        uint256 opened = 0;
        for (uint256 party = 0; party <= size; ++party) {
            opened += ((ending.verdict.lost >> party) & 1) ^ 1;
        }
        uint256 part = opened == 0 ? 0 : amount / opened;
        ending.bonus += part;
        ending.dust += amount - part * opened;
    }

    function _punish(JobId jobId, uint256 parties) internal {
        if (parties != 0) _punished[jobId] |= parties;
    }

    /// @dev Pays who deserves it; takes and burns the lock of who lost.
    function _settleCommittee(
        JobId jobId,
        Member[] memory committee,
        uint256 each,
        Ending memory ending
    ) internal returns (uint256 paid, uint256 burnt) {
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
        _close(jobId, _operatorOf(msg.sender), 0, 0, each);
        paid += each;
    }
}
