// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ILedger} from "../interfaces/ILedger.sol";
import {JobId, Status} from "../interfaces/Types.sol";

/// @notice A job's state machine: one function per transition, each starting with its guard.
/// @dev `deadline` is when the state's regular way out ends. Callers bring what `record` hashes.
library JobLib {
    struct State {
        Status status;
        uint40 deadline;
        bytes32 record;
    }

    using JobLib for State;

    // ── Guards ──────────────────────────────────────────────────────────────────────────────────

    function requireStatus(State storage self, JobId jobId, Status expected) internal view {
        require(self.status == expected, ILedger.StatusWrong(jobId, self.status, expected));
    }

    function requireAt(State storage self, JobId jobId, Status expected, bytes32 record)
        internal
        view
    {
        self.requireStatus(jobId, expected);
        require(self.record == record, ILedger.RecordMismatch(jobId));
    }

    function requireBefore(uint256 deadline) internal view {
        require(block.timestamp < deadline, ILedger.DeadlinePassed(deadline));
    }

    function requireAfter(uint256 deadline) internal view {
        require(block.timestamp >= deadline, ILedger.DeadlineNotReached(deadline));
    }

    // ── Transitions ─────────────────────────────────────────────────────────────────────────────

    function post(State storage self, JobId jobId, bytes32 record, uint40 sealBy) internal {
        self.requireStatus(jobId, Status.None);
        _enter(self, Status.Posted, record, sealBy);
    }

    // The others follow `requireAt`: callers need the old record checked before they can compute the new one.

    /// @notice From Posted, or once more.
    function summon(State storage self, uint40 sealBy) internal {
        _enter(self, Status.Summoned, self.record, sealBy);
    }

    function seal(State storage self, bytes32 record, uint40 claimBy) internal {
        _enter(self, Status.Sealed, record, claimBy);
    }

    function claim(State storage self, bytes32 record, uint40 finalizeAfter) internal {
        _enter(self, Status.Claimed, record, finalizeAfter);
    }

    /// @notice From Claimed with the claim's record, or from Sealed with that of an empty claim.
    function challenge(State storage self, bytes32 record, uint40 openBy) internal {
        _enter(self, Status.Challenged, record, openBy);
    }

    /// @notice From Claimed or Judged; each step of a re-verification sets its own deadline.
    function reverify(State storage self, uint40 deadline) internal {
        _enter(self, Status.Reverifying, self.record, deadline);
    }

    /// @notice The verdict is there; until `settleAfter` it may be appealed.
    function judge(State storage self, uint40 settleAfter) internal {
        _enter(self, Status.Judged, self.record, settleAfter);
    }

    function demand(State storage self, uint40 openBy) internal {
        _enter(self, Status.Demanded, self.record, openBy);
    }

    /// @notice Back to Claimed: the bundle is there.
    function answer(State storage self, uint40 finalizeAfter) internal {
        _enter(self, Status.Claimed, self.record, finalizeAfter);
    }

    /// @notice Back to Sealed: the claim is void.
    function reopen(State storage self, bytes32 record, uint40 claimBy) internal {
        _enter(self, Status.Sealed, record, claimBy);
    }

    /// @notice The record stays: what parties signed for can be proven against them after the end.
    function end(State storage self) internal {
        _enter(self, Status.Final, self.record, 0);
    }

    function _enter(State storage self, Status status, bytes32 record, uint40 deadline) private {
        self.status = status;
        self.deadline = deadline;
        self.record = record;
    }
}
