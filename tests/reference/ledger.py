"""Accounts, deposits, keys: `Ledger` and `Accounts` of the contracts, and the token they hold."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from eth_utils.address import to_checksum_address

from tests.reference.state import NO_DEPOSIT, Account, Key, Refused, State, require
from verillm.chain import events
from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.chain.reads import AccountState, DepositState
from verillm.errors import SignatureError
from verillm.hashing import keccak
from verillm.signing import Domain, recover_digest
from verillm.types import ChecksumAddress, Hash32, JobId

DEAD: Final = to_checksum_address("0x000000000000000000000000000000000000dEaD")
ENDLESS: Final = 2**256 - 1


@lru_cache(maxsize=4096)
def _recovered(digest: Hash32, signature: bytes) -> ChecksumAddress | None:
    try:
        return recover_digest(digest, signature)
    except SignatureError:
        return None


class Ledger:
    """What is held for whom. Entry points act for `sender`, at time `now`, in block `block`."""

    def __init__(self, config: Config, domain: Domain) -> None:
        self.config, self.domain = config, domain
        self.contract = domain.contract
        self.state = State()
        self.sender: ChecksumAddress = ZERO_ADDRESS
        self.now = self.block = 0
        self.events: list[Any] = []

    # ── The token ───────────────────────────────────────────────────────────────────────────────
    def mint(self, to: ChecksumAddress, amount: int) -> None:
        """Make tokens."""
        self.state.tokens[to] = self.token_balance(to) + amount

    def approve(self, amount: int) -> None:
        """Let the network take `amount` of the sender's."""
        self.state.allowances[self.sender] = amount

    def transfer(self, to: ChecksumAddress, amount: int) -> None:
        """Move the sender's tokens."""
        self._move(self.sender, to, amount)

    def token_balance(self, owner: ChecksumAddress) -> int:
        """Tokens that `owner` holds itself."""
        return self.state.tokens.get(owner, 0)

    def _move(self, source: ChecksumAddress, to: ChecksumAddress, amount: int) -> None:
        require(amount <= self.token_balance(source), "ERC20InsufficientBalance")
        self.state.tokens[source] = self.token_balance(source) - amount
        self.state.tokens[to] = self.token_balance(to) + amount

    def _pull(self, amount: int) -> None:
        allowed = self.state.allowances.get(self.sender, 0)
        require(amount <= allowed, "ERC20InsufficientAllowance")
        if allowed != ENDLESS:
            self.state.allowances[self.sender] = allowed - amount
        self._move(self.sender, self.contract, amount)

    # ── Client ──────────────────────────────────────────────────────────────────────────────────
    def deposit(self, scheduler: ChecksumAddress, amount: int) -> None:
        """Put `amount` at the disposal of jobs signed for `scheduler`."""
        require(amount > 0, "AmountZero")
        held = self.deposit_of(self.sender, scheduler)
        self._hold(self.sender, scheduler, replace(held, amount=held.amount + amount))
        self.events.append(events.Deposited(self.sender, scheduler, amount))
        self._pull(amount)

    def request_unlock(self, scheduler: ChecksumAddress, amount: int) -> None:
        """Ask for a deposit back; the scheduler may use it until the delay has passed."""
        require(amount > 0, "AmountZero")
        held = self.deposit_of(self.sender, scheduler)
        require(amount <= held.amount, "DepositInsufficient")
        available_at = self.now + self.config.unlock_delay
        self._hold(self.sender, scheduler, DepositState(held.amount, amount, available_at))
        self.events.append(events.UnlockRequested(self.sender, scheduler, amount, available_at))

    def withdraw_deposit(self, scheduler: ChecksumAddress) -> None:
        """Take what is unlocked, at most what is left."""
        held = self.deposit_of(self.sender, scheduler)
        require(held.unlocking > 0, "NothingRequested")
        require(self.now >= held.available_at, "NotYetAvailable")
        amount = min(held.unlocking, held.amount)
        self._hold(self.sender, scheduler, DepositState(held.amount - amount, 0, 0))
        self.events.append(events.DepositWithdrawn(self.sender, scheduler, amount))
        self._move(self.contract, self.sender, amount)

    # ── Operator ────────────────────────────────────────────────────────────────────────────────
    def add_stake(self, amount: int) -> None:
        """Add to the sender's balance. Who holds stake acts for itself: a foreign claim ends."""
        require(amount > 0, "AmountZero")
        key = self.state.keys.get(self.sender)
        if key is not None and key.operator != self.sender:
            del self.state.keys[self.sender]
        self._put(self.sender, balance=self.account(self.sender).balance + amount)
        self.events.append(events.StakeAdded(self.sender, amount))
        self._pull(amount)

    def request_stake_withdrawal(self, amount: int) -> None:
        """Ask for what no seat takes; slashable until it is paid."""
        require(amount > 0, "AmountZero")
        account = self.account(self.sender)
        require(amount <= account.balance - account.staked, "StakeInsufficient")
        available_at = self.now + self.config.unbonding
        self._put(self.sender, withdrawing=amount, available_at=available_at)
        self.events.append(events.StakeWithdrawalRequested(self.sender, amount, available_at))

    def withdraw_stake(self) -> None:
        """Take what was asked for, at most what is neither locked nor staked by now."""
        account = self.account(self.sender)
        require(account.available_at > 0, "NothingRequested")
        require(self.now >= account.available_at, "NotYetAvailable")
        bound = max(account.locked, account.staked)
        amount = min(account.withdrawing, max(0, account.balance - bound))
        self._put(self.sender, balance=account.balance - amount, withdrawing=0, available_at=0)
        self.events.append(events.StakeWithdrawn(self.sender, amount))
        self._move(self.contract, self.sender, amount)

    def set_hot_key(self, hot_key: ChecksumAddress) -> None:
        """Name the key that signs for the sender; the one before stays valid for a while."""
        taken = self.state.keys.get(hot_key)
        foreign = taken is not None and taken.operator != self.sender
        funded = hot_key != self.sender and self.account(hot_key).balance > 0
        require(hot_key != ZERO_ADDRESS and not foreign and not funded, "HotKeyTaken")
        before = self.state.hot_keys.get(self.sender, ZERO_ADDRESS)
        named = self.state.keys.get(before)
        # An address that staked took itself back, and may be another operator's key since.
        if named is not None and named.operator == self.sender:
            until = self.now + self.config.key_grace
            self.state.keys[before] = Key(self.sender, until)
        self.state.keys[hot_key] = Key(self.sender)
        self.state.hot_keys[self.sender] = hot_key
        self.events.append(events.HotKeySet(self.sender, hot_key))

    def set_endpoint(self, endpoint: str) -> None:
        """Say where the sender's API listens."""
        self.events.append(events.EndpointSet(self.sender, endpoint))

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def deposit_of(self, client: ChecksumAddress, scheduler: ChecksumAddress) -> DepositState:
        """A client's deposit at a scheduler."""
        return self.state.deposits.get((client, scheduler), NO_DEPOSIT)

    def account_of(self, operator: ChecksumAddress) -> AccountState:
        """An operator's money and hot key."""
        account = self.account(operator)
        return AccountState(
            account.balance,
            account.locked,
            account.staked,
            account.withdrawing,
            account.available_at,
            self.state.hot_keys.get(operator, ZERO_ADDRESS),
        )

    def operator_of(self, key: ChecksumAddress) -> ChecksumAddress:
        """Whom a key acts for: its operator while it is valid, or itself."""
        entry = self.state.keys.get(key)
        if entry is None:
            return key
        valid = entry.valid_until == 0 or self.now < entry.valid_until
        return entry.operator if valid else key

    # ── For what builds on it ───────────────────────────────────────────────────────────────────
    def account(self, operator: ChecksumAddress) -> Account:
        """An operator's money."""
        return self.state.accounts.get(operator, Account())

    def _put(self, operator: ChecksumAddress, **changes: int) -> None:
        self.state.accounts[operator] = replace(self.account(operator), **changes)

    def _hold(
        self, client: ChecksumAddress, scheduler: ChecksumAddress, held: DepositState
    ) -> None:
        self.state.deposits[client, scheduler] = held

    def _acts_for(self, key: ChecksumAddress, operator: ChecksumAddress) -> bool:
        return key == operator or self.operator_of(key) == operator

    def _digest(self, struct: Hash32) -> Hash32:
        return keccak(b"\x19\x01" + self.domain.separator + struct)

    def _signed(self, operator: ChecksumAddress, digest: Hash32, signature: bytes) -> bool:
        signer = _recovered(digest, signature)
        return signer is not None and self._acts_for(signer, operator)

    def _is_by(self, address: ChecksumAddress, digest: Hash32, signature: bytes) -> bool:
        return _recovered(digest, signature) == address

    def _escrow(self, client: ChecksumAddress, scheduler: ChecksumAddress, amount: int) -> None:
        held = self.deposit_of(client, scheduler)
        gone = held.unlocking if held.available_at and self.now >= held.available_at else 0
        require(amount <= max(0, held.amount - gone), "DepositInsufficient")
        self._hold(client, scheduler, replace(held, amount=held.amount - amount))

    def _lock(self, operator: ChecksumAddress, amount: int, reserve: int = 0) -> None:
        account = self.account(operator)
        require(amount <= max(0, account.free - reserve), "StakeInsufficient")
        self._put(operator, locked=account.locked + amount)

    def _lock_up_to(self, operator: ChecksumAddress, amount: int) -> int:
        account = self.account(operator)
        locked = min(amount, account.free)
        self._put(operator, locked=account.locked + locked)
        return locked

    def _unlock(self, operator: ChecksumAddress, amount: int) -> None:
        locked = self.account(operator).locked - amount
        if locked < 0:
            raise Refused("Panic")
        self._put(operator, locked=locked)

    def _credit(self, job_id: JobId, operator: ChecksumAddress, amount: int) -> None:
        """Pay, or slash if negative."""
        if amount == 0:
            return
        self._put(operator, balance=self.account(operator).balance + amount)
        kind = events.Paid if amount > 0 else events.Slashed
        self.events.append(kind(job_id, operator, abs(amount)))

    def _give_back(
        self, job_id: JobId, client: ChecksumAddress, scheduler: ChecksumAddress, amount: int
    ) -> None:
        if amount == 0:
            return
        held = self.deposit_of(client, scheduler)
        self._hold(client, scheduler, replace(held, amount=held.amount + amount))
        self.events.append(events.Paid(job_id, client, amount))

    def _burn(self, job_id: JobId, amount: int) -> None:
        if amount == 0:
            return
        self.events.append(events.Burnt(job_id, amount))
        self._move(self.contract, DEAD, amount)


def bits(mask: int, size: int, first: int = 0) -> frozenset[int]:
    """Which of `size` numbers from `first` on a mask names."""
    return frozenset(first + bit for bit in range(size) if mask >> bit & 1)


def mask_of(parties: Sequence[int] | frozenset[int], first: int = 0) -> int:
    """The mask that names them."""
    return sum(1 << (party - first) for party in parties)
