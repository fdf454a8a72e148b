"""Who holds seats, where their APIs listen, and with which keys they sign: read from the chain.

Everything blocks; daemons call it in threads.
"""

import threading
import time
from dataclasses import dataclass

from eth_typing import ChecksumAddress

from verillm.chain.contract import AccountState, Chain
from verillm.chain.events import EndpointSet, HotKeySet, stream
from verillm.errors import SignatureError
from verillm.types import ModelId

FRESH_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Member:
    """One operator with an active seat; price in token units a token."""

    owner: ChecksumAddress
    seat: int
    price: int
    endpoint: str
    hot_key: ChecksumAddress
    keys: tuple[ChecksumAddress, ...]
    """Every key whose signature may still count: hot keys by their age, and its own."""
    free: int
    """Stake that a new job may lock; less what is reserved for verification."""


class Registry:
    """The seats of a deployment, read again when older than a few seconds."""

    def __init__(
        self, chain: Chain, reserve_bps: int, fresh_seconds: float = FRESH_SECONDS
    ) -> None:
        self._chain, self._reserve_bps, self._fresh = chain, reserve_bps, fresh_seconds
        self._lock = threading.Lock()
        self._read_to = chain.deployment.block - 1
        self._endpoints: dict[ChecksumAddress, str] = {}
        self._keys: dict[ChecksumAddress, tuple[ChecksumAddress, ...]] = {}
        self._members: dict[ModelId, tuple[float, tuple[Member, ...]]] = {}

    def members(self, model_id: ModelId) -> tuple[Member, ...]:
        """One member for each operator that serves a model now, in the order of seats."""
        with self._lock:
            read_at, members = self._members.get(model_id, (0.0, ()))
            if time.monotonic() - read_at > self._fresh:
                members = self._read_members(model_id)
                self._members[model_id] = (time.monotonic(), members)
            return members

    def member(self, model_id: ModelId, owner: ChecksumAddress, seat: int) -> Member | None:
        """An operator's seat, also one that it has left: it still serves the jobs from before."""
        with self._lock:
            self._read_events()
            state = self._chain.seat_of(model_id, seat)
            return self._member(seat, owner, state.price)

    def endpoint(self, operator: ChecksumAddress) -> str | None:
        """Where an operator's API listens."""
        with self._lock:
            self._read_events()
            return self._endpoints.get(operator)

    def forget(self) -> None:
        """Reads everything again at the next question, such as after a chain went back."""
        with self._lock:
            self._read_to = self._chain.deployment.block - 1
            self._members.clear()

    def _read_members(self, model_id: ModelId) -> tuple[Member, ...]:
        self._read_events()
        slots, _ = self._chain.slots_of(model_id)
        found: dict[ChecksumAddress, Member] = {}
        for seat in range(slots):
            state = self._chain.seat_of(model_id, seat)
            if state.active_from == 0 or state.left_at != 0 or state.owner in found:
                continue
            member = self._member(seat, state.owner, state.price)
            if member is not None:
                found[state.owner] = member
        return tuple(found.values())

    def _member(self, seat: int, owner: ChecksumAddress, price: int) -> Member | None:
        endpoint = self._endpoints.get(owner)
        if endpoint is None:
            return None
        account = self._chain.account_of(owner)
        keys = (account.hot_key, *self._keys.get(owner, ()), owner)
        unique = tuple(dict.fromkeys(keys))
        reserve = -(-account.staked * self._reserve_bps // 10_000)
        free = max(0, free_stake(account) - reserve)
        return Member(owner, seat, price, endpoint, account.hot_key, unique, free)

    def _read_events(self) -> None:
        newest = self._chain.block().number
        if newest < self._read_to:
            self._read_to = self._chain.deployment.block - 1
        for each in stream(self._chain, (EndpointSet, HotKeySet), self._read_to + 1, newest):
            event = each.event
            if isinstance(event, EndpointSet):
                self._endpoints[event.operator] = event.endpoint.rstrip("/")
            else:
                before = self._keys.get(event.operator, ())
                self._keys[event.operator] = (event.hot_key, *before)
        self._read_to = newest


def free_stake(account: AccountState) -> int:
    """Stake that nothing has locked yet, in token units."""
    return max(0, staying_stake(account) - account.locked)


def staying_stake(account: AccountState) -> int:
    """Stake that is not on its way out, locked or not, in token units."""
    return account.balance - (account.withdrawing if account.available_at else 0)


def hot_key_of(chain: Chain, operator: ChecksumAddress) -> ChecksumAddress:
    """The key that signs for an operator now; raises `SignatureError` if it never named one."""
    hot_key: ChecksumAddress = chain.account_of(operator).hot_key
    if int(hot_key, 16) == 0:
        raise SignatureError(f"{operator} has no hot key on the chain")
    return hot_key
