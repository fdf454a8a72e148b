// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {LayerProfile, ModelSpec, Opening} from "../../src/interfaces/Types.sol";
import {StatisticsLib} from "../../src/libraries/StatisticsLib.sol";
import {Test} from "../Test.sol";

/// @notice Which layers of which pair are compared, and where a cap begins; distances themselves are the vectors'.
contract StatisticsLibTest is Test {
    uint256 private constant ZONE = 2;

    /// @dev Distances in ppm: of 7 from 1 it is √(2·6²/(7² + 1²)) = 1.2, of 7 from −1 it is 1.6.
    function test_compare_sumsTheLayersOfEachPairUpToTheMost() public view {
        Opening[] memory openings = new Opening[](3);
        openings[0] = _opening(_lane(7), _lane(7), _lane(7));
        openings[1] = _opening(_lane(1), _lane(7), 0x8000 | _lane(1));
        openings[2] = _opening(_lane(7), _lane(1), _lane(7));
        (uint64[] memory sums, bool[] memory over) = this.compare(openings, _spec(), ZONE);
        assertEq(sums.length, 3, "pairs");
        assertEq(over.length, 3);
        // In parts of the medians, of which one layer counts two and a half at most.
        assertEq(sums[0], 2e6 + 0 + 2.5e6, "0, 1");
        assertEq(sums[1], 0 + 2.5e6 + 0, "0, 2");
        assertEq(sums[2], 2e6 + 2.5e6 + 2.5e6, "1, 2");
        assertEq(over[0], true, "1.6 is over 1.0");
        assertEq(over[1], false, "1.2 is not over 1.2");
        assertEq(over[2], true);
    }

    /// @notice The scale of ppm is exact: a millionth of a millionth more would pass the next whole ppm here.
    function test_between_isTheFloorOfTheRoot() public view {
        bytes memory x = abi.encode(_lane(179) | (_lane(149) << 16));
        bytes memory y = abi.encode(_lane(38) | (_lane(192) << 16));
        assertEq(this.between(x, y, 0), 685_261);
    }

    function compare(Opening[] calldata openings, ModelSpec calldata spec, uint256 at)
        external
        pure
        returns (uint64[] memory sums, bool[] memory over)
    {
        return StatisticsLib.compare(openings, spec, at);
    }

    function between(bytes calldata x, bytes calldata y, int256 scale)
        external
        pure
        returns (uint256)
    {
        return StatisticsLib.between(x, y, scale);
    }

    /// @dev Two committed layers of 32 values each, and the final state.
    function _spec() private pure returns (ModelSpec memory spec) {
        spec.sliceDims = 32;
        spec.profile.layers = new LayerProfile[](3);
        uint24[3] memory medians = [600_000, 400_000, 500_000];
        uint24[3] memory caps = [1_200_000, 1_200_000, 1_000_000];
        for (uint256 i = 0; i < 3; ++i) {
            spec.profile.layers[i].med[ZONE] = medians[i];
            spec.profile.layers[i].cap[ZONE] = caps[i];
        }
    }

    function _opening(uint256 first, uint256 second, uint256 last)
        private
        pure
        returns (Opening memory opening)
    {
        opening.slices = abi.encode(first, 0, second, 0);
        opening.finalState = abi.encode(last);
    }

    /// @dev An integer of at most eight bits as bf16.
    function _lane(uint256 value) private pure returns (uint256) {
        uint256 exponent = 0;
        while (value >> (exponent + 1) != 0) ++exponent;
        return ((127 + exponent) << 7) | ((value << (7 - exponent)) & 0x7f);
    }
}
