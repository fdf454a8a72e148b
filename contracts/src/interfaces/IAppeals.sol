// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "./ILedger.sol";
import {
    AppealPhase,
    Claiming,
    Content,
    Inner,
    JobId,
    Member,
    Outcome,
    Posting,
    Sealing,
    Status
} from "./Types.sol";

/// @title Re-verification: once per job, by a larger committee, in the open
/// @notice Part of VeriLLM: call them at its address. A claim in its window, or the verdict of a public round in its
/// own, is put before a committee drawn anew from all seats. Everything is on the chain: what was asked and answered,
/// what each member commits to, what each opens. The verdict on it is final.
/// @dev Assumptions. (1) Of the new committee, at least a majority is honest: how likely that is at which share of
/// honest seats stands in docs/economics.md. (2) Whoever is drawn, and each party of the first round, sends
/// transactions within `openingWindow`. (3) The requester does not choose the hash of the block in which its contents
/// are complete. What is disputed becomes public: prompt and output.
interface IAppeals is ILedger {
    /// @notice A re-verification was asked for; `status` is where the job stood.
    event ReverificationAsked(
        JobId indexed jobId, address indexed requester, Status status, uint256 supplyBy
    );
    /// @notice One checked request, by its place in the drawn order, with its output.
    event ContentSupplied(JobId indexed jobId, uint256 indexed place, Content content);
    /// @notice All contents are there: the hash of this block draws the committee.
    event ContentsComplete(JobId indexed jobId, uint256 tokens, uint256 conveneBy);
    /// @notice The committee is drawn and locked; a member that is still busy with other re-verifications has no lock.
    event Convened(JobId indexed jobId, Member[] committee, uint256 commitBy);
    /// @notice A member of the new committee, counted from 0, committed.
    event Recommitted(JobId indexed jobId, uint256 indexed index, Inner inner);
    /// @notice No commitment comes any more: the hash of this block draws the positions.
    event CommitsClosed(JobId indexed jobId, uint256 committed, uint256 startBy);
    /// @notice The adjudicator's round over these values began; the first committee stands behind the new one.
    event RoundStarted(JobId indexed jobId, Sealing sealing, bytes32 beacon, uint256 openBy);
    /// @notice A member of the new committee rejects the tokens.
    event TokensRejected(JobId indexed jobId, uint256 indexed index, uint8 reason);
    /// @notice What the new committee's openings say; `stands` where the job ends as it would have without them.
    /// @param strangers bit k-1: member k of the first committee showed states that the new one does not have.
    event Concluded(
        JobId indexed jobId, Outcome outcome, uint8 reason, bool stands, uint8 strangers
    );

    error ContentInvalid(uint256 request, bytes32 fact);
    error ContentOutOfBounds(uint256 request, bytes32 bound);
    error ContentsExceeded(uint256 supplied, uint256 required);
    error PhaseWrong(AppealPhase actual, AppealPhase expected);
    error MemberUnknown(uint256 index);
    error AlreadyCommitted(uint256 index);
    error NotCommitted(uint256 index);
    error TaskHashWrong(bytes32 given, bytes32 expected);

    /// @notice Asks for a re-verification, bonded by `reverifyBond`, while a claim or a verdict can still be disputed.
    /// @dev `contents` are those of the first checked requests, in drawn order; `supply` brings what is too large for
    /// one call. What no worker can run is refused, since who is drawn loses its lock by not running it: it convicts who
    /// signed it (IProver), and needs no committee.
    function reverify(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Content[] calldata contents
    ) external;
    /// @notice Brings the contents of the next checked requests; anyone may.
    function supply(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Content[] calldata contents
    ) external;
    /// @notice Draws the committee and locks its stake, in a block after the one that completed the contents.
    function convene(Posting calldata posting, Sealing calldata sealing, Claiming calldata claiming)
        external;
    /// @notice Commits a member, counted from 0, to its states; by its operator or hot key.
    /// @dev `inner.taskHash` is `appealTask(jobId, index, owner)`: every leaf below it is bound to the member, so that
    /// another's roots are of no use.
    function recommit(JobId jobId, uint256 index, Inner calldata inner) external;
    /// @notice Ends the commitments when their time is over; the last of all commitments does so by itself.
    function closeCommits(JobId jobId) external;
    /// @notice Opens the adjudicator's round, in a block after the one that closed the commitments.
    function startRound(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;
    /// @notice A member's word that its own states reject the tokens: the chain cannot recompute that. Counts by a
    /// majority of the committee, and refunds.
    function rejectTokens(JobId jobId, uint256 index, uint8 reason) external;
    /// @notice Ends the job by the new committee's openings, or as it stood where they say nothing.
    function conclude(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;

    /// @notice Where a re-verification stands, who asked for it, and its committee.
    function appealOf(JobId jobId)
        external
        view
        returns (AppealPhase phase, address requester, Member[] memory committee);
}
