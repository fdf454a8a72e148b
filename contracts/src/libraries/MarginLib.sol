// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IProver, Margin} from "../interfaces/IProver.sol";
import {Sampling} from "../interfaces/Types.sol";
import {GumbelLib} from "./GumbelLib.sol";
import {PhiloxLib} from "./PhiloxLib.sol";
import {StatisticsLib} from "./StatisticsLib.sol";

/// @notice By how much a rival beats a token, in integers on bf16 bits (docs/protocol.md §8.2).
/// @dev A bf16 value is mantissa · 2^(exponent − 134), so a product of two is below 2^16 · 2^(s − 268), s the sum of
/// the exponents. It stands here in units of 2^-84: cut off below, refused where s ≥ 384, which is 2^130 or more,
/// so that no float32 holds it and no engine chose a token by it. Widths are at most 2^14 (SpecLib), so no sum
/// passes 2^229.
library MarginLib {
    uint256 internal constant PPM = 1_000_000;
    uint256 internal constant POINT = 84;

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
        bool finite = StatisticsLib.isFinite(state) && StatisticsLib.isFinite(tokenRow)
            && StatisticsLib.isFinite(rivalRow);
        require(finite, IProver.NotFinite());
        return compare(_dot(state, tokenRow), _dot(state, rivalRow), state.length / 2, gap);
    }

    /// @notice A state's dot product with a row, and the sum of its terms' magnitudes, in 2^-84.
    /// @dev `fits` is false where a product is too large: the sums mean nothing then.
    function dot(bytes calldata state, bytes calldata row)
        internal
        pure
        returns (int256 sum, uint256 magnitude, bool fits)
    {
        uint256 seen = 0;
        assembly ("memory-safe") {
            for { let at := 0 } lt(at, state.length) { at := add(at, 32) } {
                let a := calldataload(add(state.offset, at))
                let b := calldataload(add(row.offset, at))
                for { let lane := 0 } lt(lane, 16) { lane := add(lane, 1) } {
                    let p := and(shr(7, a), 0xff)
                    let q := and(shr(7, b), 0xff)
                    // Exponent 0 has no leading bit, and the scale of exponent 1.
                    let s := add(add(p, iszero(p)), add(q, iszero(q)))
                    let product :=
                        mul(or(and(a, 0x7f), shl(7, gt(p, 0))), or(and(b, 0x7f), shl(7, gt(q, 0))))
                    // A negative shift is a huge one, which gives 0: one of both is the value.
                    product := or(shl(sub(s, 184), product), shr(sub(184, s), product))
                    // Bit 8 iff s ≥ 384: both bits of 256 + 128.
                    seen := or(seen, and(s, shl(1, s)))
                    magnitude := add(magnitude, product)
                    let negative := and(shr(15, xor(a, b)), 1)
                    sum := add(sum, add(xor(product, sub(0, negative)), negative))
                    a := shr(16, a)
                    b := shr(16, b)
                }
            }
        }
        fits = seen & 256 == 0;
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

    function _dot(bytes calldata state, bytes calldata row)
        private
        pure
        returns (Dot memory found)
    {
        bool fits;
        (found.sum, found.magnitude, fits) = dot(state, row);
        require(fits, IProver.ProductTooLarge());
    }
}
