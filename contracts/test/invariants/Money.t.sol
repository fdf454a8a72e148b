// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {Test} from "../Test.sol";
import {Handler} from "./Handler.sol";

/// @notice Whatever people do in whatever order: no money appears, is lost or is paid twice, no lock exceeds its
/// balance, and every job can be finished.
contract MoneyTest is Test {
    Handler private _handler;

    function setUp() public {
        _handler = new Handler();
        _handler.setUp();
        bytes4[] memory selectors = new bytes4[](24);
        selectors[0] = Handler.wait_.selector;
        selectors[1] = Handler.deposit.selector;
        selectors[2] = Handler.unlock.selector;
        selectors[3] = Handler.withdrawDeposit.selector;
        selectors[4] = Handler.requestStake.selector;
        selectors[5] = Handler.withdrawStake.selector;
        selectors[6] = Handler.rejoin.selector;
        selectors[7] = Handler.post.selector;
        selectors[8] = Handler.seal.selector;
        selectors[9] = Handler.refund.selector;
        selectors[10] = Handler.claim.selector;
        selectors[11] = Handler.finalize.selector;
        selectors[12] = Handler.challenge.selector;
        selectors[13] = Handler.open.selector;
        selectors[14] = Handler.adjudicate.selector;
        selectors[15] = Handler.post.selector;
        selectors[16] = Handler.settle.selector;
        selectors[17] = Handler.attest.selector;
        selectors[18] = Handler.demand.selector;
        selectors[19] = Handler.serveBundle.selector;
        selectors[20] = Handler.voidClaim.selector;
        selectors[21] = Handler.convict.selector;
        selectors[22] = Handler.overrule.selector;
        selectors[23] = Handler.seal.selector;
        _target(address(_handler), selectors);
    }

    /// forge-config: default.invariant.shrink-run-limit = 100
    function invariant_moneyIsConservedAndLocksAreBacked() public view {
        _handler.checkMoney();
    }

    function afterInvariant() public {
        _handler.finishAll();
        _handler.checkMoney();
    }

    /// @notice The actions do reach the ends that they are there for.
    function test_handlers_reachEveryEnd() public {
        for (uint256 n = 0; n < 8; ++n) {
            _handler.post(n, 5 ether);
        }
        for (uint256 n = 0; n < 8; ++n) {
            _handler.seal(n);
        }
        _handler.claim(0, 0x700);
        _handler.demand(0);
        _handler.serveBundle(0);
        _handler.claim(1, 0x1700);
        _handler.demand(1);
        _handler.claim(2, 0x700);
        _handler.overrule(2);
        _handler.claim(3, 0x700);
        _handler.challenge(3);
        _handler.attest(3);
        _handler.open(2, 0);
        _handler.open(3, 0);
        _handler.adjudicate(2);
        _handler.adjudicate(3);
        _handler.convict(4, 0);
        for (uint256 n = 5; n < 8; ++n) {
            _handler.claim(n, 0x700);
        }
        _handler.wait_(40 minutes);
        _handler.wait_(40 minutes);
        _handler.settle(2);
        _handler.voidClaim(1);
        for (uint256 n = 0; n < 8; ++n) {
            _handler.finalize(n);
        }
        string[14] memory actions = [
            "post",
            "seal",
            "claim",
            "demand",
            "serveBundle",
            "voidClaim",
            "overrule",
            "challenge",
            "attest",
            "open",
            "adjudicate",
            "convict",
            "settle",
            "finalize"
        ];
        for (uint256 i = 0; i < actions.length; ++i) {
            assertGt(_handler.counts(actions[i]), 0, actions[i]);
        }
        _handler.checkMoney();
        _handler.finishAll();
        _handler.checkMoney();
    }
}
