// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {BeaconLib} from "../../src/libraries/BeaconLib.sol";
import {Test} from "../Test.sol";

contract BeaconLibTest is Test {
    uint256 private constant BLOCK = 1000;
    bytes32 private constant TRUE = keccak256("what the chain says");
    bytes32 private constant FALSE = keccak256("what a restarted client makes up");

    function setUp() public {
        vm.roll(BLOCK + 10);
    }

    function test_beacon_isTheHistorysHash_whereBothAnswer() public {
        _remember(abi.encode(TRUE));
        vm.setBlockhash(BLOCK, FALSE);
        assertEq(BeaconLib.beacon(BLOCK), TRUE, "history first");
    }

    function test_beacon_isTheClientsHash_whereThereIsNoHistory() public {
        vm.etch(BeaconLib.HISTORY, "");
        vm.setBlockhash(BLOCK, TRUE);
        assertEq(BeaconLib.beacon(BLOCK), TRUE, "no code at the history's address");
    }

    function test_beacon_isTheClientsHash_whereTheHistoryIsEmptyOrReverts() public {
        vm.setBlockhash(BLOCK, TRUE);
        _remember(abi.encode(bytes32(0)));
        assertEq(BeaconLib.beacon(BLOCK), TRUE, "not in the history yet");
        vm.etch(BeaconLib.HISTORY, hex"fe");
        vm.mockCallRevert(BeaconLib.HISTORY, abi.encode(BLOCK), "");
        assertEq(BeaconLib.beacon(BLOCK), TRUE, "the history reverts");
    }

    function test_beacon_isZero_whereNobodyKnows() public {
        vm.etch(BeaconLib.HISTORY, "");
        assertEq(BeaconLib.beacon(BLOCK - 300), bytes32(0), "too old");
    }

    function test_fuzz_beacon_isZero_forThisBlockAndLaterOnes(uint256 number) public {
        number = bound(number, BLOCK + 10, type(uint256).max);
        vm.etch(BeaconLib.HISTORY, hex"00");
        vm.mockCall(BeaconLib.HISTORY, abi.encode(number), abi.encode(TRUE));
        assertEq(BeaconLib.beacon(number), bytes32(0), "not mined");
    }

    function _remember(bytes memory answer) private {
        vm.etch(BeaconLib.HISTORY, hex"00");
        vm.mockCall(BeaconLib.HISTORY, abi.encode(BLOCK), answer);
    }
}
