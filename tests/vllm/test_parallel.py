"""One model over several processes: tensor parallel, pipeline parallel, and ranks that are lost.

Ranks are processes on this machine's processor; more of them than cores where a model's heads ask
for it, which is slow and no other than what several devices do.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.unit.verillm.engine.test_vllm_ranks import is_gone
from tests.vllm.conftest import WAIT, MakeTask, check_rule, endless, far_apart, run_all, serving
from verillm.engine import random_model
from verillm.engine.describe import shipped_profile
from verillm.engine.prepare import default_folder
from verillm.engine.torch_engine import TorchEngine
from verillm.engine.vllm import ranks as ranks_module, requirements
from verillm.engine.vllm.engine import VllmEngine
from verillm.engine.vllm.ranks import Ranks
from verillm.errors import DeviceLost, EngineOutOfMemory
from verillm.model import committed_layers
from verillm.task import Task
from verillm.trace import Trace
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.calibrate import state_table
from verillm_verifier.calibrate_states import compare_all
from verillm_verifier.runs import Decode, Plan, Setup, check, decode, items_of

pytestmark = [
    pytest.mark.timeout(600),
    # What vLLM calls of torch over sockets, and what it sends from stage to stage.
    pytest.mark.filterwarnings(r"ignore:`torch\.distributed\.:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning"),
]


@pytest.fixture(autouse=True)
def enough_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "count_devices", lambda: 4)


def started(folder: Path, **options: object) -> VllmEngine:
    return VllmEngine(folder, max_batch=4, max_tokens=2048, chunk=32, **options)  # type: ignore[arg-type]


def ranks_of(engine: VllmEngine) -> Ranks:
    ranks: Ranks = engine._running()._serving._ranks  # type: ignore[attr-defined]
    return ranks


def same_tokens(one: list[Trace], other: list[Trace]) -> bool:
    return [[item.tokens for item in trace.items] for trace in one] == [
        [item.tokens for item in trace.items] for trace in other
    ]


def test_two_devices_serve_the_torch_engines_traces_until_one_is_lost(
    qwen: Path, tasks: list[Task], make_task: MakeTask
) -> None:
    """One engine for all of it, since a start takes as long as the rest."""
    with serving(TorchEngine(qwen, dtype="float32")) as torch_engine:
        expected = run_all(endless(torch_engine), *tasks)
    with serving(started(qwen, dtype="float32", devices=2)) as engine:
        ranks = ranks_of(endless(engine))
        found = run_all(engine, *tasks)
        assert same_tokens(expected, found)
        assert max(map(far_apart, expected, found)) < 0.002
        assert check_rule(qwen, tasks, found) > 100

        begun = threading.Event()
        long = make_task("abandoned", new=400, name="long")
        abandoned = engine.submit(long, lambda *_: begun.set())
        assert begun.wait(WAIT)
        engine.cancel(long.task_id)
        for process in ranks.processes.values():
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(process, number)  # what a terminal or a service manager sends to all
        [again] = run_all(engine, tasks[0])
        assert again.items[0].tokens == found[0].items[0].tokens
        assert abandoned.cancelled()

        begun.clear()
        running = engine.submit(make_task("lost", new=400, name="lost"), lambda *_: begun.set())
        assert begun.wait(WAIT)
        os.kill(ranks.processes[1], signal.SIGKILL)
        assert isinstance(error := running.exception(WAIT), DeviceLost)
        assert "rank 1 ended with -9" in str(error)
        with pytest.raises(DeviceLost):
            engine.submit(make_task("refused", name="refused"), lambda *_: None)
    assert all(is_gone(process) for process in ranks.processes.values())


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose first of three stages has a committed layer, which the second must hand on."""
    monkeypatch.setitem(random_model.SIZES, "num_hidden_layers", 24)
    assert committed_layers(24)[0] <= 24 // 3
    return random_model.write_folder(tmp_path)


def test_three_stages_serve_one_devices_traces_bit_for_bit_until_one_hangs(
    deep: Path, tasks: list[Task], make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(started(deep)) as engine:
        expected = run_all(endless(engine), *tasks)
    with serving(started(deep, stages=3)) as engine:
        ranks = ranks_of(endless(engine))
        found = run_all(engine, *tasks)
        for one, other in zip(expected, found, strict=True):
            for a, b in zip(one.items, other.items, strict=True):
                assert a.tokens == b.tokens
                assert np.array_equal(a.slices, b.slices)
                assert np.array_equal(a.finals, b.finals)

        monkeypatch.setattr(ranks_module, "STEP_SECONDS", 5.0)
        begun = threading.Event()
        running = engine.submit(make_task("hung", new=400, name="hung"), lambda *_: begun.set())
        assert begun.wait(WAIT)
        os.kill(ranks.processes[0], signal.SIGSTOP)
        assert isinstance(error := running.exception(WAIT), DeviceLost)
        assert "over 5 seconds" in str(error)
    assert all(is_gone(process) for process in ranks.processes.values())


def test_two_stages_of_two_devices_serve_the_torch_engines_traces(
    qwen: Path, tasks: list[Task]
) -> None:
    with serving(TorchEngine(qwen, dtype="float32")) as torch_engine:
        expected = run_all(endless(torch_engine), *tasks[:2])
    with serving(started(qwen, dtype="float32", devices=2, stages=2)) as engine:
        found = run_all(endless(engine), *tasks[:2])
        processes = ranks_of(engine).processes
    assert same_tokens(expected, found)
    assert max(map(far_apart, expected, found)) < 0.002
    assert all(is_gone(process) for process in processes.values())


def test_what_does_not_fit_is_said_at_start_and_the_next_start_succeeds(
    qwen: Path, make_task: MakeTask
) -> None:
    with pytest.raises(EngineOutOfMemory):
        VllmEngine(qwen, devices=2, max_batch=2, max_tokens=10**9).start()
    with serving(started(qwen)) as engine:
        [trace] = run_all(endless(engine), make_task("x", new=4))
    assert trace.items[0].new_tokens == 4


@pytest.fixture
def plan() -> Plan:
    return Plan(default_folder(), "torch", prompts=4, new_tokens=24)


@pytest.mark.model
@pytest.mark.parametrize(
    ("setup", "cheat"),
    [
        (Setup("three devices", kind="vllm", devices=3), None),
        (Setup("int4 on two stages", kind="vllm", stages=2), "int4"),
    ],
    ids=lambda value: value.name if isinstance(value, Setup) else str(value),
)
def test_a_torch_verifier_accepts_honest_work_and_rejects_int4(
    plan: Plan, setup: Setup, cheat: str | None
) -> None:
    """Under the profile of mixed networks; the default model's nine heads split by three."""
    profile = shipped_profile(f"{plan.folder.name}-mixed").profile
    items = items_of(plan)
    jobs = decode(plan, setup, ATTACKS[cheat] if cheat else None, items)
    checks = {"torch bf16": check(plan, Setup("torch bf16"), items, jobs)}
    decodes = [Decode(setup.name, cheat is None, jobs, checks)]
    compared = compare_all(decodes, [layer.scale for layer in profile.layers])
    [line] = state_table(compared, profile, 32, plan.seed)
    assert (line["refund"], line["slash"]) == ((0, 0) if cheat is None else (1, 1)), line
