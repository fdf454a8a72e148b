"""A durable outbox: each transaction is recorded before it is sent, and found again by its effect.

Why by its effect and not by its hash: a replaced transaction has another hash, a restarted or
reorganised chain may have lost one that was mined, and someone else may have done the same thing.

How a nonce stays one use: the lowest that is neither mined nor held by a pending entry is taken
under the key's lock, and recorded together with the signed bytes. From then on only those bytes, or
a replacement of the same nonce, are sent. If the chain comes back older than our records, whatever
lies between its count and ours is sent again, in order: the same bytes, so nothing happens twice.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol, Self

from eth_account.signers.local import LocalAccount

from verillm import api
from verillm.chain.contract import Call, Chain, Fees, Mined, sender_lock, transaction_hash
from verillm.errors import ChainError, Timeout, TransactionFailed, VeriLLMError
from verillm.types import ChecksumAddress, Hash32

log = logging.getLogger(__name__)
MAX_REPLACEMENTS: Final = 20
MAX_GAP: Final = 256


class Store(Protocol):
    """Durable text by key. `put` returns only once the value would survive a crash."""

    def put(self, key: str, value: str) -> None:
        """Write or overwrite."""

    def get(self, key: str) -> str | None:
        """Read, None if never put."""

    def delete(self, key: str) -> None:
        """Forget."""

    def list(self) -> list[tuple[str, str]]:
        """All keys and values."""


class MemoryStore:
    """A Store that ends with the process: for one-off commands and tests."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        """Write or overwrite."""
        self._values[key] = value

    def get(self, key: str) -> str | None:
        """Read, None if never put."""
        return self._values.get(key)

    def delete(self, key: str) -> None:
        """Forget."""
        self._values.pop(key, None)

    def list(self) -> list[tuple[str, str]]:
        """All keys and values."""
        return list(self._values.items())


class EntryState(StrEnum):
    """What became of an entry: pending until its effect is seen, failed if it reverted."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One intended effect: its call, its nonce, and every signed form of it, newest last."""

    key: str
    call: Call
    sender: ChecksumAddress
    nonce: int
    gas: int
    fees: Fees
    raws: tuple[bytes, ...]
    state: EntryState = EntryState.PENDING

    @property
    def hashes(self) -> tuple[Hash32, ...]:
        """The transactions that may carry it."""
        return tuple(transaction_hash(raw) for raw in self.raws)

    def to_text(self) -> str:
        """For the store; holds signed transactions, no secrets."""
        return json.dumps(
            {
                "key": self.key,
                "name": self.call.name,
                "to": self.call.to,
                "data": api.to_hex(self.call.data),
                "value": str(self.call.value),
                "sender": self.sender,
                "nonce": self.nonce,
                "gas": self.gas,
                "maximum": str(self.fees.maximum),
                "tip": str(self.fees.tip),
                "raws": [api.to_hex(raw) for raw in self.raws],
                "state": self.state.value,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From the store; raises MalformedError."""
        fields = api.Fields(api.loads(text, "outbox"), "outbox")
        call = Call(
            name=fields.text("name"),
            to=fields.optional("to", api.parse_address),
            data=fields.take("data", _calldata),
            value=fields.amount("value", 256),
        )
        entry = cls(
            key=fields.text("key"),
            call=call,
            sender=fields.address("sender"),
            nonce=fields.number("nonce", 64),
            gas=fields.number("gas", 64),
            fees=Fees(fields.amount("maximum", 256), fields.amount("tip", 256)),
            raws=fields.many("raws", _calldata, MAX_REPLACEMENTS + 2),
            state=EntryState(fields.text("state", 16)),
        )
        fields.end()
        return entry


def _calldata(value: object, path: str) -> bytes:
    return api.parse_hex(value, path, cap=8 << 20)


@dataclass(slots=True)
class _Watch:
    """How one run follows its entry, in seconds of this machine's clock."""

    deadline: float
    resend_at: float
    sent_at: float = field(default_factory=time.monotonic)


class Outbox:
    """Sends calls of one key so that each takes effect once, over crashes of us and of the chain.

    Parameters
    ----------
    stuck_after : seconds without being mined after which a transaction is replaced at a higher fee.
    timeout : seconds after which `run` gives up waiting; the entry stays pending, and is taken up
        by the next `run` of its key.
    """

    def __init__(
        self,
        chain: Chain,
        store: Store,
        *,
        stuck_after: float = 30.0,
        timeout: float = 300.0,
        poll: float = 0.1,
    ) -> None:
        self.chain, self._store = chain, store
        self._account: LocalAccount = chain.sender
        self._stuck_after, self._timeout, self._poll = stuck_after, timeout, poll
        self._lock = sender_lock(chain.deployment.chain_id, self._account.address)
        self._entries_lock = threading.Lock()
        entries = [Entry.from_text(value) for _, value in store.list()]
        self._entries = {e.key: e for e in entries if e.sender == self._account.address}

    def entry(self, key: str) -> Entry | None:
        """What is recorded under a key."""
        return self._entries.get(key)

    def pending(self) -> tuple[Entry, ...]:
        """What a restart has to take up, in the order of nonces."""
        with self._entries_lock:
            open_ = [e for e in self._entries.values() if e.state is EntryState.PENDING]
        return tuple(sorted(open_, key=lambda entry: entry.nonce))

    def run(self, key: str, call: Call, is_done: Callable[[], bool]) -> Mined | None:
        """Make `call` take effect: returns once `is_done()` holds, with the receipt if it is ours.

        `key` names the effect (`post:0x…`): the same key is the same transaction. Raises what the
        contract refuses, and Timeout; ChainUnreachable is waited out until the timeout.
        """
        watch = _Watch(time.monotonic() + self._timeout, 0.0)
        while True:
            try:
                return self._run(key, call, is_done, watch)
            except ChainError as error:
                if isinstance(error, TransactionFailed) or time.monotonic() > watch.deadline:
                    raise
                log.warning("chain unreachable", extra={"key": key, "error": error.code})
                time.sleep(min(1.0, 5 * self._poll))

    def _run(
        self, key: str, call: Call, is_done: Callable[[], bool], watch: _Watch
    ) -> Mined | None:
        while not is_done():
            entry = self._entries.get(key)
            if entry is None or entry.state is EntryState.FAILED:
                entry = self._record(key, call, is_done)
                if entry is None:
                    break
            found = self._find(entry)
            if found is not None and not found.ok:
                return self._reverted(entry, found, is_done)
            self._push(entry, found, watch)
            if time.monotonic() > watch.deadline:
                raise Timeout(f"{call.name} took no effect in {self._timeout:.0f} s")
            time.sleep(self._poll)
        return self._finish(key)

    def _finish(self, key: str) -> Mined | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.state is not EntryState.DONE:
            self._put(replace(entry, state=EntryState.DONE))
            self._forget_old(entry.nonce)
        return self._find(entry)

    def _forget_old(self, nonce: int) -> None:
        with self._entries_lock:
            old = [
                e.key
                for e in self._entries.values()
                if e.state is not EntryState.PENDING and e.nonce < nonce - MAX_GAP
            ]
            for key in old:
                del self._entries[key]
        for key in old:
            self._store.delete(key)

    def _reverted(self, entry: Entry, found: Mined, is_done: Callable[[], bool]) -> Mined | None:
        if is_done():  # someone else was faster
            return self._finish(entry.key)
        self._put(replace(entry, state=EntryState.FAILED))
        self.chain.raise_revert(entry.call, found)
        return None

    # ── Recording ────────────────────────────────────────────────────────────────────────────────
    def _put(self, entry: Entry) -> None:
        self._store.put(entry.key, entry.to_text())
        with self._entries_lock:
            self._entries[entry.key] = entry

    def _record(self, key: str, call: Call, is_done: Callable[[], bool]) -> Entry | None:
        """A new entry, signed and stored but not yet sent; None if the effect came meanwhile."""
        try:
            gas, fees = self.chain.estimate(call), self.chain.fees()
        except VeriLLMError:
            if is_done():
                return None
            raise
        with self._lock:
            nonce = self._next_nonce()
            raw = self.chain.sign(call, nonce, gas, fees)
            entry = Entry(key, call, self._account.address, nonce, gas, fees, (raw,))
            self._put(entry)
        return entry

    def _next_nonce(self) -> int:
        nonce = self.chain.nonce(self._account.address, "pending")
        with self._entries_lock:  # finished ones too: a chain that came back older will need them
            held = {entry.nonce for entry in self._entries.values()}
        while nonce in held:
            nonce += 1
        return nonce

    # ── Sending ──────────────────────────────────────────────────────────────────────────────────
    def _find(self, entry: Entry) -> Mined | None:
        for transaction in reversed(entry.hashes):
            if (found := self.chain.mined(transaction)) is not None:
                return found
        return None

    def _push(self, entry: Entry, found: Mined | None, watch: _Watch) -> None:
        """Bring an entry one step closer to a block: send, send again, replace, or sign anew."""
        now = time.monotonic()
        if found is not None or now < watch.resend_at:
            return
        watch.resend_at = now + min(1.0, self._stuck_after)
        with self._lock:
            count = self.chain.nonce(self._account.address)
            if count > entry.nonce:
                self._renumber(entry)
            elif count < entry.nonce:
                self._fill(count, entry)
                self._broadcast(entry.raws[-1])
            elif now - watch.sent_at > self._stuck_after and len(entry.raws) <= MAX_REPLACEMENTS:
                self._replace(entry)
                watch.sent_at = now
            else:
                self._broadcast(entry.raws[-1])

    def _broadcast(self, raw: bytes) -> None:
        try:
            self.chain.broadcast(raw)
        except TransactionFailed as error:
            if error.error != "NonceTooLow":  # mined since we looked: the next look finds it
                raise

    def _replace(self, entry: Entry) -> None:
        fees, now = entry.fees.raised(), self.chain.fees()
        fees = Fees(max(fees.maximum, now.maximum), max(fees.tip, now.tip))
        raw = self.chain.sign(entry.call, entry.nonce, entry.gas, fees)
        entry = replace(entry, fees=fees, raws=(*entry.raws, raw))
        self._put(entry)
        log.info("transaction replaced", extra={"key": entry.key, "nonce": entry.nonce})
        self._broadcast(raw)

    def _renumber(self, entry: Entry) -> None:
        """Its nonce was mined by another transaction: sign it for the next one.

        None of its signed forms can be mined any more, so it still happens at most once. A form
        that was mined just now has a receipt by the time the count includes it.
        """
        if self._find(entry) is not None:
            return
        nonce, fees = self._next_nonce(), self.chain.fees()
        raw = self.chain.sign(entry.call, nonce, entry.gas, fees)
        entry = replace(entry, nonce=nonce, fees=fees, raws=(raw,))
        self._put(entry)
        log.warning("nonce taken", extra={"key": entry.key, "nonce": nonce})
        self._broadcast(raw)

    def _fill(self, count: int, entry: Entry) -> None:
        """Send what must be mined before an entry: our own records, or nothing to ourselves."""
        with self._entries_lock:
            ours = {e.nonce: e.raws[-1] for e in self._entries.values() if e.nonce >= count}
        for nonce in range(count, min(entry.nonce, count + MAX_GAP)):
            raw = ours.get(nonce)
            if raw is None:
                nothing = Call("fill", self._account.address, b"")
                raw = self.chain.sign(nothing, nonce, 21_000, self.chain.fees())
                log.warning("nonce gap filled", extra={"nonce": nonce})
            self._broadcast(raw)
