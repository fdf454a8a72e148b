"""The tail of honest work: what a calibration's hundred jobs do not show, and some thousands do.

Now and then a text lets rounding grow along it. Of some 5000 honest jobs of the default model one,
made-up words at temperature 1, had a quarter of its positions beyond a cap in the last layers, and
a margin of 0.73 logits: thresholds from a calibration alone would have taken its honest worker's
stake. A refund tier above such texts would let cut contexts and other temperatures pass, so that
refunds may meet one honest job in 3000; what takes a stake lies above all that was seen, with a
margin. So does what a single token may lose: once in some 2000 jobs one position's state is far off
between two kinds of attention, all others as ever, and its token behind by a logit and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verillm.model import CheckProfile, LayerProfile
from verillm.statistics import zone
from verillm.tokens import MEAN_OVER
from verillm.types import Ints
from verillm_verifier.calibrate_states import (
    FEW_POSITIONS,
    POSITIONS,
    Compared,
    rounded,
    simulate,
    slashed,
)
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import Record

UNITS = 124
"""Of a certificate's honest jobs the first units are the tail's: they certify nothing."""
DRAWS = 20
RARE = 3_000
"""Of so many honest jobs one may be refused: its positions over a cap and its mean margin do not
count for the refund tier. Of the states' means the same share of draws may be."""
MARGIN = 1.25
MEAN_MARGIN = 1.02
"""Of the refund tier's means above all but rare ones. Cheats stand just above: float32 verifiers
alone see 99.9 % of int8 weights in groups under 1.55, and 99.5 % under 1.57; a cut context's mean
margin may be 0.022 logits."""


def raised(
    profile: CheckProfile, records: Iterable[Record], seed: int
) -> tuple[CheckProfile, dict[str, Any] | None]:
    """Return a profile whose slash tier lies above all of these honest jobs, and whose refund tier
    above all but one in `RARE`; and what was seen, None of no jobs. A token that loses no more than
    one may does not refund by the mean either.
    """
    jobs = [record for record in records if record.about.unit < UNITS]
    if not jobs:
        return profile, None
    seen = _Seen.of(jobs, profile.layers, np.random.default_rng(seed))
    few, many = _usual(seen.few), _usual(seen.many)
    over_refund = max(profile.over_refund, _all_but_rare(seen.over))
    largest = max(profile.margin_max_refund, _thousandths(max(seen.margin) * MARGIN))
    margin_mean = max(_all_but_rare(seen.margin_mean) * MEAN_MARGIN, largest / MEAN_OVER)
    mean_refund = max(profile.mean_refund, rounded(few * MEAN_MARGIN))
    mean_refund_many = (
        max(profile.mean_refund_many, rounded(many * MEAN_MARGIN)) if profile.many_positions else 0
    )
    higher = replace(
        profile,
        mean_refund=mean_refund,
        mean_refund_many=min(mean_refund, mean_refund_many),
        mean_slash=max(profile.mean_slash, slashed(int(seen.few.max()) * MARGIN)),
        mean_slash_many=_many(profile, seen.many),
        over_refund=over_refund,
        over_slash=max(over_refund, profile.over_slash, _half(max(seen.over))),
        margin_mean=max(profile.margin_mean, _thousandths(margin_mean)),
        margin_max_refund=largest,
        margin_max_slash=max(
            largest, profile.margin_max_slash, _thousandths(max(seen.above) * MARGIN)
        ),
    )
    return higher, seen.told(jobs)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the tail's jobs show: means (ppm) by draw, all else of each job the largest."""

    few: Ints
    many: Ints
    over: list[int]
    margin_mean: list[int]
    margin: list[int]
    above: list[int]

    @classmethod
    def of(
        cls, jobs: Sequence[Record], layers: Sequence[LayerProfile], random: np.random.Generator
    ) -> _Seen:
        """Draw positions of every job against each of its verifiers."""
        pairs = [list(_compared(job)) for job in jobs]
        few = [simulate(each, layers, FEW_POSITIONS, random, DRAWS) for each in pairs]
        many = [simulate(each, layers, POSITIONS, random, DRAWS) for each in pairs]
        tokens = [[job.margins((name,)) for name in job.about.checkers] for job in jobs]
        return cls(
            np.concatenate([drawn.mean for drawn in few]),
            np.concatenate([drawn.full for drawn in many]),
            [int(drawn.over.max()) for drawn in many],
            [max(each.mean for each in job) for job in tokens],
            [max(max(each.margins) for each in job) for job in tokens],
            [max(max(each.margins_above) for each in job) for job in tokens],
        )

    def told(self, jobs: Sequence[Record]) -> dict[str, Any]:
        """Return what a calibration's record says of the tail."""
        return {
            "units": UNITS,
            "jobs": len(jobs),
            "newTokens": sum(record.new_tokens for record in jobs),
            "draws": len(self.few),
            "meanUsual": _usual(self.few),
            "meanMax": int(self.few.max()),
            "meanOfManyUsual": _usual(self.many),
            "meanOfManyMax": int(self.many.max(initial=0)),
            "over": _shown(self.over),
            "marginMean": _shown(self.margin_mean),
            "marginMax": max(self.margin),
            "marginAboveMax": max(self.above),
        }


def _compared(record: Record) -> Iterator[Compared]:
    count = record.prompt_tokens + record.new_tokens - 1
    zones = np.array([zone(at, record.prompt_tokens) for at in range(1, count)])
    for checker in record.about.checkers:
        apart = record.apart(OWN, checker)[1:]
        yield Compared(record.about.worker, (OWN, checker), True, apart, zones)


def _usual(means: Ints) -> int:
    """The mean that one draw in `RARE` passes."""
    return int(np.quantile(means, 1 - 1 / RARE)) if len(means) else 0


def _all_but_rare(values: Sequence[int]) -> int:
    """The largest of each job's, but for one job in `RARE`."""
    return sorted(values, reverse=True)[len(values) // RARE]


def _shown(values: Sequence[int]) -> dict[str, int]:
    return {"allButRare": _all_but_rare(values), "max": max(values)}


def _many(profile: CheckProfile, means: Ints) -> int:
    if not profile.many_positions:
        return 0
    return max(profile.mean_slash_many, slashed(int(means.max(initial=0)) * MARGIN))


def _half(over: int) -> int:
    """The count with its margin; a contract takes no more than half of the positions."""
    return min(POSITIONS // 2, -int(-over * MARGIN // 1))


def _thousandths(margin: float) -> int:
    return -int(-margin // 1_000) * 1_000
