"""How clearly a rival beats a token by one state: integers only, as the Prover computes it (§8.2).

A bf16 value is `mantissa · 2^(exponent - 134)`. Products stand in units of 2^-84: nothing where
their exponents' sum is below 184 (below 2^-68), and refused from 384 (2^130), which no float32
holds, so that no engine chose a token by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verillm.errors import InputError
from verillm.request import Sampling
from verillm.sampling import gumbel_q64, truncates, words
from verillm.statistics import is_finite
from verillm.types import PPM, Bits, Hash32

POINT = 84
_CUT = 268 - POINT
_TOO_LARGE = 384
_ROUNDINGS = 32
"""Beyond one for each product: of noise, temperature and score."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A sum of products and the sum of their magnitudes, in units of 2^-84."""

    total: int
    magnitude: int


@dataclass(frozen=True, slots=True)
class Margin:
    """How a rival stands to a token; ppm of a logit.

    `ahead` its logit less the token's and `margin` its score less the token's, floors; `rounding`
    at least what float32 can have rounded of the margin, in whatever order it added.
    """

    ahead: int
    margin: int
    rounding: int

    def convicts(self, sampling: Sampling, tau: int, most: int) -> bool:
        """Whether this is no rounding of an honest run of any engine: the slash tier's rule."""
        return self.counts(sampling, tau) and self.margin > most + self.rounding

    def counts(self, sampling: Sampling, tau: int) -> bool:
        """Whether the rival was a candidate wherever the token was one."""
        return not truncates(sampling) or self.ahead >= tau


def dot(state: Sequence[int], row: Sequence[int]) -> Dot:
    """Exact but for products below 2^-68; bf16 bits, all finite.

    Raises InputError for a product that no float32 holds.
    """
    total = magnitude = 0
    for x, y in zip(state, row, strict=True):
        p, q = x >> 7 & 0xFF, y >> 7 & 0xFF
        scale = max(p, 1) + max(q, 1)
        if scale >= _TOO_LARGE:
            raise InputError("a product of state and row that no float32 holds")
        if scale < _CUT:
            continue
        product = (x & 0x7F | (p > 0) << 7) * (y & 0x7F | (q > 0) << 7) << scale - _CUT
        magnitude += product
        total += -product if (x ^ y) >> 15 else product
    return Dot(total, magnitude)


def noise_gap(seed: Hash32, position: int, token: int, rival: int, temperature: int) -> int:
    """`T·(g(rival) - g(token))` in Q64 ppm."""
    if temperature == 0:
        return 0
    own, other = (int(word) for word in words(seed, position, np.array([token, rival])))
    return temperature * (gumbel_q64(other) - gumbel_q64(own))


def between(own: Dot, other: Dot, width: int, gap: int) -> Margin:
    """The margin of two dot products, the token's first, and of the gap between their noise."""
    logits = (other.total - own.total) * PPM
    magnitudes = own.magnitude + other.magnitude
    rounding = ((((magnitudes >> 24) + 1) * (width + _ROUNDINGS) * PPM) >> POINT) + 32
    return Margin(logits >> POINT, (logits + (gap << (POINT - 64))) >> POINT, rounding)


def margin_of(
    state: Bits,
    token_row: Bits,
    rival_row: Bits,
    seed: Hash32,
    position: int,
    token: int,
    rival: int,
    temperature: int,
) -> Margin:
    """`Prover.marginOf`; rows and state uint16 [hidden].

    Raises InputError for what is not finite, and for a product that no float32 holds.
    """
    if not all(is_finite(bits) for bits in (state, token_row, rival_row)):
        raise InputError("a state or a row is not finite")
    final = state.tolist()
    own, other = dot(final, token_row.tolist()), dot(final, rival_row.tolist())
    gap = noise_gap(seed, position, token, rival, temperature)
    return between(own, other, len(final), gap)
