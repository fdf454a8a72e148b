"""The random words of a vocabulary's entries, compiled where vLLM is.

vLLM brings numba. Without it (the driver's and the sampler's own tests) numpy draws the same words
many times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from verillm.hashing import word
from verillm.sampling import words
from verillm.types import Floats, Hash32, Ints, Words

CHUNK = 64
"""Blocks of four words that are drawn before they are looked at: they stay in registers' reach."""
AT = "void(uint32[::1], uint32, int64[::1], uint32[::1])"
ABOVE = "int64(uint32[::1], uint32, float32[::1], float64, uint32, int64[::1], uint32[::1])"


def words_at(seed: Hash32, position: int, ids: Ints) -> Words:
    """Return `verillm.sampling.words` of some entries."""
    kernels = _kernels()
    if kernels is None:
        return words(seed, position, ids)
    found = np.empty(len(ids), np.uint32)
    kernels[0](_numbers(seed), position, ids, found)
    return found


def words_above(
    seed: Hash32, position: int, logits: Floats, near: float, least: np.uint32
) -> tuple[Ints, Words]:
    """Return the entries, ascending, whose logit is `near` or more and whose word `least` or more;
    and their words.
    """
    kernels = _kernels()
    if kernels is None:
        drawn = words(seed, position, np.arange(len(logits)))
        ids = np.flatnonzero((logits >= near) & (drawn >= least))
        return ids, drawn[ids]
    ids, found = np.empty(len(logits), np.int64), np.empty(len(logits), np.uint32)
    count = kernels[1](_numbers(seed), position, logits, near, least, ids, found)
    return ids[:count], found[:count]


def prepare() -> None:
    """Compile now: a second that no request has to wait."""
    _kernels()


def _numbers(seed: Hash32) -> Words:
    return np.frombuffer(word(seed, "seed"), ">u4", 4).astype(np.uint32)


@cache
def _kernels() -> tuple[Callable[..., None], Callable[..., int]] | None:
    if find_spec("numba") is None:
        return None
    import numba

    block = numba.njit(_philox, inline="always")
    return (
        numba.njit(AT, nogil=True)(_reading(block)),
        numba.njit(ABOVE, nogil=True)(_searching(block)),
    )


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


def _reading(draw: Any) -> Callable[..., None]:  # pragma: no cover - compiled
    def read(numbers: Any, position: Any, ids: Any, found: Any) -> None:
        for at in range(len(ids)):
            x0, x1, x2, x3 = draw(numbers, position, ids[at] >> 2)
            lane = ids[at] & 3
            found[at] = x0 if lane == 0 else x1 if lane == 1 else x2 if lane == 2 else x3

    return read


def _searching(draw: Any) -> Callable[..., int]:  # pragma: no cover - compiled
    """A chunk is drawn without branches; the few that hold a great word are then read."""

    def search(
        numbers: Any, position: Any, logits: Any, near: Any, least: Any, ids: Any, found: Any
    ) -> int:
        drawn = np.empty((CHUNK, 4), np.uint32)
        blocks = (len(logits) + 3) // 4
        count = 0
        for start in range(0, blocks, CHUNK):
            size = min(CHUNK, blocks - start)
            for at in range(size):
                x0, x1, x2, x3 = draw(numbers, position, start + at)
                drawn[at, 0], drawn[at, 1], drawn[at, 2], drawn[at, 3] = x0, x1, x2, x3
            greatest = np.uint32(0)
            for at in range(size):
                for lane in range(4):
                    greatest = max(greatest, drawn[at, lane])
            if greatest < least:
                continue
            for at in range(size):
                for lane in range(4):
                    entry = 4 * (start + at) + lane
                    if drawn[at, lane] < least or entry >= len(logits) or logits[entry] < near:
                        continue
                    ids[count], found[count] = entry, drawn[at, lane]
                    count += 1
        return count

    return search
