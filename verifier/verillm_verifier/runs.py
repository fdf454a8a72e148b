"""Runs of a model for calibration: honest ones in every setup at hand, and the named cheats.

A *decode* run answers every prompt; a *check* run prefills a decode run's prompt‖output in one
setup, as a verifier does. All of it goes through the engine that workers use. Each run is kept in
the working folder, so that an interrupted calibration goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from verillm.engine import Dtype, Engine, EngineTransform, Kind, open_engine
from verillm.engine.config import read_config
from verillm.engine.describe import compute_roots, read_template
from verillm.prompt import Message, PromptFormat
from verillm.request import Sampling
from verillm.task import Item
from verillm.trace import Trace
from verillm.types import Bits, Hash32
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.replay import Run, local_task, prefill

PROMPTS = Path(__file__).parent / "data" / "prompts.json"
SAMPLINGS = (
    Sampling.of(1.0),
    Sampling.of(0.7, top_p=0.9),
    Sampling.of(1.0, top_k=40),
    Sampling.of(0.8, min_p=0.05),
)
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to run a model honestly; `share` of the prompts, since one row at a time is slow."""

    name: str
    dtype: Dtype = "bfloat16"
    attention: str = "sdpa"
    rows: int = 16
    chunk: int = 512
    share: float = 1.0
    kind: Kind | None = None
    """Another engine than the plan's."""
    devices: int = 1
    stages: int = 1
    """vLLM only."""

    def options(self, kind: Kind) -> dict[str, Any]:
        """Return the engine's options."""
        if kind == "tiny":
            return {"max_batch": self.rows}
        if kind == "vllm":
            parts = {"devices": self.devices, "stages": self.stages}
            return parts | {
                "max_batch": self.rows,
                "chunk": self.chunk,
                "max_tokens": VLLM_TOKENS,
            }
        return {"max_batch": self.rows, "chunk": self.chunk, "attention": self.attention}


DECODERS = (
    Setup("bf16 batched"),
    Setup("bf16 single", rows=1, share=0.25),
    Setup("bf16 eager batched", attention="eager"),
    Setup("fp32 batched", dtype="float32"),
)
CHECKERS = (
    Setup("bf16"),
    Setup("bf16 chunked", chunk=32),
    Setup("bf16 eager", attention="eager"),
    Setup("fp32", dtype="float32"),
)
VLLM_DECODERS = (
    Setup("vllm bf16 batched", kind="vllm"),
    Setup("vllm fp32 batched", dtype="float32", kind="vllm"),
)
VLLM_CHECKERS = (
    Setup("vllm bf16", kind="vllm"),
    Setup("vllm bf16 chunked", chunk=32, kind="vllm"),
    Setup("vllm fp32", dtype="float32", kind="vllm"),
)
"""Honest workers of a network where some serve on vLLM; run in an environment that has it."""
VLLM_TOKENS = 16_384
CHEATS = ("int4", "int8_row", "int8_group", "prefilled", "temperature", "swapped")
CHEAT_SHARE = 0.5
CHEAT_CHECKERS = ("bf16", "fp32")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: the model, how many prompts, how long the answers, and from which seed."""

    folder: Path
    kind: Kind = "torch"
    prompts: int = 32
    new_tokens: int = 96
    seed: int = 1
    cheats: tuple[str, ...] = CHEATS
    with_vllm: bool = False

    @property
    def decoders(self) -> tuple[Setup, ...]:
        """Honest ways to answer."""
        return DECODERS + (VLLM_DECODERS if self.with_vllm else ())

    @property
    def checkers(self) -> tuple[Setup, ...]:
        """Honest ways to check."""
        return CHECKERS + (VLLM_CHECKERS if self.with_vllm else ())

    def identity(self) -> str:
        """Return a digest of all that decides the runs; names the working folder."""
        facts = [
            compute_roots(self.folder).weights,
            sha256(PROMPTS.read_bytes()).hexdigest(),
            *map(str, (self.kind, self.prompts, self.new_tokens, self.seed)),
        ]
        return sha256("\n".join(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One answered prompt of a run: tokens are prompt‖output, states at positions 0..P+N-2."""

    number: int
    prompt_tokens: int
    tokens: tuple[int, ...]
    slices: Bits
    finals: Bits


@dataclass(frozen=True, slots=True)
class Decode:
    """An answering run, honest or a cheat, and the check runs over its outputs."""

    name: str
    is_honest: bool
    jobs: tuple[Job, ...]
    checks: dict[str, tuple[Job, ...]]


def items_of(plan: Plan) -> tuple[Item, ...]:
    """Return one item per prompt; sampling parameters take turns.

    Beyond the prompts that ship the same ones come again, under other seeds and parameters.
    """
    config = read_config(plan.folder)
    tokenizer = (plan.folder / "tokenizer.json").read_bytes()
    prompt_format = PromptFormat(
        Tokenizer.from_buffer(tokenizer), read_template(plan.folder), config.end_tokens
    )
    conversations: list[list[Message]] = json.loads(PROMPTS.read_text("utf-8"))
    longest = config.context - plan.new_tokens
    prompts = [prompt_format.encode_chat(messages)[:longest] for messages in conversations]
    return tuple(
        Item(
            salt=sha256(f"salt {plan.seed} {number}".encode()).digest(),
            tokens=prompts[number % len(prompts)],
            max_new_tokens=plan.new_tokens,
            sampling=SAMPLINGS[(number + number // len(prompts)) % len(SAMPLINGS)],
            seed=Hash32(sha256(f"seed {plan.seed} {number}".encode()).digest()),
        )
        for number in range(plan.prompts)
    )


def shipped_prompts() -> int:
    """Return how many prompts ship; item n answers prompt n modulo so many."""
    return len(json.loads(PROMPTS.read_text("utf-8")))


def collect(plan: Plan, work: Path, report: Report) -> Iterator[Decode]:
    """Run whatever the working folder does not hold yet, and yield every decode with its checks."""
    checkers = {setup.name: setup for setup in plan.checkers}
    honest: list[tuple[Setup, EngineTransform | None]] = [(setup, None) for setup in plan.decoders]
    cheats = [(Setup(name, share=CHEAT_SHARE), ATTACKS[name]) for name in plan.cheats]
    items = items_of(plan)
    steps = len(honest) * (1 + len(checkers)) + len(cheats) * (1 + len(CHEAT_CHECKERS))
    keep = Keeper(work / plan.identity(), steps, report)
    for setup, transform in [*honest, *cheats]:
        chosen = items[: max(1, round(len(items) * setup.share))]
        jobs = keep(setup.name, partial(decode, plan, setup, transform, chosen))
        checks = {
            name: keep(
                f"{setup.name}, checked by {name}",
                partial(check, plan, checkers[name], items, jobs),
            )
            for name in (CHEAT_CHECKERS if transform else checkers)
        }
        yield Decode(setup.name, transform is None, jobs, checks)


class Keeper:
    """Keeps each run in a folder under its name, and counts them off."""

    def __init__(self, folder: Path, steps: int, report: Report) -> None:
        self.steps = steps
        """How many there will be."""
        self._folder = folder
        self._report = report
        self._step = 0

    def has(self, name: str) -> bool:
        """Whether a run is kept."""
        return self._path(name).is_file()

    def read(self, name: str) -> tuple[Job, ...]:
        """Return a run that is kept."""
        return _read(self._path(name))

    def __call__(self, name: str, run: Callable[[], tuple[Job, ...]]) -> tuple[Job, ...]:
        """Return a run from the folder, running it first if it is not there."""
        self._step += 1
        path = self._path(name)
        began = time.monotonic()
        is_kept = path.is_file()
        jobs = _read(path) if is_kept else run()
        if not is_kept:
            _write(path, jobs)
        tokens = sum(len(job.tokens) - job.prompt_tokens for job in jobs)
        how = "kept from before" if is_kept else f"{time.monotonic() - began:.0f} s"
        self._report(
            f"[{self._step}/{self.steps}] {name}: {len(jobs)} jobs, {tokens} new tokens, {how}"
        )
        return jobs

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npz"


def decode(
    plan: Plan, setup: Setup, transform: EngineTransform | None, items: Sequence[Item]
) -> tuple[Job, ...]:
    """Answer all items with one engine."""
    engine = open_engine(
        plan.folder,
        kind=setup.kind or plan.kind,
        dtype=setup.dtype,
        transform=transform,
        **setup.options(setup.kind or plan.kind),
    )
    engine.start()
    try:
        task = local_task(tuple(items))
        return _jobs(engine.submit(task, lambda _item, _index, _token: None).result())
    finally:
        engine.close()


def check(plan: Plan, setup: Setup, items: Sequence[Item], jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Prefill the jobs' prompt‖output with one engine, as a verifier does."""
    kind = setup.kind or plan.kind
    engine = open_engine(plan.folder, kind=kind, dtype=setup.dtype, **setup.options(kind))
    engine.start()
    try:
        return check_with(engine, items, jobs)
    finally:
        engine.close()


def check_with(engine: Engine, items: Sequence[Item], jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Prefill the jobs' prompt‖output with an engine that runs."""
    trace = prefill(engine, [Run(job.tokens, items[job.number].seed) for job in jobs])
    return tuple(
        Job(job.number, job.prompt_tokens, job.tokens, checked.slices, checked.finals)
        for job, checked in zip(jobs, trace.items, strict=True)
    )


def _jobs(trace: Trace) -> tuple[Job, ...]:
    return tuple(
        Job(item.item, item.prompt_tokens, item.tokens, item.slices, item.finals)
        for item in trace.items
    )


def _write(path: Path, jobs: Sequence[Job]) -> None:
    arrays: dict[str, Any] = {"count": np.array(len(jobs))}
    for place, job in enumerate(jobs):
        arrays |= {
            f"{place} numbers": np.array([job.number, job.prompt_tokens]),
            f"{place} tokens": np.array(job.tokens, np.uint32),
            f"{place} slices": job.slices,
            f"{place} finals": job.finals,
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)
    unfinished.replace(path)


def _read(path: Path) -> tuple[Job, ...]:
    with np.load(path) as arrays:
        return tuple(
            Job(
                int(arrays[f"{place} numbers"][0]),
                int(arrays[f"{place} numbers"][1]),
                tuple(int(token) for token in arrays[f"{place} tokens"]),
                arrays[f"{place} slices"],
                arrays[f"{place} finals"],
            )
            for place in range(int(arrays["count"]))
        )
