"""How often one caller may have one thing: work that anyone can ask for must have a bound."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from verillm_node.errors import TooManyRequests

MOST_KEYS: Final = 4096
"""Callers remembered; beyond, whoever asked longest ago is forgotten."""


class Meter:
    """At most `most` takes of one key within `seconds`; lives on one thread."""

    def __init__(
        self, most: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._taken: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def take(self, *key: Hashable) -> None:
        """Counts one take; raises `TooManyRequests` where there were enough of late."""
        now = self._clock()
        taken = self._taken.setdefault(key, deque())
        self._taken.move_to_end(key)
        while len(self._taken) > MOST_KEYS:
            self._taken.popitem(last=False)
        while taken and taken[0] <= now - self._seconds:
            taken.popleft()
        if len(taken) >= self._most:
            raise TooManyRequests(taken[0] + self._seconds - now)
        taken.append(now)


def caller(host: str | None) -> str:
    """Whom to count: an address, or for IPv6 the network that one customer usually has."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return host or ""
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)
