// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {DevToken} from "../../src/dev/DevToken.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {Network} from "../Network.sol";

/// @notice Keeps a hundredth of every transfer.
contract TaxedToken is DevToken {
    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (from != address(0) && to != address(0)) super._update(to, address(1), value / 100);
    }
}

contract AccountsTest is Network {
    // ── Deposits ────────────────────────────────────────────────────────────────────────────────

    function test_deposit_revertsForNothing() public {
        vm.expectRevert(ILedger.AmountZero.selector);
        network.deposit(scheduler, 0);
    }

    function test_deposit_revertsForATokenWithAFee() public {
        terms.token = address(new TaxedToken());
        IVeriLLM taxed = _deployNetwork();
        TaxedToken(terms.token).mint(address(this), 100);
        TaxedToken(terms.token).approve(address(taxed), 100);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TransferInexact.selector, 100, 99));
        taxed.deposit(scheduler, 100);
    }

    function test_withdrawDeposit_paysAfterTheDelay() public {
        vm.startPrank(client);
        vm.expectRevert(ILedger.NothingRequested.selector);
        network.withdrawDeposit(scheduler);
        network.requestUnlock(scheduler, 400 ether);
        uint256 at = vm.getBlockTimestamp() + terms.unlockDelay;
        vm.warp(at - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotYetAvailable.selector, at));
        network.withdrawDeposit(scheduler);
        vm.warp(at);
        network.withdrawDeposit(scheduler);
        vm.stopPrank();
        assertEq(token.balanceOf(client), 400 ether);
        assertEq(_deposited(), 600 ether);
    }

    function test_requestUnlock_revertsAboveTheDeposit() public {
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.DepositInsufficient.selector, 1000 ether, 1001 ether)
        );
        vm.prank(client);
        network.requestUnlock(scheduler, 1001 ether);
    }

    function test_withdrawDeposit_paysAtMostWhatJobsLeft() public {
        vm.prank(client);
        network.requestUnlock(scheduler, 1000 ether);
        Case memory c = _order(1);
        _post(c);
        pass(terms.unlockDelay);
        vm.prank(client);
        network.withdrawDeposit(scheduler);
        assertEq(token.balanceOf(client), 990 ether);
    }

    function test_post_cannotUseADepositThatIsUnlocked() public {
        vm.prank(client);
        network.requestUnlock(scheduler, 995 ether);
        pass(terms.unlockDelay);
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.DepositInsufficient.selector, 5 ether, 10 ether)
        );
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function test_requestUnlock_revertsForNothing() public {
        vm.expectRevert(ILedger.AmountZero.selector);
        vm.prank(client);
        network.requestUnlock(scheduler, 0);
    }

    // ── Stake ───────────────────────────────────────────────────────────────────────────────────

    function test_stake_revertsForNothing() public {
        vm.startPrank(workers[0]);
        vm.expectRevert(ILedger.AmountZero.selector);
        network.addStake(0);
        vm.expectRevert(ILedger.AmountZero.selector);
        network.requestStakeWithdrawal(0);
    }

    function test_withdrawStake_paysAfterUnbonding() public {
        vm.startPrank(workers[0]);
        vm.expectRevert(ILedger.NothingRequested.selector);
        network.withdrawStake();
        network.requestStakeWithdrawal(900 ether);
        uint256 at = vm.getBlockTimestamp() + terms.unbonding;
        vm.warp(at - 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotYetAvailable.selector, at));
        network.withdrawStake();
        vm.warp(at);
        network.withdrawStake();
        vm.stopPrank();
        assertEq(token.balanceOf(workers[0]), 900 ether);
        assertEq(_balance(workers[0]), SEAT);
    }

    function test_requestStakeWithdrawal_revertsForWhatSeatsHold() public {
        vm.expectRevert(
            abi.encodeWithSelector(
                ILedger.StakeInsufficient.selector, workers[0], 900 ether, 901 ether
            )
        );
        vm.prank(workers[0]);
        network.requestStakeWithdrawal(901 ether);
    }

    function test_withdrawStake_leavesWhatIsLocked() public {
        vm.prank(scheduler);
        network.requestStakeWithdrawal(STAKE - 100 ether);
        Case memory c = _order(1);
        _post(c);
        pass(terms.unbonding);
        vm.prank(scheduler);
        network.withdrawStake();
        assertEq(_balance(scheduler), 100 ether, "more than the bond");
        vm.prank(scheduler);
        network.requestStakeWithdrawal(100 ether);
        pass(terms.unbonding);
        vm.prank(scheduler);
        network.withdrawStake();
        assertEq(_balance(scheduler), uint256(LOCK + MAX_FEE) * 5 / 4, "the bond stays");
    }

    function test_withdrawStake_isSlashableUntilPaid() public {
        Case memory c = _sealed(1);
        vm.prank(workers[0]);
        network.requestStakeWithdrawal(900 ether);
        _claim(c, Outcome.Slash, 1);
        _finalize(c);
        pass(terms.unbonding);
        vm.prank(workers[0]);
        network.withdrawStake();
        assertEq(token.balanceOf(workers[0]), 900 ether - LOCK);
    }

    // ── Hot keys ────────────────────────────────────────────────────────────────────────────────

    function test_hotKey_signsForItsOperatorOnly() public {
        (address hot, uint256 key) = account("hot");
        vm.prank(workers[0]);
        network.setHotKey(hot);
        assertEq(network.operatorOf(hot), workers[0]);
        keys[workers[0]] = key;
        Case memory c = _order(1);
        _post(c);
        assertEq(uint8(_status(c)), uint8(Status.Posted));
        keys[workers[0]] = workerKeys[1];
        c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.SignatureInvalid.selector, workers[0]));
        _sendPost(c, 0, commitment, LOCK, signed, scheduler);
    }

    function test_hotKey_staysValidForTheGraceAfterRotation() public {
        (address old, uint256 key) = account("old");
        vm.prank(scheduler);
        network.setHotKey(old);
        vm.prank(scheduler);
        network.setHotKey(person("new"));
        assertEq(network.operatorOf(person("new")), scheduler);
        assertEq(network.operatorOf(old), scheduler, "within the grace");
        pass(terms.keyGrace);
        assertEq(network.operatorOf(old), old, "after it");
        Case memory c = _order(1);
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        bytes32 commitment = _commitment(c, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NotOperator.selector, old));
        _sendPost(c, 0, commitment, LOCK, signed, old);
        assertGt(key, 0);
    }

    function test_setHotKey_revertsForAnothersKey() public {
        vm.prank(workers[0]);
        network.setHotKey(person("hot"));
        vm.startPrank(workers[1]);
        vm.expectRevert(abi.encodeWithSelector(ILedger.HotKeyTaken.selector, person("hot")));
        network.setHotKey(person("hot"));
        vm.expectRevert(abi.encodeWithSelector(ILedger.HotKeyTaken.selector, workers[2]));
        network.setHotKey(workers[2]);
        vm.expectRevert(abi.encodeWithSelector(ILedger.HotKeyTaken.selector, address(0)));
        network.setHotKey(address(0));
        vm.stopPrank();
    }

    function test_addStake_freesAnAddressNamedAsAnothersHotKey() public {
        address victim = person("victim");
        vm.prank(workers[0]);
        network.setHotKey(victim);
        assertEq(network.operatorOf(victim), workers[0]);
        _stake(victim, 1 ether);
        assertEq(network.operatorOf(victim), victim);
    }

    function test_setHotKey_endsNoKeyOfAnother() public {
        address shared = person("shared");
        vm.prank(workers[0]);
        network.setHotKey(shared);
        _stake(shared, 1 ether);
        vm.startPrank(shared);
        network.requestStakeWithdrawal(1 ether);
        pass(terms.unbonding);
        network.withdrawStake();
        vm.stopPrank();
        vm.prank(workers[1]);
        network.setHotKey(shared);
        vm.prank(workers[0]);
        network.setHotKey(person("new"));
        pass(terms.keyGrace);
        assertEq(network.operatorOf(shared), workers[1]);
    }

    function test_setEndpoint_isAnEvent() public {
        vm.expectEmit(address(network));
        emit ILedger.EndpointSet(workers[0], "http://localhost");
        vm.prank(workers[0]);
        network.setEndpoint("http://localhost");
    }
}
