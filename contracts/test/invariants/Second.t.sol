// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Test} from "../Test.sol";
import {Second} from "./Second.sol";

/// @notice Whoever asks for a second committee, for whatever reason, and whatever happens meanwhile: the money adds up,
/// nobody honest loses what it brought, and every job ends.
contract SecondTest is Test {
    Second private _handler;

    function setUp() public {
        _handler = new Second();
        _handler.setUp();
        bytes4[] memory selectors = new bytes4[](27);
        selectors[0] = Second.wait_.selector;
        selectors[1] = Second.post.selector;
        selectors[2] = Second.seal.selector;
        selectors[3] = Second.claim.selector;
        selectors[4] = Second.finalize.selector;
        selectors[5] = Second.challenge.selector;
        selectors[6] = Second.open.selector;
        selectors[7] = Second.adjudicate.selector;
        selectors[8] = Second.settle.selector;
        selectors[9] = Second.ask.selector;
        selectors[10] = Second.supply.selector;
        selectors[11] = Second.convene.selector;
        selectors[12] = Second.recommit.selector;
        selectors[13] = Second.closeCommits.selector;
        selectors[14] = Second.start.selector;
        selectors[15] = Second.openAgain.selector;
        selectors[16] = Second.conclude.selector;
        selectors[17] = Second.convict.selector;
        selectors[18] = Second.seal.selector;
        selectors[19] = Second.claim.selector;
        selectors[20] = Second.ask.selector;
        selectors[21] = Second.convene.selector;
        selectors[22] = Second.attest.selector;
        selectors[23] = Second.overrule.selector;
        selectors[24] = Second.leave.selector;
        selectors[25] = Second.join.selector;
        selectors[26] = Second.convictMember.selector;
        _target(address(_handler), selectors);
    }

    /// forge-config: default.invariant.runs = 16
    /// forge-config: default.invariant.shrink-run-limit = 100
    /// forge-config: ci.invariant.runs = 512
    /// forge-config: ci.invariant.depth = 128
    function invariant_secondCommitteesLoseNoMoneyAndNobodyHonest() public view {
        _handler.checkMoney();
        _handler.checkHonest();
    }

    function afterInvariant() public {
        _handler.finishAll();
        _handler.checkMoney();
        _handler.checkHonest();
    }

    /// @notice The actions do reach the ends that they are there for.
    function test_handlers_reachEveryEnd() public {
        _openSix();
        _handler.claim(0, 0x100); // accepted: asked about without cause
        _handler.ask(0, true);
        _handler.claim(1, 0x102); // a slash of whoever it is
        _handler.challenge(1);
        _handler.open(1);
        _handler.adjudicate(1);
        _handler.claim(2, 0x100);
        _handler.ask(2, false);
        _handler.supply(2);
        _handler.claim(3, 0x103);
        _handler.claim(4, 0x100);
        _handler.ask(4, true);
        _handler.claim(5, 0x100);
        for (uint256 n = 0; n < 6; ++n) {
            _handler.wait_(10 minutes);
            for (uint256 i = 0; i < 6; ++i) {
                _handler.convene(i);
                _handler.recommit(i, 7);
                _handler.start(i);
                _handler.openAgain(i);
            }
            if (n == 2) _handler.convict(4, true);
            if (n == 1) _handler.leave(n);
            if (n == 3) _handler.join(1);
        }
        for (uint256 n = 0; n < 6; ++n) {
            for (uint256 i = 0; i < 6; ++i) {
                _handler.conclude(i);
                _handler.settle(i);
                _handler.finalize(i);
                _handler.closeCommits(i);
            }
            _handler.wait_(40 minutes);
        }
        for (uint256 i = 0; i < 6; ++i) {
            _handler.convictMember(i);
        }
        string[15] memory actions = [
            "post",
            "seal",
            "claim",
            "challenge",
            "open",
            "adjudicate",
            "ask",
            "ask for nothing",
            "supply",
            "convene",
            "recommit",
            "start",
            "openAgain",
            "conclude",
            "finalize"
        ];
        for (uint256 i = 0; i < actions.length; ++i) {
            assertGt(_handler.counts(actions[i]), 0, actions[i]);
        }
        string[4] memory more = ["convict meanwhile", "convict a member", "leave", "join"];
        for (uint256 i = 0; i < more.length; ++i) {
            assertGt(_handler.counts(more[i]), 0, more[i]);
        }
        assertGt(_handler.counts("appeal"), 0, "appeal");
        _handler.checkMoney();
        _handler.finishAll();
        _handler.checkMoney();
        _handler.checkHonest();
    }

    /// @notice What is said of tokens, by whoever would say it, does reach the round and the second committee.
    function test_handlers_speakOfTokens() public {
        for (uint256 n = 0; n < 6; ++n) {
            _handler.post(n + 3, 5 ether); // two captured ones among them
        }
        for (uint256 n = 0; n < 6; ++n) {
            _handler.seal(n);
        }
        for (uint256 i = 0; i < 6; ++i) {
            _handler.claim(i, 260); // accepted, and its member is paid
            if (i & 1 == 0) _handler.overrule(i);
            else _handler.challenge(i);
        }
        for (uint256 i = 0; i < 6; ++i) {
            _handler.attest(i);
        }
        assertGt(_handler.counts("overrule"), 0, "overrule");
        assertGt(_handler.counts("attest"), 0, "attest");
        _handler.finishAll();
        _handler.checkMoney();
        _handler.checkHonest();
    }

    function test_power_moneyFromNowhereIsSeen() public {
        _handler.checkMoney();
        _handler.leak();
        vm.expectRevert();
        _handler.checkMoney();
    }

    function test_power_theLossOfAnHonestWorkerIsSeen() public {
        _openSix();
        _handler.checkHonest();
        _handler.convictTheHonest(0);
        vm.expectRevert();
        _handler.checkHonest();
        _handler.checkMoney();
    }

    function _openSix() private {
        for (uint256 n = 0; n < 6; ++n) {
            _handler.post(n < 4 ? n : n + 4, 5 ether);
        }
        for (uint256 n = 0; n < 6; ++n) {
            _handler.seal(n);
        }
    }
}
