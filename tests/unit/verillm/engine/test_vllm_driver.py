"""The driver over a stand-in for vLLM that schedules as it does: chunks, batches, preemption.

The stand-in's "states" say whose they are and where, so that a row kept for another request or
position shows. vLLM itself is tested in tests/vllm.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.unit.verillm.engine.conftest import MakeTask
from verillm.engine.bits import from_bits, to_bits
from verillm.engine.generation import Limits
from verillm.engine.vllm import driver, requirements
from verillm.engine.vllm.driver import Driver, Listener, Span
from verillm.engine.vllm.engine import VllmEngine
from verillm.engine.vllm.head import LEAST_SHARE
from verillm.engine.vllm.ranks import Layout
from verillm.engine.vllm.rows import Room
from verillm.errors import (
    AttentionUnsupported,
    DeviceLost,
    EngineMissing,
    EngineOutOfMemory,
    EngineUnavailable,
    EngineVersion,
    InputError,
    ParallelUnsupported,
)
from verillm.model import Shape
from verillm.task import Task
from verillm.trace import Trace
from verillm.types import Bits, Floats, Ints

WAIT = 30
SHAPE = Shape(layers=2, slice_dims=16, hidden=32)
VOCABULARY = 256


def state_of(layer: int, token: int, position: int) -> Bits:
    """A state that names its layer, its token and its position."""
    values = np.full(SHAPE.hidden, layer, np.float32)
    values[::2] = token
    values[1::4] = position % 251
    return to_bits(values)


@dataclass
class Resident:
    """One request inside the stand-in."""

    name: str
    tokens: list[int]
    prompt: int
    most: int
    ends: Sequence[int]
    computed: int = 0


@dataclass
class StandIn:
    """`Serving` without a model; `chunk` tokens a pass, `preempt` says when one starts over."""

    listener: Listener
    chunk: int = 7
    preempt: Callable[[int], bool] = lambda _step: False
    change: Callable[[list[Span]], list[Span]] = lambda spans: spans
    before: Callable[[int], None] = lambda _step: None
    residents: list[Resident] = field(default_factory=list)
    steps: int = 0
    mixed: int = 0
    aborted: list[str] = field(default_factory=list)

    @property
    def head(self) -> StandIn:
        return self

    @property
    def slack(self) -> float:
        return LEAST_SHARE

    def some(self, finals: Bits, rows: Ints, ids: Ints) -> Floats:
        found: Floats = self._logits(finals)[rows, ids]
        return found

    def all(self, final: Bits) -> Floats:
        found: Floats = self._logits(final[None])[0]
        return found

    def _logits(self, finals: Bits) -> Floats:
        """Logits of a state: the likeliest token depends on token and position."""
        wide = from_bits(finals)
        peak = (wide[:, 0] * 31 + wide[:, 1] * 7).astype(np.int64) % VOCABULARY
        away = np.abs(np.arange(VOCABULARY)[None] - peak[:, None])
        logits: Floats = (-away / 4).astype(np.float32)
        return logits

    def add(self, tokens: Sequence[int], most: int, ends: Sequence[int]) -> str:
        name = f"request {self.steps} {len(self.residents)}"
        self.residents.append(Resident(name, list(tokens), len(tokens), most, ends))
        return name

    def abort(self, requests: Sequence[str]) -> None:
        self.aborted += requests
        self.residents = [each for each in self.residents if each.name not in requests]

    def step(self) -> list[str]:
        self.steps += 1
        self.before(self.steps)
        if self.preempt(self.steps) and self.residents:
            self.residents[-1].computed = 0
        budget, spans, running = self.chunk, [], []
        for each in self.residents:
            count = min(budget, len(each.tokens) - each.computed)
            if count:
                tokens = np.array(each.tokens[each.computed : each.computed + count])
                spans.append(Span(each.name, each.computed, tokens))
                running.append(each)
                budget -= count
                each.computed += count
        counts = {min(len(span.tokens), 2) for span in spans}
        self.mixed += counts == {1, 2}
        states = self._states(spans)
        self.listener.forward(self.change(spans), lambda: states)
        ends = np.cumsum([len(span.tokens) for span in spans]) - 1
        finals = states[-1, ends]
        chosen = self.listener.choose(finals, self._logits(finals))
        return [
            each.name
            for each, token in zip(running, chosen, strict=True)
            if self._took(each, token)
        ]

    def _states(self, spans: Sequence[Span]) -> Bits:
        rows = [
            (int(token), span.position + place)
            for span in spans
            for place, token in enumerate(span.tokens)
        ]
        layers = range(SHAPE.layers + 1)
        return np.stack([np.stack([state_of(layer, *row) for row in rows]) for layer in layers])

    def _took(self, each: Resident, token: int) -> bool:
        if each.computed < len(each.tokens):
            return False
        each.tokens.append(token)
        is_over = token in each.ends or len(each.tokens) - each.prompt == each.most
        if is_over:
            self.residents.remove(each)
        return is_over

    def close(self) -> None:
        self.residents.clear()


@dataclass
class Bench:
    """A driver over a stand-in."""

    driver: Driver
    serving: StandIn

    def run(self, *tasks: Task) -> list[Trace]:
        futures = [self.driver.submit(task, lambda *_: None) for task in tasks]
        return [future.result(WAIT) for future in futures]


def bench(limits: Limits | None = None, room: Room | None = None, **options: object) -> Bench:
    made: list[StandIn] = []

    def load(listener: Listener) -> StandIn:
        made.append(StandIn(listener, **options))  # type: ignore[arg-type]
        return made[0]

    made_of = Driver(
        load,
        SHAPE,
        vocabulary=VOCABULARY,
        context=512,
        end_tokens=(0,),
        limits=limits or Limits(rows=4, tokens=512),
        room=room or Room(),
    )
    return Bench(made_of, made[0])


def check_rows(trace: Trace) -> None:
    """Every kept row is that of its own token and position."""
    for item in trace.items:
        assert len(item.finals) == len(item.tokens) - 1
        for position, token in enumerate(item.tokens[:-1]):
            last = state_of(SHAPE.layers, token, position)
            assert np.array_equal(item.finals[position], last), position
            for layer in range(SHAPE.layers):
                seen = set(item.slices[position, layer].tolist())
                assert seen <= set(state_of(layer, token, position).tolist()), position


@pytest.fixture
def tasks(make_task: MakeTask) -> list[Task]:
    prompts = ["a", "a longer prompt that needs several passes", "short", "and one more prompt"]
    return [make_task(p, p[::-1], new=9 + n, name=p) for n, p in enumerate(prompts)]


def test_every_row_is_kept_for_its_own_request_and_position(tasks: list[Task]) -> None:
    town = bench()
    for trace in town.run(*tasks):
        check_rows(trace)
    assert town.serving.mixed  # prefills and decodes shared a pass
    town.driver.close()


def test_who_else_runs_changes_no_token(tasks: list[Task]) -> None:
    crowd, alone = bench(), bench(Limits(rows=1, tokens=512))
    for one, other in zip(crowd.run(*tasks), alone.run(*tasks), strict=True):
        assert [item.tokens for item in one.items] == [item.tokens for item in other.items]
    crowd.driver.close()
    alone.driver.close()


def test_a_preempted_request_gives_the_trace_that_it_gives_undisturbed(tasks: list[Task]) -> None:
    calm, rough = bench(), bench(preempt=lambda step: step % 5 == 4)
    for one, other in zip(calm.run(*tasks), rough.run(*tasks), strict=True):
        check_rows(other)
        assert [item.tokens for item in one.items] == [item.tokens for item in other.items]
    assert rough.serving.steps > calm.serving.steps
    calm.driver.close()
    rough.driver.close()


def test_positions_from_a_cache_fail_the_task_and_no_other(make_task: MakeTask) -> None:
    def skip(spans: list[Span]) -> list[Span]:
        return [
            Span(s.request, s.position + 2, s.tokens) if chr(s.tokens[0]) == "c" else s
            for s in spans
        ]

    town = bench(change=skip)
    cached = town.driver.submit(make_task("cached", name="cached"), lambda *_: None)
    [trace] = town.run(make_task("plain", name="plain"))
    check_rows(trace)
    with pytest.raises(EngineUnavailable, match="prefix caching"):
        cached.result(WAIT)
    town.driver.close()


def test_rows_of_other_tokens_than_the_requests_fail_the_task(make_task: MakeTask) -> None:
    both = threading.Event()

    def swap(spans: list[Span]) -> list[Span]:
        assert both.wait(WAIT)  # else the first could be over before the second is there
        if len(spans) < 2:
            return spans
        first, second, *rest = spans
        return [Span(second.request, second.position, first.tokens), second, *rest]

    town = bench(change=swap)
    futures = [
        town.driver.submit(make_task(prompt, name=prompt), lambda *_: None) for prompt in "ab"
    ]
    both.set()
    errors = [future.exception(WAIT) for future in futures]
    assert any("other tokens" in str(error) for error in errors)
    town.driver.close()


def test_a_cancelled_task_leaves_vllm_and_the_others_go_on(make_task: MakeTask) -> None:
    town = bench()
    begun = threading.Event()
    long = make_task("long", new=400, name="long")
    future = town.driver.submit(long, lambda *_: begun.set())
    assert begun.wait(WAIT)
    town.driver.cancel(long.task_id)
    [trace] = town.run(make_task("next", name="next"))
    check_rows(trace)
    assert future.cancelled()
    assert len(town.serving.aborted) == 1
    town.driver.close()


def test_a_step_that_fails_fails_its_tasks_and_the_next_are_served(make_task: MakeTask) -> None:
    def break_once(step: int) -> None:
        if step == 2:
            raise RuntimeError("CUDA out of memory")

    town = bench(before=break_once)
    broken = town.driver.submit(make_task("x", name="x"), lambda *_: None)
    with pytest.raises(EngineOutOfMemory):
        broken.result(WAIT)
    [trace] = town.run(make_task("y", name="y"))
    check_rows(trace)
    town.driver.close()


def test_an_engine_that_does_not_recover_refuses_everything(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("gone")

    town = bench(before=broken)
    monkeypatch.setattr(town.serving, "abort", broken)
    future = town.driver.submit(make_task("x", name="x"), lambda *_: None)
    assert isinstance(future.exception(WAIT), EngineUnavailable)
    with pytest.raises(EngineUnavailable, match="does not recover"):
        town.driver.submit(make_task("y", name="y"), lambda *_: None).result(WAIT)
    town.driver.close()


def test_states_that_do_not_fit_wait_and_never_fit_fail(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2 * (SHAPE.layers * SHAPE.slice_dims + SHAPE.hidden) * 20
    monkeypatch.setattr(driver, "ROOM_SECONDS", 0.2)
    town = bench(room=Room(memory=size, disk=size))
    tasks = [make_task(f"waits {n}", new=8, name=str(n)) for n in range(6)]
    futures = [town.driver.submit(task, lambda *_: None) for task in tasks]
    while futures:
        check_rows(futures.pop(0).result(WAIT))
    with pytest.raises(EngineOutOfMemory):
        town.run(make_task("too much", new=200, name="large"))
    town.driver.close()


def test_a_task_twice_at_once_and_after_the_end_is_refused(make_task: MakeTask) -> None:
    town = bench()
    task = make_task("x", new=300)
    future = town.driver.submit(task, lambda *_: None)
    with pytest.raises(InputError):
        town.driver.submit(task, lambda *_: None)
    town.driver.close()
    assert isinstance(future.exception(WAIT), EngineUnavailable)
    with pytest.raises(EngineUnavailable):
        town.driver.submit(task, lambda *_: None)


def test_what_keeps_it_from_loading_is_raised_at_start() -> None:
    def load(_listener: Listener) -> StandIn:
        raise EngineOutOfMemory("too large")

    limits = Limits()
    with pytest.raises(EngineOutOfMemory, match="too large"):
        Driver(
            load,
            SHAPE,
            vocabulary=9,
            context=9,
            end_tokens=(),
            limits=limits,
            room=Room(),
        )


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("0.32.0", True), ("0.32.7+cpu", True), ("0.31.9", False), ("0.33.0", False), ("?", False)],
)
def test_only_tested_versions_of_vllm_are_served(version: str, is_tested: bool) -> None:
    if is_tested:
        requirements.check_version("vllm", version)
        return
    with pytest.raises(EngineVersion, match=r">=0\.32,<0\.33") as caught:
        requirements.check_version("vllm", version)
    assert caught.value.code == "engine_version"


def test_a_missing_vllm_is_said_at_start(folder: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "DISTRIBUTIONS", ("no-such-vllm",))
    with pytest.raises(EngineMissing, match="no-such-vllm"):
        VllmEngine(str(folder)).start()


def test_an_attention_backend_outside_the_list_is_said_at_start() -> None:
    requirements.check_attention(None)
    requirements.check_attention("FLASH_ATTN")
    with pytest.raises(AttentionUnsupported, match="FLASHMLA"):
        requirements.check_attention("FLASHMLA")


def test_more_devices_than_there_are_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "version", lambda _name: "0.32.0")
    monkeypatch.setattr(requirements, "count_devices", lambda: 3)
    with pytest.raises(ParallelUnsupported, match="2 devices in 2 stages are 4, and 3 are here"):
        VllmEngine(folder, devices=2, stages=2).start()
    for devices, stages in ((0, 1), (1, -1)):
        with pytest.raises(ParallelUnsupported, match="count from 1"):
            VllmEngine(folder, devices=devices, stages=stages).start()


@pytest.mark.parametrize(
    ("devices", "stages", "said"),
    [
        (3, 1, "4 attention heads"),
        (8, 1, "4 attention heads"),
        (1, 13, "12 layers in 13 stages"),
        (4, 12, None),
        (2, 1, None),
        (1, 1, None),
    ],
)
def test_a_model_that_does_not_split_so_is_refused(
    tmp_path: Path, devices: int, stages: int, said: str | None
) -> None:
    sizes = {"model_type": "qwen2", "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 12, "intermediate_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    if said is None:
        requirements.check_split(tmp_path, Layout(devices, stages))
        return
    with pytest.raises(ParallelUnsupported, match=said) as caught:
        requirements.check_split(tmp_path, Layout(devices, stages))
    assert caught.value.code == "parallel_unsupported"


def test_losing_a_device_fails_what_runs_though_the_step_never_ends(make_task: MakeTask) -> None:
    stuck, free = threading.Event(), threading.Event()

    def hang(_step: int) -> None:
        stuck.set()
        assert free.wait(WAIT)

    town = bench(before=hang)
    futures = [
        town.driver.submit(make_task(prompt, name=prompt), lambda *_: None) for prompt in "ab"
    ]
    assert stuck.wait(WAIT)
    town.driver.lost(DeviceLost("rank 1 ended"))
    for future in futures:
        assert isinstance(future.exception(WAIT), DeviceLost)
    with pytest.raises(DeviceLost):
        town.driver.submit(make_task("y", name="y"), lambda *_: None)
    free.set()
    town.driver.close()


def test_an_engine_closes_though_its_step_never_ends(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, free = threading.Event(), threading.Event()

    def hang(_step: int) -> None:
        stuck.set()
        assert free.wait(WAIT)

    monkeypatch.setattr(driver, "STUCK_SECONDS", 0.1)
    town = bench(before=hang)
    town.driver.submit(make_task("x", name="x"), lambda *_: None)
    assert stuck.wait(WAIT)
    town.driver.lost(DeviceLost("rank 1 ended"))
    town.driver.close()  # returns
    free.set()


def test_losing_a_device_while_loading_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(driver, "STUCK_SECONDS", 0.1)

    def load(listener: Listener) -> StandIn:
        listener.lost(DeviceLost("rank 1 ended"))
        assert free.wait(WAIT)
        return StandIn(listener)

    with pytest.raises(DeviceLost, match="rank 1"):
        Driver(load, SHAPE, vocabulary=9, context=9, end_tokens=(), limits=Limits(), room=Room())
    free.set()
