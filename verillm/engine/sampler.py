"""The sampler's fast path: the token of `verillm.sampling.select`, from fewer Gumbel values.

`g` is bounded: its word has 23 significant bits, so `G_MIN ≤ g ≤ G_MAX`. Rounding is monotone,
hence `fl(logit + fl(T·g)) ≤ fl(logit + fl(T·G_MAX))`: an entry whose right side is below a score
that is already reached cannot win, nor tie. Of 49 152 entries a few hundred remain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verillm.errors import NonFiniteLogits
from verillm.request import Sampling
from verillm.sampling import gumbel, probabilities, truncates, words
from verillm.types import PPM, Hash32

G_MAX = gumbel(np.array([0xFFFFFFFF], np.uint32))[0]
FIRST_LOOK = 32


def choose(logits: NDArray[np.float32], sampling: Sampling, seed: Hash32, position: int) -> int:
    """Return the token at `position + 1`; ties go to the lower id.

    Raises `NonFiniteLogits`: such a state proves nothing.
    """
    if not np.isfinite(logits).all():
        raise NonFiniteLogits(f"logits at position {position} are not finite")
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    temperature = np.float32(sampling.temperature / PPM)
    if truncates(sampling):
        ids = kept_ids(logits, sampling)
    else:
        ids = _contenders(logits, temperature, seed, position)
    scores = _scores(logits, ids, temperature, seed, position)
    return int(ids[np.argmax(scores)])


def kept_ids(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.intp]:
    """Return, ascending, the ids that `verillm.sampling.kept` leaves.

    What is kept is the likeliest few, and of equal ones those with lower ids. So the values alone
    are sorted, which is many times faster than sorting the ids by them.
    """
    ordered = -np.sort(-logits)
    mass = probabilities(ordered, sampling)
    left = np.ones(len(ordered), dtype=np.bool_)
    if sampling.top_k:
        left[sampling.top_k :] = False
    if sampling.top_p < PPM:
        left &= np.cumsum(mass) - mass < sampling.top_p / PPM
    if sampling.min_p:
        left &= mass >= (sampling.min_p / PPM) * mass[0]
    count = len(left) if left.all() else max(1, int(np.argmin(left)))
    least = ordered[count - 1]
    above = np.flatnonzero(logits > least)
    equal = np.flatnonzero(logits == least)[: count - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _contenders(
    logits: NDArray[np.float32], temperature: np.float32, seed: Hash32, position: int
) -> NDArray[np.intp]:
    """Return, ascending, the ids that can still reach the best score of the likeliest few."""
    if len(logits) <= FIRST_LOOK:
        return np.arange(len(logits))
    likeliest = np.argpartition(logits, -FIRST_LOOK)[-FIRST_LOOK:]
    reached = _scores(logits, likeliest, temperature, seed, position).max()
    return np.flatnonzero(logits + temperature * G_MAX >= reached)


def _scores(
    logits: NDArray[np.float32],
    ids: NDArray[np.intp],
    temperature: np.float32,
    seed: Hash32,
    position: int,
) -> NDArray[np.float32]:
    return logits[ids] + temperature * gumbel(words(seed, position, ids))
