// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "./ILedger.sol";
import {
    Claiming,
    Inner,
    Item,
    ItemLeaf,
    Job,
    JobId,
    Posting,
    Quote,
    Sealing,
    Task
} from "./Types.sol";

/// @title A worker is paid for a task that its scheduler never posted
/// @notice Part of VeriLLM: call them at its address.
/// @dev Two dangers, one on each side. A scheduler could stream what a worker computed and never post it: then the
/// worker claims, from that scheduler's stake alone. A worker could take a task, keep silent, and claim for tokens
/// that it made up: then the scheduler posts what was claimed at its own cost (`postClaimed`), and a committee
/// judges it as it judges any job; or, where another did the work, it shows that job (`contestTask`). Money of a
/// claim moves under its commitment in place of a job's id.
interface IWages is ILedger {
    /// @notice A worker claims its fee from the stake of a scheduler that did not post what it committed to; all that
    /// the scheduler needs to post it.
    event TaskClaimed(
        bytes32 indexed commitment,
        address indexed scheduler,
        address indexed worker,
        uint256 amount,
        uint256 collectableAt,
        uint32 seat,
        Task task,
        Inner inner,
        ItemLeaf[] leaves,
        bytes[] outputs,
        bytes signature
    );
    /// @notice A job holds that commitment, or refutes it: both sides are free again, less what was burnt.
    event TaskContested(bytes32 indexed commitment, JobId indexed jobId, uint256 burnt);
    /// @notice Nobody showed such a job: the worker is paid.
    event TaskCollected(bytes32 indexed commitment, uint256 amount);

    error WorkInvalid(bytes32 field);
    error AlreadyClaimed(bytes32 commitment);
    error ClaimUnknown(bytes32 commitment);
    error NotContested(bytes32 commitment);
    /// @notice A job whose maxFee is less than the work is worth at its own price is no answer to a claim of it.
    error Underpriced(uint256 maxFee, uint256 least);

    /// @notice Claims the fee of a task that its scheduler did not post, from `sealWindow` after the task's deadline
    /// and for `unbonding`; signed by its worker, anyone may send it.
    /// @dev `min(task.fee, price of the seat × tokens)`, locked on the scheduler as far as its stake is free,
    /// collectable after `unbonding`. The worker stands for it with the task's `lock`. `outputs` are the new tokens of
    /// each item, u32 big-endian; `signatures` the scheduler's of the task and the worker's of the commitment.
    function claimTask(
        Task calldata task,
        Item[] calldata items,
        address scheduler,
        uint32 seat,
        Inner calldata inner,
        ItemLeaf[] calldata leaves,
        bytes[] calldata outputs,
        bytes[2] calldata signatures
    ) external;

    /// @notice Ends a claim by a job that holds its commitment; anyone may. If that job was there first, the worker pays
    /// as much as it wanted. So it does if the seal shows that it committed twice to the same task, or if it was put
    /// out of its place. Where another worker's output was accepted for the same task and requests, and it is not this
    /// one, the claim ends without a fine. A job that holds the commitment, or another's output, counts only if its maxFee
    /// could pay for the claimed work at its unit price, or what is due for it: else the worker is paid by the claim.
    /// @dev `sealing` and `claiming` count as far as the job has come. Why only another output: else a scheduler
    /// could have a friend post what the worker computed. Honest outputs may differ, too; then the worker goes without,
    /// but the scheduler paid for the work that was done.
    function contestTask(
        bytes32 commitment,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;

    /// @notice Ends a claim by posting the job that it belongs to, so that it is judged; the scheduler alone may.
    /// @dev At the scheduler's cost: it pays maxFee into escrow from its stake, on top of the bond, and what the job does
    /// not use goes to the client. No deadline, deposit or signature of the client counts, for none of its money
    /// does. A job that is not the task's can never be sealed, which costs the bond. Its maxFee covers the claimed work.
    function postClaimed(Job calldata job, Quote calldata quote, bytes32 commitment)
        external
        returns (JobId jobId);

    /// @notice Pays a claim that nobody contested within `unbonding`; anyone may call.
    function collectTask(bytes32 commitment) external;

    /// @notice A claim on a task's fee; `amount` 0 once it is closed, all zero where there is none.
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
        );
}
