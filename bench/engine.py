"""What checking costs against inferring, and what commitments cost the one who infers.

    python bench/engine.py [--short] [--model FOLDER]

Both come from one run each, side by side. *Checking* is what a committee member does: one prefill
over prompt‖output through the same engine, and its commitment. *Without commitments* the same
engine runs with its captures taken out; the shares are of the wall time with them.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from verillm.engine.capture import Capture
from verillm.engine.generation import Generation
from verillm.engine.prepare import default_folder
from verillm.engine.torch_engine import TorchEngine
from verillm.request import Sampling
from verillm.task import Item, Task
from verillm.trace import commit
from verillm.types import Hash32
from verillm_verifier.replay import Run, local_task, prefill

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

LENGTHS = ((64, 256), (512, 128))
SHORT = ((32, 24),)
BATCHES = (1, 8)
ROUNDS = 2
COLUMNS = {
    "prompt+new": 11, "rows": 5, "infer s": 9, "check s": 9, "check÷infer": 13, "tok/s": 8,
    "without": 9, "with÷without": 14, "hash %": 8, "keep %": 8, "choose %": 10,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one inference and of its check."""

    inference: float
    hashing: float
    keeping: float
    choosing: float
    check: float
    new_tokens: int


def make_task(rows: int, prompt: int, new: int, vocabulary: int) -> Task:
    """Return a task of random prompts, so that no answer ends early by being an answer."""
    random = np.random.default_rng(1)
    return local_task(
        tuple(
            Item(
                bytes(32),
                tuple(int(token) for token in random.integers(100, vocabulary, prompt)),
                new,
                Sampling(),
                Hash32(sha256(bytes([row])).digest()),
            )
            for row in range(rows)
        )
    )


def measure(engine: TorchEngine, task: Task) -> Measured:
    """Run a task and its check."""
    before = replace(engine.spent)
    began = time.perf_counter()
    trace = engine.submit(task, lambda _item, _index, _token: None).result()
    inferred = time.perf_counter()
    commit(trace, task)
    hashed = time.perf_counter()
    spent = replace(engine.spent)
    checked = prefill(
        engine, [Run(item.tokens, task.items[item.item].seed) for item in trace.items]
    )
    assert len(checked.items) == len(task.items)
    check = time.perf_counter() - hashed
    return Measured(
        inference=hashed - began,
        hashing=hashed - inferred,
        keeping=spent.keeping - before.keeping,
        choosing=spent.choosing - before.choosing,
        check=check,
        new_tokens=sum(item.new_tokens for item in trace.items),
    )


class without_commitments:
    """Take the captures out of the engine: no hooks' copies, no kept states, but for the last."""

    def __enter__(self) -> None:
        self._take, self._record = Capture.take, Generation.record
        last = self._take

        def final_only(capture: Capture, final: object) -> object:
            capture._outputs = [None] * len(capture._outputs)
            return last(capture, final)  # type: ignore[arg-type]

        def count_only(generation: Generation, _layers: object, finals: object) -> None:
            generation.position += len(finals)  # type: ignore[arg-type]

        Capture.take = final_only  # type: ignore[assignment, method-assign]
        Generation.record = count_only  # type: ignore[assignment, method-assign]

    def __exit__(self, *_: object) -> None:
        Capture.take, Generation.record = self._take, self._record  # type: ignore[method-assign]


def tokens_per_second(engine: TorchEngine, task: Task) -> float:
    """Return new tokens per second, without the hashing."""
    began = time.perf_counter()
    trace = engine.submit(task, lambda _item, _index, _token: None).result()
    return sum(item.new_tokens for item in trace.items) / (time.perf_counter() - began)


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--short", action="store_true", help="small sizes: does it run?")
    options.add_argument("--model", type=Path, default=default_folder())
    chosen = options.parse_args()
    lengths = SHORT if chosen.short else LENGTHS
    engine = TorchEngine(chosen.model, max_batch=max(BATCHES))
    engine.start()
    engine._running()._end_tokens = frozenset()  # every item runs to its full length
    print(machine_line("torch", "transformers"), f"— {chosen.model.name}, bfloat16")
    print("".join(f"{title:>{width}}" for title, width in COLUMNS.items()))
    try:
        for prompt, new in lengths:
            for rows in BATCHES:
                task = make_task(rows, prompt, new, engine.vocabulary)
                line(engine, task, f"{prompt}+{new}", rows)
    finally:
        engine.close()


def line(engine: TorchEngine, task: Task, name: str, rows: int) -> None:
    """Measure one size and print its line."""
    measure(engine, replace(task, items=tuple(replace(i, max_new_tokens=2) for i in task.items)))
    rounds = []
    bare = 0.0
    for _ in range(ROUNDS):  # taking turns, since the machine's speed drifts
        rounds.append(measure(engine, task))
        with without_commitments():
            bare = max(bare, tokens_per_second(engine, task))
    found = min(rounds, key=lambda each: each.inference)
    speed = found.new_tokens / found.inference
    shares = [
        100 * part / found.inference for part in (found.hashing, found.keeping, found.choosing)
    ]
    print(f"{name:>11}{rows:5}{found.inference:9.2f}{found.check:9.2f}"
          f"{found.check / found.inference:13.3f}{speed:8.1f}{bare:9.1f}{speed / bare:14.3f}"
          f"{shares[0]:8.2f}{shares[1]:8.2f}{shares[2]:10.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
