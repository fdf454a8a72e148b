"""How far two parties' states differ: integers only, on bf16 bits (docs/protocol.md §7).

`quantise_one` and `distance_one` are the scalar reference, as the chain computes it; the arrays
below are proven equal to them. The paper's own statistics are computed beside, and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from verillm.errors import InputError
from verillm.model import CheckProfile, LayerProfile
from verillm.types import PPM, Bits, Ints

CLAMP = 1 << 15
FARTHEST = 2_000_000
"""The largest distance, ppm; also that of two states that both quantise to nothing."""
EXPONENT_MASK = 0x7F80
MOST_RATIO = 2_500_000
"""What one cell adds to a mean at most, ppm of the honest median. What is spread thin moves every
cell by less; on rare texts rounding grows along some positions of honest work, and counted in full
they moved its mean as far as a cheat's. How many positions are far off is the count's to see."""
FIRST_ZONE = 3
"""Positions 1..3 are far noisier than the rest of a prompt."""
_EXPONENT_BIAS = 134  # 127, and 7 bits of mantissa below the point
_HALF_WIDTH = 10  # shifts beyond these bounds all give 0 or the clamp
_FAR_OF_NOTHING = 3e38
"""Relative distance to a state of zeros; the median of two is finite still."""


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """One party's states of one checked request, at ascending positions.

    slices : uint16 [positions, layers, sliceDims]. finals : uint16 [positions, hidden].
    """

    positions: tuple[int, ...]
    slices: Bits
    finals: Bits

    @property
    def finite(self) -> bool:
        """Whether no value is NaN or infinite."""
        return is_finite(self.slices) and is_finite(self.finals)


@dataclass(frozen=True, slots=True)
class PairStatistics:
    """Sums over all compared positions of two parties; `sum` in ppm of the honest median."""

    sum: int
    cells: int
    over: int

    @property
    def mean(self) -> int:
        """ppm of the honest median."""
        return self.sum // self.cells

    def agrees(self, mean: int, over: int) -> bool:
        """Whether both statistics are within a tier; nothing compared agrees with nothing."""
        return self.cells > 0 and self.mean <= mean and self.over <= over


@dataclass(frozen=True, slots=True)
class PaperStatistics:
    """What the VeriLLM paper decides by, for comparison.

    `p_e` share of unequal exponents; `p_m` among those, share of mantissas over 64 of 128 apart
    (a step over a power of two; meaningless below 50 `mismatches`); `p_w` among equal exponents,
    share of mantissas at most 4 apart; `relative_l2` median over positions and layers.
    """

    p_e: float
    p_m: float
    p_w: float
    relative_l2: float
    mismatches: int


def quantise_one(bits: int, scale: int) -> int:
    """One bf16 value in units of 2^scale, rounded half away from zero, clamped to ±2^15.

    The reference. The value must be finite.
    """
    exponent, mantissa = bits >> 7 & 0xFF, bits & 0x7F
    if exponent == 0:
        return 0
    shift = exponent - _EXPONENT_BIAS - scale
    magnitude = 128 + mantissa
    if shift >= 0:
        magnitude <<= min(shift, 16)
    else:
        magnitude = (magnitude + (1 << (-shift - 1))) >> -shift
    magnitude = min(magnitude, CLAMP)
    return -magnitude if bits >> 15 else magnitude


def distance_one(x: Sequence[int], y: Sequence[int], scale: int) -> int:
    """The distance of two states of one layer, ppm. The reference."""
    pairs = [(quantise_one(a, scale), quantise_one(b, scale)) for a, b in zip(x, y, strict=True)]
    return _ppm(sum((a - b) ** 2 for a, b in pairs), sum(a * a + b * b for a, b in pairs))


def quantise(bits: Bits, scale: int) -> Ints:
    """`quantise_one` of every element, by a table of all 65536 values."""
    table = _table(scale)
    taken: Ints = table[bits]
    return taken


def distance(x: Bits, y: Bits, scale: int) -> Ints:
    """`distance_one` over the last axis, ppm."""
    if x.shape != y.shape:
        raise InputError(f"states of shapes {x.shape} and {y.shape} do not compare")
    a, b = quantise(x, scale), quantise(y, scale)
    # At most 2^32 times 16384 dimensions = 2^46: int64 is exact; only the ratio needs more.
    differences = ((a - b) ** 2).sum(axis=-1)
    energies = (a**2 + b**2).sum(axis=-1)
    cells = [_ppm(int(d), int(s)) for d, s in zip(differences.flat, energies.flat, strict=True)]
    return np.array(cells, dtype=np.int64).reshape(differences.shape)


def is_finite(bits: Bits) -> bool:
    """Whether no element has the exponent of NaN and infinity."""
    return not bool(np.any((bits & EXPONENT_MASK) == EXPONENT_MASK))


def zone(position: int, prompt_tokens: int) -> int:
    """0 the first positions, 1 the rest of the prompt, 2 generated."""
    if position <= FIRST_ZONE:
        return 0
    return 1 if position < prompt_tokens else 2


def distances(x: States, y: States, profile: CheckProfile) -> Ints:
    """Distances [positions, layers + 1] in ppm; the final norm is the last column."""
    if x.positions != y.positions or len(profile.layers) != x.slices.shape[1] + 1:
        raise InputError("states at other positions or layers do not compare")
    columns = [
        distance(x.slices[:, at], y.slices[:, at], layer.scale)
        for at, layer in enumerate(profile.layers[:-1])
    ]
    columns.append(distance(x.finals, y.finals, profile.layers[-1].scale))
    return np.stack(columns, axis=1)


def compare(
    x: Sequence[States], y: Sequence[States], profile: CheckProfile, prompt_tokens: Sequence[int]
) -> PairStatistics:
    """The statistics of two parties over all checked requests; P of each is the inferencer's."""
    total, cells, over = 0, 0, 0
    for mine, other, prompt in zip(x, y, prompt_tokens, strict=True):
        apart = distances(mine, other, profile)
        zones = [zone(position, prompt) for position in mine.positions]
        med, cap = (
            _by_zone([layer.med for layer in profile.layers], zones),
            _by_zone([layer.cap for layer in profile.layers], zones),
        )
        total += int(ratios(apart, med).sum())
        cells += apart.size
        over += int((apart > cap).any(axis=1).sum())
    return PairStatistics(total, cells, over)


def compare_one(
    x: Sequence[States], y: Sequence[States], profile: CheckProfile, prompt_tokens: Sequence[int]
) -> PairStatistics:
    """`compare`, cell by cell. The reference."""
    total, cells, over = 0, 0, 0
    for mine, other, prompt in zip(x, y, prompt_tokens, strict=True):
        for row, position in enumerate(mine.positions):
            where, exceeds = zone(position, prompt), False
            for column, layer in enumerate(profile.layers):
                apart = distance_one(
                    _cell(mine, row, column), _cell(other, row, column), layer.scale
                )
                total += ratio(apart, layer, where)
                exceeds |= apart > layer.cap[where]
                cells += 1
            over += exceeds
    return PairStatistics(total, cells, over)


def ratio(apart: int, layer: LayerProfile, where: int) -> int:
    """One cell's share of the mean: the distance in ppm of the honest median, at most so much."""
    return min(apart * PPM // layer.med[where], MOST_RATIO)


def ratios(apart: Ints, med: Ints) -> Ints:
    """`ratio` of every cell."""
    found: Ints = np.minimum(apart * PPM // med, MOST_RATIO)
    return found


def paper_statistics(x: Sequence[States], y: Sequence[States]) -> PaperStatistics:
    """The paper's four statistics of x against y, over everything compared."""
    pairs = [
        rows
        for mine, other in zip(x, y, strict=True)
        for rows in (
            *zip(np.moveaxis(mine.slices, 1, 0), np.moveaxis(other.slices, 1, 0), strict=True),
            (mine.finals, other.finals),
        )
    ]
    nothing = np.empty(0, np.uint16)
    a, b = (np.concatenate([nothing, *(rows[side].ravel() for rows in pairs)]) for side in (0, 1))
    same = (a >> 7) == (b >> 7)
    one, another = a & 0x7F, b & 0x7F
    apart = np.maximum(one, another) - np.minimum(one, another)
    norms = [_relative(mine, other) for mine, other in pairs if mine.size]
    return PaperStatistics(
        _share(~same),
        _share(apart[~same] > 64),
        _share(apart[same] <= 4),
        float(np.median(np.concatenate(norms))) if norms else 0.0,
        int((~same).sum()),
    )


def to_floats(bits: Bits) -> NDArray[np.float32]:
    """bf16 bits as float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _ppm(difference: int, energy: int) -> int:
    return isqrt(2 * difference * PPM**2 // energy) if energy else FARTHEST


@lru_cache(maxsize=64)
def _table(scale: int) -> Ints:
    bits = np.arange(1 << 16, dtype=np.int64)
    exponent, mantissa = bits >> 7 & 0xFF, bits & 0x7F
    shift = np.clip(exponent - _EXPONENT_BIAS - scale, -_HALF_WIDTH, _HALF_WIDTH)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    half = np.where(right > 0, 1 << np.maximum(right - 1, 0), 0)
    magnitude = np.minimum((((128 + mantissa) << left) + half) >> right, CLAMP)
    magnitude = np.where(exponent == 0, 0, magnitude)
    table: Ints = np.where(bits >> 15 == 1, -magnitude, magnitude)
    table.setflags(write=False)
    return table


def _by_zone(values: Sequence[tuple[int, int, int]], zones: Sequence[int]) -> Ints:
    table = np.array(values, dtype=np.int64).T
    chosen: Ints = table[np.array(zones, dtype=np.intp)]
    return chosen


def _cell(states: States, row: int, column: int) -> list[int]:
    slices = states.slices[row]
    cell = slices[column] if column < len(slices) else states.finals[row]
    return [int(bits) for bits in cell]


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if hits.size else 0.0


def _relative(x: Bits, y: Bits) -> NDArray[np.float64]:
    a, b = to_floats(x).astype(np.float64), to_floats(y).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    finite: NDArray[np.float64] = np.nan_to_num(relative, posinf=_FAR_OF_NOTHING)
    return finite
