"""What truncation keeps, from bounds on logits.

An entry is kept by how much mass is above it (top-p), how many entries (top-k) and its mass beside
the greatest (min-p). With every logit known to lie within an interval these have bounds: an entry
is surely kept, surely not, or perhaps. The engine's logits are bfloat16, so a vocabulary has about
a thousand different ones: counting them is sorting them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verillm.engine.vllm.head import margin
from verillm.request import Sampling
from verillm.types import PPM, Floats, Ints, Mask

CLOSE = 1e-9
"""Difference of two shares of mass that float64 may order either way."""

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of a row's exact logits: `counts` of them about `middle`, `apart` at most."""

    middle: Doubles
    apart: Doubles
    counts: Ints

    @property
    def low(self) -> Doubles:
        """Lower ends."""
        return self.middle - self.apart

    @property
    def high(self) -> Doubles:
        """Upper ends."""
        return self.middle + self.apart


def around(logits: Floats, sums: float) -> Known:
    """Return what the engine's logits say, rounded to bfloat16 and off by `sums` before."""
    values, counts = _different(logits)
    return Known(values, margin(values, sums), counts)


def around_but(logits: Floats, sums: float, ids: Ints, exact: Floats) -> Known:
    """Return what the engine's logits say of all but `ids`, whose exact ones are given."""
    values, counts = _different(logits)
    np.subtract.at(counts, np.searchsorted(-values, -logits[ids]), 1)
    there = counts > 0
    values = values[there]
    return Known(
        np.concatenate([exact.astype(np.float64), values]),
        np.concatenate([np.zeros(len(ids)), margin(values, sums)]),
        np.concatenate([np.ones(len(ids), np.intp), counts[there]]),
    )


def _different(logits: Floats) -> tuple[Doubles, Ints]:
    """Return the different values, descending, and how often each comes."""
    counts = np.bincount(logits.view(np.uint32) >> np.uint32(16))
    bits = np.flatnonzero(counts).astype(np.uint32)
    values = (bits << np.uint32(16)).view(np.float32)
    order = np.argsort(-values)
    return values[order].astype(np.float64), counts[bits[order]]


class Nucleus:
    """The bounds of one row."""

    def __init__(self, known: Known, sampling: Sampling) -> None:
        self._known, self._sampling = known, sampling
        self._scale = PPM / sampling.temperature
        low, high = known.low, known.high
        self._best, self._floor = float(high.max()), float(low.max())
        least, most = known.counts * self._mass(low), known.counts * self._mass(high)
        by_high, by_low = np.argsort(-high), np.argsort(-low)
        self._highs, self._lows = -high[by_high], -low[by_low]
        self._number_most = _sums(known.counts[by_high])
        self._number_least = _sums(known.counts[by_low])
        self._mass_most, self._mass_least = _sums(most[by_high]), _sums(least[by_low])
        self._rest_least = least.sum() - _sums(least[by_high])
        self._rest_most = most.sum() - _sums(most[by_low])

    def cuts(self) -> tuple[float, float]:
        """Return the middle from which on what is known is kept surely, and the last that perhaps
        is; of what is known in descending order.
        """
        known = self._known
        surely, perhaps = self.judge(known.low, known.high, known.high)
        sure = len(surely) if surely.all() else int(np.argmin(surely))
        least = known.middle[sure - 1] if sure else np.inf
        return float(least), float(known.middle[np.flatnonzero(perhaps)[-1]])

    def judge(self, low: Doubles, high: Doubles, own: Doubles) -> tuple[Mask, Mask]:
        """Return whether entries whose logits lie between `low` and `high` are kept surely, and
        whether perhaps; `own` is the upper end by which each is among those known.
        """
        most = np.searchsorted(self._highs, -low, side="right")  # perhaps above, itself among them
        least = np.searchsorted(self._lows, -high, side="left")  # surely above
        top_k = self._sampling.top_k or np.inf
        surely = self._number_most[most] - 1 < top_k
        perhaps = self._number_least[least] < top_k
        if self._sampling.top_p < PPM:
            share, mass = self._sampling.top_p / PPM, self._mass(own)
            above = np.maximum(self._mass_most[most] - mass, 0)
            surely &= above < (share - CLOSE) * (above + self._rest_least[most] + self._mass(low))
            above, rest = self._mass_least[least], self._rest_most[least] - mass + self._mass(high)
            perhaps &= above < (share + CLOSE) * (above + rest)
        if self._sampling.min_p:
            share = self._sampling.min_p / PPM
            surely &= (low - self._best) * self._scale >= np.log(share + CLOSE)
            perhaps &= (high - self._floor) * self._scale >= np.log(share - CLOSE)
        surely |= self._number_most[most] == 1
        return surely, perhaps | surely

    def _mass(self, logits: Doubles) -> Doubles:
        mass: Doubles = np.exp((logits - self._best) * self._scale)
        return mass


def _sums(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of the first 0, 1, … values."""
    return np.concatenate([[0], np.cumsum(values)])
