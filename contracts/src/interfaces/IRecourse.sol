// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "./ILedger.sol";
import {Claiming, Outcome, Posting, Sealing} from "./Types.sol";

/// @title Ways out of a job that does not end as it should
/// @notice Part of VeriLLM: call them at its address.
interface IRecourse is ILedger {
    /// @notice Ends a job that was not sealed in time, at the scheduler's cost.
    function refund(Posting calldata posting) external;

    // ── The public round ────────────────────────────────────────────────────────────────────────
    // Lengths and openings go to the adjudicator, see IAdjudicator.

    /// @notice Opens the public round: bonded against a claim, free where the draw forces the round or the scheduler
    /// let the claim deadline pass.
    /// @dev Attested by a majority of the committee, for a reason that the chain cannot recompute, a challenge
    /// turns what the states accept into a refund; zeros and no attestations for any other challenge.
    function challenge(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external;
    /// @notice Adds what a majority of the committee attested to a round that was opened without it.
    /// @dev Else whoever cheats would challenge itself first, with nothing. Once a job, until `settle`.
    function attest(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external;
    /// @notice Computes the verdict of the public round; it may be appealed for `disputeWindow`.
    function adjudicate(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;
    /// @notice Pays by a verdict that nobody appealed.
    function settle(Posting calldata posting, Sealing calldata sealing, Claiming calldata claiming)
        external;

    // ── The bundle of a claim ───────────────────────────────────────────────────────────────────

    /// @notice Demands the bundle of a claim in calldata, bonded; the claim's window stands still meanwhile.
    /// @dev Once a claim, three times a job.
    function demand(Posting calldata posting, Sealing calldata sealing, Claiming calldata claiming)
        external;
    /// @notice Serves chunk `index` of the demanded bundle; `hashes` are those of all its chunks. Anyone may.
    /// @dev A chunk has 65 536 bytes, the last one at least 1; at most 256 of them.
    function serveBundle(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint16 index,
        bytes calldata chunk,
        bytes32[] calldata hashes
    ) external;
    /// @notice Ends a claim whose bundle was not served in time: its bond goes to who demanded.
    function voidClaim(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;

    // ── Objective proofs: from the prover alone ─────────────────────────────────────────────────

    /// @notice Punishes a party for what the prover checked: 0 the inferencer, 1..m a member, 255 the scheduler.
    /// @dev Once a party and job, from seal until `unbonding` after post. It ends a job that is open (the inferencer's
    /// fault: Slash; the scheduler's: Refund at its cost; a member's waits for the end), and takes up to the
    /// job's lock from what other jobs have not locked of a party whose job has ended. `finder` may be a hot key.
    function convict(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint8 party,
        uint8 reason,
        address finder
    ) external;
    /// @notice Speaks against a claim that accepts, or a round that may: the states of a committee majority reject.
    /// @dev Opens the public round where none is, so that a cheater gains nothing by overruling itself: what the
    /// states slash is slashed.
    function overrule(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        address finder
    ) external;
}
