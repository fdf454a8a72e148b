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

    /// @notice Opens the public round: bonded against a claim, free against a scheduler that let the claim deadline
    /// pass.
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
    /// @notice Computes the verdict of the public round and settles by it.
    function adjudicate(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;
}
