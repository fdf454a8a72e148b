// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {LayerProfile, ModelSpec, Opening} from "../interfaces/Types.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice Distances between states, in integers on bf16 bits (docs/protocol.md §7).
library StatisticsLib {
    uint256 internal constant PPM = 1_000_000;
    uint256 internal constant FARTHEST = 2_000_000;
    // What a layer of one position adds to a mean at most, ppm of the honest median; how many are far off is counted.
    uint256 internal constant MOST_RATIO = 2_500_000;
    int256 internal constant CLAMP = 1 << 15;
    uint256 internal constant LANES = 16; // bf16 values in a word
    uint256 private constant EXPONENTS =
        0x7f807f807f807f807f807f807f807f807f807f807f807f807f807f807f807f80;
    uint256 private constant SIGNS =
        0x8000800080008000800080008000800080008000800080008000800080008000;

    /// @notice One bf16 value in units of 2^scale, rounded half away from zero, clamped to ±2^15.
    /// @dev Takes the lowest 16 bits. Scales are at least −40, so that exponent 0 falls below the window, too.
    function quantise(uint256 bits, int256 scale) internal pure returns (int256 value) {
        unchecked {
            // Units of 2^(scale − 9): what is below a half there is below 0, what reaches the clamp is 17 or more.
            int256 shift = int256((bits >> 7) & 0xff) - 125 - scale;
            if (shift < 0) return 0;
            value =
                shift > 16 ? CLAMP : int256((((128 | (bits & 0x7f)) << uint256(shift)) + 256) >> 9);
            if (bits & 0x8000 != 0) value = -value;
        }
    }

    /// @notice Whether no value of a word has the exponent of infinity and NaN.
    function isFinite(bytes32 word) internal pure returns (bool) {
        unchecked {
            // Per lane: zero iff all exponent bits are set; adding 0x7fff carries into the sign bit otherwise.
            uint256 gaps = (uint256(word) & EXPONENTS) ^ EXPONENTS;
            return ((gaps + (SIGNS - (SIGNS >> 15))) & SIGNS) == SIGNS;
        }
    }

    function isFinite(bytes calldata states) internal pure returns (bool) {
        for (uint256 at = 0; at < states.length; at += 32) {
            if (!isFinite(bytes32(states[at:at + 32]))) return false;
        }
        return true;
    }

    /// @notice 0 for the first positions, 1 for the rest of the prompt, 2 for what was generated.
    function zone(uint256 position, uint256 promptTokens) internal pure returns (uint256) {
        if (position <= 3) return 0;
        return position < promptTokens ? 1 : 2;
    }

    /// @notice Per pair (0,1), (0,2), …, (1,2), … the sum of ratios over the layers, and whether one is over.
    function compare(Opening[] calldata openings, ModelSpec calldata spec, uint256 at)
        internal
        pure
        returns (uint64[] memory sums, bool[] memory over)
    {
        uint256 pairs = openings.length * (openings.length - 1) / 2;
        sums = new uint64[](pairs);
        over = new bool[](pairs);
        uint256 pair = 0;
        for (uint256 i = 0; i < openings.length; ++i) {
            for (uint256 j = i + 1; j < openings.length; ++j) {
                (sums[pair], over[pair]) = _comparePair(openings[i], openings[j], spec, at);
                ++pair;
            }
        }
    }

    function _comparePair(
        Opening calldata x,
        Opening calldata y,
        ModelSpec calldata spec,
        uint256 at
    ) private pure returns (uint64 sum, bool over) {
        uint256 last = spec.profile.layers.length - 1;
        uint256 width = uint256(spec.sliceDims) * 2;
        for (uint256 layer = 0; layer <= last; ++layer) {
            LayerProfile calldata profile = spec.profile.layers[layer];
            uint256 from = layer * width;
            uint256 e = layer == last
                ? between(x.finalState, y.finalState, profile.scale)
                : between(x.slices[from:from + width], y.slices[from:from + width], profile.scale);
            if (e > profile.cap[at]) over = true;
            sum += uint64(Math.min(e * PPM / profile.med[at], MOST_RATIO));
        }
    }

    /// @notice The distance in ppm of two states of equal length, a multiple of 32 bytes.
    /// @dev Magnitudes are at most 2^15 and widths at most 2^14, so no sum passes 2^48.
    function between(bytes calldata x, bytes calldata y, int256 scale)
        internal
        pure
        returns (uint256)
    {
        uint256 difference = 0;
        uint256 energy = 0;
        for (uint256 at = 0; at < x.length; at += 32) {
            uint256 a = uint256(bytes32(x[at:at + 32]));
            uint256 b = uint256(bytes32(y[at:at + 32]));
            unchecked {
                for (uint256 lane = 0; lane < LANES; ++lane) {
                    int256 p = quantise(a, scale);
                    int256 q = quantise(b, scale);
                    difference += uint256((p - q) * (p - q));
                    energy += uint256(p * p + q * q);
                    a >>= 16;
                    b >>= 16;
                }
            }
        }
        return energy == 0 ? FARTHEST : Math.sqrt(2 * difference * 1e12 / energy);
    }
}
