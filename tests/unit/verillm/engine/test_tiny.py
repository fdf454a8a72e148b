"""The running batch, on the tiny model: every property holds for the real engine too."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.verillm.engine.conftest import MakeTask
from verillm.engine.tiny import TinyEngine, tiny_spec
from verillm.errors import (
    EngineUnavailable,
    InputError,
    NonFiniteLogits,
    PromptTooLong,
    SamplingError,
    TokensOutOfBounds,
)
from verillm.head import HeadRows
from verillm.request import Sampling
from verillm.sampling import select, slice_dimensions
from verillm.statistics import to_floats
from verillm.task import Task
from verillm.trace import Trace, TraceItem, commit
from verillm.types import TaskId

WAIT = 60


def run(engine: TinyEngine, task: Task) -> Trace:
    return engine.submit(task, lambda _item, _index, _token: None).result(WAIT)


def outputs(trace: Trace) -> list[tuple[int, ...]]:
    return [item.output for item in trace.items]


def same(one: TraceItem, other: TraceItem) -> bool:
    return (
        one.tokens == other.tokens
        and np.array_equal(one.slices, other.slices)
        and np.array_equal(one.finals, other.finals)
    )


def test_trace_holds_every_position_and_commits(engine: TinyEngine, make_task: MakeTask) -> None:
    task = make_task("one prompt", "another, longer prompt", new=9)
    trace = run(engine, task)
    for item, given in zip(trace.items, task.items, strict=True):
        positions = len(given.tokens) + item.new_tokens - 1
        assert item.tokens[: len(given.tokens)] == given.tokens
        assert item.slices.shape == (positions, engine.spec_shape.layers, 64)
        assert item.finals.shape == (positions, engine.spec_shape.hidden)
    assert commit(trace, task).inner.new_tokens == sum(map(len, outputs(trace)))


def test_every_token_is_selected_from_the_committed_state(
    engine: TinyEngine, make_task: MakeTask, folder: Path
) -> None:
    head = HeadRows(folder)
    for sampling in ({}, {"temperature": 0.0}, {"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}):
        task = make_task("a prompt", new=20, name=str(sampling), **sampling)
        item, given = run(engine, task).items[0], task.items[0]
        first = len(given.tokens) - 1
        logits = head.logits(to_floats(item.finals[first:]))
        chosen = [
            select(row, given.sampling, given.seed, first + at) for at, row in enumerate(logits)
        ]
        assert chosen == list(item.output)


def test_slices_are_the_seed_chosen_dimensions(
    folder: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task("a prompt", new=4)
    whole = TinyEngine(folder)
    whole.start()
    full = run(whole, task).items[0]
    whole.close()
    monkeypatch.setattr("verillm.engine.config.slice_dims_of", lambda _hidden: 16)
    narrow = TinyEngine(folder)
    narrow.start()
    part = run(narrow, task).items[0]
    narrow.close()
    for ordinal in range(full.slices.shape[1]):
        chosen = slice_dimensions(task.items[0].seed, ordinal, 64, 16)
        assert np.array_equal(part.slices[:, ordinal], full.slices[:, ordinal][:, chosen])


def test_a_task_gives_the_same_trace_alone_and_in_a_crowd(
    engine: TinyEngine, make_task: MakeTask
) -> None:
    tasks = [make_task(f"prompt {n}", f"{n} again", new=5 + 3 * n, name=str(n)) for n in range(6)]
    alone = [run(engine, task) for task in tasks]
    futures = [engine.submit(task, lambda _item, _index, _token: None) for task in tasks]
    for single, future in zip(alone, futures, strict=True):
        crowded = future.result(WAIT)
        assert all(same(*pair) for pair in zip(single.items, crowded.items, strict=True))


def test_tokens_are_announced_once_each_in_order(engine: TinyEngine, make_task: MakeTask) -> None:
    seen: list[tuple[int, int, int]] = []
    trace = engine.submit(
        make_task("x", "y", new=8), lambda item, index, token: seen.append((item, index, token))
    ).result(WAIT)
    for number, item in enumerate(trace.items):
        announced = [(index, token) for at, index, token in seen if at == number]
        assert announced == list(enumerate(item.output))


def test_an_end_token_ends_the_item_and_is_its_last(
    folder: Path, tmp_path: Path, make_task: MakeTask
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [10, 65, 88, 198]}))
    engine = TinyEngine(copy)
    assert engine.end_tokens == (0, 10, 65, 88, 198)
    engine.start()
    trace = run(engine, make_task(*(f"prompt {n}" for n in range(4)), new=300))
    engine.close()
    ended = [output for output in outputs(trace) if len(output) < 300]
    assert ended
    assert all(output[-1] in engine.end_tokens for output in ended)
    assert not any(set(output[:-1]) & set(engine.end_tokens) for output in outputs(trace))


def test_a_verifiers_prefill_agrees_with_the_decode(
    engine: TinyEngine, make_task: MakeTask
) -> None:
    task = make_task("a prompt", new=30)
    decoded, given = run(engine, task).items[0], task.items[0]
    checked = replace(given, tokens=decoded.tokens[:-1], max_new_tokens=1)
    prefilled = run(engine, replace(task, items=(checked,))).items[0]
    assert prefilled.finals.shape == decoded.finals.shape
    x, y = to_floats(decoded.finals), to_floats(prefilled.finals)
    assert np.linalg.norm(x - y) < 0.01 * np.linalg.norm(y)


def test_dtypes_differ_as_honest_machines_do(folder: Path, make_task: MakeTask) -> None:
    task = make_task("a prompt", new=1)
    finals = []
    for dtype in ("bfloat16", "float32"):
        engine = TinyEngine(folder, dtype=dtype)
        engine.start()
        finals.append(to_floats(run(engine, task).items[0].finals))
        engine.close()
    apart = np.linalg.norm(finals[0] - finals[1]) / np.linalg.norm(finals[1])
    assert 0.001 < apart < 0.05


def test_an_error_in_a_callback_fails_that_task_only(
    engine: TinyEngine, make_task: MakeTask
) -> None:
    def break_off(_item: int, index: int, _token: int) -> None:
        if index == 3:
            raise RuntimeError("the client is gone")

    good = engine.submit(make_task("good", new=20, name="good"), lambda *_: None)
    bad = engine.submit(make_task("bad", new=20, name="bad"), break_off)
    with pytest.raises(RuntimeError, match="the client is gone"):
        bad.result(WAIT)
    assert len(good.result(WAIT).items[0].output) == 20


def test_states_that_are_not_finite_fail_the_task(folder: Path, make_task: MakeTask) -> None:
    engine = TinyEngine(
        folder, weights=lambda name, weight: weight * np.float32("nan" if "norm" in name else 1)
    )
    engine.start()
    with pytest.raises(NonFiniteLogits):
        run(engine, make_task("a prompt"))
    engine.close()


def test_a_cancelled_task_leaves_and_others_go_on(engine: TinyEngine, make_task: MakeTask) -> None:
    begun = threading.Event()
    doomed = make_task("doomed", new=400, name="doomed", temperature=0.0)
    gone = engine.submit(doomed, lambda _item, index, _token: begun.set() if index > 2 else None)
    other = engine.submit(make_task("other", new=30, name="other"), lambda *_: None)
    assert begun.wait(WAIT)
    engine.cancel(doomed.task_id)
    with pytest.raises(CancelledError):
        gone.result(WAIT)
    assert other.result(WAIT).items[0].new_tokens == 30
    engine.cancel(TaskId(doomed.task_id))


def test_closing_fails_what_runs_and_refuses_what_comes(folder: Path, make_task: MakeTask) -> None:
    engine = TinyEngine(folder)
    engine.start()
    running = engine.submit(make_task("x", new=400, temperature=0.0), lambda *_: None)
    engine.close()
    engine.close()
    with pytest.raises(EngineUnavailable):
        running.result(WAIT)
    with pytest.raises(EngineUnavailable):
        engine.submit(make_task("y"), lambda *_: None)


def test_an_engine_that_was_not_started_refuses(folder: Path, make_task: MakeTask) -> None:
    with pytest.raises(EngineUnavailable):
        TinyEngine(folder).submit(make_task("x"), lambda *_: None)


def test_bad_tasks_are_refused_at_once(engine: TinyEngine, make_task: MakeTask) -> None:
    good = make_task("x", new=5)
    item = good.items[0]
    bad = {
        PromptTooLong: replace(item, max_new_tokens=512),
        TokensOutOfBounds: replace(item, tokens=(256,)),
        SamplingError: replace(item, sampling=Sampling(temperature=3_000_000)),
    }
    for error, broken in bad.items():
        with pytest.raises(error):
            engine.submit(replace(good, items=(broken,)), lambda *_: None)
    with pytest.raises(TokensOutOfBounds):
        engine.submit(replace(good, items=(replace(item, tokens=()),)), lambda *_: None)
    with pytest.raises(TokensOutOfBounds):
        engine.submit(replace(good, items=(replace(item, max_new_tokens=0),)), lambda *_: None)
    with pytest.raises(InputError):
        engine.submit(replace(good, items=()), lambda *_: None)


def test_a_task_that_runs_is_not_taken_twice(engine: TinyEngine, make_task: MakeTask) -> None:
    task = make_task("x", new=200, temperature=0.0)
    first = engine.submit(task, lambda *_: None)
    with pytest.raises(InputError):
        engine.submit(task, lambda *_: None)
    first.cancel()


def test_a_folder_that_is_no_model_is_refused_before_it_serves(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable):
        TinyEngine(tmp_path).start()


def test_the_shipped_spec_is_that_of_the_folder(folder: Path) -> None:
    spec = tiny_spec(folder)
    assert (spec.vocabulary, spec.hidden, spec.committed_layers) == (256, 64, (8, 16))
    assert spec.end_tokens == (0,)
    assert spec.token_proof
