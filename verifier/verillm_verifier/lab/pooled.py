"""What shows only over many tokens: the sequential test, and the freedom inside the tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verillm.sampling import scores
from verillm.sequential import Suspicion, Table, fit
from verillm.statistics import to_floats
from verillm.tokens import Head
from verillm.types import PPM
from verillm_verifier.lab.cases import Case

CLOSENESS = (40_000, 60_000, 90_000, 130_000, 200_000, 300_000, 450_000)
"""Borders of the bins of the distance between a token and its best rival, ppm of a logit. Honest
losses further apart than the tolerance of a nucleus' border come from that border, not from noise:
counted, they took honest workers past odds of 1e3 and made alarms against cheats no sooner."""
CLIQUES = {"of one kind": ("bf16",), "mixed": ("bf16", "chunked", "fp32")}
RUNS = 200
MOST_TOKENS = 20_000
QUIET_TOKENS = 50_000
Leads = Sequence[Sequence[int]]
"""Leads by averaged logits, job by job."""
Scored = tuple[dict[str, float], int]
"""One job's scores and tokens."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """How soon the sequential test speaks against a cheat."""

    cheat: str
    clique: str
    tokens: int
    """Tokens at hand, resampled by jobs."""
    median: int | None
    """Tokens to the alarm; None if fewer than half of the runs end in one."""
    ninth: int | None
    """The same for nine runs in ten."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The highest suspicion that honest workers of one setup reached."""

    setup: str
    jobs: int
    tokens: int
    """Of one worker: its setup's jobs, drawn anew."""
    workers: int
    highest: float


@dataclass(frozen=True, slots=True)
class Freedom:
    """What a cheat wins that takes another token wherever its margin passes.

    Bits per token: by the largest margin alone, and within the mean as well, over jobs of `tokens`.
    """

    jobs: int
    tokens: int
    by_max: float
    by_mean: float


def leads_of(cases: Sequence[Case], clique: str) -> Leads:
    """Return each case's leads by a clique's averaged logits."""
    return [case.leads(CLIQUES[clique]) for case in cases]


def fit_table(honest: Leads, cheats: Mapping[str, Leads]) -> Table:
    """Fit the likelihood ratios on jobs of honest work and of each cheat."""
    return fit(_flat(honest), {name: _flat(jobs) for name, jobs in cheats.items()}, CLOSENESS)


def alarm(name: str, clique: str, leads: Leads, table: Table, seed: int) -> Alarm:
    """Resample a cheat's jobs until the test speaks, many times."""
    random = np.random.default_rng(seed)
    jobs = _scored(leads, table)
    ends = sorted(_until_alarm(jobs, random) for _ in range(RUNS))
    tokens = sum(count for _, count in jobs)
    return Alarm(name, clique, tokens, _ended(ends[RUNS // 2]), _ended(ends[9 * RUNS // 10]))


def quiet(setup: str, leads: Leads, table: Table, seed: int) -> Quiet:
    """Let honest workers of one setup work on, each with its jobs drawn anew."""
    random = np.random.default_rng(seed)
    jobs = _scored(leads, table)
    highest = 0.0
    for _ in range(RUNS):
        suspicion = Suspicion()
        while suspicion.tokens < QUIET_TOKENS:
            suspicion = suspicion.updated(*jobs[int(random.integers(len(jobs)))])
            highest = max(highest, suspicion.value)
    return Quiet(setup, len(jobs), QUIET_TOKENS, RUNS, highest)


def freedom(cases: Sequence[Case], verifier: str, head: Head) -> Freedom:
    """Return the freedom left by a profile's margins, on jobs whose states are honest.

    A position offers a choice if another token's score is within the largest margin. Choosing at
    random there costs half of its gap on average; the cheapest choices are made first, until the
    mean that the profile allows is spent.
    """
    by_max, by_mean, tokens = 0.0, 0.0, 0
    for case in cases:
        profile = case.profile
        gaps = _gaps(case, verifier, head)
        within = [np.sum(gap <= profile.margin_max_refund / PPM) for gap in gaps]
        by_max += float(np.log2(within).sum())
        cheapest = np.sort([gap[1] for gap in gaps])
        cheapest = cheapest[cheapest <= profile.margin_max_refund / PPM]
        spent = np.cumsum(cheapest) / 2
        by_mean += float(np.sum(spent <= profile.margin_mean / PPM * len(gaps)))
        tokens += len(gaps)
    return Freedom(len(cases), tokens // len(cases), by_max / tokens, by_mean / tokens)


def _gaps(case: Case, verifier: str, head: Head) -> list[np.ndarray]:
    """Return, per generated position, the best 64 scores' distances from the best, ascending."""
    first = case.prompt_tokens - 1
    states = to_floats(case.views[verifier].finals[first:])
    gaps = []
    for at, logits in enumerate(head.logits(states)):
        ranked = scores(logits, case.item.sampling, case.item.seed, first + at)
        best = np.sort(np.partition(ranked, -64)[-64:])[::-1]
        gaps.append(best[0] - best)
    return gaps


def _flat(jobs: Leads) -> list[int]:
    return [lead for job in jobs for lead in job]


def _scored(jobs: Leads, table: Table) -> list[Scored]:
    return [(table.scores(job), len(job)) for job in jobs]


def _until_alarm(jobs: Sequence[Scored], random: np.random.Generator) -> int:
    suspicion = Suspicion()
    while suspicion.tokens < MOST_TOKENS:
        suspicion = suspicion.updated(*jobs[int(random.integers(len(jobs)))])
        if suspicion.is_alarm:
            return suspicion.tokens
    return MOST_TOKENS


def _ended(tokens: int) -> int | None:
    return tokens if tokens < MOST_TOKENS else None
