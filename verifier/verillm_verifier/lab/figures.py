"""Shares with their confidence intervals, on the jobs that they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import beta

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """A share of draws, with its Clopper-Pearson interval over jobs.

    Draws of one job are not independent: the interval counts each job once, by its share of draws.
    """

    value: float
    low: float
    high: float
    draws: int
    jobs: int

    @classmethod
    def of(cls, hits: Sequence[float], draws: int) -> Share:
        """From each job's share of `draws` draws."""
        jobs, total = len(hits), float(sum(hits))
        low, high = interval(total, jobs)
        return cls(total / jobs if jobs else 0.0, low, high, draws * jobs, jobs)


def interval(hits: float, count: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share at 95 %."""
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high
