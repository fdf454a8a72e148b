"""How often honest work is refused, at most: an exact bound from thousands of honest jobs.

Each job counts once, by the verdict of one committee drawn for it at positions drawn for it; where
further draws of the same jobs are refused more often, these count, so that no bound rests on one
lucky draw. Jobs share prompts, and what differs between prompts is not sampled anew by more seeds;
so the bound stands beside the one that counts prompts, and beside how much of the spread lies
between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

from verillm.types import Outcome
from verillm_verifier.lab.figures import CONFIDENCE
from verillm_verifier.lab.records import Record
from verillm_verifier.lab.trials import Role, Setting, Trial, distance, judge_once

DRAWS = 20
SEED = 11
TRIAL = Trial("honest", "honest", Role.NOBODY, "")
REJECTED = (Outcome.REFUND, Outcome.SLASH)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one honest job: its first draw counts, the others are further looks."""

    worker: str
    checkers: tuple[str, ...]
    prompt: int
    new_tokens: int
    outcome: Outcome
    reason: str
    rejected: float
    """Share of all draws that refuse or slash."""
    slashed: float
    undecided: float
    nearest: float
    """The first draw's largest distance to a verifier, in thresholds of the refund tier."""
    furthest: float
    """The largest of all draws."""


def judge(record: Record, positions: int, random: np.random.Generator) -> Judgement:
    """Judge one job by `DRAWS` committees at as many random positions."""
    setting = Setting("", positions, record.about.checkers)
    found = [judge_once(TRIAL, record, setting, random) for _ in range(DRAWS)]
    reach = [distance(each, record.profile, max) for each in found]
    return Judgement(
        record.about.worker,
        record.about.checkers,
        record.prompt,
        record.new_tokens,
        found[0].outcome,
        found[0].reason.name.lower(),
        float(np.mean([each.outcome in REJECTED for each in found])),
        float(np.mean([each.outcome is Outcome.SLASH for each in found])),
        float(np.mean([each.outcome is Outcome.INCONCLUSIVE for each in found])),
        reach[0],
        max(reach),
    )


def judge_all(records: Iterable[Record], positions: int) -> list[Judgement]:
    """Judge jobs in order, with one stream of chance."""
    random = np.random.default_rng(SEED)
    return [judge(each, positions, random) for each in records]


def certificate(found: Sequence[Judgement], tokens: int) -> dict[str, Any]:
    """Return the figures over jobs of at least so many generated tokens, and over all."""
    long = [each for each in found if each.new_tokens >= tokens]
    return {
        "tokens": tokens,
        "draws": DRAWS,
        "long": _bounds(long),
        "all": _bounds(found),
        "byWorker": {
            worker: _counts([each for each in found if each.worker == worker])
            for worker in sorted({each.worker for each in found})
        },
        "byVerifiers": {
            ", ".join(cast): _counts([each for each in found if each.checkers == cast])
            for cast in sorted({each.checkers for each in found})
        },
        "betweenPrompts": round(between([(each.prompt, each.nearest) for each in found]), 3),
    }


def upper(hits: float, count: int) -> float:
    """Return the one-sided Clopper-Pearson bound of a share at 95 %; of parts of hits, too."""
    return float(beta.ppf(CONFIDENCE, hits + 1, count - hits)) if hits < count else 1.0


def between(values: Sequence[tuple[int, float]]) -> float:
    """Return the share of the variance that lies between groups, of (group, value)."""
    everything = np.array([value for _, value in values])
    means = {
        group: np.mean([value for each, value in values if each == group])
        for group in {group for group, _ in values}
    }
    if everything.var() == 0:
        return 0.0
    return float(np.var([means[group] for group, _ in values]) / everything.var())


def _bounds(found: Sequence[Judgement]) -> dict[str, Any]:
    prompts = {each.prompt for each in found}
    refused = {each.prompt for each in found if each.outcome is not Outcome.ACCEPT}
    rejected, other = _hits(found)
    slashed = sum(each.outcome is Outcome.SLASH for each in found)
    refusals = sum(each.rejected for each in found)
    unsettled = sum(each.undecided for each in found)
    return {
        **_counts(found),
        "slashed": slashed,
        "boundRejected": upper(max(rejected, refusals), len(found)),
        "boundSlashed": upper(max(slashed, sum(each.slashed for each in found)), len(found)),
        "boundNotAccepted": upper(max(rejected + other, refusals + unsettled), len(found)),
        "prompts": len(prompts),
        "boundPrompts": upper(len(refused), len(prompts)),
    }


def _counts(found: Sequence[Judgement]) -> dict[str, Any]:
    rejected, undecided = _hits(found)
    reach = np.array([each.nearest for each in found] or [0.0])
    return {
        "jobs": len(found),
        "newTokens": sum(each.new_tokens for each in found),
        "rejected": rejected,
        "undecided": undecided,
        "rejectedOfDraws": round(float(np.mean([each.rejected for each in found] or [0.0])), 7),
        "undecidedOfDraws": round(float(np.mean([each.undecided for each in found] or [0.0])), 7),
        "reasons": sorted({each.reason for each in found if each.outcome is not Outcome.ACCEPT}),
        "nearest": {
            name: round(float(np.quantile(reach, point)), 4)
            for name, point in (("median", 0.5), ("q99", 0.99), ("q999", 0.999))
        }
        | {"max": round(max((each.furthest for each in found), default=0.0), 4)},
    }


def _hits(found: Sequence[Judgement]) -> tuple[int, int]:
    rejected = sum(each.outcome in REJECTED for each in found)
    return rejected, sum(each.outcome is Outcome.INCONCLUSIVE for each in found)
