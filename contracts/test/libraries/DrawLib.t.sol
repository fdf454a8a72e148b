// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {DrawLib} from "../../src/libraries/DrawLib.sol";
import {Test} from "../Test.sol";

/// @notice The edges of the draws; the draws themselves are the vectors'.
contract DrawLibTest is Test {
    function test_eligible_isWhoJoinedBeforeAndHasNotLeftBefore() public {
        address owner = person("owner");
        assertEq(DrawLib.isEligible(owner, 9, 0, 10), true, "joined before");
        assertEq(DrawLib.isEligible(owner, 10, 0, 10), false, "joined in the same second");
        assertEq(DrawLib.isEligible(owner, 9, 10, 10), true, "leaves in the same second");
        assertEq(DrawLib.isEligible(owner, 9, 11, 10), true, "leaves later");
        assertEq(DrawLib.isEligible(owner, 8, 9, 10), false, "left before");
        assertEq(DrawLib.isEligible(address(0), 9, 0, 10), false, "nobody");
    }

    function test_drawn_isWhoStandsAmongTheFirst() public {
        address[] memory owners = new address[](3);
        (owners[0], owners[1], owners[2]) = (person("a"), person("b"), person("c"));
        assertEq(DrawLib.isDrawn(owners, 2, owners[0]), true);
        assertEq(DrawLib.isDrawn(owners, 2, owners[1]), true);
        assertEq(DrawLib.isDrawn(owners, 2, owners[2]), false, "not yet");
        assertEq(DrawLib.isDrawn(owners, 0, owners[0]), false, "none found");
    }

    function test_fuzz_forced_isOneInThatMany(bytes32 seed, uint16 every) public pure {
        assertEq(DrawLib.isForced(seed, 0), false);
        assertEq(DrawLib.isForced(seed, 1), true);
        uint256 word = uint256(keccak256(abi.encode(seed, uint256(3))));
        if (every != 0) assertEq(DrawLib.isForced(seed, every), word % every == 0);
    }

    /// @notice The draw of a second committee is no other draw of the job.
    function test_fuzz_appealDraw_isOfItsOwn(bytes32 jobId, bytes32 beacon) public pure {
        bytes32 own = keccak256(abi.encode(keccak256("VeriLLM appeal"), jobId, beacon));
        assertEq(DrawLib.appealDraw(jobId, beacon) == DrawLib.draw(jobId, beacon, 0), false);
        assertEq(DrawLib.appealDraw(jobId, beacon), own);
    }

    function test_fuzz_positions_areEachOnceAndTheLastOneFirst(
        bytes32 seed,
        uint8 prompt,
        uint8 output,
        uint8 wanted
    ) public pure {
        (uint256 p, uint256 n) = (uint256(prompt) + 1, uint256(output) + 1);
        uint256 want = uint256(wanted) % 64 + 1;
        uint32[] memory drawn = DrawLib.positions(seed, 1, p, n, want);
        uint256 last = p + n - 2;
        assertEq(drawn.length, last < want ? last : want);
        assertEq(DrawLib.positionCount(p, n, want), drawn.length);
        bool choice = last > want;
        if (choice) assertEq(drawn[0], last);
        for (uint256 i = 0; i < drawn.length; ++i) {
            assertTrue(drawn[i] != 0 && drawn[i] <= last);
            for (uint256 j = 0; j < i; ++j) {
                assertTrue(drawn[i] != drawn[j]);
            }
        }
    }

    function test_fuzz_checkedRequests_areEachOnce(bytes32 seed, uint16 requests, uint8 wanted)
        public
        pure
    {
        uint256 count = uint256(requests) % 4096 + 1;
        uint256 want = uint256(wanted) % 16 + 1;
        uint16[] memory checked = DrawLib.checkedRequests(seed, count, want);
        assertEq(checked.length, count < want ? count : want);
        for (uint256 i = 0; i < checked.length; ++i) {
            assertLt(checked[i], count);
            for (uint256 j = 0; j < i; ++j) {
                assertTrue(checked[i] != checked[j]);
            }
        }
    }
}
