"""A test over all jobs of one worker, for cheats too small to show in any one of them.

Each generated token has one lead over its best rival, by the clique's averaged logits, which are
less noisy than any one's (`verillm.tokens.averaged_leads`), told in what is near for its job's
states (`verillm.roughness`). Leads are binned; a bin has, per
suspected cheat, the logarithm of how much likelier it is under the cheat than under honest work,
given how close the two were: some texts and parameters bring many near ties and others few, and
only who wins them tells anything about the worker. Started at one job, the running product is a
nonnegative martingale for an honest worker, so that it ever exceeds 1e5 with probability at most
1e-5 (Ville's inequality). A worker may turn bad late: the products are started anew at every job
and averaged with weights that sum to one, 1/(j(j+1)) at job j, and so are the cheats. The average
is one martingale still.

A verdict on one job never rests on it: it says whose jobs to challenge together.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verillm.errors import MalformedError
from verillm.roughness import UNIT, Scale

ALARM = 1e5
"""One false alarm in so many honest workers."""
_TYPICAL = 6.0 * UNIT
_PRIOR = np.array([-2.5, -2.2, -0.5])
"""Logit of the losses at a typical distance, its slope over the logarithm of the distance, and how
that bends."""
_STRENGTH = np.array([0.01, 0.5, 1.0])
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Table:
    """Bins of leads and what each says; leads in thousandths of their job's roughness.

    Bin i holds leads in (edges[i-1], edges[i]], the last one everything above. `ratios`: per
    suspected cheat and bin, the natural logarithm of the likelihood ratio.
    """

    edges: tuple[int, ...]
    ratios: Mapping[str, tuple[float, ...]]
    roughness: Scale
    weights: str = ""
    """Weights root of the model that it was fitted on, in hex."""

    def __post_init__(self) -> None:
        if list(self.edges) != sorted(set(self.edges)) or not self.ratios:
            raise MalformedError("edges", "not ascending, or no ratios for them")
        for name, ratios in self.ratios.items():
            if len(ratios) != len(self.edges) + 1 or not all(map(math.isfinite, ratios)):
                raise MalformedError(f"ratios.{name}", "not one finite ratio per bin")

    def bin(self, lead: int) -> int:
        """Return the bin of a lead."""
        return bisect_left(self.edges, lead)

    def scores(self, leads: Iterable[int]) -> dict[str, float]:
        """Return the summed log ratios of one job, per suspected cheat."""
        bins = [self.bin(lead) for lead in leads]
        return {name: sum(ratios[at] for at in bins) for name, ratios in self.ratios.items()}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a worker's jobs so far say together; `logs` per cheat, the logarithm of its part."""

    jobs: int = 0
    tokens: int = 0
    logs: Mapping[str, float] | None = None

    def after(self, leads: Sequence[int], table: Table) -> Suspicion:
        """Return the suspicion after one more job of this worker."""
        return self.updated(table.scores(leads), len(leads))

    def updated(self, scores: Mapping[str, float], tokens: int) -> Suspicion:
        """Return the suspicion after a job whose leads have these scores."""
        number = self.jobs + 1
        start = -math.log(number * (number + 1))
        before = self.logs or {}
        logs = {
            name: _log_sum((before.get(name, -math.inf), start)) + score
            for name, score in scores.items()
        }
        return Suspicion(number, self.tokens + tokens, logs)

    @property
    def value(self) -> float:
        """The evidence against honesty: its expectation for an honest worker is at most one."""
        if not self.logs:
            return 0.0
        total = _log_sum(tuple(self.logs.values())) - math.log(len(self.logs))
        return math.exp(min(total, 700.0))

    @property
    def is_alarm(self) -> bool:
        """Whether the worker's jobs should be challenged together."""
        return self.value >= ALARM


def fit(
    honest: Sequence[int],
    cheats: Mapping[str, Sequence[int]],
    closeness: Sequence[int],
    roughness: Scale,
) -> Table:
    """Return the table of likelihood ratios from scaled leads of honest work and of cheats.

    `closeness`: ascending distances between a token and its best rival. Nearer than the first of
    them either may win, and a loss by more than the last is no noise: of both nothing is said. In
    between, how often the nearer one loses is a logistic curve over the logarithm of the distance,
    so that few losses tell enough of every bin. The honest curve is raised by two standard errors,
    a cheat's mixed with a tenth of the honest one and never below it.
    """
    bounds = tuple(closeness)
    edges = (*(-each for each in reversed(bounds)), *bounds)
    base = curve(_losses(honest, bounds), bounds, raised=2.0)
    ratios = {}
    for name, leads in cheats.items():
        shares = np.maximum(base, 0.9 * curve(_losses(leads, bounds), bounds) + 0.1 * base)
        lose, win = np.log(shares / base), np.log((1 - shares) / (1 - base))
        ratios[name] = (0.0, *reversed(lose.tolist()), 0.0, *win.tolist(), 0.0)
    return Table(edges, ratios, roughness)


def load(path: Path) -> Table:
    """Read a table; MalformedError says what is wrong with it."""
    try:
        raw = json.loads(path.read_bytes())
        ratios = {str(k): tuple(map(float, v)) for k, v in raw["ratios"].items()}
        scale = Scale(int(raw["roughness"]["typical"]), int(raw["roughness"]["most"]))
        return Table(tuple(map(int, raw["edges"])), ratios, scale, str(raw.get("weights", "")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedError(str(path), repr(error)) from error


def _losses(leads: Sequence[int], bounds: tuple[int, ...]) -> list[tuple[int, int]]:
    """Per distance, how many tokens lose and how many there are; MalformedError without tokens."""
    if not leads:
        raise MalformedError("leads", "none to fit")
    found = [[0, 0] for _ in bounds[1:]]
    for lead in leads:
        at = bisect_left(bounds, abs(lead)) - 1
        if 0 <= at < len(found):
            found[at][0] += lead < 0
            found[at][1] += 1
    return [(lost, count) for lost, count in found]


def curve(
    losses: Sequence[tuple[int, int]], bounds: tuple[int, ...], raised: float = 0.0
) -> NDArray[np.float64]:
    """The share of tokens that lose in each bin, `raised` by standard errors; never over half.

    `losses`: per bin, between two bounds, how many tokens lost of how many. The likeliest logistic
    curve, by Newton's method, under a prior so wide that it only matters where there is next to
    nothing to fit.
    """
    lost, count = np.array(losses).T
    middles = np.sqrt(bounds[:-1]) * np.sqrt(bounds[1:])
    rows = np.vander(np.log(middles / _TYPICAL), len(_PRIOR), increasing=True)

    def slope_at(line: NDArray[np.float64]) -> NDArray[np.float64]:
        likelier = rows.T @ (lost - count * _logistic(rows @ line))
        slope: NDArray[np.float64] = likelier - _STRENGTH * (line - _PRIOR)
        return slope

    line = _PRIOR
    for _ in range(_STEPS):
        step = np.linalg.solve(_bend(rows, count, line), slope_at(line))
        while slope_at(line + step) @ step < 0:  # beyond the best there: it never wanders off
            step = step / 2
        line = line + step
    spread = np.linalg.inv(_bend(rows, count, line))
    errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, spread, rows))
    return np.minimum(0.5, _logistic(rows @ line + raised * errors))


def _bend(
    rows: NDArray[np.float64], count: NDArray[np.int64], line: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The second derivatives there: how fast the slope falls."""
    share = _logistic(rows @ line)
    weights = count * share * (1 - share)
    bend: NDArray[np.float64] = rows.T @ (rows * weights[:, None]) + np.diag(_STRENGTH)
    return bend


def _logistic(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -logits))
    return share


def _log_sum(logs: tuple[float, ...]) -> float:
    most = max(logs)
    return (
        most + math.log(sum(math.exp(each - most) for each in logs)) if most > -math.inf else most
    )
