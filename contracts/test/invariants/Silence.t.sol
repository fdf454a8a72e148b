// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Test} from "../Test.sol";
import {Silence} from "./Silence.sol";

/// @notice Whoever keeps silent, for as long as it likes: no money appears or is lost, no lock exceeds its balance,
/// every job and every claim comes to its end, and no work is paid twice.
contract SilenceTest is Test {
    Silence private _people;

    function setUp() public {
        _people = new Silence();
        _people.setUp();
        bytes4[] memory selectors = new bytes4[](14);
        selectors[0] = Silence.wait_.selector;
        selectors[1] = Silence.order.selector;
        selectors[2] = Silence.post.selector;
        selectors[3] = Silence.refund.selector;
        selectors[4] = Silence.summon.selector;
        selectors[5] = Silence.answer.selector;
        selectors[6] = Silence.replace.selector;
        selectors[7] = Silence.seal.selector;
        selectors[8] = Silence.dismiss.selector;
        selectors[9] = Silence.claimTask.selector;
        selectors[10] = Silence.contest.selector;
        selectors[11] = Silence.postClaimed.selector;
        selectors[12] = Silence.collect.selector;
        selectors[13] = Silence.summon.selector;
        _target(address(_people), selectors);
    }

    /// forge-config: default.invariant.shrink-run-limit = 100
    function invariant_silenceLosesNoMoney() public view {
        _people.checkMoney();
    }

    function afterInvariant() public {
        _people.finishAll();
        _people.checkMoney();
    }

    /// @notice The actions do reach the ends that they are there for.
    function test_people_reachEveryEnd() public {
        for (uint256 n = 0; n < 8; ++n) {
            _people.order(n);
        }
        for (uint256 n = 0; n < 5; ++n) {
            _people.post(n);
        }
        _people.summon(0, 0);
        _people.summon(3, 0); // left to be dismissed
        _people.summon(16, 1);
        _people.summon(16, 2);
        _people.answer(0, 0);
        _people.wait_(40 minutes);
        _people.wait_(40 minutes);
        _people.replace(0, 1);
        _people.answer(0, 2);
        _people.seal(0, 0);
        for (uint256 n = 0; n < 8; ++n) {
            _people.claimTask(n);
        }
        _people.contest(0);
        _people.contest(2);
        _people.postClaimed(5);
        for (uint256 n = 0; n < 12; ++n) {
            _people.wait_(40 minutes);
        }
        for (uint256 n = 0; n < 8; ++n) {
            _people.refund(n);
            _people.dismiss(n);
        }
        for (uint256 n = 0; n < 80; ++n) {
            _people.wait_(40 minutes);
        }
        for (uint256 n = 0; n < 8; ++n) {
            _people.collect(n);
        }
        string[14] memory actions = [
            "order",
            "post",
            "summon",
            "answer",
            "late answer",
            "replace",
            "seal",
            "claimTask",
            "contest",
            "postClaimed",
            "refund",
            "dismiss",
            "collect",
            "wait"
        ];
        for (uint256 i = 0; i < actions.length; ++i) {
            assertGt(_people.counts(actions[i]), 0, actions[i]);
        }
        _people.checkMoney();
        _people.finishAll();
        _people.checkMoney();
    }
}
