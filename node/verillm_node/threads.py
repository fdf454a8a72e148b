"""Work that others can keep us waiting for, never without a deadline."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def until(deadline: float, what: str) -> AsyncIterator[None]:
    """What is inside has until a time of this machine's clock; raises `Timeout` then."""
    try:
        async with asyncio.timeout(max(deadline - time.time(), 0)):
            yield
    except TimeoutError as error:
        raise Timeout(f"{what} did not end in time") from error
