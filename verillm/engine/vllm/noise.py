"""The random words of a whole vocabulary, compiled where vLLM is.

vLLM brings numba. Without it (the driver's and the sampler's own tests) numpy draws the same words
twenty times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from verillm.hashing import word
from verillm.sampling import philox4x32_10
from verillm.types import Hash32, Words

SIGNATURE = "void(uint32[::1], uint32, uint32[:, ::1])"


def draw_all(seed: Hash32, position: int, vocabulary: int) -> Words:
    """Return `verillm.sampling.words` of every entry."""
    data = word(seed, "seed")[:16]
    numbers = np.array([int.from_bytes(data[at : at + 4], "big") for at in range(0, 16, 4)])
    found = np.empty((-(-vocabulary // 4), 4), np.uint32)
    _fill()(numbers.astype(np.uint32), position, found)
    return found.ravel()[:vocabulary]


@cache
def _fill() -> Callable[[Words, int, Words], None]:
    if find_spec("numba") is None:
        return fill_plainly
    import numba

    compiled: Callable[[Words, int, Words], None] = numba.njit(SIGNATURE, nogil=True)(_philox)
    return compiled


def prepare() -> None:
    """Compile now: half a second that no request has to wait."""
    _fill()


def fill_plainly(numbers: Words, position: int, found: Words) -> None:
    """Draw into `found` [blocks, 4] with numpy."""
    counter = np.empty(found.shape, np.uint32)
    counter[:, 0] = np.arange(len(found))
    counter[:, 1:] = (position, numbers[2], numbers[3])
    found[:] = philox4x32_10(counter, numbers[:2])


def _philox(numbers: Any, position: Any, found: Any) -> None:  # pragma: no cover - compiled
    """`fill_plainly`, as a loop over blocks that becomes vector instructions."""
    low = np.uint64(32)
    for block in range(len(found)):
        x0, x1, x2, x3 = np.uint32(block), np.uint32(position), numbers[2], numbers[3]
        k0, k1 = numbers[0], numbers[1]
        for _ in range(10):
            p0 = np.uint64(x0) * np.uint64(0xD2511F53)
            p1 = np.uint64(x2) * np.uint64(0xCD9E8D57)
            x0, x2 = np.uint32(p1 >> low) ^ x1 ^ k0, np.uint32(p0 >> low) ^ x3 ^ k1
            x1, x3 = np.uint32(p1), np.uint32(p0)
            k0, k1 = np.uint32(k0 + np.uint32(0x9E3779B9)), np.uint32(k1 + np.uint32(0xBB67AE85))
        found[block, 0], found[block, 1] = x0, x1
        found[block, 2], found[block, 3] = x2, x3
