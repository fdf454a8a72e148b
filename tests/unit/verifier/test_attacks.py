"""Every named cheat is one deviation: an honest stream and commitment around one lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verillm.engine import Engine, EngineTransform, open_engine
from verillm.engine.config import read_config
from verillm.engine.describe import shipped_profile
from verillm.engine.tiny import TinyEngine, write_folder
from verillm.hashing import sha
from verillm.model import committed_layers
from verillm.request import Sampling
from verillm.statistics import States, compare
from verillm.task import Item, Task
from verillm.trace import Trace, TraceItem, commit
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.attacks.weights import coarse_after, early_exit_after, quantise
from verillm_verifier.replay import Run, local_task, prefill

WAIT = 60
STATE_ATTACKS = (
    "int4", "int8_row", "int8_group", "skipped", "shallow", "tuned", "other_prompt", "perturbed",
    "shuffled", "copied", "garbage",
)  # fmt: skip
TOKEN_ATTACKS = ("prefilled", "temperature", "narrowed", "swapped", "own_seed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("attacks") / "tiny")


@pytest.fixture(scope="module")
def honest(folder: Path) -> Iterator[Engine]:
    engine = TinyEngine(folder, dtype="float32")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def task() -> Task:
    return local_task(
        tuple(
            Item(bytes(32), tuple(f"request number {n}".encode()), 36, Sampling(), sha(bytes([n])))
            for n in range(2)
        )
    )


def run(
    folder: Path, name: str | None, task: Task
) -> tuple[Trace, list[tuple[int, int, int]], tuple[int, ...]]:
    engine = open_engine(folder, kind="tiny", transform=ATTACKS[name] if name else None)
    engine.start()
    seen: list[tuple[int, int, int]] = []
    trace = engine.submit(task, lambda *token: seen.append(token)).result(WAIT)
    engine.close()
    return trace, seen, engine.end_tokens


def agrees(honest: Engine, task: Task, item: TraceItem) -> bool:
    """Whether an honest verifier agrees with the states at every position but the first."""
    profile = shipped_profile("tiny").profile
    seed = task.items[item.item].seed
    [checked] = prefill(honest, [Run(item.tokens, seed)]).items
    places = list(range(len(item.finals) - 24, len(item.finals)))
    mine, theirs = (
        States(tuple(places), part.slices[places], part.finals[places]) for part in (item, checked)
    )
    found = compare([mine], [theirs], profile, [item.prompt_tokens])
    return found.agrees(*profile.refund_tier(len(places), 1))


@pytest.mark.parametrize("name", [None, *STATE_ATTACKS, *TOKEN_ATTACKS, "cut", "padded"])
def test_the_stream_is_the_output_and_the_trace_commits(
    folder: Path, task: Task, name: str | None
) -> None:
    trace, seen, _ = run(folder, name, task)
    commit(trace, task)
    for number, item in enumerate(trace.items):
        assert [(index, token) for at, index, token in seen if at == number] == list(
            enumerate(item.output)
        )


@pytest.mark.parametrize("name", [None, *TOKEN_ATTACKS, "cut"])
def test_states_agree_where_only_tokens_lie(
    folder: Path, honest: Engine, task: Task, name: str | None
) -> None:
    trace, _, _ = run(folder, name, task)
    assert all(agrees(honest, task, item) for item in trace.items)


@pytest.mark.parametrize("name", STATE_ATTACKS)
def test_states_disagree_where_states_lie(
    folder: Path, honest: Engine, task: Task, name: str
) -> None:
    trace, _, _ = run(folder, name, task)
    assert not any(agrees(honest, task, item) for item in trace.items)


@pytest.mark.parametrize("name", TOKEN_ATTACKS)
def test_tokens_are_not_the_honest_ones(folder: Path, task: Task, name: str) -> None:
    lie, truth = run(folder, name, task)[0], run(folder, None, task)[0]
    assert all(
        one.output != other.output for one, other in zip(lie.items, truth.items, strict=True)
    )


def test_a_nucleus_that_was_asked_is_ignored(folder: Path, honest: Engine, task: Task) -> None:
    narrow = Sampling.of(1.0, top_p=0.5)
    asked = replace(task, items=tuple(replace(item, sampling=narrow) for item in task.items))
    lie, truth = run(folder, "widened", asked)[0], run(folder, None, asked)[0]
    assert [item.output for item in lie.items] != [item.output for item in truth.items]
    assert [item.output for item in lie.items] == [
        item.output for item in run(folder, None, task)[0].items
    ]
    assert all(agrees(honest, asked, item) for item in lie.items)


@pytest.mark.parametrize("behind", [early_exit_after, coarse_after])
def test_what_cheats_behind_a_layer_leaves_the_states_before_it_true(
    behind: Callable[[int], EngineTransform], folder: Path, task: Task
) -> None:
    first, depth = committed_layers(read_config(folder).depth)
    engine = open_engine(folder, kind="tiny", transform=behind(first))
    engine.start()
    early = engine.submit(task, lambda *_: None).result(WAIT).items[0]
    engine.close()
    whole = run(folder, None, task)[0].items[0]
    prompt = slice(len(task.items[0].tokens))
    assert first < depth
    assert (early.slices[prompt, 0] == whole.slices[prompt, 0]).all()
    assert (early.finals[prompt] != whole.finals[prompt]).any()


def test_cut_stops_early_and_padded_goes_on_after_the_end(folder: Path, task: Task) -> None:
    cut, _, _ = run(folder, "cut", task)
    assert [item.new_tokens for item in cut.items] == [18, 18]
    long = replace(task, items=tuple(replace(item, max_new_tokens=400) for item in task.items))
    padded, _, end = run(folder, "padded", long)
    assert any(set(item.output[:-1]) & set(end) for item in padded.items)


def test_quantising_keeps_the_shape_and_bounds_the_error() -> None:
    weight = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    for bits, group in ((8, None), (8, 32), (4, 32)):
        coarse = quantise(weight, bits, group)
        assert coarse.shape == weight.shape
        step = np.abs(weight).max() / (2 ** (bits - 1) - 1)
        assert 0 < np.abs(coarse - weight).max() <= step / 2 * 1.001
    assert not quantise(np.zeros((2, 32), np.float32), 8, None).any()
