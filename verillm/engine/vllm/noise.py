"""Which entries of a vocabulary noise may lift to the top, compiled where vLLM is.

vLLM brings numba. Without it (the driver's and the sampler's own tests) numpy draws every word,
many times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from verillm.engine.sampler import G_MAX
from verillm.engine.vllm.head import ROUNDING, margin
from verillm.hashing import word
from verillm.sampling import gumbel, words
from verillm.types import Floats, Hash32, Ints, Words

CHUNK = 64
"""Blocks of four words that are drawn before they are looked at: they stay in registers' reach."""
ADDING = 1e-4
"""More than float32 loses where a score is added up."""
LEAST_NOISE = -20.0
"""Below every Gumbel value."""
SIGNATURE = "int64(uint32[::1], uint32, float32[::1], float64[::1], int64[::1], uint32[::1])"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one row's logits are known, in logits.

    An exact logit is within `margin(logit, sums)` of the engine's. Entries from `surely` on are
    kept by truncation, those below `perhaps` are not. `temperature` is over 0.
    """

    temperature: float
    sums: float
    surely: float
    perhaps: float


def contenders(seed: Hash32, position: int, logits: Floats, bounds: Bounds) -> tuple[Ints, Words]:
    """Return the entries, ascending, that may have the best score of those kept; and their words.

    logits : float32 [vocabulary], finite. Whoever wins reaches what some entry that is surely kept
    surely has. More than those who may win are returned, but all of them.
    """
    search = _search()
    if search is None:
        return _plainly(seed, position, logits, bounds)
    ids, found = np.empty(len(logits), np.int64), np.empty(len(logits), np.uint32)
    numbers = np.frombuffer(word(seed, "seed"), ">u4", 4).astype(np.uint32)
    limits = np.array([bounds.temperature, bounds.sums, bounds.surely, bounds.perhaps])
    count = search(numbers, position, logits, limits, ids, found)
    return ids[:count], found[:count]


def prepare() -> None:
    """Compile now: a second that no request has to wait."""
    _search()


def _plainly(seed: Hash32, position: int, logits: Floats, bounds: Bounds) -> tuple[Ints, Words]:
    drawn = words(seed, position, np.arange(len(logits)))
    scores = logits + np.float32(bounds.temperature) * gumbel(drawn)
    apart = margin(logits, bounds.sums) + ADDING
    reached = (scores - apart)[logits >= bounds.surely].max(initial=-np.inf)
    ids = np.flatnonzero((logits >= bounds.perhaps) & (scores + apart >= reached))
    return ids, drawn[ids]


@cache
def _search() -> Callable[..., int] | None:
    if find_spec("numba") is None:
        return None
    import numba

    draw = numba.njit(_philox, inline="always")
    fill = numba.njit(_filling(draw), inline="always")
    greatest = numba.njit(_greatest, fastmath={"nnan", "nsz"})
    compiled: Callable[..., int] = numba.njit(SIGNATURE, nogil=True)(_searching(fill, greatest))
    return compiled


def _philox(numbers: Any, position: Any, block: Any) -> Any:  # pragma: no cover - compiled
    """`verillm.sampling.philox4x32_10` of one counter, as instructions that become vectors."""
    low = np.uint64(32)
    x0, x1, x2, x3 = np.uint32(block), np.uint32(position), numbers[2], numbers[3]
    k0, k1 = numbers[0], numbers[1]
    for _ in range(10):
        p0 = np.uint64(x0) * np.uint64(0xD2511F53)
        p1 = np.uint64(x2) * np.uint64(0xCD9E8D57)
        x0, x2 = np.uint32(p1 >> low) ^ x1 ^ k0, np.uint32(p0 >> low) ^ x3 ^ k1
        x1, x3 = np.uint32(p1), np.uint32(p0)
        k0, k1 = np.uint32(k0 + np.uint32(0x9E3779B9)), np.uint32(k1 + np.uint32(0xBB67AE85))
    return x0, x1, x2, x3


def _filling(draw: Any) -> Callable[..., Any]:  # pragma: no cover - compiled
    def fill(numbers: Any, position: Any, first: Any, drawn: Any) -> Any:
        """Draw a chunk's words without branches; return the greatest."""
        for at in range(CHUNK):
            x0, x1, x2, x3 = draw(numbers, position, first + at)
            drawn[at, 0], drawn[at, 1], drawn[at, 2], drawn[at, 3] = x0, x1, x2, x3
        greatest = np.uint32(0)
        for at in range(CHUNK):
            for lane in range(4):
                greatest = max(greatest, drawn[at, lane])
        return greatest

    return fill


def _greatest(values: Any) -> Any:  # pragma: no cover - compiled
    found = values[0]
    for value in values:
        found = max(found, value)
    return found


def _searching(fill: Any, greatest: Any) -> Callable[..., int]:  # pragma: no cover - compiled
    """Chunk by chunk, the one with the best logit first: it shows what the others must reach.

    A chunk whose best logit its greatest noise cannot lift so far is left after a look at either.
    """
    size = 4 * CHUNK
    rounding, most_noise = float(ROUNDING), float(G_MAX)

    def search(numbers: Any, position: Any, logits: Any, limits: Any, ids: Any, found: Any) -> int:
        temperature, sums, surely, perhaps = limits
        drawn = np.empty((CHUNK, 4), np.uint32)
        chunks = (len(logits) + size - 1) // size
        tops = np.empty(chunks, np.float32)
        for chunk in range(chunks):
            tops[chunk] = greatest(logits[chunk * size : (chunk + 1) * size])
        first = int(np.argmax(tops))
        reached = -np.inf
        count = 0
        for turn in range(-1, chunks):
            chunk = first if turn < 0 else turn
            top = float(tops[chunk])
            noise = (reached - top - abs(top) * rounding - sums - ADDING) / temperature
            if top < perhaps or noise > most_noise:
                continue
            share = np.exp(-np.exp(-max(noise, LEAST_NOISE)))
            least = np.uint32(max(0, int((share * 2.0**24 - 1) / 2) - 1) << 9)
            if fill(numbers, position, CHUNK * chunk, drawn) < least:
                continue
            for at in range(min(size, len(logits) - chunk * size)):
                random, logit = drawn[at >> 2, at & 3], float(logits[chunk * size + at])
                if random < least or logit < perhaps:
                    continue
                gumbel = -np.log(-np.log((2.0 * (random >> 9) + 1.0) * 2.0**-24))
                score, apart = logit + temperature * gumbel, abs(logit) * rounding + sums + ADDING
                if logit >= surely:
                    reached = max(reached, score - apart)
                if turn >= 0 and score + apart >= reached:
                    ids[count], found[count] = chunk * size + at, random
                    count += 1
        return count

    return search
