"""Honest jobs in thousands: every setup of a worker against every kind of verifier.

Units are run in order, each as its number says: the setups take turns, and so do the verifiers'
kinds and the sampling parameters. What is kept of a unit are statistics (`records`), so that the
disk holds as many jobs as the time allows.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from verillm.engine import Engine, Kind, open_engine
from verillm.engine.describe import compute_roots
from verillm.head import HeadArray, HeadRows
from verillm.model import CheckProfile
from verillm.request import Sampling
from verillm.statistics import to_floats
from verillm.task import Item
from verillm.tokens import Head
from verillm.types import Floats
from verillm_verifier.lab import records
from verillm_verifier.lab.cases import Case, View
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import About, Record
from verillm_verifier.replay import Run, local_task, prefill
from verillm_verifier.runs import PROMPTS, SAMPLINGS, Plan, Report, Setup, items_of, shipped_prompts

FIRST_SEED = 100_000
"""Of unit 0; the calibration's and the lab's are far below."""
WORKERS = (
    Setup("bf16, rows 64", rows=64),
    Setup("bf16 eager, rows 16", attention="eager"),
    Setup("fp32, rows 32", dtype="float32", rows=32),
    Setup("bf16 in chunks of 32, rows 32", chunk=32, rows=32),
    Setup("bf16, rows 1", rows=1, share=1 / 16),
    Setup("bf16 eager, rows 64", attention="eager", rows=64),
    Setup("fp32 eager, rows 8", dtype="float32", attention="eager", rows=8, share=0.25),
    Setup("bf16, rows 4", rows=4, share=0.25),
)
"""Small batches cost many times as much per token: they take a part of the prompts at a time."""
VERIFIERS = {
    "bf16": Setup("bf16"),
    "chunked": Setup("chunked", chunk=32),
    "eager": Setup("eager", attention="eager"),
    "fp32": Setup("fp32", dtype="float32"),
    "fp32 eager": Setup("fp32 eager", dtype="float32", attention="eager"),
}
CASTS = (
    ("bf16", "fp32"),
    ("eager",),
    ("bf16", "chunked", "fp32"),
    ("fp32",),
    ("eager", "fp32 eager"),
    ("bf16",),
    ("chunked",),
)
"""The kinds that check a unit; a number prime to that of the setups, so that all meet. Of one kind
alone they are at their strictest, since no other kind can agree with the worker."""
ASKED = (*SAMPLINGS, Sampling(temperature=0))


@dataclass(frozen=True, slots=True)
class Runs:
    """A model folder, how long its answers are, and the profile whose scales and borders hold."""

    folder: Path
    profile: CheckProfile
    work: Path
    kind: Kind = "torch"
    new_tokens: int = 64
    prompts: int = 64
    """Jobs of a unit: as many fill a batch better. Beyond the shipped prompts they come again."""
    threads: int | None = None
    counted: dict[Path, int] = field(default_factory=dict, compare=False)

    @property
    def home(self) -> Path:
        """Where the units are kept, by all that decides them."""
        profile = self.profile
        facts = [
            compute_roots(self.folder).weights,
            sha256(PROMPTS.read_bytes()).hexdigest(),
            str([layer.scale for layer in profile.layers]),
            *map(str, (profile.mass_epsilon, profile.logit_tau)),
            *map(str, (self.kind, self.new_tokens, self.prompts)),
        ]
        return self.work / sha256("\n".join(facts).encode()).hexdigest()[:16]

    def path(self, unit: int) -> Path:
        """Where a unit is kept."""
        return self.home / f"{unit:05}.npz"

    def about(self, unit: int) -> About:
        """Return what a unit is."""
        threads = self.threads or int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
        worker = WORKERS[unit % len(WORKERS)]
        return About(unit, worker.name, CASTS[unit % len(CASTS)], threads)

    def kept(self) -> Iterator[Record]:
        """Yield the jobs of all units that were run."""
        for path in sorted(self.home.glob("*.npz")):
            yield from records.read(path, self.profile)

    def long_jobs(self, first: int = 0) -> int:
        """Return how many jobs of the full length are kept from a unit on."""
        for path in self.home.glob("*.npz"):
            if path not in self.counted:
                sizes = records.sizes(path)
                self.counted[path] = sum(new == self.new_tokens for _, _, new in sizes)
        return sum(count for path, count in self.counted.items() if int(path.stem) >= first)


def run(runs: Runs, units: Iterable[int], is_over: Callable[[], bool], report: Report) -> None:
    """Run the units that are not kept yet, until the time is over."""
    engines, head, shipped = Engines(runs), _head(runs.folder), shipped_prompts()
    try:
        for unit in units:
            if runs.path(unit).is_file():
                continue
            if is_over():
                return
            began = time.monotonic()
            about, asked = runs.about(unit), items_for(runs, unit)
            cases = _cases(runs, about, tuple(asked.values()), engines, head)
            records.write(runs.path(unit), about, cases, [at % shipped for at in asked])
            tokens, taken = sum(case.new_tokens for case in cases), time.monotonic() - began
            report(
                f"unit {unit}: {about.worker}, checked by {', '.join(about.checkers)}: "
                f"{len(cases)} jobs, {tokens} new tokens, {taken:.0f} s"
            )
    finally:
        engines.close()


def items_for(runs: Runs, unit: int) -> dict[int, Item]:
    """Return a unit's items by number, under seeds and parameters of its own."""
    plan = Plan(runs.folder, runs.kind, runs.prompts, runs.new_tokens, FIRST_SEED + unit)
    items = items_of(plan)
    # A setup that takes only a part takes another part each time.
    count = max(1, round(len(items) * WORKERS[unit % len(WORKERS)].share))
    first = unit // len(WORKERS) * count
    chosen = [(first + at) % len(items) for at in range(count)]
    return {at: replace(items[at], sampling=ASKED[(at + unit) % len(ASKED)]) for at in chosen}


class Engines:
    """Engines by setup, loaded once and kept."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._engines: dict[Setup, Engine] = {}

    def __call__(self, setup: Setup) -> Engine:
        """Return a running engine."""
        same = replace(setup, name="", share=1.0)
        if same not in self._engines:
            options = same.options(self._runs.kind)
            if self._runs.kind == "torch":
                options["threads"] = self._runs.threads
            engine = open_engine(
                self._runs.folder, kind=self._runs.kind, dtype=same.dtype, **options
            )
            engine.start()
            self._engines[same] = engine
        return self._engines[same]

    def close(self) -> None:
        """Close them all."""
        for engine in self._engines.values():
            engine.close()


def _cases(
    runs: Runs, about: About, items: tuple[Item, ...], engines: Engines, head: Head
) -> list[Case]:
    worker = next(setup for setup in WORKERS if setup.name == about.worker)
    task = local_task(items)
    own = engines(worker).submit(task, lambda _item, _index, _token: None).result()
    asked = [Run(done.tokens, item.seed) for done, item in zip(own.items, items, strict=True)]
    checked = {name: prefill(engines(VERIFIERS[name]), asked) for name in about.checkers}
    cases = []
    for place, (item, done) in enumerate(zip(items, own.items, strict=True)):
        shown = {OWN: done} | {name: trace.items[place] for name, trace in checked.items()}
        views = {name: View(each.slices, each.finals) for name, each in shown.items()}
        output = done.tokens[len(item.tokens) :]
        cases.append(Case(item, output, views, runs.profile, head))
    return cases


class _Remembering:
    """A head that keeps its last products: the votes and the leads of a job ask for the same."""

    def __init__(self, head: HeadArray) -> None:
        self._head = head
        self._kept: deque[tuple[Floats, Floats]] = deque(maxlen=2)

    @property
    def vocabulary(self) -> int:
        """Rows."""
        return self._head.vocabulary

    def logits(self, finals: Floats) -> Floats:
        """float32 [n, hidden] → float32 [n, vocabulary]."""
        for asked, given in self._kept:
            if np.array_equal(asked, finals):
                return given
        self._kept.append((finals, self._head.logits(finals)))
        return self._kept[-1][1]


def _head(folder: Path) -> Head:
    rows = HeadRows(folder)
    return _Remembering(HeadArray(to_floats(np.asarray(rows.rows(0, rows.vocabulary)))))
