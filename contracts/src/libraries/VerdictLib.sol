// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Outcome, PairStatistics} from "../interfaces/Types.sol";

/// @notice From agreements between parties to an outcome (docs/protocol.md §7).
library VerdictLib {
    uint8 internal constant NONE = 0;
    uint8 internal constant STATES_DIFFER = 1;
    uint8 internal constant NON_FINITE = 2;
    uint8 internal constant WITHHELD = 3;
    uint8 internal constant MARGIN_MEAN = 5;
    uint8 internal constant MARGIN_MAX = 6;
    uint8 internal constant OUTSIDE_NUCLEUS = 7;
    uint8 internal constant LENGTH = 8;
    uint8 internal constant AFTER_END = 9;
    uint8 internal constant OUTPUT_MISMATCH = 11;
    uint8 internal constant TRACE_DIFFERS = 12;
    uint8 internal constant TASK_DIFFERS = 13;
    uint8 internal constant RECEIPT_DIFFERS = 14;
    uint8 internal constant OUT_OF_BOUNDS = 15;
    uint8 internal constant NO_CLIQUE = 20;
    uint8 internal constant DIVIDED = 21;
    uint8 internal constant TOO_FEW_POSITIONS = 22;
    uint8 internal constant TASK_MISMATCH = 25;
    uint8 internal constant HEAD_MISSING = 26;
    uint8 internal constant NOT_SEALED = 30;
    uint8 internal constant BEACON_LOST = 31;
    uint8 internal constant NOT_COMPARED = 32;

    /// @notice Members of a committee of `size` that decide: ⌈(m+1)/2⌉.
    function majority(uint256 size) internal pure returns (uint256) {
        return size / 2 + 1;
    }

    /// @notice Whether a claim may name this pair.
    function isClaimable(Outcome outcome, uint8 reason) internal pure returns (bool) {
        if (outcome == Outcome.Accept) return reason == NONE;
        if (outcome == Outcome.Slash) {
            return (reason >= STATES_DIFFER && reason <= WITHHELD)
                || (reason >= MARGIN_MEAN && reason <= OUTSIDE_NUCLEUS);
        }
        if (outcome == Outcome.Refund) return reason == STATES_DIFFER || isAttested(reason);
        if (outcome == Outcome.Inconclusive) {
            return reason >= NO_CLIQUE && reason <= HEAD_MISSING;
        }
        return false;
    }

    /// @notice Whether the chain cannot recompute this reason, so that the committee has to sign it.
    function isAttested(uint8 reason) internal pure returns (bool) {
        return reason >= MARGIN_MEAN && reason <= OUTPUT_MISMATCH;
    }

    /// @notice Who agrees with whom; bit k is member k, counted from 0.
    /// @param good members that opened everything, finite and of the same item.
    /// @param adjacency per member, those that agree with it at the refund tier.
    /// @param refundTier members with which the inferencer agrees at the refund tier.
    /// @param slashTier the same at the slash tier.
    struct Relations {
        uint256 good;
        uint256[] adjacency;
        uint256 refundTier;
        uint256 slashTier;
    }

    /// @notice Whether the sums of two parties lie within a tier; nothing compared agrees with nothing.
    function agree(PairStatistics memory sums, uint256 mean, uint256 over)
        internal
        pure
        returns (bool)
    {
        return sums.cells != 0 && sums.sum / sums.cells <= mean && sums.over <= over;
    }

    /// @notice What a mean is held to: `many` where there are `least` positions and more, else `few`.
    /// @param least `manyPositions` times the checked requests; 0: never.
    function meanOf(uint256 positions, uint256 least, uint256 few, uint256 many)
        internal
        pure
        returns (uint256)
    {
        return least != 0 && positions >= least ? many : few;
    }

    /// @notice The verdict on states, and who is paid: the members of some largest clique, or, where nothing
    /// follows, all good ones.
    /// @dev All 2^m subsets, m ≤ 7: the plainest thing that is right.
    function judge(Relations memory relations)
        internal
        pure
        returns (Outcome outcome, uint8 reason, uint256 paid)
    {
        uint256 largest = majority(relations.adjacency.length);
        bool accepts = false;
        bool rejects = false;
        bool slashes = false;
        for (uint256 clique = 1; clique < 1 << relations.adjacency.length; ++clique) {
            uint256 members = _count(clique);
            if (members < largest || clique & ~relations.good != 0) continue;
            if (!_isClique(clique, relations.adjacency)) continue;
            if (members > largest) {
                largest = members;
                paid = 0;
                accepts = rejects = slashes = false;
            }
            paid |= clique;
            if (clique & ~relations.refundTier == 0) accepts = true;
            if (clique & relations.refundTier == 0) {
                rejects = true;
                if (clique & relations.slashTier == 0) slashes = true;
            }
        }
        if (paid == 0) return (Outcome.Inconclusive, NO_CLIQUE, relations.good);
        if (accepts == rejects) return (Outcome.Inconclusive, DIVIDED, relations.good);
        if (accepts) return (Outcome.Accept, NONE, paid);
        return (slashes ? Outcome.Slash : Outcome.Refund, STATES_DIFFER, paid);
    }

    function _isClique(uint256 clique, uint256[] memory adjacency) private pure returns (bool) {
        for (uint256 k = 0; k < adjacency.length; ++k) {
            uint256 bit = 1 << k;
            if (clique & bit != 0 && clique & ~(adjacency[k] | bit) != 0) return false;
        }
        return true;
    }

    function _count(uint256 bits) private pure returns (uint256 count) {
        for (; bits != 0; bits &= bits - 1) {
            ++count;
        }
    }
}
