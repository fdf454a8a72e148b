"""The engine, the shipped profile and the verdict on the real default model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from verillm.engine import Engine, EngineTransform, open_engine
from verillm.engine.describe import check_folder, describe, shipped_profile
from verillm.engine.prepare import MODEL_NAME, default_folder, is_prepared
from verillm.evidence import CheckedRequest, Evidence, PartyStates
from verillm.head import HeadRows
from verillm.model import ModelSpec, check_spec
from verillm.statistics import States, compare
from verillm.task import Task
from verillm.tokens import Generated, token_statistics
from verillm.trace import Trace
from verillm.types import Hash32, JobId, Outcome, Reason, TaskId
from verillm.verdict import Verdict, judge
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.replay import Run, local_task, prefill, replay
from verillm_verifier.runs import Plan, items_of

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not is_prepared(default_folder(), full=False), reason="make model first"),
]
WAIT = 240
JOBS = (1, 7, 28)
NEW_TOKENS = 20
Open = Callable[..., Engine]


@pytest.fixture(scope="module")
def folder() -> Path:
    return default_folder()


@pytest.fixture(scope="module")
def spec(folder: Path) -> ModelSpec:
    calibrated = shipped_profile(MODEL_NAME)
    return describe(folder, calibrated.profile, name=MODEL_NAME, terms=calibrated.terms)


@pytest.fixture(scope="module")
def head(folder: Path) -> HeadRows:
    return HeadRows(folder)


@pytest.fixture(scope="module")
def engines(folder: Path) -> Iterator[Open]:
    """Engines by their options, each loaded once for the module."""
    opened: dict[str, Engine] = {}
    with ExitStack() as stack:

        def get(**options: Any) -> Engine:
            name = repr(sorted(options.items(), key=str))
            if name not in opened:
                opened[name] = open_engine(folder, **options)
                opened[name].start()
                stack.callback(opened[name].close)
            return opened[name]

        yield get


@pytest.fixture(scope="module")
def task(folder: Path) -> Task:
    items = items_of(Plan(folder, new_tokens=NEW_TOKENS))
    return local_task(tuple(items[number] for number in JOBS))


@pytest.fixture(scope="module")
def verifiers(engines: Open) -> tuple[Engine, ...]:
    return engines(), engines(dtype="float32"), engines(chunk=16)


def run(engine: Engine, task: Task) -> Trace:
    return engine.submit(task, lambda _item, _index, _token: None).result(WAIT)


def checked_of(task: Task, trace: Trace, spec: ModelSpec) -> tuple[CheckedRequest, ...]:
    """Check every item, at positions spread over it, the last among them."""
    return tuple(
        CheckedRequest(
            number,
            given.request,
            item.output,
            given.seed,
            tuple(sorted({*range(1, last, max(1, last // spec.positions)), last})),
        )
        for number, (given, item) in enumerate(zip(task.items, trace.items, strict=True))
        if (last := len(item.tokens) - 2)
    )


def shown(trace: Trace, checked: tuple[CheckedRequest, ...]) -> PartyStates:
    states = tuple(
        States(each.positions, item.slices[list(each.positions)], item.finals[list(each.positions)])
        for each, item in zip(checked, trace.items, strict=True)
    )
    generated = tuple(
        item.finals[each.generated.start :] for each, item in zip(checked, trace.items, strict=True)
    )
    return PartyStates(states, generated)


def judged(
    task: Task, trace: Trace, verifiers: tuple[Engine, ...], spec: ModelSpec, head: HeadRows
) -> Verdict:
    checked = checked_of(task, trace, spec)
    parties = (shown(trace, checked), *(replay(engine, checked) for engine in verifiers))
    return judge(Evidence(JobId(Hash32(bytes(32))), spec, checked, parties), head)


def test_the_folder_is_the_described_model(folder: Path, spec: ModelSpec) -> None:
    check_spec(spec)
    check_folder(folder, spec)
    assert spec.committed_layers == (8, 16, 24)
    assert (spec.vocabulary, spec.hidden, spec.slice_dims) == (49152, 576, 256)
    assert spec.end_tokens == (2,)


def test_joining_and_leaving_changes_no_token_in_float32(engines: Open, task: Task) -> None:
    engine = engines(dtype="float32")
    tasks = [
        replace(
            task,
            task_id=TaskId(Hash32(bytes([number]) * 32)),
            items=(replace(item, max_new_tokens=6 + 7 * number),),
        )
        for number, item in enumerate(task.items)
    ]
    alone = [run(engine, each) for each in tasks]
    together = [engine.submit(each, lambda _item, _index, _token: None) for each in tasks]
    for one, future in zip(alone, together, strict=True):
        assert one.items[0].tokens == future.result(WAIT).items[0].tokens


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_other_thread_counts_change_no_bit(engines: Open, task: Task, dtype: str) -> None:
    """So calibrations run on as many as there are: more kinds of workers would be the same kind."""
    one, *others = [engines(dtype=dtype, threads=threads) for threads in (1, 2, 3)]
    decoded = run(one, task)
    again = [
        Run(done.tokens, given.seed) for done, given in zip(decoded.items, task.items, strict=True)
    ]
    prefilled = prefill(one, again)
    for engine in others:
        for expected, found in ((decoded, run(engine, task)), (prefilled, prefill(engine, again))):
            for here, there in zip(expected.items, found.items, strict=True):
                assert here.tokens == there.tokens
                assert (here.slices == there.slices).all() and (here.finals == there.finals).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_honest_decode_agrees_with_every_prefill(
    engines: Open, task: Task, spec: ModelSpec, verifiers: tuple[Engine, ...], dtype: str
) -> None:
    trace = run(engines(dtype=dtype), task)
    checked = checked_of(task, trace, spec)
    mine, prompts = shown(trace, checked).states, [each.prompt_tokens for each in checked]
    for engine in verifiers:
        theirs = replay(engine, checked).states
        assert mine is not None
        assert theirs is not None
        found = compare(mine, theirs, spec.profile, prompts)
        assert found.agrees(
            *spec.profile.refund_tier(found.cells // len(spec.profile.layers), len(mine))
        ), found


def test_tokens_follow_from_the_committed_states(
    engines: Open, task: Task, spec: ModelSpec, head: HeadRows
) -> None:
    trace = run(engines(), task)
    outputs = [
        Generated(
            item.prompt_tokens,
            item.output,
            given.sampling,
            given.seed,
            (item.finals[item.prompt_tokens - 1 :],),
        )
        for item, given in zip(trace.items, task.items, strict=True)
    ]
    found = token_statistics(outputs, head, replace(spec.profile, mass_epsilon=100))
    assert max(found.margins) < 1_000  # only the order of a sum of 576 products differs
    assert not found.outside


def test_an_honest_job_is_accepted(
    engines: Open, task: Task, spec: ModelSpec, head: HeadRows, verifiers: tuple[Engine, ...]
) -> None:
    verdict = judged(task, run(engines(), task), verifiers, spec, head)
    assert (verdict.outcome, verdict.reason) == (Outcome.ACCEPT, Reason.NONE)
    assert not verdict.suspects


MARGINS = {Reason.MARGIN_MAX, Reason.MARGIN_MEAN, Reason.OUTSIDE_NUCLEUS}


@pytest.mark.parametrize(
    ("name", "outcomes", "reasons"),
    [
        ("int4", {Outcome.SLASH}, {Reason.STATES_DIFFER}),
        ("int8_row", {Outcome.SLASH, Outcome.REFUND}, {Reason.STATES_DIFFER}),
        ("perturbed", {Outcome.SLASH, Outcome.REFUND}, {Reason.STATES_DIFFER}),
        ("prefilled", {Outcome.SLASH}, MARGINS),
        ("temperature", {Outcome.SLASH, Outcome.REFUND}, MARGINS),
    ],
)
def test_a_cheat_is_rejected_for_its_reason(
    folder: Path,
    engines: Open,
    task: Task,
    spec: ModelSpec,
    head: HeadRows,
    verifiers: tuple[Engine, ...],
    name: str,
    outcomes: set[Outcome],
    reasons: set[Reason],
) -> None:
    def cheating(attack: EngineTransform) -> Engine:
        return attack(lambda weights: engines() if weights is None else load(weights))

    def load(weights: Any) -> Engine:
        engine = open_engine(folder, transform=lambda make: make(weights))
        engine.start()
        return engine

    engine = cheating(ATTACKS[name])
    verdict = judged(task, run(engine, task), verifiers, spec, head)
    assert verdict.outcome in outcomes
    assert verdict.reason in reasons
