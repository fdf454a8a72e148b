"""Who held which seat and which key when: the contract's registers, replayed from its events.

Why from events and not from the contract's reads: those know the present only, and a seat may be
released, or a key rotated, long before someone audits the job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from verillm.chain.events import (
    At,
    EndpointSet,
    HotKeySet,
    SeatEvicted,
    SeatJoined,
    SeatLeft,
    SeatReleased,
)
from verillm.types import ChecksumAddress, ModelId

_SEATS = (SeatJoined, SeatLeft, SeatEvicted, SeatReleased)
KINDS: tuple[type[Any], ...] = (EndpointSet, HotKeySet, *_SEATS)
"""The events that a registry is replayed from."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The events, in the chain's order; `key_grace` in seconds, as the deployment fixed it."""

    events: tuple[At[Any], ...]
    key_grace: int

    @classmethod
    def of(cls, events: Iterable[At[Any]], key_grace: int) -> "Registry":
        """From events of any kinds; foreign ones are left out."""
        wanted = sorted(
            (each for each in events if isinstance(each.event, KINDS)),
            key=lambda each: (each.block_number, each.index),
        )
        return cls(tuple(wanted), key_grace)

    def owner_at(self, model_id: ModelId, seat: int, time: int) -> ChecksumAddress | None:
        """Who held a seat that was active for a job posted at `time`; None if it was not.

        Active means joined strictly before and not gone before, as the contract draws.
        """
        owner: ChecksumAddress | None = None
        for at in self.events:
            event = at.event
            if at.timestamp >= time or not isinstance(event, _SEATS):
                continue
            if (event.model_id, event.seat) == (model_id, seat):
                owner = event.owner if isinstance(event, SeatJoined) else None
        return owner

    def keys_within(self, operator: ChecksumAddress, first: int, last: int) -> set[ChecksumAddress]:
        """Every key that could sign for `operator` at some time in [first, last], chain seconds.

        Its own address always can; a rotated key for `key_grace` more.
        """
        named = [
            at
            for at in self.events
            if isinstance(at.event, HotKeySet) and at.event.operator == operator
        ]
        keys = {operator}
        for at, successor in zip_longest(named, named[1:]):
            until = None if successor is None else successor.timestamp + self.key_grace
            if at.timestamp <= last and (until is None or first < until):
                keys.add(at.event.hot_key)
        return keys

    def operator_of(self, key: ChecksumAddress, time: int) -> ChecksumAddress:
        """For whom a key acts at a time; an address that is nobody's key acts for itself."""
        operators = {at.event.operator for at in self.events if isinstance(at.event, HotKeySet)}
        held = [
            each for each in operators if each != key and key in self.keys_within(each, time, time)
        ]
        return held[0] if held else key

    def endpoint(self, operator: ChecksumAddress) -> str | None:
        """Where an operator's API listens by its own last word."""
        said = [
            at.event.endpoint
            for at in self.events
            if isinstance(at.event, EndpointSet) and at.event.operator == operator
        ]
        return said[-1] if said else None
