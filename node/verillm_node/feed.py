"""An append-only list of events that any number of readers follow, each from where it left off."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Generic, TypeVar

E = TypeVar("E")


class Feed(Generic[E]):
    """Used on one event loop only; event ids count from 1, as in the stream that carries them."""

    def __init__(self, events: Iterable[E] = (), closed: bool = False) -> None:
        self._events = list(events)
        self._closed = closed
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    @property
    def closed(self) -> bool:
        """Whether the last event is in."""
        return self._closed

    def append(self, event: E, last: bool = False) -> int:
        """Adds an event and wakes the readers; its id. What comes after the last one is dropped."""
        if not self._closed:
            self._events.append(event)
            self._closed = last
            self._wake()
        return len(self._events)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def follow(
        self, after: int = 0, idle: float | None = None
    ) -> AsyncIterator[tuple[int, E] | None]:
        """Every event with an id above `after`, then new ones until the last.

        None, whenever nothing came for `idle` seconds.
        """
        at = max(after, 0)
        while True:
            changed = self._changed
            while at < len(self._events):
                at += 1
                yield at, self._events[at - 1]
            if self._closed:
                return
            if not await _happens(changed, idle):
                yield None


async def _happens(event: asyncio.Event, within: float | None) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
