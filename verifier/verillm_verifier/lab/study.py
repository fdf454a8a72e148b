"""What the lab runs: honest workers in every setup and each named cheat, all checked by verifiers.

Everything that needs the model is here and is kept on disk; the rest of the lab works on what was
kept. The lab's seeds are not the calibration's: thresholds are judged on jobs they never saw.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from verillm.engine import Engine, EngineTransform, Kind, open_engine
from verillm.engine.config import read_config
from verillm.engine.describe import read_template
from verillm.errors import InputError
from verillm.model import committed_layers
from verillm.prompt import PromptFormat
from verillm.request import Sampling
from verillm.task import Item
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.attacks.caches import SINKS, WINDOW, whispered_with
from verillm_verifier.attacks.weights import coarse_after, early_exit_after
from verillm_verifier.replay import Run, prefill
from verillm_verifier.runs import (
    Job,
    Keeper,
    Plan,
    Report,
    Setup,
    decode,
    items_of,
)

DECODERS = (
    Setup("bf16 rows 16"),
    Setup("bf16 rows 1", rows=1, share=0.125),
    Setup("bf16 eager rows 8", attention="eager", rows=8),
    Setup("fp32 rows 16", dtype="float32"),
)
CHECKERS = {
    "bf16": Setup("bf16"),
    "chunked": Setup("chunked", chunk=32),
    "fp32": Setup("fp32", dtype="float32"),
}
PLAIN_CHECKERS = ("bf16", "fp32")
"""What checks a cheat that shows in one job."""
CHEATS = (
    "int8_row", "int8_group", "cache8", "lukewarm", "int4", "fp8", "skipped", "shallow",
    "early_exit", "late_int4", "tuned", "whispered", "other_prompt", "one_token_off", "forgot_one",
    "windowed", "clipped", "temperature", "narrowed", "widened", "swapped",
)  # fmt: skip
ASKED = {"widened": Sampling.of(1.0, top_p=0.9)}
"""What is asked of a cheat that would not deviate from plain sampling."""
LENGTHS = {"windowed": range(2 * (SINKS + WINDOW), 1 << 20),
           "clipped": range(SINKS + WINDOW + 1, 2 * (SINKS + WINDOW))}  # fmt: skip
"""Prompt lengths of which a cheat is run. Who cuts the context saves memory on long prompts, where
most of it goes; on short ones the same cut forgets next to nothing, which is a row of its own."""
BEHIND = {"early_exit": early_exit_after, "late_int4": coarse_after}
"""Cheats behind the last committed layer, wherever a model has it."""
SUBTLE = frozenset({"int8_row", "int8_group", "cache8", "lukewarm"})
"""Those that hide in one job: the sequential test wants more of their tokens."""
QUANTISED = ("int8_row", "int4")
"""Cheats that verify, too, with their own states in place of the model's."""
PART = 16
"""Jobs of a cheat that are run and kept together, so that more jobs need only more parts."""
MIXED_SEED, PLAIN_SEED = 101, 102
SYSTEM = "You are a pirate. Answer briefly, and never admit a mistake."


@dataclass(frozen=True, slots=True)
class Study:
    """A model folder and how much of it to run."""

    folder: Path
    kind: Kind = "torch"
    prompts: int = 32
    cheat_jobs: int = 64
    subtle_jobs: int = 64
    new_tokens: int = 64
    cheats: tuple[str, ...] = CHEATS
    decoders: tuple[Setup, ...] = DECODERS
    only_kept: bool = False
    """Run nothing: what the working folder holds, up to so many jobs, is all there is."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One way of answering, its jobs with their items, and what each verifier has of them."""

    name: str
    is_honest: bool
    items: tuple[Item, ...]
    jobs: tuple[Job, ...]
    checks: Mapping[str, tuple[Job, ...]]


class Verifiers:
    """Checking engines, loaded once and kept."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._engines: dict[str, Engine] = {}

    def check(self, name: str, items: Sequence[Item], jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Prefill the jobs' prompt‖output in one setup."""
        runs = [Run(job.tokens, item.seed) for job, item in zip(jobs, items, strict=True)]
        trace = prefill(self._engine(name), runs)
        return tuple(
            replace(job, slices=checked.slices, finals=checked.finals)
            for job, checked in zip(jobs, trace.items, strict=True)
        )

    def close(self) -> None:
        """Close them all."""
        for engine in self._engines.values():
            engine.close()

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            setup, kind = CHECKERS[name], self._study.kind
            engine = open_engine(
                self._study.folder, kind=kind, dtype=setup.dtype, **setup.options(kind)
            )
            engine.start()
            self._engines[name] = engine
        return self._engines[name]


def collect(study: Study, work: Path, report: Report) -> Iterator[Group]:
    """Run what the working folder does not hold yet, and yield every group of jobs."""
    mixed, plain = _plan(study, MIXED_SEED), _plan(study, PLAIN_SEED)
    keep = Keeper(work / plain.identity(), 0, report)
    runs = Runs(keep, Verifiers(study), study)
    honest = [(setup, plain) for setup in (study.decoders[0], study.decoders[-1])]
    honest += [(setup, mixed) for setup in study.decoders]
    honest = [each for each in honest if runs.has_honest(*each)]
    if not honest or honest[0] != (study.decoders[0], plain):
        raise InputError("no honest work is kept: run the lab once without --kept")
    cheats = [name for name in study.cheats if _chosen(plain, LENGTHS.get(name), 1)]
    cheats = [name for name in cheats if runs.parts(name)]
    liars = [name for name in QUANTISED if name in cheats and runs.has_liar(*honest[0], name)]
    keep.steps = len(honest) * (1 + len(CHECKERS)) + len(liars)
    keep.steps += sum(len(runs.parts(name)) * (1 + len(checkers_of(name))) for name in cheats)
    try:
        for setup, plan in honest[:1]:
            yield runs.with_liars(plan, runs.honest(setup, plan), liars)
        for name in cheats:
            yield runs.cheat(name, plain)
        for setup, plan in honest[1:]:
            yield runs.honest(setup, plan)
    finally:
        runs.verifiers.close()


def checkers_of(cheat: str) -> tuple[str, ...]:
    """Return the kinds of verifiers that check a cheat."""
    return tuple(CHECKERS) if cheat in SUBTLE else PLAIN_CHECKERS


@dataclass(frozen=True, slots=True)
class Runs:
    """Groups of jobs, from the keeper or run anew."""

    keep: Keeper
    verifiers: Verifiers
    study: Study

    def has_honest(self, setup: Setup, plan: Plan) -> bool:
        """Whether a setup's answers can be had: all can, unless nothing is run."""
        return self._has(_all_of(_named(setup, plan).name, CHECKERS))

    def has_liar(self, setup: Setup, plan: Plan, name: str) -> bool:
        """Whether a quantised verifier's states can be had, likewise."""
        return self._has({_checked(_named(setup, plan).name, name)})

    def parts(self, cheat: str) -> list[tuple[int, int]]:
        """Return where the parts of a cheat's jobs begin, and how many jobs each has."""
        count = self.study.subtle_jobs if cheat in SUBTLE else self.study.cheat_jobs
        if not self.study.only_kept:
            return [(at, min(PART, count - at)) for at in range(0, count, PART)]
        found: list[tuple[int, int]] = []
        while (at := sum(size for _, size in found)) < count:
            sizes = [
                size
                for size in range(1, min(PART, count - at) + 1)
                if self._has(_all_of(_part(cheat, at, size), checkers_of(cheat)))
            ]
            if not sizes:
                break
            found.append((at, max(sizes)))
        return found

    def honest(self, setup: Setup, plan: Plan) -> Group:
        """Answer honestly in one setup."""
        items = _items(plan)[: max(1, round(self.study.prompts * setup.share))]
        return self._group(plan, _named(setup, plan), None, items, tuple(CHECKERS))

    def cheat(self, name: str, plan: Plan) -> Group:
        """Answer as a cheat does."""
        places, checkers = self.parts(name), checkers_of(name)
        items = _chosen(plan, LENGTHS.get(name), sum(size for _, size in places))
        if name in ASKED:
            items = tuple(replace(item, sampling=ASKED[name]) for item in items)
        transform = _transform(self.study.folder, name)
        parts = []
        for at, size in places:
            setup, chosen = Setup(_part(name, at, size)), items[at : at + size]
            parts.append(self._group(plan, setup, transform, chosen, checkers))
        return Group(
            name,
            False,
            items,
            tuple(job for part in parts for job in part.jobs),
            {kind: tuple(job for part in parts for job in part.checks[kind]) for kind in checkers},
        )

    def with_liars(self, plan: Plan, group: Group, liars: Sequence[str]) -> Group:
        """Add what verifiers with quantised weights have of an honest group."""
        items = tuple(
            replace(item, tokens=job.tokens[:-1], max_new_tokens=1)
            for item, job in zip(group.items, group.jobs, strict=True)
        )
        lies = {
            f"quantised {name}": self.keep(
                _checked(group.name, name),
                partial(decode, plan, Setup(name), ATTACKS[name], items),
            )
            for name in liars
        }
        return replace(group, checks={**group.checks, **lies})

    def _has(self, names: Collection[str]) -> bool:
        return not self.study.only_kept or all(map(self.keep.has, names))

    def _group(
        self,
        plan: Plan,
        setup: Setup,
        transform: EngineTransform | None,
        items: tuple[Item, ...],
        checkers: Sequence[str],
    ) -> Group:
        jobs = self.keep(setup.name, partial(decode, plan, setup, transform, items))
        checks = {
            name: self.keep(
                _checked(setup.name, name),
                partial(self.verifiers.check, name, items, jobs),
            )
            for name in checkers
        }
        return Group(setup.name, transform is None, items, jobs, checks)


def _part(name: str, first: int, size: int) -> str:
    return f"{name} from {first} of {size}"


def _named(setup: Setup, plan: Plan) -> Setup:
    kind = "mixed" if plan.seed == MIXED_SEED else "plain"
    return replace(setup, name=f"{setup.name}, {kind}")


def _checked(run: str, name: str) -> str:
    return f"{run}, checked by {name}"


def _all_of(run: str, checkers: Iterable[str]) -> set[str]:
    return {run, *(_checked(run, name) for name in checkers)}


def _plan(study: Study, seed: int) -> Plan:
    return Plan(study.folder, study.kind, study.prompts, study.new_tokens, seed, study.cheats)


def _items(plan: Plan) -> tuple[Item, ...]:
    """Return the shipped prompts; plainly sampled, or with the parameters that take turns."""
    items = items_of(plan)
    if plan.seed == MIXED_SEED:
        return items
    return tuple(replace(item, sampling=Sampling()) for item in items)


def _chosen(plan: Plan, lengths: range | None, count: int) -> tuple[Item, ...]:
    """Return the first `count` items whose prompts are of such a length; none if none are."""
    shipped = [item for item in _items(plan) if lengths is None or len(item.tokens) in lengths]
    if not shipped:
        return ()
    rounds = -(-count // len(shipped))
    everything = _items(replace(plan, prompts=rounds * plan.prompts))
    fitting = [item for item in everything if lengths is None or len(item.tokens) in lengths]
    return tuple(fitting[:count])


def _transform(folder: Path, name: str) -> EngineTransform:
    """Return an attack; the hidden prompt is one in the model's own words, early exits and coarse
    last layers are behind the last layer that is committed and not the model's last.
    """
    if name == "clipped":
        return ATTACKS["windowed"]
    if name in BEHIND:
        depth = read_config(folder).depth
        return BEHIND[name](max((at for at in committed_layers(depth) if at < depth), default=0))
    if name != "whispered":
        return ATTACKS[name]
    tokenizer = Tokenizer.from_buffer((folder / "tokenizer.json").read_bytes())
    chat = PromptFormat(tokenizer, read_template(folder), read_config(folder).end_tokens)
    return whispered_with(chat.encode_chat([{"role": "system", "content": SYSTEM}]))
