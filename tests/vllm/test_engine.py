"""The vLLM engine against the torch engine, on vLLM itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.vllm.conftest import WAIT, MakeTask, check_rule, endless, far_apart, run_all, serving
from verillm.engine.bits import from_bits
from verillm.engine.torch_engine import TorchEngine
from verillm.engine.vllm import hooks
from verillm.engine.vllm.driver import Span
from verillm.engine.vllm.engine import VllmEngine
from verillm.errors import (
    EngineOutOfMemory,
)
from verillm.task import Task
from verillm_verifier.replay import local_task

ALIKE = 0.002
"""How far apart two engines' states may be in float32, relative to their norm."""


@pytest.fixture(scope="module")
def fp32(qwen: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine(qwen, dtype="float32", max_batch=4, max_tokens=2048, chunk=32)
    with serving(engine) as started:
        yield endless(started)


def test_fp32_traces_are_the_torch_engines(qwen: Path, fp32: VllmEngine, tasks: list[Task]) -> None:
    with serving(TorchEngine(qwen, dtype="float32")) as torch_engine:
        expected = run_all(endless(torch_engine), *tasks)
    found = run_all(fp32, *tasks)
    for one, other in zip(expected, found, strict=True):
        assert [item.tokens for item in one.items] == [item.tokens for item in other.items]
        assert far_apart(one, other) < ALIKE
    assert check_rule(qwen, tasks, found) > 100


def test_power_a_row_shifted_by_one_is_far_apart(fp32: VllmEngine, tasks: list[Task]) -> None:
    """Also where a token comes twice, after which states are nearest."""
    [trace] = run_all(fp32, tasks[1])
    item = trace.items[0]
    shifted = np.roll(from_bits(item.finals), 1, axis=0)
    finals = from_bits(item.finals)
    apart = np.linalg.norm(shifted - finals, axis=-1) / np.linalg.norm(finals, axis=-1)
    assert apart.min() > 10 * ALIKE


def test_a_verification_joins_the_running_batch(
    fp32: VllmEngine, make_task: MakeTask, passes: list[Sequence[Span]]
) -> None:
    begun = threading.Event()
    inference = make_task("once upon a time", new=200, name="inference", temperature=1.0)
    running = fp32.submit(inference, lambda *_: begun.set())
    assert begun.wait(WAIT)
    check = make_task("prompt and output of somebody else, to be checked", new=2, name="check")
    verified = fp32.submit(check, lambda *_: None).result(WAIT)
    assert len(verified.items[0].finals) == len(verified.items[0].tokens) - 1
    assert not running.done()  # it was answered between two steps of the inference
    running.result(WAIT)
    counts = [sorted(len(span.tokens) for span in spans) for spans in passes]
    assert any(len(each) == 2 and each[0] == 1 < each[1] for each in counts)


def test_a_cancelled_task_frees_its_place(fp32: VllmEngine, make_task: MakeTask) -> None:
    begun = threading.Event()
    long = [make_task(f"long {n}", new=400, name=f"long {n}") for n in range(4)]
    futures = [fp32.submit(task, lambda *_: begun.set()) for task in long]
    assert begun.wait(WAIT)
    for task in long:
        fp32.cancel(task.task_id)
    [trace] = run_all(fp32, make_task("next", new=5, name="next"))
    assert trace.items[0].new_tokens == 5
    assert all(future.cancelled() for future in futures)


def test_a_forward_pass_that_fails_fails_its_tasks_and_the_engine_serves_on(
    fp32: VllmEngine, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("CPU out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(hooks, "_leaving", broken)
        future = fp32.submit(make_task("x", new=8, name="broken"), lambda *_: None)
        assert isinstance(future.exception(WAIT), EngineOutOfMemory)
    [trace] = run_all(fp32, make_task("y", new=8, name="whole"))
    assert trace.items[0].new_tokens == 8


def test_a_whole_job_of_tasks_runs_through_a_small_batch(fp32: VllmEngine) -> None:
    """More items than rows: they wait, and each keeps its number."""
    from verillm.request import Sampling
    from verillm.task import Item
    from verillm.types import Hash32

    items = tuple(
        Item(bytes(32), tuple(range(1, 2 + n)), 3, Sampling(), Hash32(bytes([n]) * 32))
        for n in range(11)
    )
    [trace] = run_all(fp32, local_task(items))
    assert [item.prompt_tokens for item in trace.items] == [len(item.tokens) for item in items]
