// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Claiming, JobId, ModelId, ModelSpec, Outcome, Posting, Sealing, Status} from "./Types.sol";

/// @title What happens to money, seats and jobs: the events and errors of VeriLLM and its extensions
/// @notice Every one of them comes from VeriLLM's address.
interface ILedger {
    // ── Money in and out ────────────────────────────────────────────────────────────────────────
    /// @notice A client put money at the disposal of jobs that it signs for a scheduler.
    event Deposited(address indexed client, address indexed scheduler, uint256 amount);
    /// @notice A client asked for a deposit back.
    event UnlockRequested(
        address indexed client, address indexed scheduler, uint256 amount, uint256 availableAt
    );
    /// @notice A client took a deposit back.
    event DepositWithdrawn(address indexed client, address indexed scheduler, uint256 amount);
    /// @notice An operator added to its balance.
    event StakeAdded(address indexed operator, uint256 amount);
    /// @notice An operator asked for free stake back.
    event StakeWithdrawalRequested(address indexed operator, uint256 amount, uint256 availableAt);
    /// @notice An operator took free stake back.
    event StakeWithdrawn(address indexed operator, uint256 amount);
    /// @notice An operator named its signing key.
    event HotKeySet(address indexed operator, address indexed hotKey);
    /// @notice An operator said where its API listens.
    event EndpointSet(address indexed operator, string endpoint);

    // ── Models and seats ────────────────────────────────────────────────────────────────────────
    /// @notice A model version is known from now on; the id is the hash of the encoded spec.
    event ModelRegistered(ModelId indexed modelId, ModelSpec spec);
    /// @notice An owner took a seat; active in later blocks.
    event SeatJoined(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint96 price
    );
    /// @notice An owner left its seat; its stake stays bonded.
    event SeatLeft(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint256 releasableAt
    );
    /// @notice A seat that no stake backs any more was put out.
    event SeatEvicted(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint256 releasableAt
    );
    /// @notice A slot and its stake are free again.
    event SeatReleased(ModelId indexed modelId, uint32 indexed seat, address indexed owner);

    // ── Jobs ────────────────────────────────────────────────────────────────────────────────────
    /// @notice An inferencer is committed; fee, exposure and bond are locked.
    event Posted(
        JobId indexed jobId, address indexed scheduler, address indexed client, Posting posting
    );
    /// @notice The committee is committed; roles and secret are public.
    event Sealed(JobId indexed jobId, Sealing sealing);
    /// @notice Somebody claims a verdict.
    event Claimed(JobId indexed jobId, Claiming claiming);
    /// @notice A block hash is kept for good.
    event BeaconKept(uint256 indexed blockNumber, bytes32 beacon);
    /// @notice A public round began; `reason` is not 0 iff the committee attested to it.
    event ChallengeOpened(
        JobId indexed jobId,
        address indexed challenger,
        uint256 openBy,
        bytes32 beacon,
        uint8 reason
    );
    /// @notice A majority of the committee (Recourse.attest) or a proof (Recourse.overrule) speaks against what the
    /// states may accept; whoever brought it is in the challenger's place if that decides.
    event Supported(JobId indexed jobId, address indexed finder, uint8 reason, uint256 deadline);
    /// @notice The public round has a verdict; nothing is paid before `settleAfter`.
    /// @dev Outcome and reason with what was attested so far; `lost` bit p: party p, `paid` bit k-1: member k.
    event Judged(
        JobId indexed jobId,
        Outcome outcome,
        uint8 reason,
        uint8 lost,
        uint8 paid,
        uint256 settleAfter
    );
    /// @notice Somebody wants the bundle of a claim in calldata.
    event BundleDemanded(JobId indexed jobId, address indexed demander, uint256 openBy);
    /// @notice A part of the bundle is in this transaction's calldata.
    event ChunkServed(JobId indexed jobId, uint16 index, uint16 chunks);
    /// @notice All of the bundle is; the claim has a new window.
    event BundleServed(JobId indexed jobId, uint256 finalizeAfter);
    /// @notice It is not: the claim is void, and anyone may claim anew.
    event ClaimVoided(JobId indexed jobId, address indexed claimer, uint256 claimBy);
    /// @notice The prover's word against a party: 0..m as ever, 255 the scheduler.
    event Convicted(JobId indexed jobId, uint8 indexed party, uint8 reason, address indexed finder);
    /// @notice A job ended.
    event Finalized(JobId indexed jobId, Outcome outcome, uint8 reason);
    /// @notice Money moved to an account, or back to a deposit.
    event Paid(JobId indexed jobId, address indexed account, uint256 amount);
    /// @notice Money was taken from an account.
    event Slashed(JobId indexed jobId, address indexed operator, uint256 amount);
    /// @notice Money went to the dead address.
    event Burnt(JobId indexed jobId, uint256 amount);

    // ── Errors: each names the fact ─────────────────────────────────────────────────────────────
    error ConfigUnsafe(bytes32 field);
    error TransferInexact(uint256 expected, uint256 received);
    error AmountZero();
    error DepositInsufficient(uint256 available, uint256 required);
    error StakeInsufficient(address operator, uint256 available, uint256 required);
    error NotYetAvailable(uint256 availableAt);
    error NothingRequested();
    error HotKeyTaken(address hotKey);
    error NotOperator(address caller);
    error ModelUnknown(ModelId modelId);
    error ModelKnown(ModelId modelId);
    error SeatNotActive(ModelId modelId, uint32 seat);
    error SeatNotOwned(ModelId modelId, uint32 seat, address caller);
    error SeatStillBonded(uint256 releasableAt);
    error SeatTooExpensive(uint256 price, uint256 unitPrice);
    error TooFewOwners(uint256 owners, uint256 required);
    error StatusWrong(JobId jobId, Status actual, Status expected);
    error RecordMismatch(JobId jobId);
    error DeadlinePassed(uint256 deadline);
    error DeadlineNotReached(uint256 deadline);
    error QuoteExpired(uint256 expiry);
    error QuoteMismatch();
    error NonceUsed(address client, uint256 nonce);
    error RequestsOutOfBounds(uint256 requests);
    error LockTooSmall(uint256 lock, uint256 required);
    error SignatureInvalid(address expected);
    error DrawCommitMismatch();
    error CommitmentMismatch(uint256 party);
    error CommitteeSizeWrong(uint256 given, uint256 expected);
    error DrawExhausted(uint256 found, uint256 required);
    error BeaconUnavailable(uint256 blockNumber);
    error OutcomeInvalid();
    error AttestationsInsufficient(uint256 valid, uint256 required);
    error DeadlineTooFar(uint256 deadline, uint256 latest);
    error SeatBacked(uint256 balance, uint256 staked);
    error RoundForced(JobId jobId);
    error AlreadySupported(JobId jobId, uint8 reason);
    error TooManyDemands(JobId jobId);
    error AlreadyServed(JobId jobId);
    error ChunkInvalid(uint256 index);
    error NotProver(address caller);
    error PartyUnknown(uint256 party);
    error AlreadyConvicted(JobId jobId, uint256 party);
}
