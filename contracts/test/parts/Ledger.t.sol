// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/Types.sol";
import {Network, Vm} from "../Network.sol";

/// @notice What the network says of money that moved, all of it and nothing else, and the last unit that can be locked.
contract LedgerTest is Network {
    address private constant DEAD = 0x000000000000000000000000000000000000dEaD;
    uint256 private constant FEE = 0.11 ether;
    uint256 private constant EACH = FEE / 5 / 3;

    function test_accept_saysWhoIsPaid() public {
        uint256 share = FEE * 7 / 10;
        uint256 rest = FEE - share - 3 * EACH;
        Case memory c = _claimed(Outcome.Accept, 0);
        _finalize(c);
        Vm.Log[] memory logs = _said(8);
        _assertPaid(logs[0], c, claimer, rest / 2);
        _assertPaid(logs[1], c, address(this), rest / 2);
        _assertCommitteePaid(logs, 2, c);
        _assertPaid(logs[5], c, workers[0], share);
        _assertPaid(logs[6], c, scheduler, rest - 2 * (rest / 2));
        _assertPaid(logs[7], c, client, MAX_FEE - FEE);
    }

    function test_slash_saysWhoIsPaidWhatIsTakenAndWhatBurns() public {
        Case memory c = _claimed(Outcome.Slash, 1);
        _finalize(c);
        Vm.Log[] memory logs = _said(7);
        _assertCommitteePaid(logs, 0, c);
        _assertPaid(logs[3], c, claimer, FEE);
        _assertSaid(logs[4], ILedger.Slashed.selector, c, workers[0], LOCK);
        _assertPaid(logs[5], c, client, MAX_FEE);
        assertEq(logs[6].topics[0], ILedger.Burnt.selector);
        assertEq(logs[6].topics[1], JobId.unwrap(c.id));
        assertEq(abi.decode(logs[6].data, (uint256)), LOCK - 3 * EACH - FEE);
        assertEq(token.balanceOf(DEAD), LOCK - 3 * EACH - FEE);
    }

    function test_acceptForTheWholeEscrow_saysNothingOfARest() public {
        Case memory c = _order(1);
        c.parties[0].inner.newTokens = 1_000_000;
        _post(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        vm.recordLogs();
        _finalize(c);
        Vm.Log[] memory logs = _said(7);
        _assertPaid(logs[0], c, claimer, terms.callerFee);
        _assertPaid(logs[5], c, workers[0], uint256(MAX_FEE) * 7 / 10);
        uint256 left = MAX_FEE - uint256(MAX_FEE) * 7 / 10 - 3 * (uint256(MAX_FEE) / 5 / 3);
        _assertPaid(logs[6], c, scheduler, left - 2 * terms.callerFee);
    }

    function test_lock_takesTheLastUnitThatIsFree() public {
        Case memory c = _sealed(1);
        address last = person("last");
        _stake(last, terms.claimBond);
        pass(12);
        vm.prank(last);
        network.claim(c.posting, c.sealing, Outcome.Accept, 0, 7, BUNDLE, new bytes[](0));
        assertEq(_locked(last), terms.claimBond);
        assertEq(_balance(last), terms.claimBond);
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    /// @dev A claim, after which everything that is said is kept.
    function _claimed(Outcome outcome, uint8 reason) private returns (Case memory c) {
        c = _sealed(1);
        _claim(c, outcome, reason);
        vm.recordLogs();
    }

    /// @dev What the network said of money; `count` such events, after that of the outcome.
    function _said(uint256 count) private returns (Vm.Log[] memory logs) {
        Vm.Log[] memory all = vm.getRecordedLogs();
        logs = new Vm.Log[](count);
        uint256 found = 0;
        for (uint256 i = 0; i < all.length; ++i) {
            bool outcome = all[i].topics[0] == ILedger.Finalized.selector;
            if (all[i].emitter != address(network) || outcome) continue;
            assertLt(found, count, "more is said");
            logs[found++] = all[i];
        }
        assertEq(found, count, "less is said");
    }

    function _assertCommitteePaid(Vm.Log[] memory logs, uint256 at, Case memory c) private pure {
        for (uint256 i = 0; i < 3; ++i) {
            _assertPaid(logs[at + i], c, c.parties[i + 1].owner, EACH);
        }
    }

    function _assertPaid(Vm.Log memory log, Case memory c, address who, uint256 amount)
        private
        pure
    {
        _assertSaid(log, ILedger.Paid.selector, c, who, amount);
    }

    function _assertSaid(
        Vm.Log memory log,
        bytes32 topic,
        Case memory c,
        address who,
        uint256 amount
    ) private pure {
        assertEq(log.topics[0], topic, "event");
        assertEq(log.topics[1], JobId.unwrap(c.id), "job");
        assertEq(address(uint160(uint256(log.topics[2]))), who, "account");
        assertEq(abi.decode(log.data, (uint256)), amount, "amount");
    }
}
