"""What shows only over many tokens: the sequential test, and the freedom inside the tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from verillm.roughness import Scale
from verillm.sampling import scores
from verillm.sequential import Suspicion, Table, fit
from verillm.statistics import to_floats
from verillm.tokens import Head
from verillm.types import PPM
from verillm_verifier.lab.cases import Case
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import Record
from verillm_verifier.lab.trials import MANY, challenged

CLOSENESS = (2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 18_000, 25_000, 40_000)
"""Borders of the bins of the distance between a token and its best rival, thousandths of their
job's roughness. Nearer ties say little, and honest losses further apart come from the border of a
nucleus and not from noise."""
CLIQUES = {"of one kind": ("bf16",), "mixed": ("bf16", "chunked", "fp32")}
PREFILL = "fp32"
"""Whose states a cheat shows that prefills with the true model; never quite those of the clique."""
DECODED = frozenset({"lukewarm"})
"""Cheats that show the states of their own decode, which are true."""
PLAIN, ROUGH = "as they come", "as rough as honest ones get"
"""What a cheat shows: it could add to its states what honest engines differ by at most."""
RUNS = 200
MOST_TOKENS = 20_000
QUIET_TOKENS = 50_000
LEAST_QUIET = 64
"""Honest jobs of a setup from which its workers are drawn: of fewer, one rare job is too often."""
ROUGHEST = 0.95
"""Quantile of honest jobs' roughness from which on more does not count."""
ENOUGH = 8
"""Positions from which a job's roughness counts for what is typical."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one job says: its tokens' leads, ppm of a logit, and by how much its states differ from
    the clique's at the challenged positions (`verillm.roughness.squares`).
    """

    leads: tuple[int, ...]
    squares: tuple[int, ...]


Scored = tuple[dict[str, float], int]
"""One job's scores and tokens."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """How soon the sequential test speaks against a cheat."""

    cheat: str
    clique: str
    states: str
    """`PLAIN` or `ROUGH`."""
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
    verifiers: str
    """Their kinds; empty for any, as jobs come."""
    jobs: int
    tokens: int
    """Of one worker: its setup's jobs, drawn anew."""
    workers: int
    highest: float
    at_hand: int
    """Tokens of the jobs at hand."""
    once: float
    """The highest that one worker reached with each of these jobs once, in order."""


@dataclass(frozen=True, slots=True)
class Freedom:
    """What a cheat wins that takes another token wherever its margin passes.

    Bits per token: by the largest margin alone, and within the mean as well, over jobs of `tokens`.
    """

    jobs: int
    tokens: int
    by_max: float
    by_mean: float


def told_by(cases: Sequence[Case], shown: str, clique: str, seed: int) -> list[Told]:
    """Return what each case says to a clique at as many challenged positions as ship."""
    random, members = np.random.default_rng(seed), CLIQUES[clique]
    return [
        Told(case.leads(members), case.squares(shown, members, challenged(case, MANY, random)))
        for case in cases
    ]


def told_of(records: Sequence[Record], seed: int) -> list[Told]:
    """Return what kept jobs say to all their verifiers together."""
    random = np.random.default_rng(seed)
    return [
        Told(each.leads, each.squares(OWN, each.about.checkers, challenged(each, MANY, random)))
        for each in records
    ]


def scale_of(honest: Sequence[Told]) -> Scale:
    """Return how rough honest jobs are, from those with enough positions, or else from all."""
    enough = [each for each in honest if len(each.squares) >= ENOUGH] or honest
    rough = [float(np.sqrt(np.mean(each.squares))) for each in enough if each.squares]
    typical = max(1, int(np.median(rough)))
    return Scale(typical, max(typical, int(np.quantile(rough, ROUGHEST))))


def fit_table(honest: Sequence[Told], cheats: Mapping[str, Sequence[Told]]) -> Table:
    """Fit the likelihood ratios on jobs of honest work and of each cheat."""
    scale = scale_of(honest)
    found = {name: _leads(jobs, scale) for name, jobs in cheats.items()}
    return fit(_leads(honest, scale), found, CLOSENESS, scale)


def alarms(
    name: str, clique: str, jobs: Sequence[Told], tables: Sequence[Table], seed: int
) -> tuple[Alarm, ...]:
    """Resample a cheat's jobs until the test speaks, many times, whatever states it shows.

    Jobs take turns in being judged by the tables: table i has seen none of `jobs[i::len(tables)]`.
    """
    most = tables[0].roughness.most
    rough = [Told(each.leads, (most**2,) * MANY) for each in jobs]
    return tuple(
        _alarm(Alarm(name, clique, states, 0, None, None), shown, tables, seed)
        for states, shown in ((PLAIN, jobs), (ROUGH, rough))
    )


def _alarm(about: Alarm, told: Sequence[Told], tables: Sequence[Table], seed: int) -> Alarm:
    random = np.random.default_rng(seed)
    jobs = [_scored(job, tables[at % len(tables)]) for at, job in enumerate(told)]
    ends = sorted(_until_alarm(jobs, random) for _ in range(RUNS))
    median, ninth = _ended(ends[RUNS // 2]), _ended(ends[9 * RUNS // 10])
    return replace(about, tokens=sum(count for _, count in jobs), median=median, ninth=ninth)


def quiet(setup: str, verifiers: str, told: Sequence[Told], table: Table, seed: int) -> Quiet:
    """Let honest workers of one setup work on, each with its jobs drawn anew."""
    random = np.random.default_rng(seed)
    jobs = [_scored(job, table) for job in told]
    at_hand = sum(tokens for _, tokens in jobs)
    highest = max(_highest(_drawn(jobs, random)) for _ in range(RUNS))
    once = _highest(jobs)
    return Quiet(setup, verifiers, len(jobs), QUIET_TOKENS, RUNS, highest, at_hand, once)


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


def _leads(jobs: Sequence[Told], scale: Scale) -> list[int]:
    return [lead for job in jobs for lead in scale.scaled(job.leads, job.squares)]


def _scored(job: Told, table: Table) -> Scored:
    return table.scores(table.roughness.scaled(job.leads, job.squares)), len(job.leads)


def _until_alarm(jobs: Sequence[Scored], random: np.random.Generator) -> int:
    suspicion = Suspicion()
    while suspicion.tokens < MOST_TOKENS:
        suspicion = suspicion.updated(*jobs[int(random.integers(len(jobs)))])
        if suspicion.is_alarm:
            return suspicion.tokens
    return MOST_TOKENS


def _drawn(jobs: Sequence[Scored], random: np.random.Generator) -> Iterator[Scored]:
    tokens = 0
    while tokens < QUIET_TOKENS:
        job = jobs[int(random.integers(len(jobs)))]
        yield job
        tokens += job[1]


def _highest(jobs: Iterable[Scored]) -> float:
    suspicion, highest = Suspicion(), 0.0
    for told, tokens in jobs:
        suspicion = suspicion.updated(told, tokens)
        highest = max(highest, suspicion.value)
    return highest


def _ended(tokens: int) -> int | None:
    return tokens if tokens < MOST_TOKENS else None
