"""State thresholds: what honest states look like from those of who checks them.

Per committed layer the scale is the power of two at the 99 % quantile of |v| (unclipped outliers
cost most of the power), the median and the cap (99.9 % quantile, with a margin) are those of all
pairs of honest parties, by zone. A job's statistics are simulated as the chain will draw positions;
thresholds lie above the honest maximum by a stated margin, never nearer than the contract's bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from verillm.errors import InputError
from verillm.model import CheckProfile, LayerProfile, check_profile
from verillm.statistics import distance, ratios, to_floats, zone
from verillm.types import PPM, Bits, Ints
from verillm_verifier.runs import Decode, Job

POSITIONS = 64
"""What a profile's terms challenge, and from where on it holds a job to its sharper means."""
FEW_POSITIONS = 32
DRAWS = 50
CHECKED_REQUESTS = 4
MIN_POSITIONS = 8
CLAMP_BITS = 15
CAP_QUANTILE = 0.999
CAP_MARGIN = 1.25
REFUND_MARGIN = 1.05
"""The refund tier takes no stake, so it stands near the honest maximum. At 1.15 int8 weights in
groups of 32 passed one job in ten and an 8-bit cache every second; at 1.05 still no held-out honest
job at 32 positions was refused (docs/detection.md). What stands in the way of a sharper tier are
short jobs: those of 64 new tokens stay below 0.9 of it. Other weights of layers and zones, fitted
on half of the prompts, saw an 8-bit cache by fp32 verifiers in 0.83 to 0.89 of the other half's
draws instead of 0.77, and int8 groups no better; most of the weight was then on the first layers,
so that a cheat in the last ones would pass."""
REFUND_MARGIN_MANY = 1.07
"""Over many positions a draw is near its job's mean, so the largest of a calibration's draws is no
outlier: held-out seeds reached 1.03 times it at 64 positions, and 1.0 times at 32."""
SLASH_MARGIN = 1.35
MAX_MEAN = 2_400_000
"""The largest mean that a contract takes as a threshold: none passes `statistics.MOST_RATIO`."""
DECODE = "decode"


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two parties' distances at positions 1… of one job: ppm [positions, layers + 1], and zones."""

    run: str
    pair: tuple[str, str]
    is_honest: bool
    apart: Ints
    zones: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Simulated draws of one group of pairs: each job's mean ratio (ppm) and positions over."""

    mean: Ints
    over: Ints
    counts: Ints
    """Positions of each draw."""

    @property
    def full(self) -> Ints:
        """Means of the draws that have all `POSITIONS`."""
        return self.mean[self.counts >= POSITIONS]


def layers_of(job: Job) -> tuple[Bits, ...]:
    """Return the states of positions 1… by layer, the final norm last."""
    return (*np.moveaxis(job.slices[1:], 1, 0), job.finals[1:])


def scales_of(decodes: Sequence[Decode]) -> tuple[int, ...]:
    """Return per layer the exponent that puts the 99 % quantile of |v| at the clamp."""
    honest = [layers_of(job) for decode in decodes if decode.is_honest for job in decode.jobs]
    scales = []
    for layer in zip(*honest, strict=True):
        values = np.abs(np.concatenate([to_floats(bits).ravel() for bits in layer]))
        quantile = float(np.quantile(values, 0.99))
        scales.append(int(np.ceil(np.log2(quantile))) - CLAMP_BITS)
    return tuple(scales)


def compare_all(decodes: Sequence[Decode], scales: Sequence[int]) -> list[Compared]:
    """Compare honest decodes and their checks, all with all, and cheats with their checks."""
    return [
        compared
        for decode in decodes
        for place, job in enumerate(decode.jobs)
        for compared in _compare_job(decode, place, job, scales)
    ]


def _compare_job(decode: Decode, place: int, job: Job, scales: Sequence[int]) -> Iterator[Compared]:
    parties = {DECODE: job} | {name: jobs[place] for name, jobs in decode.checks.items()}
    zones = np.array([zone(at, job.prompt_tokens) for at in range(1, len(job.finals))])
    for first, second in combinations(parties, 2):
        if not decode.is_honest and first != DECODE:
            continue
        layers = zip(layers_of(parties[first]), layers_of(parties[second]), scales, strict=True)
        apart = np.stack([distance(x, y, scale) for x, y, scale in layers], axis=-1)
        yield Compared(decode.name, (first, second), decode.is_honest, apart, zones)


def layer_profiles(compared: Sequence[Compared], scales: Sequence[int]) -> tuple[LayerProfile, ...]:
    """Return scale, median and cap of each layer and zone over all honest pairs that differ."""
    honest = [each for each in compared if each.is_honest and each.apart.any()]
    apart = np.concatenate([each.apart for each in honest])
    zones = np.concatenate([each.zones for each in honest])
    layers = []
    for column, scale in enumerate(scales):
        cells = [apart[zones == place, column] for place in range(3)]
        med = [max(1, int(np.median(cell))) for cell in cells]
        cap = [
            max(low, int(np.quantile(cell, CAP_QUANTILE) * CAP_MARGIN))
            for low, cell in zip(med, cells, strict=True)
        ]
        layers.append(LayerProfile(scale, (med[0], med[1], med[2]), (cap[0], cap[1], cap[2])))
    return tuple(layers)


def simulate(
    compared: Sequence[Compared],
    layers: Sequence[LayerProfile],
    positions: int,
    random: np.random.Generator,
    draws: int = DRAWS,
) -> Drawn:
    """Draw positions of each job as the chain does: always the last, the others at random."""
    med = np.array([layer.med for layer in layers]).T
    cap = np.array([layer.cap for layer in layers]).T
    means, overs, counts = [], [], []
    for each in compared:
        means_of = ratios(each.apart, med[each.zones]).mean(axis=-1)
        over: NDArray[np.bool_] = np.any(each.apart > cap[each.zones], axis=-1)
        last = len(over) - 1
        for _ in range(draws if last >= positions else 1):
            rest = random.permutation(last)[: positions - 1]
            rows = np.append(rest, last)
            means.append(int(means_of[rows].mean()))
            overs.append(int(over[rows].sum()))
            counts.append(len(rows))
    return Drawn(np.array(means), np.array(overs), np.array(counts))


def simulate_batches(
    compared: Sequence[Compared],
    layers: Sequence[LayerProfile],
    positions: int,
    random: np.random.Generator,
) -> Drawn:
    """Draw what a job of many requests shows: several of one run's, their positions over added."""
    means, overs, counts = [], [], []
    for run in dict.fromkeys((each.run, each.pair) for each in compared):
        members = [each for each in compared if (each.run, each.pair) == run]
        for _ in range(DRAWS):
            chosen = random.permutation(len(members))[:CHECKED_REQUESTS]
            drawn = simulate([members[at] for at in chosen], layers, positions, random, draws=1)
            means.append(int(drawn.mean.mean()))
            overs.append(int(drawn.over.sum()))
            counts.append(int(drawn.counts.sum()))
    return Drawn(np.array(means), np.array(overs), np.array(counts))


def thresholds(
    honest: Drawn, batches: Drawn, many: Drawn, layers: tuple[LayerProfile, ...]
) -> CheckProfile:
    """Return the profile whose thresholds lie above every honest draw, by the stated margins;
    tokens are not judged yet. Of `many` those count that have all `POSITIONS`: fewer are held to
    the means that few are held to.
    """
    mean = max(int(honest.mean.max()), int(batches.mean.max()))
    over = max(int(each.over.max()) for each in (honest, batches, many))
    refund, slash = rounded(mean * REFUND_MARGIN), slashed(mean * SLASH_MARGIN)
    if refund > MAX_MEAN:
        raise InputError(
            f"honest runs are up to {mean / PPM:.2f} of their median apart, more than a contract "
            "takes as a threshold: leave out the setup that differs most"
        )
    most = int(many.full.max(initial=0))
    profile = CheckProfile(
        mean_refund=refund,
        mean_slash=slash,
        over_refund=over + 1,
        over_slash=2 * over + 4,
        margin_mean=0,
        margin_max_refund=0,
        margin_max_slash=0,
        mass_epsilon=0,
        logit_tau=0,
        min_positions=MIN_POSITIONS,
        many_positions=POSITIONS if most else 0,
        mean_refund_many=min(rounded(most * REFUND_MARGIN_MANY), refund),
        mean_slash_many=min(slashed(most * SLASH_MARGIN), slash),
        layers=layers,
    )
    check_profile(profile, len(layers) - 1)
    return profile


def rounded(value: float) -> int:
    """Return a mean, rounded up to hundredths of the honest median."""
    return -int(-value // 10_000) * 10_000


def slashed(value: float) -> int:
    """Return a slash tier's mean, rounded up, as far as a contract takes it."""
    return min(MAX_MEAN, rounded(value))
