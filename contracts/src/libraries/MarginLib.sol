// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IProver, Margin} from "../interfaces/IProver.sol";
import {Sampling} from "../interfaces/Types.sol";
import {GumbelLib} from "./GumbelLib.sol";
import {PhiloxLib} from "./PhiloxLib.sol";

/// @notice By how much a rival beats a token, in integers on bf16 bits (docs/protocol.md §8.2).
/// @dev A bf16 value is mantissa · 2^(exponent − 134), so a product of two is below 2^16 · 2^(s − 268), s the sum of
/// the exponents. It stands here in units of 2^-84: nothing where s < 184, which is below 2^-68, and refused where
/// s ≥ 384, which is 2^130 or more: no float32 holds it, and no engine chose a token by it. Widths are at most 2^14
/// (SpecLib), so no sum passes 2^229.
library MarginLib {
    uint256 internal constant PPM = 1_000_000;
    uint256 internal constant POINT = 84;
    /// @dev Exponents' sum of what stands at the point: 268 less it.
    uint256 private constant CUT = 184;
    uint256 private constant _ONES =
        0x0001000100010001000100010001000100010001000100010001000100010001;
    uint256 private constant _EXPONENTS =
        0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
    uint256 private constant _MANTISSAS =
        0x007f007f007f007f007f007f007f007f007f007f007f007f007f007f007f007f;
    uint256 private constant _SIGNS =
        0x8000800080008000800080008000800080008000800080008000800080008000;
    uint256 private constant _TOPS =
        0x0100010001000100010001000100010001000100010001000100010001000100;

    /// @notice A sum of products and the sum of their magnitudes, in 2^-84.
    struct Dot {
        int256 sum;
        uint256 magnitude;
    }

    /// @notice How a rival stands to a token by a state and both rows; `gap` is that of their noise.
    function between(
        bytes calldata state,
        bytes calldata tokenRow,
        bytes calldata rivalRow,
        int256 gap
    ) internal pure returns (Margin memory) {
        return compare(dot(state, tokenRow), dot(state, rivalRow), state.length / 2, gap);
    }

    /// @notice A state's dot product with a row of the same length, a multiple of 32 bytes.
    function dot(bytes calldata state, bytes calldata row)
        internal
        pure
        returns (Dot memory found)
    {
        uint256 seen = 0;
        uint256 all = 0;
        uint256 minus = 0;
        for (uint256 at = 0; at < state.length; at += 32) {
            uint256 a;
            uint256 b;
            assembly ("memory-safe") {
                a := calldataload(add(state.offset, at))
                b := calldataload(add(row.offset, at))
            }
            (uint256 more, uint256 less, uint256 flags) = _products(a, b);
            unchecked {
                (all, minus, seen) = (all + more, minus + less, seen | flags);
            }
        }
        require(seen & _TOPS == 0, IProver.NotFinite());
        require(seen & _SIGNS == 0, IProver.ProductTooLarge());
        found.magnitude = all;
        found.sum = int256(all) - int256(minus >> 6); // both below 2^237
    }

    /// @dev All sixteen lanes of two words are taken apart at once. `flags` has bit 8 of a lane iff a value of it is
    /// not finite, bit 15 iff its scale is 384 or more.
    function _products(uint256 a, uint256 b)
        private
        pure
        returns (uint256 all, uint256 minus, uint256 flags)
    {
        unchecked {
            uint256 signs = (a ^ b) & _SIGNS;
            uint256 scales = (a >> 7) & _EXPONENTS;
            flags = scales + _ONES;
            // 1 in a lane iff its exponent is not 0: then there is a leading bit, else the scale of exponent 1.
            uint256 leads = ((scales + _EXPONENTS) >> 8) & _ONES;
            a = (a & _MANTISSAS) | (leads << 7);
            scales += leads ^ _ONES;
            uint256 others = (b >> 7) & _EXPONENTS;
            flags = (flags | (others + _ONES)) & _TOPS;
            leads = ((others + _EXPONENTS) >> 8) & _ONES;
            b = (b & _MANTISSAS) | (leads << 7);
            scales += others + (leads ^ _ONES);
            // From 384 both 256 and 128 are set, and only from there.
            flags |= ((scales & (scales << 1)) & _TOPS) << 7;
            (all, minus) = _lanes(a, b, scales, signs);
        }
    }

    /// @dev Sums of mantissas' products at their scales: of all, and of the negative ones 128 times.
    function _lanes(uint256 a, uint256 b, uint256 scales, uint256 signs)
        private
        pure
        returns (uint256 all, uint256 minus)
    {
        assembly ("memory-safe") {
            for { let turns := 4 } turns { turns := sub(turns, 1) } {
                // A negative shift is a huge one, which gives 0.
                let term := mul(byte(31, a), byte(31, b))
                term := shl(sub(and(scales, 0x1ff), CUT), term)
                all := add(all, term)
                minus := add(minus, mul(term, byte(30, signs)))
                term := mul(byte(29, a), byte(29, b))
                term := shl(sub(and(shr(16, scales), 0x1ff), CUT), term)
                all := add(all, term)
                minus := add(minus, mul(term, byte(28, signs)))
                term := mul(byte(27, a), byte(27, b))
                term := shl(sub(and(shr(32, scales), 0x1ff), CUT), term)
                all := add(all, term)
                minus := add(minus, mul(term, byte(26, signs)))
                term := mul(byte(25, a), byte(25, b))
                term := shl(sub(and(shr(48, scales), 0x1ff), CUT), term)
                all := add(all, term)
                minus := add(minus, mul(term, byte(24, signs)))
                a := shr(64, a)
                b := shr(64, b)
                scales := shr(64, scales)
                signs := shr(64, signs)
            }
        }
    }

    /// @notice The margin of two dot products and of the gap between their noise, in Q64 ppm.
    /// @dev Products of bf16 are exact in float32; each of the `width` additions errs by at most 2^-24 of the
    /// magnitudes' sum, in any order. Noise, temperature and score are a few roundings of numbers below 40.
    function compare(Dot memory own, Dot memory other, uint256 width, int256 gap)
        internal
        pure
        returns (Margin memory found)
    {
        int256 logits = (other.sum - own.sum) * int256(PPM); // below 2^251
        uint256 magnitudes = own.magnitude + other.magnitude;
        found.ahead = logits >> POINT;
        found.margin = (logits + (gap << (POINT - 64))) >> POINT;
        found.rounding = ((((magnitudes >> 24) + 1) * (width + 32) * PPM) >> POINT) + 32;
    }

    /// @notice T·(g(rival) − g(token)) in Q64 ppm: at most 2^32 · 2^69.
    function noise(bytes32 seed, uint32 position, uint32 token, uint32 rival, uint32 temperature)
        internal
        pure
        returns (int256)
    {
        if (temperature == 0) return 0;
        int256 own = GumbelLib.gumbel(PhiloxLib.word(seed, position, token));
        int256 other = GumbelLib.gumbel(PhiloxLib.word(seed, position, rival));
        return int256(uint256(temperature)) * (other - own);
    }

    /// @notice Whether any entry can be left out; never at temperature 0.
    function truncates(Sampling calldata sampling) internal pure returns (bool) {
        bool off = sampling.topK == 0 && sampling.topP == PPM && sampling.minP == 0;
        return sampling.temperature != 0 && !off;
    }
}
