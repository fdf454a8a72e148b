// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/Types.sol";
import {BoundsLib} from "../../src/libraries/BoundsLib.sol";
import {Test} from "../Test.sol";

/// @notice Calldata twins.
contract Bounds {
    function fault(Sampling calldata sampling, uint256 length, uint256 most, uint256 context)
        external
        pure
        returns (bytes32)
    {
        return BoundsLib.fault(sampling, length, most, context);
    }

    function areTokens(bytes calldata tokens, uint32 vocabulary) external pure returns (bool) {
        return BoundsLib.areTokens(tokens, vocabulary);
    }
}

contract BoundsLibTest is Test {
    Bounds private _bounds = new Bounds();

    /// @notice Python holds requests to the same bounds, and names the same one first.
    function test_bounds_areTheVectors() public view {
        string memory json = vectors("bounds.json");
        uint256[] memory numbers = vm.parseJsonUintArray(json, ".numbers");
        string[] memory faults = vm.parseJsonStringArray(json, ".faults");
        assertGt(faults.length, 50);
        assertEq(numbers.length, 7 * faults.length);
        for (uint256 i = 0; i < faults.length; ++i) {
            Sampling memory sampling = Sampling(
                uint32(numbers[7 * i]),
                uint32(numbers[7 * i + 1]),
                uint32(numbers[7 * i + 2]),
                uint32(numbers[7 * i + 3])
            );
            bytes32 found =
                _bounds.fault(sampling, numbers[7 * i + 4], numbers[7 * i + 5], numbers[7 * i + 6]);
            assertEq(found, bytes32(bytes(faults[i])), vm.toString(i));
        }
    }

    function test_fuzz_areTokens_equalsItsPlainTwin(bytes calldata raw, uint32 vocabulary)
        public
        view
    {
        if (vocabulary == 0) vocabulary = 1;
        bytes calldata tokens = raw[:raw.length / 4 * 4];
        bool all = true;
        for (uint256 at = 0; at < tokens.length; at += 4) {
            all = all && uint32(bytes4(tokens[at:at + 4])) < vocabulary;
        }
        assertEq(_bounds.areTokens(tokens, vocabulary), all);
    }

    /// @notice Random words hold a token that is none almost surely; here at most one of them is.
    function test_fuzz_areTokens_seesAnyOne(uint8 count, uint8 where, uint32 token, uint32 size)
        public
        view
    {
        uint256 length = bound(count, 1, 100);
        uint32 vocabulary = uint32(bound(size, 1, type(uint32).max));
        bytes memory tokens = new bytes(4 * length);
        for (uint256 i = 0; i < length; ++i) {
            _put(tokens, i, vocabulary - 1);
        }
        assertTrue(_bounds.areTokens(tokens, vocabulary), "the last of the vocabulary");
        uint32 odd = uint32(bound(token, vocabulary, type(uint32).max));
        _put(tokens, where % length, odd);
        assertFalse(_bounds.areTokens(tokens, vocabulary), "one beyond");
    }

    function test_areTokens_atTheEnds() public view {
        assertTrue(_bounds.areTokens("", 1));
        assertTrue(_bounds.areTokens(hex"00000000", 1));
        assertFalse(_bounds.areTokens(hex"00000001", 1));
        assertFalse(_bounds.areTokens(hex"ffffffff", type(uint32).max));
        assertTrue(_bounds.areTokens(hex"fffffffe", type(uint32).max));
    }

    function _put(bytes memory tokens, uint256 at, uint32 token) private pure {
        for (uint256 i = 0; i < 4; ++i) {
            tokens[4 * at + i] = bytes1(uint8(token >> (8 * (3 - i))));
        }
    }
}
