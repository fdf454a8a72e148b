// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Outcome, PairStatistics} from "../../src/interfaces/Types.sol";
import {DrawLib} from "../../src/libraries/DrawLib.sol";
import {StatisticsLib} from "../../src/libraries/StatisticsLib.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";

/// @notice What must hold for every input whatever: proven by halmos (`make analyse`), not sampled.
/// @dev A function that starts with `check_` is a theorem over its arguments; forge itself runs none of them.
contract ArithmeticSymbolic {
    // ── Statistics ──────────────────────────────────────────────────────────────────────────────

    function check_quantise_isBoundedOddAndZeroForSubnormals(uint16 bits, int8 scale)
        external
        pure
    {
        if (scale < -40 || scale > 40) return;
        int256 value = StatisticsLib.quantise(bits, scale);
        assert(-(1 << 15) <= value && value <= 1 << 15);
        assert(StatisticsLib.quantise(bits ^ 0x8000, scale) == -value);
        if ((bits >> 7) & 0xff == 0) assert(value == 0);
    }

    function check_quantise_growsWithTheMagnitude(uint16 less, uint16 more, int8 scale)
        external
        pure
    {
        if (scale < -40 || scale > 40 || more >= 0x7f80 || less > more) return;
        assert(StatisticsLib.quantise(less, scale) <= StatisticsLib.quantise(more, scale));
    }

    function check_isFinite_isThatOfEveryLane(bytes32 word, uint8 lane) external pure {
        if (!StatisticsLib.isFinite(word)) return;
        uint256 bits = uint256(word) >> (uint256(lane % 16) * 16);
        assert((bits >> 7) & 0xff != 0xff);
    }

    function check_isFinite_failsForOneLaneOnly(uint8 lane, uint16 mantissa) external pure {
        uint256 bits = uint256(0x7f80 | (mantissa & 0x807f)) << (uint256(lane % 16) * 16);
        assert(!StatisticsLib.isFinite(bytes32(bits)));
    }

    function check_zone_isOneOfThree(uint32 position, uint32 promptTokens) external pure {
        uint256 zone = StatisticsLib.zone(position, promptTokens);
        assert(zone <= 2);
        if (position > 3 && position >= promptTokens) assert(zone == 2);
    }

    // ── Draws ───────────────────────────────────────────────────────────────────────────────────

    function check_positionCount_isWithinTheTraceAndTheWish(
        uint16 promptTokens,
        uint16 newTokens,
        uint8 wanted
    ) external pure {
        if (promptTokens == 0 || newTokens == 0) return;
        uint256 count = DrawLib.positionCount(promptTokens, newTokens, wanted);
        assert(count <= wanted);
        assert(count <= uint256(promptTokens) + newTokens - 2);
    }

    function check_isEligible_onlyForSeatsThatStoodBefore(
        address owner,
        uint40 activeFrom,
        uint40 leftAt,
        uint40 time
    ) external pure {
        if (!DrawLib.isEligible(owner, activeFrom, leftAt, time)) return;
        assert(owner != address(0) && activeFrom < time);
        assert(leftAt == 0 || leftAt >= time);
    }

    // ── Verdicts ────────────────────────────────────────────────────────────────────────────────

    function check_majority_twoOfThemMeet(uint8 size) external pure {
        if (size == 0) return;
        assert(2 * VerdictLib.majority(size) > size);
        assert(VerdictLib.majority(size) <= size);
    }

    function check_agree_looserThresholdsKeepAgreement(
        PairStatistics calldata sums,
        uint32 mean,
        uint32 looserMean,
        uint16 over,
        uint16 looserOver
    ) external pure {
        if (mean > looserMean || over > looserOver) return;
        if (!VerdictLib.agree(sums, mean, over)) return;
        assert(VerdictLib.agree(sums, looserMean, looserOver));
        assert(sums.cells != 0);
    }

    /// @notice Two honest verifiers of three that agree with the inferencer: whatever the third says, no reject.
    function check_judge_oneLiarOfThreeConvictsNobody(
        bool[2] calldata liesWith,
        bool tier,
        bool slash
    ) external pure {
        VerdictLib.Relations memory relations = _three(true, liesWith);
        relations.refundTier = 3 | (tier ? 4 : 0);
        relations.slashTier = 3 | (slash ? 4 : 0);
        (Outcome outcome,,) = VerdictLib.judge(relations);
        assert(outcome != Outcome.Slash && outcome != Outcome.Refund);
    }

    /// @notice Two honest verifiers of three that disagree with the inferencer: the third cannot make it accepted.
    function check_judge_oneLiarOfThreeAcquitsNobody(bool[2] calldata liesWith, bool tier)
        external
        pure
    {
        VerdictLib.Relations memory relations = _three(true, liesWith);
        relations.refundTier = tier ? 4 : 0;
        (Outcome outcome,,) = VerdictLib.judge(relations);
        assert(outcome != Outcome.Accept);
    }

    /// @notice Accept needs a majority that agrees with the inferencer, whoever agrees with whom.
    function check_judge_acceptNeedsAMajority(bool honest, bool[2] calldata others, uint8 tier)
        external
        pure
    {
        VerdictLib.Relations memory relations = _three(honest, others);
        relations.refundTier = tier & 7;
        (Outcome outcome,, uint256 paid) = VerdictLib.judge(relations);
        if (outcome != Outcome.Accept) return;
        uint256 agreeing = (tier & 1) + ((tier >> 1) & 1) + ((tier >> 2) & 1);
        assert(agreeing >= 2);
        assert(paid != 0);
    }

    /// @dev Members 0 and 1 agree iff `honest`; the third with whom it says.
    function _three(bool honest, bool[2] calldata others)
        private
        pure
        returns (VerdictLib.Relations memory relations)
    {
        relations.good = 7;
        relations.adjacency = new uint256[](3);
        relations.adjacency[0] = (honest ? 2 : 0) | (others[0] ? 4 : 0);
        relations.adjacency[1] = (honest ? 1 : 0) | (others[1] ? 4 : 0);
        relations.adjacency[2] = (others[0] ? 1 : 0) | (others[1] ? 2 : 0);
    }
}
