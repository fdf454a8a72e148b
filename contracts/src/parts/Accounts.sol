// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IVeriLLMCore} from "../interfaces/IVeriLLMCore.sol";
import {Ledger} from "./Ledger.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @notice The doors to the ledger: clients' deposits, operators' stake and keys.
abstract contract Accounts is IVeriLLMCore, Ledger {
    using SafeERC20 for IERC20;

    // ── Client ──────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLMCore
    function deposit(address scheduler, uint96 amount) external nonReentrant {
        require(amount != 0, AmountZero());
        _deposits[msg.sender][scheduler].amount += amount;
        emit Deposited(msg.sender, scheduler, amount);
        _pull(amount);
    }

    /// @inheritdoc IVeriLLMCore
    function requestUnlock(address scheduler, uint96 amount) external {
        require(amount != 0, AmountZero());
        Deposit storage held = _deposits[msg.sender][scheduler];
        require(amount <= held.amount, DepositInsufficient(held.amount, amount));
        held.unlocking = amount;
        held.availableAt = _from(UNLOCK_DELAY);
        emit UnlockRequested(msg.sender, scheduler, amount, held.availableAt);
    }

    /// @inheritdoc IVeriLLMCore
    function withdrawDeposit(address scheduler) external nonReentrant {
        Deposit storage held = _deposits[msg.sender][scheduler];
        require(held.unlocking != 0, NothingRequested());
        require(block.timestamp >= held.availableAt, NotYetAvailable(held.availableAt));
        uint96 amount = held.unlocking < held.amount ? held.unlocking : held.amount;
        held.amount -= amount;
        held.unlocking = 0;
        held.availableAt = 0;
        emit DepositWithdrawn(msg.sender, scheduler, amount);
        TOKEN.safeTransfer(msg.sender, amount);
    }

    // ── Operator ────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLMCore
    /// @dev Who holds stake acts for itself: whoever named this address its hot key without asking loses it.
    function addStake(uint96 amount) external nonReentrant {
        require(amount != 0, AmountZero());
        Key storage key = _keys[msg.sender];
        if (key.operator != msg.sender && key.operator != address(0)) delete _keys[msg.sender];
        _accounts[msg.sender].balance += amount;
        emit StakeAdded(msg.sender, amount);
        _pull(amount);
    }

    /// @inheritdoc IVeriLLMCore
    function requestStakeWithdrawal(uint96 amount) external {
        require(amount != 0, AmountZero());
        Account storage account = _accounts[msg.sender];
        uint256 unstaked = Math.saturatingSub(account.balance, account.staked);
        require(amount <= unstaked, StakeInsufficient(msg.sender, unstaked, amount));
        account.withdrawing = amount;
        account.availableAt = _from(UNBONDING);
        emit StakeWithdrawalRequested(msg.sender, amount, account.availableAt);
    }

    /// @inheritdoc IVeriLLMCore
    function withdrawStake() external nonReentrant {
        Account storage account = _accounts[msg.sender];
        require(account.availableAt != 0, NothingRequested());
        require(block.timestamp >= account.availableAt, NotYetAvailable(account.availableAt));
        uint256 bound = Math.max(account.locked, account.staked);
        uint256 amount = Math.min(account.withdrawing, Math.saturatingSub(account.balance, bound));
        account.balance -= uint96(amount); // at most `withdrawing`, a uint96
        account.withdrawing = 0;
        account.availableAt = 0;
        emit StakeWithdrawn(msg.sender, amount);
        TOKEN.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc IVeriLLMCore
    function setHotKey(address hotKey) external {
        Key storage key = _keys[hotKey];
        bool foreign = key.operator != address(0) && key.operator != msg.sender;
        bool funded = hotKey != msg.sender && _accounts[hotKey].balance != 0;
        require(hotKey != address(0) && !foreign && !funded, HotKeyTaken(hotKey));
        // Not of a key that staked since: it acts for itself, or for another operator.
        Key storage before = _keys[_hotKeys[msg.sender]];
        if (before.operator == msg.sender) before.validUntil = _from(KEY_GRACE);
        key.operator = msg.sender;
        key.validUntil = 0;
        _hotKeys[msg.sender] = hotKey;
        emit HotKeySet(msg.sender, hotKey);
    }

    /// @inheritdoc IVeriLLMCore
    function setEndpoint(string calldata endpoint) external {
        emit EndpointSet(msg.sender, endpoint);
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IVeriLLMCore
    function depositOf(address client, address scheduler)
        external
        view
        returns (uint96 amount, uint96 unlocking, uint40 availableAt)
    {
        Deposit storage held = _deposits[client][scheduler];
        return (held.amount, held.unlocking, held.availableAt);
    }

    /// @inheritdoc IVeriLLMCore
    function accountOf(address operator)
        external
        view
        returns (
            uint96 balance,
            uint96 locked,
            uint96 staked,
            uint96 withdrawing,
            uint40 availableAt,
            address hotKey
        )
    {
        Account storage account = _accounts[operator];
        return (
            account.balance,
            account.locked,
            account.staked,
            account.withdrawing,
            account.availableAt,
            _hotKeys[operator]
        );
    }

    /// @inheritdoc IVeriLLMCore
    function operatorOf(address key) external view returns (address operator) {
        return _operatorOf(key);
    }
}
