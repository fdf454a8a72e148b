// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {LayerProfile, ModelSpec, Opening} from "../interfaces/IVeriLLM.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice Distances between states, in integers on bf16 bits (docs/protocol.md §7).
library StatisticsLib {
    uint256 internal constant PPM = 1_000_000;
    uint256 internal constant FARTHEST = 2_000_000;
    int256 internal constant CLAMP = 1 << 15;
    uint256 internal constant LANES = 16; // bf16 values in a word
    uint256 private constant EXPONENTS =
        0x7f807f807f807f807f807f807f807f807f807f807f807f807f807f807f807f80;
    uint256 private constant SIGNS =
        0x8000800080008000800080008000800080008000800080008000800080008000;

    /// @notice Running sums of one layer at one position, for openings 0..k-1 and their pairs.
    struct Sums {
        uint256[] energies;
        uint256[] differences;
    }

    /// @notice One bf16 value in units of 2^scale, rounded half away from zero, clamped to ±2^15.
    function quantise(uint256 bits, int256 scale) internal pure returns (int256 value) {
        unchecked {
            uint256 exponent = (bits >> 7) & 0xff;
            if (exponent == 0) return 0;
            int256 shift = int256(exponent) - 134 - scale;
            value = int256(128 | (bits & 0x7f));
            if (shift >= 0) {
                value = shift > 8 ? CLAMP : value << uint256(shift);
                if (value > CLAMP) value = CLAMP;
            } else if (shift < -8) {
                return 0; // below a half
            } else {
                uint256 right = uint256(-shift);
                value = (value + int256(1 << (right - 1))) >> right;
            }
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

    /// @notice The distance in ppm from the sums of one layer.
    function distance(uint256 difference, uint256 energy) internal pure returns (uint256) {
        return energy == 0 ? FARTHEST : Math.sqrt(2 * difference * 1e12 / energy);
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
        uint256 layers = spec.profile.layers.length;
        for (uint256 layer = 0; layer < layers; ++layer) {
            LayerProfile calldata profile = spec.profile.layers[layer];
            Sums memory layerSums = Sums(new uint256[](openings.length), new uint256[](pairs));
            if (layer + 1 < layers) {
                uint256 width = uint256(spec.sliceDims) * 2;
                _sum(layerSums, openings, false, layer * width, width, profile.scale);
            } else {
                _sum(layerSums, openings, true, 0, uint256(spec.hidden) * 2, profile.scale);
            }
            _addRatios(sums, over, layerSums, profile.med[at], profile.cap[at]);
        }
    }

    function _sum(
        Sums memory sums,
        Opening[] calldata openings,
        bool last,
        uint256 from,
        uint256 size,
        int256 scale
    ) private pure {
        for (uint256 offset = from; offset < from + size; offset += 32) {
            _accumulate(sums, _words(openings, last, offset), scale);
        }
    }

    function _words(Opening[] calldata openings, bool last, uint256 offset)
        private
        pure
        returns (uint256[] memory words)
    {
        words = new uint256[](openings.length);
        for (uint256 i = 0; i < openings.length; ++i) {
            bytes calldata states = last ? openings[i].finalState : openings[i].slices;
            words[i] = uint256(bytes32(states[offset:offset + 32]));
        }
    }

    /// @dev Magnitudes are at most 2^15 and widths at most 2^14, so no sum passes 2^48.
    function _accumulate(Sums memory sums, uint256[] memory words, int256 scale) private pure {
        uint256 count = words.length;
        int256[] memory values = new int256[](count);
        for (uint256 lane = 0; lane < LANES; ++lane) {
            uint256 pair = 0;
            for (uint256 j = 0; j < count; ++j) {
                values[j] = quantise(words[j] >> (16 * lane), scale);
            }
            unchecked {
                for (uint256 i = 0; i < count; ++i) {
                    int256 value = values[i];
                    sums.energies[i] += uint256(value * value);
                    for (uint256 j = i + 1; j < count; ++j) {
                        int256 gap = value - values[j];
                        sums.differences[pair++] += uint256(gap * gap);
                    }
                }
            }
        }
    }

    function _addRatios(
        uint64[] memory sums,
        bool[] memory over,
        Sums memory layer,
        uint256 med,
        uint256 cap
    ) private pure {
        uint256 pair = 0;
        for (uint256 i = 0; i < layer.energies.length; ++i) {
            for (uint256 j = i + 1; j < layer.energies.length; ++j) {
                uint256 e = distance(layer.differences[pair], layer.energies[i] + layer.energies[j]);
                if (e > cap) over[pair] = true;
                // At most 5e11 a layer, so 33 of them fit.
                sums[pair] += uint64(Math.min(e, cap) * PPM / med);
                ++pair;
            }
        }
    }
}
