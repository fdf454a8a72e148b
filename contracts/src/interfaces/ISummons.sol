// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "./ILedger.sol";
import {Inner, Item, JobId, ModelSpec, Posting, Task} from "./Types.sol";

/// @title The way on where a drawn member keeps silent
/// @notice Part of VeriLLM: call them at its address.
/// @dev A no-show exists only on chain: a member that the scheduler does not reach is summoned with its task in
/// calldata, and hiding ends there. Who watches the chain and can send a transaction within `openingWindow` is never
/// fined. Tokens stand as u32, big-endian, in one string of bytes per item.
interface ISummons is ILedger {
    /// @notice The committee of a job is public before its seal; in drawn order.
    event Convened(
        JobId indexed jobId, bytes32 secret, Inner inner, uint32[] seats, address[] owners
    );
    /// @notice A member has to answer on chain; all that it needs, and the scheduler's signature of the task.
    event Summoned(
        JobId indexed jobId,
        address indexed owner,
        uint256 index,
        uint256 answerBy,
        Task task,
        Item[] items,
        bytes[] tokens,
        bytes signature
    );
    /// @notice A summoned member committed; `signature` is its commitment's.
    event Answered(
        JobId indexed jobId, address indexed owner, uint256 index, Inner inner, bytes signature
    );
    /// @notice A summoned member did not answer and lost its lock; the next of the stream has its place, and task
    /// `number`.
    event Replaced(
        JobId indexed jobId,
        address indexed owner,
        uint256 index,
        uint256 number,
        uint32 seat,
        address successor
    );

    error PlaceUnknown(uint256 index);
    error AlreadySummoned(uint256 index);
    error NotSummoned(uint256 index);
    error AlreadyAnswered(uint256 index);
    error TooManyReplaced(uint256 replaced);
    error TaskInvalid(bytes32 field);
    error SummonsTooLate(uint256 answerBy, uint256 latest);

    /// @notice Summons the member at place `index`, from 0, with its task in calldata; the scheduler alone may.
    /// @dev The first call shows the secret and fixes the committee; from then on only `sealSummoned` seals. It locks
    /// `answerFee` of the scheduler's free stake, and of the member's what `seal` would. The time to answer is
    /// `openingWindow` after all that the member was summoned for before can be computed, and this; the task's own deadline
    /// does not count, so that it may be the very task that the member was sent before. That the prompt
    /// is the job's is not checked here: the scheduler signed the task, and a false one convicts it (IProver).
    function summon(
        Posting calldata posting,
        bytes32 secret,
        Inner calldata inner,
        uint256 index,
        ModelSpec calldata spec,
        Task calldata task,
        Item[] calldata items,
        bytes[] calldata tokens,
        bytes calldata signature
    ) external;

    /// @notice Answers a summons with a commitment that the member signed; whoever sends it, the member gets the
    /// `answerFee`. Late is better than never: it counts until the place is taken by another, or sealing is over.
    function answer(JobId jobId, uint256 index, Inner calldata inner, bytes calldata signature)
        external;

    /// @notice Puts out a member that did not answer in time: its lock burns, and the next distinct owner of the same
    /// stream takes the place. Anyone may. Eight times a job.
    /// @dev The new member is asked like any other, or summoned. A scheduler wins nothing by it: nobody but
    /// who keeps silent can be replaced, and by nobody but the next.
    function replace(Posting calldata posting, uint256 index) external;

    /// @notice Seals a summoned job: members that answered stand as they did, `inners` and `signatures` count for the
    /// others. Anyone may.
    function sealSummoned(
        Posting calldata posting,
        Inner calldata inner,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) external;

    /// @notice Ends a summoned job that was not sealed in time, at the scheduler's cost: escrow back to the client; from
    /// the bond the inferencer's share of maxFee, and theirs to the members that answered; the rest burns, and
    /// the locks of those who should have answered.
    function dismiss(Posting calldata posting) external;

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @notice The number of the task that party `k` of a job was given: k, unless it replaced somebody.
    function taskNumberOf(JobId jobId, uint256 k) external view returns (uint256);

    /// @notice A place of a summoned committee.
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
        );

    /// @notice How many members a summoned committee has, and how many were replaced; zeros where nobody was summoned.
    function panelOf(JobId jobId) external view returns (uint256 size, uint256 replaced);
}
