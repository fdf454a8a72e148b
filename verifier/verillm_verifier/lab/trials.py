"""Which cheat is judged on which views, by which committees, over how many draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from verillm.draw import positions
from verillm.model import CheckProfile
from verillm.tokens import TokenStatistics, judge_tokens
from verillm.types import Hash32, Outcome, Reason
from verillm.verdict import Verdict
from verillm_verifier.lab.figures import Share
from verillm_verifier.lab.judged import INFERENCER, OWN, Judged

COMMITTEE = 3
KINDS = ("bf16", "chunked", "fp32")
FEW, MANY = 16, 64
"""Challenged positions of the tables: what a short job has, and what ships."""
POSITION_GRID = (1, 2, 4, 8, 16, 32, 64)
TOKEN_GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WINDOWS = 200
SURE_STATES, SURE_TOKENS = 0.999, 0.99


class Role(Enum):
    """Who cheats."""

    NOBODY = "nobody"
    INFERENCER = "inferencer"
    VERIFIER = "verifier"


@dataclass(frozen=True, slots=True)
class Trial:
    """A cheat: the group of jobs, the inferencer's view, committee members that are not drawn."""

    name: str
    title: str
    role: Role
    group: str
    shown: str = OWN
    fixed: tuple[str, ...] = ()
    seed: bool = False
    """Judged under another seed than it was sampled with."""
    least: int = 0
    """Only jobs of at least so many new tokens."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a job is checked: challenged positions, and the kinds of verifiers to draw from."""

    name: str
    positions: int
    kinds: tuple[str, ...] = KINDS


SETTINGS = (
    Setting(f"{FEW}, mixed", FEW),
    Setting(f"{MANY}, mixed", MANY),
    Setting(f"{MANY}, bf16 only", MANY, ("bf16",)),
    Setting(f"{MANY}, fp32 only", MANY, ("fp32",)),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a trial in one setting.

    `caught`: not accepted (inferencer), named a suspect while the job is accepted (verifier).
    `nearest`: the draw nearest to the other side, in thresholds of the refund tier: over 1 is
    rejected by states.
    """

    setting: str
    caught: Share
    verdicts: Mapping[tuple[Outcome, Reason], int]
    nearest: float


def run(trial: Trial, cases: Sequence[Judged], setting: Setting, draws: int, seed: int) -> Result:
    """Judge every case of a trial by `draws` random committees at random positions."""
    random = np.random.default_rng([seed, setting.positions, len(cases)])
    verdicts: Counter[tuple[Outcome, Reason]] = Counter()
    hits: list[float] = []
    nearest: list[float] = []
    for case in cases:
        caught = 0
        for _ in range(draws):
            verdict = judge_once(trial, case, setting, random)
            verdicts[verdict.outcome, verdict.reason] += 1
            caught += is_caught(trial, verdict)
            nearest.append(distance(verdict, case.profile))
        hits.append(caught / draws)
    edge = max(nearest) if trial.role is not Role.INFERENCER else min(nearest)
    return Result(setting.name, Share.of(hits, draws), dict(verdicts), edge)


def judge_once(
    trial: Trial, case: Judged, setting: Setting, random: np.random.Generator
) -> Verdict:
    """Judge a job by one random committee at random positions."""
    committee = _committee(trial, setting, case, random)
    return case.verdict(trial.shown, committee, challenged(case, setting.positions, random))


def is_caught(trial: Trial, verdict: Verdict) -> bool:
    """Whether a verdict sees the cheat of a trial; of an honest job, whether it is not accepted."""
    if trial.role is Role.VERIFIER:
        return verdict.accepted and verdict.suspects == tuple(range(1, len(trial.fixed) + 1))
    return not verdict.accepted


def positions_needed(trial: Trial, cases: Sequence[Judged], draws: int, seed: int) -> int | None:
    """Return from how many challenged positions on the states reject 99.9 % of the draws."""
    needed = None
    for count in reversed(POSITION_GRID):
        random = np.random.default_rng([seed, count])
        setting = Setting("", count)
        caught = [
            judge_once(trial, case, setting, random).reason is Reason.STATES_DIFFER
            for case in map(_any_count, cases)
            for _ in range(draws)
        ]
        if np.mean(caught) < SURE_STATES:
            break
        needed = count
    return needed


def tokens_needed(cases: Sequence[Judged], clique: Sequence[str], seed: int) -> int | None:
    """Return how few generated tokens suffice for their margins to reject 99 % of the time."""
    random = np.random.default_rng(seed)
    found = [case.margins(clique) for case in cases]
    profile = cases[0].profile
    for count in TOKEN_GRID:
        rejected = [
            judge_tokens(_window(found, count, random), profile)[0] is not Outcome.ACCEPT
            for _ in range(WINDOWS)
        ]
        if np.mean(rejected) >= SURE_TOKENS:
            return count
    return None


def _window(
    found: Sequence[TokenStatistics], count: int, random: np.random.Generator
) -> TokenStatistics:
    """Return `count` tokens in a row from jobs in random order."""
    margins: list[int] = []
    above: list[int] = []
    outside: list[int] = []
    skip = int(random.integers(0, len(found[0].margins)))
    while len(margins) < count:
        each = found[int(random.integers(len(found)))]
        outside += [len(margins) + at - skip for at in each.outside if at >= skip]
        margins += each.margins[skip:]
        above += each.margins_above[skip:]
        skip = 0
    kept = tuple(at for at in outside if at < count)
    return TokenStatistics(tuple(margins[:count]), tuple(above[:count]), kept)


def _any_count(case: Judged) -> Judged:
    """Return the case under a profile that takes any number of positions."""
    return case.under(replace(case.profile, min_positions=1))


def _committee(
    trial: Trial, setting: Setting, case: Judged, random: np.random.Generator
) -> tuple[str, ...]:
    """Draw the honest members among the kinds of verifiers that checked the job."""
    kinds = [kind for kind in setting.kinds if kind in case.views]
    drawn = (kinds[int(random.integers(len(kinds)))] for _ in range(COMMITTEE - len(trial.fixed)))
    return (*trial.fixed, *drawn)


def challenged(case: Judged, count: int, random: np.random.Generator) -> tuple[int, ...]:
    """Draw so many positions of a job as the chain does."""
    stream = Hash32(random.bytes(32))
    return positions(stream, 0, case.prompt_tokens, case.new_tokens, count)


def distance(
    verdict: Verdict,
    profile: CheckProfile,
    chosen: Callable[[Iterable[float]], float] = min,
) -> float:
    """Return how far the inferencer is from the verifier that it is nearest to (or, by `max`,
    furthest from), in thresholds.
    """
    apart = [
        max(
            statistics.mean / profile.refund_tier(statistics.cells // len(profile.layers), 1)[0],
            statistics.over / (profile.over_refund + 1),
        )
        for (a, _), statistics in verdict.details.pairs.items()
        if a == INFERENCER
    ]
    return chosen(apart) if apart else float("inf")
