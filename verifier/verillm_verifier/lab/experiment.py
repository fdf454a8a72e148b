"""The whole experiment: from kept runs to one document of figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from verillm.files import write_atomically
from verillm.head import HeadArray, HeadRows
from verillm.model import CheckProfile
from verillm.sequential import Table
from verillm.statistics import to_floats
from verillm.task import Item
from verillm.types import Hash32
from verillm_verifier.lab import pooled
from verillm_verifier.lab.cases import Case, View, Votes
from verillm_verifier.lab.honest import WORKERS
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import HONEST, honest, inferencers, verifiers
from verillm_verifier.lab.reach import Reach, reaches
from verillm_verifier.lab.records import Record
from verillm_verifier.lab.study import SUBTLE, Group
from verillm_verifier.lab.trials import (
    SETTINGS,
    Result,
    Role,
    Trial,
    positions_needed,
    run,
    tokens_needed,
)
from verillm_verifier.lab.views import forged, nudged, shifted

DRAWS = 100
SEED = 7
NUDGED = ("int4", "swapped")
QUANTISED = ("int8_row", "int8_group", "cache8")
"""Cheats whose states differ by little more than honest ones."""
MIXED = ("bf16", "chunked", "fp32")
EVERY = "every setup in turn"
ALL_KINDS = SETTINGS[:2]


@dataclass(frozen=True, slots=True)
class Row:
    """One trial with its results, and what it takes to catch it."""

    trial: Trial
    jobs: int
    tokens: int
    results: tuple[Result, ...]
    positions: int | None = None
    tokens_needed: int | None = None


@dataclass(frozen=True, slots=True)
class Many:
    """What shows over more positions, or over more jobs."""

    reach: tuple[Reach, ...]
    table: Table | None
    alarms: tuple[pooled.Alarm, ...]
    quiet: tuple[pooled.Quiet, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the lab found."""

    rows: tuple[Row, ...]
    freedom: pooled.Freedom
    many: Many


class Lab:
    """Groups of jobs under one profile, as cases; margins are computed once."""

    def __init__(
        self,
        folder: Path,
        profile: CheckProfile,
        groups: Iterable[Group],
        memory: Path | None = None,
    ) -> None:
        rows = HeadRows(folder)
        self.rows = to_floats(np.asarray(rows.rows(0, rows.vocabulary)))
        self.head = HeadArray(self.rows)
        self.profile = profile
        self.groups = {group.name: group for group in groups}
        self._cases: dict[tuple[str, bool], list[Case]] = {}
        self._memory = memory
        self._votes = _recall(memory)
        self._remembered = 0

    def cases(self, group: str, other_seed: bool = False) -> list[Case]:
        """Return a group's jobs; under another seed than they were sampled with if asked."""
        key = (group, other_seed)
        if key not in self._cases:
            self._cases[key] = list(self._make(self.groups[group], other_seed))
        return self._cases[key]

    def judged_by(self, trial: Trial) -> list[Case]:
        """Return the jobs that a trial is about."""
        cases = self.cases(trial.group, trial.seed)
        return [case for case in cases if case.new_tokens >= trial.least]

    @property
    def honest(self) -> list[str]:
        """Names of the honest groups."""
        return [name for name, group in self.groups.items() if group.is_honest]

    @property
    def cheats(self) -> list[str]:
        """Names of the cheats that were run."""
        return [name for name, group in self.groups.items() if not group.is_honest]

    def _make(self, group: Group, other_seed: bool) -> Iterable[Case]:
        for place, (item, job) in enumerate(zip(group.items, group.jobs, strict=True)):
            views = {OWN: View.of(job)} | {
                name: View.of(jobs[place]) for name, jobs in group.checks.items()
            }
            output = job.tokens[len(item.tokens) :]
            if group.name == HONEST:
                neighbour = group.jobs[(place + 1) % len(group.jobs)]
                views |= forged(views[OWN], View.of(neighbour))
                views["shifted"] = shifted(views["bf16"], len(item.tokens))
            if group.name in NUDGED:
                views["nudged"] = nudged(views["bf16"], item, output, self.head, self.rows)
            if other_seed:
                item = replace(item, seed=Hash32(sha256(b"best of n" + item.seed).digest()))
            kept = self._votes.setdefault(self._key(group, place, item), {})
            yield Case(item, output, views, self.profile, self.head, kept)

    def _key(self, group: Group, place: int, item: Item) -> str:
        """Name all that votes depend on, but for the view: tokens, seed, borders."""
        tokens = sha256(str(group.jobs[place].tokens).encode()).hexdigest()[:16]
        borders = f"{self.profile.mass_epsilon} {self.profile.logit_tau}"
        return f"{group.name} {place} {tokens} {item.seed.hex()[:16]} {borders}"

    def remember(self) -> None:
        """Keep the votes that were computed, if any are new."""
        held = sum(map(len, self._votes.values()))
        if self._memory is None or held == self._remembered:
            return
        write_atomically(self._memory, json.dumps(self._votes, separators=(",", ":")).encode())
        self._remembered = held


def _recall(memory: Path | None) -> dict[str, Votes]:
    if memory is None or not memory.is_file():
        return {}
    document = json.loads(memory.read_text("utf-8"))
    return {
        job: {
            view: tuple(None if vote is None else tuple(vote) for vote in cast)
            for view, cast in views.items()
        }
        for job, views in document.items()
    }


def experiment(
    lab: Lab,
    report: Callable[[str], None],
    draws: int = DRAWS,
    kept: Sequence[Record] = (),
) -> Findings:
    """Judge every trial, and pool what hides in one job."""
    liars = [name for name in lab.groups[HONEST].checks if name.startswith("quantised ")]
    trials = [*honest(lab.honest), *inferencers(lab.cheats), *verifiers(liars)]
    trials = [trial for trial in trials if lab.judged_by(trial)]
    rows = []
    for number, trial in enumerate(trials, 1):
        rows.append(judge_trial(lab, trial, draws))
        lab.remember()
        caught = rows[-1].results[0].caught
        report(f"[{number}/{len(trials)}] {trial.title}: {caught.value:.3f} of {caught.draws}")
    report("how much freedom the tolerance leaves")
    freedom = pooled.freedom(lab.cases(HONEST)[::2], "bf16", lab.head)
    return Findings(tuple(rows), freedom, over_many(lab, report, kept))


def over_many(lab: Lab, report: Callable[[str], None], kept: Sequence[Record] = ()) -> Many:
    """Compare more positions, and pool jobs."""
    report("what more positions would show")
    quantised = {name: lab.cases(name) for name in QUANTISED if name in lab.cheats}
    reach = reaches((case for name in lab.honest for case in lab.cases(name)), quantised, SEED)
    report("the test over a worker's jobs")
    table, alarms, quiet = sequential(lab, kept)
    lab.remember()
    return Many(reach, table, alarms, quiet)


def judge_trial(lab: Lab, trial: Trial, draws: int) -> Row:
    """Run one trial in every setting."""
    cases = lab.judged_by(trial)
    settings = SETTINGS if trial.role is Role.INFERENCER else ALL_KINDS
    results = tuple(run(trial, cases, setting, draws, SEED) for setting in settings)
    jobs, tokens = len(cases), sum(case.new_tokens for case in cases)
    row = Row(trial, jobs, tokens, results)
    if trial.role is not Role.INFERENCER:
        return row
    needed = positions_needed(trial, cases, max(1, draws // 4), SEED)
    if needed is not None:
        return replace(row, positions=needed)
    return replace(row, tokens_needed=tokens_needed(cases, _kinds(cases[0]), SEED))


def sequential(
    lab: Lab, kept: Sequence[Record] = ()
) -> tuple[Table | None, tuple[pooled.Alarm, ...], tuple[pooled.Quiet, ...]]:
    """Fit the test on the cheats' jobs and half of those that were kept of a certificate, and try
    it on the other half and the lab's honest jobs; without a certificate, on half of these too. A
    cheat's jobs are judged by a table that was fitted on the other half of them, each in turn.
    """
    subtle = sorted(SUBTLE & set(lab.cheats))
    if not subtle:
        return None, (), ()
    fitted, judged = _honest(lab, kept)
    cheats = {
        (name, clique): pooled.told_by(
            lab.cases(name), OWN if name in pooled.DECODED else pooled.PREFILL, clique, SEED
        )
        for name in subtle
        for clique in pooled.CLIQUES
    }
    lab.remember()

    def fit(taken: slice) -> Table:
        of = {
            name: [job for clique in pooled.CLIQUES for job in cheats[name, clique][taken]]
            for name in subtle
        }
        return pooled.fit_table(fitted, of)

    table = fit(slice(None))
    unseen = (fit(slice(1, None, 2)), fit(slice(0, None, 2)))
    alarms = [
        alarm
        for (name, clique), jobs in cheats.items()
        for alarm in pooled.alarms(name, clique, jobs, unseen, SEED)
    ]
    quiet = [
        pooled.quiet(setup, kinds, jobs, table, SEED)
        for (setup, kinds), jobs in judged.items()
        if len(jobs) >= pooled.LEAST_QUIET
    ]
    return table, tuple(alarms), tuple(quiet)


Honest = dict[tuple[str, str], list[pooled.Told]]
"""By the worker's setup and the kinds of its verifiers, which are empty for any."""


def _honest(lab: Lab, kept: Sequence[Record]) -> tuple[list[pooled.Told], Honest]:
    """Return the jobs to fit on, and those to judge by."""
    fitted: list[pooled.Told] = []
    judged: Honest = {}
    for record, told in zip(kept, pooled.told_of(kept, SEED), strict=True):
        if record.about.unit // len(WORKERS) % 2 == 0:
            fitted.append(told)
            continue
        judged.setdefault((EVERY, ""), []).append(told)
        for kinds in ("", ", ".join(record.about.checkers)):
            judged.setdefault((record.about.worker, kinds), []).append(told)
    for name, clique in product(lab.honest, pooled.CLIQUES):
        jobs = pooled.told_by(lab.cases(name), OWN, clique, SEED)
        if not kept:
            fitted += jobs[::2]
        for kinds in ("", ", ".join(pooled.CLIQUES[clique])):
            judged.setdefault((name, kinds), []).extend(jobs if kept else jobs[1::2])
    return fitted, judged


def _kinds(case: Case) -> tuple[str, ...]:
    return tuple(name for name in MIXED if name in case.views)


def as_json(findings: Findings) -> dict[str, Any]:
    """Return the findings with outcomes and reasons by name."""
    return {
        "rows": [_row_json(row) for row in findings.rows],
        "freedom": asdict(findings.freedom),
        **many_json(findings.many),
    }


def many_json(many: Many) -> dict[str, Any]:
    """Return what shows over many."""
    return {
        "table": _table_json(many.table) if many.table else None,
        "alarms": [asdict(each) for each in many.alarms],
        "quiet": [asdict(each) for each in many.quiet],
        "reach": [asdict(each) for each in many.reach],
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "edges": table.edges,
        "roughness": asdict(table.roughness),
        "ratios": _rounded(table.ratios),
    }


def _rounded(ratios: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [round(each, 4) for each in values] for name, values in ratios.items()}


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.trial.name,
        "title": row.trial.title,
        "role": row.trial.role.value,
        "jobs": row.jobs,
        "tokens": row.tokens,
        "positionsNeeded": row.positions,
        "tokensNeeded": row.tokens_needed,
        "results": [
            {
                "setting": result.setting,
                **{key: round(value, 6) for key, value in asdict(result.caught).items()},
                "nearest": round(result.nearest, 4),
                "verdicts": {
                    f"{outcome.name.lower()} {reason.name.lower()}": count
                    for (outcome, reason), count in sorted(
                        result.verdicts.items(), key=lambda each: -each[1]
                    )
                },
            }
            for result in row.results
        ],
    }
