"""The tail of honest work: what a calibration's hundred jobs do not show, and some thousands do.

Now and then a text lets rounding grow along it. Of some 1500 honest jobs of the default model one,
made-up words at temperature 1, had a quarter of its positions beyond a cap in the last layers, and
a margin of 0.73 logits: thresholds from a calibration alone would have taken its honest worker's
stake. A refund tier above such texts would let 8-bit caches pass, so that refunds may meet one
honest job in a thousand; what takes a stake lies above all that was seen, with a margin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verillm.model import CheckProfile
from verillm.statistics import zone
from verillm_verifier.calibrate_states import (
    FEW_POSITIONS,
    POSITIONS,
    Compared,
    Drawn,
    rounded,
    simulate,
)
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import Record

UNITS = 40
"""Of a certificate's honest jobs the first units are the tail's: they certify nothing."""
DRAWS = 20
REFUNDED = 0.999
"""Quantile of the draws' positions over a cap up to which a job is not refused for them."""
MARGIN = 1.25


def raised(
    profile: CheckProfile, records: Iterable[Record], seed: int
) -> tuple[CheckProfile, dict[str, Any] | None]:
    """Return a profile whose slash tier lies above all of these honest jobs, and whose count of
    positions and mean margin above all but one in a thousand; and what was seen, None of no jobs.
    """
    jobs = [record for record in records if record.about.unit < UNITS]
    if not jobs:
        return profile, None
    compared, random = list(_compared(jobs)), np.random.default_rng(seed)
    few = simulate(compared, profile.layers, FEW_POSITIONS, random, DRAWS)
    many = simulate(compared, profile.layers, POSITIONS, random, DRAWS)
    seen = [record.margins((name,)) for record in jobs for name in record.about.checkers]
    above = max(max(each.margins_above) for each in seen)
    mean = float(np.quantile([each.mean for each in seen], REFUNDED))
    over = max(profile.over_refund, int(np.quantile(many.over, REFUNDED)) + 1)
    higher = replace(
        profile,
        mean_slash=max(profile.mean_slash, rounded(int(few.mean.max()) * MARGIN)),
        mean_slash_many=_many(profile, many),
        over_refund=over,
        over_slash=max(over, profile.over_slash, _half(int(many.over.max()))),
        margin_mean=max(profile.margin_mean, _thousandths(mean * MARGIN)),
        margin_max_slash=max(profile.margin_max_slash, _thousandths(above * MARGIN)),
    )
    margins = {"marginMeanQ999": int(mean), "marginAboveMax": above}
    return higher, _seen(jobs, few, many) | margins


def _compared(jobs: Sequence[Record]) -> Iterator[Compared]:
    for record in jobs:
        count = record.prompt_tokens + record.new_tokens - 1
        zones = np.array([zone(at, record.prompt_tokens) for at in range(1, count)])
        for checker in record.about.checkers:
            apart = record.apart(OWN, checker)[1:]
            yield Compared(record.about.worker, (OWN, checker), True, apart, zones)


def _many(profile: CheckProfile, many: Drawn) -> int:
    if not profile.many_positions:
        return 0
    return max(profile.mean_slash_many, rounded(int(many.full.max(initial=0)) * MARGIN))


def _half(over: int) -> int:
    """The count with its margin; a contract takes no more than half of the positions."""
    return min(POSITIONS // 2, -int(-over * MARGIN // 1))


def _thousandths(margin: float) -> int:
    return -int(-margin // 1_000) * 1_000


def _seen(jobs: Sequence[Record], few: Drawn, many: Drawn) -> dict[str, Any]:
    over = np.quantile(many.over, [0.99, REFUNDED, 1.0]).astype(int).tolist()
    return {
        "units": UNITS,
        "jobs": len(jobs),
        "newTokens": sum(record.new_tokens for record in jobs),
        "draws": len(many.mean),
        "meanMax": int(few.mean.max()),
        "meanOfManyMax": int(many.full.max(initial=0)),
        "over": dict(zip(("q99", "q999", "max"), over, strict=True)),
    }
