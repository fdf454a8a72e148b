// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice Gumbel noise in signed Q64 fixed point (docs/protocol.md §4.1).
library GumbelLib {
    int256 internal constant LN2 = 12_786_308_645_202_655_659; // floor(ln 2 · 2^64)

    /// @notice −ln(−ln u) of a word, u = (2k+1)/2^24, k = word >> 9.
    function gumbel(uint32 word) internal pure returns (int256) {
        uint256 odd = 2 * uint256(word >> 9) + 1;
        int256 a = 24 * LN2 - ln(odd << 64); // u < 1, so a is positive
        return -ln(uint256(a));
    }

    /// @notice The natural logarithm of a positive Q64 number.
    function ln(uint256 x) internal pure returns (int256) {
        return log2(x) * LN2 >> 64;
    }

    /// @notice The binary logarithm of a positive Q64 number below 2^192: one bit of the fraction a squaring.
    function log2(uint256 x) internal pure returns (int256 result) {
        uint256 top = Math.log2(x);
        result = (int256(top) - 64) << 64;
        uint256 y = top <= 127 ? x << (127 - top) : x >> (top - 127);
        for (uint256 i = 64; i > 0; --i) {
            y = y * y >> 127;
            if (y >> 128 != 0) {
                result |= int256(1) << (i - 1);
                y >>= 1;
            }
        }
    }
}
