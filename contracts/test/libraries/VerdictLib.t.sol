// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Outcome, PairStatistics} from "../../src/interfaces/Types.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Test} from "../Test.sol";

/// @notice Which words a claim may use, and the edges of agreement: each of them, none sampled.
contract VerdictLibTest is Test {
    /// @dev By the table of reasons (docs/protocol.md §7), one bit a code.
    uint256 private constant ATTESTED = 0xfe0; // 5..11
    uint256 private constant SLASHES = 0xee; // 1..3, 5..7
    uint256 private constant REFUNDS = 0xfe2; // 1, 5..11
    uint256 private constant INCONCLUSIVE = 0x7f00000; // 20..26

    function test_everyOutcomeAndReason_isClaimableAsTheTableSays() public pure {
        for (uint256 reason = 0; reason < 256; ++reason) {
            uint256 bit = 1 << reason;
            uint8 code = uint8(reason);
            assertEq(VerdictLib.isClaimable(Outcome.None, code), false, "none");
            assertEq(VerdictLib.isClaimable(Outcome.Accept, code), reason == 0, "accept");
            assertEq(VerdictLib.isClaimable(Outcome.Slash, code), bit & SLASHES != 0, "slash");
            assertEq(VerdictLib.isClaimable(Outcome.Refund, code), bit & REFUNDS != 0, "refund");
            assertEq(
                VerdictLib.isClaimable(Outcome.Inconclusive, code),
                bit & INCONCLUSIVE != 0,
                "inconclusive"
            );
            assertEq(VerdictLib.isAttested(code), bit & ATTESTED != 0, "attested");
        }
    }

    /// @notice More than half of an odd committee: one more than those who could say the contrary.
    function test_majority_isMoreThanHalf() public pure {
        uint8[4] memory majorities = [1, 2, 3, 4];
        for (uint256 i = 0; i < 4; ++i) {
            assertEq(VerdictLib.majority(2 * i + 1), majorities[i]);
        }
    }

    function test_agreement_endsWhereMeanOrCountPassTheTier() public pure {
        assertEq(VerdictLib.agree(PairStatistics(399, 4, 2), 99, 2), true, "the mean is a floor");
        assertEq(VerdictLib.agree(PairStatistics(400, 4, 2), 99, 2), false, "mean");
        assertEq(VerdictLib.agree(PairStatistics(399, 4, 3), 99, 2), false, "over");
        assertEq(VerdictLib.agree(PairStatistics(0, 1, 0), 0, 0), true, "equal states");
        assertEq(VerdictLib.agree(PairStatistics(0, 0, 0), 99, 2), false, "nothing compared");
    }

    function test_meanOf_isTheSharperOneFromSoManyPositionsOn() public pure {
        assertEq(VerdictLib.meanOf(63, 64, 16, 15), 16, "one too few");
        assertEq(VerdictLib.meanOf(64, 64, 16, 15), 15, "so many");
        assertEq(VerdictLib.meanOf(65, 64, 16, 15), 15, "more");
        assertEq(VerdictLib.meanOf(1, 1, 16, 15), 15, "one is enough");
        assertEq(VerdictLib.meanOf(64, 0, 16, 15), 16, "never");
        assertEq(VerdictLib.meanOf(0, 0, 16, 15), 16, "never, nothing compared");
    }

    /// @notice A larger clique sets aside what smaller ones said: neither who is paid nor how it ends is theirs.
    function test_judge_paysOnlyTheLargestClique() public pure {
        VerdictLib.Relations memory relations;
        relations.good = 31;
        relations.adjacency = new uint256[](5);
        relations.adjacency[0] = 6; // with 1 and 2: three of five, found first
        relations.adjacency[1] = 29;
        relations.adjacency[2] = 27;
        relations.adjacency[3] = 22;
        relations.adjacency[4] = 14;
        relations.refundTier = 7; // the inferencer is with the three
        (Outcome outcome, uint8 reason, uint256 paid) = VerdictLib.judge(relations);
        assertEq(uint8(outcome), uint8(Outcome.Inconclusive));
        assertEq(reason, VerdictLib.DIVIDED);
        assertEq(paid, 31, "nothing follows: all good ones");
        relations.refundTier = 30;
        (outcome, reason, paid) = VerdictLib.judge(relations);
        assertEq(uint8(outcome), uint8(Outcome.Accept));
        assertEq(paid, 30, "the four");
    }
}
