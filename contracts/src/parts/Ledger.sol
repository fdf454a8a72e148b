// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {JobId} from "../interfaces/Types.sol";
import {Terms} from "./Terms.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice What is held for whom: clients' deposits, operators' balances with what is locked in them, and their hot
/// keys. Storage and the movements of money; the doors are in Accounts.
/// @dev Invariant: locked ≤ balance for every account. Locks are taken from what is free, slashes only from
/// what is locked, and withdrawals only from what is neither locked nor staked.
abstract contract Ledger is Terms, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    /// @dev What the contract holds for a client under one scheduler; one slot.
    struct Deposit {
        uint96 amount;
        uint96 unlocking;
        uint40 availableAt;
    }

    /// @dev First slot: all that a job on the happy path touches. `availableAt` is non-zero iff a withdrawal
    /// is pending, so that the second slot need not be read where none is.
    struct Account {
        uint96 balance;
        uint96 locked;
        uint40 availableAt;
        uint96 staked;
        uint96 withdrawing;
    }

    /// @dev Whose hot key an address is, and until when (0: until rotated); one slot.
    struct Key {
        address operator;
        uint40 validUntil;
    }

    address internal constant DEAD = 0x000000000000000000000000000000000000dEaD;

    mapping(address client => mapping(address scheduler => Deposit)) internal _deposits;
    mapping(address operator => Account) internal _accounts;
    mapping(address key => Key) internal _keys;
    mapping(address operator => address key) internal _hotKeys;

    /// @dev Whom a key acts for: its operator while it is valid, or itself.
    function _operatorOf(address key) internal view returns (address operator) {
        Key storage entry = _keys[key];
        bool valid = entry.validUntil == 0 || block.timestamp < entry.validUntil;
        return entry.operator != address(0) && valid ? entry.operator : key;
    }

    /// @dev Whether `key` signs and acts for `operator`: its own address always does.
    function _actsFor(address key, address operator) internal view returns (bool) {
        return key == operator || _operatorOf(key) == operator;
    }

    function _requireSigned(address operator, bytes32 digest, bytes calldata signature)
        internal
        view
    {
        require(_signed(operator, digest, signature), SignatureInvalid(operator));
    }

    function _signed(address operator, bytes32 digest, bytes calldata signature)
        internal
        view
        returns (bool)
    {
        (address signer, ECDSA.RecoverError failure,) = ECDSA.tryRecoverCalldata(digest, signature);
        return failure == ECDSA.RecoverError.NoError && _actsFor(signer, operator);
    }

    /// @dev What may still be locked: not locked yet, and not on its way out.
    function _free(Account storage account) internal view returns (uint256) {
        uint256 held = uint256(account.locked);
        if (account.availableAt != 0) held += account.withdrawing;
        return Math.saturatingSub(account.balance, held);
    }

    function _lock(address operator, uint256 amount) internal {
        Account storage account = _accounts[operator];
        uint256 free = _free(account);
        require(amount <= free, StakeInsufficient(operator, free, amount));
        account.locked += uint96(amount); // at most the balance
    }

    /// @dev Locks what is free of `amount`; a verifier serves with what it has left.
    function _lockUpTo(address operator, uint256 amount) internal returns (uint96 locked) {
        Account storage account = _accounts[operator];
        locked = uint96(Math.min(amount, _free(account))); // at most the balance
        account.locked += locked;
    }

    /// @dev Ends a lock, takes a part of it, pays something in; the only place where balances move.
    function _close(JobId jobId, address operator, uint256 lock, uint256 slash, uint256 pay)
        internal
    {
        Account storage account = _accounts[operator];
        // Both were locked before, so neither can exceed what is there.
        account.locked -= lock.toUint96();
        account.balance = (uint256(account.balance) - slash + pay).toUint96();
        if (slash != 0) emit Slashed(jobId, operator, slash);
        if (pay != 0) emit Paid(jobId, operator, pay);
    }

    function _escrow(address client, address scheduler, uint96 amount) internal {
        Deposit storage held = _deposits[client][scheduler];
        uint256 available = held.amount;
        if (held.availableAt != 0 && block.timestamp >= held.availableAt) {
            available = Math.saturatingSub(available, held.unlocking);
        }
        require(amount <= available, DepositInsufficient(available, amount));
        held.amount -= amount;
    }

    function _refund(JobId jobId, address client, address scheduler, uint256 amount) internal {
        if (amount == 0) return;
        _deposits[client][scheduler].amount += amount.toUint96();
        emit Paid(jobId, client, amount);
    }

    function _burn(JobId jobId, uint256 amount) internal {
        if (amount == 0) return;
        emit Burnt(jobId, amount);
        TOKEN.safeTransfer(DEAD, amount);
    }

    function _pull(uint256 amount) internal {
        uint256 before = _held();
        TOKEN.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = _held() - before;
        require(received == amount, TransferInexact(amount, received));
    }

    function _held() private view returns (uint256) {
        return TOKEN.balanceOf(address(this));
    }
}
