"""Blocking work away from the event loop, never without a deadline."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from verillm.errors import Timeout

P = ParamSpec("P")
T = TypeVar("T")
SECONDS = 120.0
"""Above the chain's own timeouts and retries, so that theirs speak first."""


async def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking call in a thread; raises `Timeout` when it does not come back."""
    try:
        async with asyncio.timeout(SECONDS):
            return await asyncio.to_thread(call, *args, **kwargs)
    except TimeoutError as error:
        name = getattr(call, "__name__", "a call")
        raise Timeout(f"{name} did not come back within {SECONDS:.0f} s") from error
