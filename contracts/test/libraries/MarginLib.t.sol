// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IProver, Margin} from "../../src/interfaces/IProver.sol";
import {Sampling} from "../../src/interfaces/Types.sol";
import {MarginLib} from "../../src/libraries/MarginLib.sol";
import {Test} from "../Test.sol";

/// @notice Calldata twins of what the library takes from calldata.
contract MarginCalls {
    function dot(bytes calldata state, bytes calldata row)
        external
        pure
        returns (MarginLib.Dot memory)
    {
        return MarginLib.dot(state, row);
    }

    function between(bytes calldata state, bytes calldata own, bytes calldata other, int256 gap)
        external
        pure
        returns (Margin memory)
    {
        return MarginLib.between(state, own, other, gap);
    }

    function truncates(Sampling calldata sampling) external pure returns (bool) {
        return MarginLib.truncates(sampling);
    }
}

/// @notice Margins equal those of Python, and the assembly its plain twin.
contract MarginLibTest is Test {
    MarginCalls private _calls = new MarginCalls();

    function test_margins_areTheVectors() public {
        string memory json = vectors("margins.json");
        bytes[] memory states = vm.parseJsonBytesArray(json, ".states");
        bytes[] memory own = vm.parseJsonBytesArray(json, ".tokenRows");
        bytes[] memory other = vm.parseJsonBytesArray(json, ".rivalRows");
        uint256[] memory refused = vm.parseJsonUintArray(json, ".refused");
        int256[] memory ahead = vm.parseJsonIntArray(json, ".ahead");
        int256[] memory margins = vm.parseJsonIntArray(json, ".margins");
        uint256[] memory roundings = vm.parseJsonUintArray(json, ".roundings");
        uint256 good = 0;
        for (uint256 i = 0; i < states.length; ++i) {
            int256 gap = _gap(json, i);
            if (refused[i] == 1) vm.expectRevert(IProver.NotFinite.selector);
            if (refused[i] == 2) vm.expectRevert(IProver.ProductTooLarge.selector);
            Margin memory found = _calls.between(states[i], own[i], other[i], gap);
            if (refused[i] != 0) continue;
            ++good;
            assertEq(found.ahead, ahead[i], "ahead");
            assertEq(found.margin, margins[i], "margin");
            assertEq(found.rounding, roundings[i], "rounding");
        }
        assertTrue(good > 0 && good < states.length, "both kinds");
    }

    function test_fuzz_dot_equalsItsPlainTwin(bytes32[4] calldata words) public {
        _equalsItsTwin(abi.encodePacked(words[0], words[1]), abi.encodePacked(words[2], words[3]));
    }

    /// @notice The same with exponents from 0 to 191, where every product fits and some are cut off.
    function test_fuzz_dot_equalsItsPlainTwinWhereAllFits(bytes32[4] calldata words) public {
        bytes memory state =
            abi.encodePacked(uint256(words[0]) & _FITTING, words[1] & bytes32(_FITTING));
        bytes memory row =
            abi.encodePacked(uint256(words[2]) & _FITTING, words[3] & bytes32(_FITTING));
        _equalsItsTwin(state, row);
    }

    /// @notice The same at exponents of real states.
    function test_fuzz_dot_equalsItsPlainTwinNearOne(uint256 random, uint256 other) public {
        _equalsItsTwin(
            abi.encodePacked((random & ~_EXPONENTS) | (other & _LOW) | _HIGH),
            abi.encodePacked((other & ~_EXPONENTS) | (random & _LOW) | _HIGH)
        );
    }

    function test_dot_fitsBelow384_andNotFromThere() public {
        // Exponents 192 and 191.
        assertEq(_calls.dot(_one(0x6000), _one(0x5f80)).sum, int256(1) << (14 + 199));
        assertEq(_calls.dot(_one(0xe000), _one(0x5f80)).sum, -(int256(1) << (14 + 199)));
        vm.expectRevert(IProver.ProductTooLarge.selector);
        _calls.dot(_one(0x6000), _one(0x6000));
    }

    function test_dot_isNothingBelow184_andExactFromThere() public view {
        assertEq(_calls.dot(_one(0x2e00), _one(0x2dff)).sum, 0); // exponents 92 and 91
        assertEq(_calls.dot(_one(0x2e01), _one(0xae7f)).sum, -int256(129 * 255)); // 92 and 92
        assertEq(_calls.dot(_one(0x0001), _one(0x5b80)).sum, 128); // subnormal, and 183
        assertEq(_calls.dot(_one(0x0001), _one(0x5b00)).sum, 0);
    }

    function test_truncates_onlyWhereATestIsOn() public view {
        assertFalse(_calls.truncates(Sampling(1_000_000, 0, 1_000_000, 0)));
        assertTrue(_calls.truncates(Sampling(1_000_000, 1, 1_000_000, 0)));
        assertTrue(_calls.truncates(Sampling(1_000_000, 0, 999_999, 0)));
        assertTrue(_calls.truncates(Sampling(1_000_000, 0, 1_000_000, 1)));
        assertFalse(_calls.truncates(Sampling(0, 1, 1, 1)), "nothing is left out at temperature 0");
    }

    uint256 private constant _EXPONENTS =
        0x7f807f807f807f807f807f807f807f807f807f807f807f807f807f807f807f80;
    uint256 private constant _LOW =
        0x0780078007800780078007800780078007800780078007800780078007800780;
    uint256 private constant _HIGH =
        0x3800380038003800380038003800380038003800380038003800380038003800;

    uint256 private constant _FITTING =
        ~uint256(0x2000200020002000200020002000200020002000200020002000200020002000);

    function _equalsItsTwin(bytes memory state, bytes memory row) private {
        (int256 sum, uint256 magnitude, bytes4 refusal) = _plainDot(state, row);
        if (refusal != 0) vm.expectRevert(refusal);
        MarginLib.Dot memory found = _calls.dot(state, row);
        if (refusal != 0) return;
        assertEq(found.sum, sum, "sum");
        assertEq(found.magnitude, magnitude, "magnitude");
    }

    function _gap(string memory json, uint256 i) private pure returns (int256) {
        return MarginLib.noise(
            vm.parseJsonBytes32Array(json, ".seeds")[i],
            uint32(vm.parseJsonUintArray(json, ".positions")[i]),
            uint32(vm.parseJsonUintArray(json, ".tokens")[i]),
            uint32(vm.parseJsonUintArray(json, ".rivals")[i]),
            uint32(vm.parseJsonUintArray(json, ".temperatures")[i])
        );
    }

    function _one(uint16 bits) private pure returns (bytes memory) {
        return abi.encodePacked(bits, new bytes(30));
    }

    function _plainDot(bytes memory state, bytes memory row)
        private
        pure
        returns (int256 sum, uint256 magnitude, bytes4 refusal)
    {
        for (uint256 i = 0; i < state.length; i += 2) {
            uint256 a = (uint256(uint8(state[i])) << 8) | uint8(state[i + 1]);
            uint256 b = (uint256(uint8(row[i])) << 8) | uint8(row[i + 1]);
            (uint256 p, uint256 m) = _parts(a);
            (uint256 q, uint256 n) = _parts(b);
            if (p == 255 || q == 255) return (0, 0, IProver.NotFinite.selector);
            if (p + q >= 384) refusal = IProver.ProductTooLarge.selector;
            if (p + q < 184 || p + q >= 384) continue;
            uint256 product = (m * n) << (p + q - 184);
            magnitude += product;
            sum += (a ^ b) & 0x8000 == 0 ? int256(product) : -int256(product);
        }
    }

    function _parts(uint256 bits) private pure returns (uint256 exponent, uint256 mantissa) {
        exponent = (bits >> 7) & 0xff;
        mantissa = bits & 0x7f;
        if (exponent == 0) exponent = 1;
        else mantissa += 128;
    }
}
