// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "./ILedger.sol";
import {
    Claiming,
    Config,
    Inner,
    Job,
    JobId,
    ModelId,
    ModelSpec,
    Outcome,
    Posting,
    Quote,
    Sealing,
    Status
} from "./Types.sol";

/// @title The happy path: money, seats, and jobs from post to finalize
/// @notice What VeriLLM's own code does; the rest is in IRecourse.
interface IVeriLLMCore is ILedger {
    // ── Client ──────────────────────────────────────────────────────────────────────────────────
    /// @notice Puts `amount` at the disposal of jobs that the caller signs for `scheduler`.
    function deposit(address scheduler, uint96 amount) external;
    /// @notice Asks for `amount` back; the scheduler may use it until the delay has passed.
    function requestUnlock(address scheduler, uint96 amount) external;
    /// @notice Pays out an unlocked deposit, at most what is left of it.
    function withdrawDeposit(address scheduler) external;

    // ── Operator (worker or scheduler) ──────────────────────────────────────────────────────────
    /// @notice Adds `amount` to the caller's stake, free until a seat or a job takes it.
    function addStake(uint96 amount) external;
    /// @notice Asks for free stake and earnings back; payable, and slashable until then, after `unbonding`.
    function requestStakeWithdrawal(uint96 amount) external;
    /// @notice Pays out a requested withdrawal, at most what is free by then.
    function withdrawStake() external;
    /// @notice Names the key that signs tasks and commitments, and sends a scheduler's transactions; the key before stays valid for `keyGrace`.
    function setHotKey(address hotKey) external;
    /// @notice Publishes where the caller's API listens.
    function setEndpoint(string calldata endpoint) external;
    /// @notice Registers an immutable model version; anyone may.
    function registerModel(ModelSpec calldata spec) external returns (ModelId modelId);
    /// @notice Takes a seat for one model at one price a token; active in blocks after this one.
    function join(ModelId modelId, uint96 price) external returns (uint32 seat);
    /// @notice Leaves a seat; it still serves the jobs posted before, and its stake stays bonded for `unbonding`.
    function leave(ModelId modelId, uint32 seat) external;
    /// @notice Frees the slot and the stake of a seat whose unbonding has ended.
    function release(ModelId modelId, uint32 seat) external;
    /// @notice Puts out a seat whose owner's balance no longer covers its staked sum; anyone may.
    function evict(ModelId modelId, uint32 seat) external;

    // ── A job's life ────────────────────────────────────────────────────────────────────────────
    /// @notice Posts an inferencer's commitment to a signed job; locks fee, exposure and bond.
    function post(
        Job calldata job,
        Quote calldata quote,
        uint32 seat,
        bytes32 commitment,
        bytes32 outputsRoot,
        uint96 lock,
        bytes calldata clientSignature,
        bytes calldata workerSignature
    ) external returns (JobId jobId);
    /// @notice Shows the secret, seals the drawn committee's commitments, fixes the fee.
    function seal(
        Posting calldata posting,
        bytes32 secret,
        Inner calldata inner,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) external;
    /// @notice Claims a verdict, bonded; who disagrees must challenge within `disputeWindow`.
    function claim(
        Posting calldata posting,
        Sealing calldata sealing,
        Outcome outcome,
        uint8 reason,
        uint8 paid,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external;
    /// @notice Settles an unchallenged claim; pays the caller a fixed fee from the scheduler's share.
    function finalize(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;
    /// @notice Stores the hash of a block while the chain still knows it, for every job posted or sealed in it.
    function keep(uint256 blockNumber) external;

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────
    /// @notice What the deployment fixed.
    function config() external view returns (Config memory);
    /// @notice Where a job stands, until when, and the hash of what callers must bring.
    function jobState(JobId jobId)
        external
        view
        returns (Status status, uint40 deadline, bytes32 record);
    /// @notice The id of a job: its EIP-712 digest here.
    function jobIdOf(Job calldata job) external view returns (JobId);
    /// @notice What a client has at the disposal of a scheduler, and what of it is unlocking.
    function depositOf(address client, address scheduler)
        external
        view
        returns (uint96 amount, uint96 unlocking, uint40 availableAt);
    /// @notice An operator's money: all of it, what is locked in jobs, staked in seats, on its way out.
    function accountOf(address operator)
        external
        view
        returns (
            uint96 balance,
            uint96 locked,
            uint96 staked,
            uint96 withdrawing,
            uint40 availableAt,
            address hotKey
        );
    /// @notice Whom a key acts for: its operator, or itself.
    function operatorOf(address hotKey) external view returns (address operator);
    /// @notice Who holds a seat, since when, until when (0: still), at which price.
    function seatOf(ModelId modelId, uint32 seat)
        external
        view
        returns (address owner, uint40 activeFrom, uint40 leftAt, uint96 price);
    /// @notice How many slots a model has, and how many distinct owners hold active seats.
    function slotsOf(ModelId modelId) external view returns (uint32 slots, uint32 owners);
    /// @notice Whether a client has used a nonce with a scheduler.
    /// @dev Counted for each scheduler, as deposits are: else what a client posts with one could make
    /// void what another is already serving.
    function nonceUsed(address client, address scheduler, uint256 nonce)
        external
        view
        returns (bool);
}
