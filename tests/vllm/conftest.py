"""A small random model of a second architecture, on vLLM and on torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.verillm.engine.conftest import make_task as make_task
from verillm.engine.bits import from_bits
from verillm.engine.torch_engine import TorchEngine
from verillm.engine.vllm.driver import Driver, Span
from verillm.engine.vllm.engine import VllmEngine
from verillm.head import HeadRows
from verillm.sampling import select
from verillm.task import Task
from verillm.trace import Trace

if find_spec("vllm") is not None:  # the models here are tiny; before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
WAIT = 300
HERE = Path(__file__).parent
MakeTask = Callable[..., Task]
SAMPLINGS: tuple[dict[str, float], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 40},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 0.0},
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from verillm.engine.random_model import write_folder

    folder = tmp_path_factory.mktemp("models") / "random-qwen2"
    folder.mkdir()
    return write_folder(folder)


@contextmanager
def serving(engine: VllmEngine | TorchEngine) -> Iterator[Any]:
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def run_all(engine: Any, *tasks: Task) -> list[Trace]:
    futures = [engine.submit(task, lambda *_: None) for task in tasks]
    return [future.result(WAIT) for future in futures]


@pytest.fixture
def tasks(make_task: MakeTask) -> list[Task]:
    """Prompts shorter and longer than a chunk, items of one task, every kind of sampling."""
    return [
        make_task(f"prompt {n} " * (1 + 9 * n), f"second {n}", new=12 + n, name=str(n), **sampling)
        for n, sampling in enumerate(SAMPLINGS)
    ]


def far_apart(one: Trace, other: Trace) -> float:
    """Greatest relative difference of two traces' states, by position."""
    found = []
    for a, b in zip(one.items, other.items, strict=True):
        for x, y in ((a.finals, b.finals), *zip(_layers(a.slices), _layers(b.slices), strict=True)):
            wide, close = from_bits(x), from_bits(y)
            found.append(
                (np.linalg.norm(wide - close, axis=-1) / np.linalg.norm(wide, axis=-1)).max()
            )
    return float(max(found))


def _layers(slices: Any) -> Iterator[Any]:
    return iter(np.moveaxis(slices, 1, 0))


def check_rule(folder: Path, tasks: Sequence[Task], traces: Sequence[Trace]) -> int:
    """Every token is what the reference chooses from the committed state; how many there were."""
    head, count = HeadRows(folder), 0
    for task, trace in zip(tasks, traces, strict=True):
        for given, item in zip(task.items, trace.items, strict=True):
            for position in range(item.prompt_tokens - 1, len(item.tokens) - 1):
                logits = head.logits(from_bits(item.finals[position : position + 1]))[0]
                token = select(logits, given.sampling, given.seed, position)
                assert item.tokens[position + 1] == token, position
                count += 1
    return count


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Span]]:
    """The spans of every forward pass."""
    seen: list[Sequence[Span]] = []
    forward = Driver.forward

    def watched(driver: Driver, spans: Sequence[Span], states: Any) -> None:
        seen.append(spans)
        forward(driver, spans, states)

    monkeypatch.setattr(Driver, "forward", watched)
    return seen


def endless(engine: Any) -> Any:
    """Let every item run to its full length, whatever it says."""
    engine._running()._end_tokens = ()
    return engine
