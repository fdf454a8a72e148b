// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Verdict} from "../interfaces/IAdjudicator.sol";
import {
    AppealPhase,
    Claiming,
    Job,
    JobId,
    Member,
    Outcome,
    Posting,
    Sealing,
    Status
} from "../interfaces/Types.sol";
import {BeaconLib} from "../libraries/BeaconLib.sol";
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

    /// @dev How a job ends. `bonus` is what each party that opened gets of a forfeited challenge bond, `dust` what
    /// its division leaves to the client.
    struct Ending {
        Verdict verdict;
        address finder;
        address claimer;
        uint256 bonus;
        uint256 dust;
    }

    /// @dev Who challenged, and the reason that the committee attested to it, if any.
    struct Challenge {
        address challenger;
        uint8 reason;
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

    mapping(JobId => JobLib.State) internal _jobs;
    mapping(uint256 blockNumber => bytes32) internal _kept;
    mapping(address client => mapping(address scheduler => BitMaps.BitMap)) internal _nonces;
    mapping(JobId => Challenge) internal _challenges;

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
        _close(jobId, _operatorOf(msg.sender), 0, 0, each);
        paid += each;
    }
}
