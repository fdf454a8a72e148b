"""A test over all jobs of one worker, for cheats too small to show in any one of them.

Each generated token gives one margin, by the clique's averaged logits, which are less noisy than
any one's (`verillm.tokens.averaged_margins`). Margins are binned; a bin has, per suspected cheat,
the logarithm of how much likelier it is under the cheat than under honest work. Started at one job,
the running product is a nonnegative martingale for an honest worker, so that it ever exceeds 1e5
with probability at most 1e-5 (Ville's inequality). A worker may turn bad late: the products are
started anew at every job and averaged with weights that sum to one, 1/(j(j+1)) at job j, and so are
the cheats. The average is one martingale still.

A verdict on one job never rests on it: it says whose jobs to challenge together.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verillm.errors import MalformedError

ALARM = 1e5
"""One false alarm in so many honest workers."""
UNSEEN = 3.0


@dataclass(frozen=True, slots=True)
class Table:
    """Bins of margins and what each says; margins in ppm of a logit.

    Bin i holds margins in (edges[i-1], edges[i]], the last one everything above. `ratios`: per
    suspected cheat and bin, the natural logarithm of the likelihood ratio.
    """

    edges: tuple[int, ...]
    ratios: Mapping[str, tuple[float, ...]]
    weights: str = ""
    """Weights root of the model that it was fitted on, in hex."""

    def __post_init__(self) -> None:
        if list(self.edges) != sorted(set(self.edges)) or not self.ratios:
            raise MalformedError("edges", "not ascending, or no ratios for them")
        for name, ratios in self.ratios.items():
            if len(ratios) != len(self.edges) + 1 or not all(map(math.isfinite, ratios)):
                raise MalformedError(f"ratios.{name}", "not one finite ratio per bin")

    def bin(self, margin: int) -> int:
        """Return the bin of a margin."""
        return bisect_left(self.edges, margin)

    def scores(self, margins: Iterable[int]) -> dict[str, float]:
        """Return the summed log ratios of one job, per suspected cheat."""
        bins = [self.bin(margin) for margin in margins]
        return {name: sum(ratios[at] for at in bins) for name, ratios in self.ratios.items()}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a worker's jobs so far say together; `logs` per cheat, the logarithm of its part."""

    jobs: int = 0
    tokens: int = 0
    logs: Mapping[str, float] | None = None

    def after(self, margins: Sequence[int], table: Table) -> Suspicion:
        """Return the suspicion after one more job of this worker."""
        return self.updated(table.scores(margins), len(margins))

    def updated(self, scores: Mapping[str, float], tokens: int) -> Suspicion:
        """Return the suspicion after a job whose margins have these scores."""
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
    honest: Mapping[str, Sequence[int]],
    cheats: Mapping[str, Sequence[int]],
    edges: Sequence[int],
) -> Table:
    """Return the table of likelihood ratios from margins of honest work, by setup, and of cheats.

    A worker keeps its setup, so honest work must be suspected in none: tokens lose as often as in
    the noisiest one, by as much as in all together. Honest shares are raised by three tokens per
    bin (the 95 % bound of what was never seen) and cheats' shares mixed with a tenth of the honest
    ones, so that no bin says more than was seen.
    """
    bounds = tuple(edges)
    base = _noisiest(honest, bounds)
    ratios = {}
    for name, margins in cheats.items():
        raw = _shares(margins, bounds, 0.0)
        mixed = [0.9 * share + 0.1 * low for share, low in zip(raw, base, strict=True)]
        ratios[name] = tuple(math.log(share / low) for share, low in zip(mixed, base, strict=True))
    return Table(bounds, ratios)


def load(path: Path) -> Table:
    """Read a table; MalformedError says what is wrong with it."""
    try:
        raw = json.loads(path.read_text("utf-8"))
        ratios = {str(k): tuple(map(float, v)) for k, v in raw["ratios"].items()}
        return Table(tuple(map(int, raw["edges"])), ratios, str(raw.get("weights", "")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedError(str(path), repr(error)) from error


def _noisiest(honest: Mapping[str, Sequence[int]], edges: tuple[int, ...]) -> list[float]:
    """Shares of the bins; the lowest of them holds the tokens that do not lose."""
    together = [margin for margins in honest.values() for margin in margins]
    shares = _shares(together, edges, 0.0)
    lost = [1 - _shares(margins, edges, 0.0)[0] for margins in honest.values() if margins]
    worst = max(lost) / (1 - shares[0]) if shares[0] < 1 else 1.0
    raised = [share * worst + UNSEEN / len(together) for share in shares[1:]]
    return [1 - sum(raised), *raised]


def _shares(margins: Sequence[int], edges: tuple[int, ...], extra: float) -> list[float]:
    counts = [extra] * (len(edges) + 1)
    for margin in margins:
        counts[bisect_left(edges, margin)] += 1
    total = sum(counts)
    if not total:
        raise MalformedError("margins", "none to fit")
    return [count / total for count in counts]


def _log_sum(logs: tuple[float, ...]) -> float:
    most = max(logs)
    return (
        most + math.log(sum(math.exp(each - most) for each in logs)) if most > -math.inf else most
    )
