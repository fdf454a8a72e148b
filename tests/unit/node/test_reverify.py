"""What a worker takes from a second round: openings that the chain checked, and nothing else."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from verillm.chain import artifacts
from verillm.errors import WorkerFailed
from verillm_node import reverify
from verillm_node.reverify import due_comparisons, served

ADJUDICATOR = "0x" + "Ad" * 20
SERVE = artifacts.functions("Adjudicator")["serve"].selector


def _view(*events: object) -> Any:
    at = [SimpleNamespace(event=event, transaction=bytes(32)) for event in events]
    history = SimpleNamespace(all=lambda kind: at if kind.__name__ == "PositionServed" else [])
    return SimpleNamespace(history=history, sealing=SimpleNamespace(committee=(None,) * 4))


def test_calldata_of_another_contract_is_passed_over_whatever_it_holds() -> None:
    view = _view(SimpleNamespace(party=1, checked_index=0, position_index=0))
    sent = {"to": "0x" + "ba" * 20, "input": "0x" + (SERVE + b"garbage").hex()}
    deployment = SimpleNamespace(adjudicator=ADJUDICATOR)
    chain: Any = SimpleNamespace(request=lambda *_: sent, deployment=deployment)
    assert served(chain, view) == {}


def test_a_position_that_nobody_opened_needs_no_comparison_and_hides_no_other() -> None:
    round_: Any = SimpleNamespace(view=_view(), lengths={0: None}, where=lambda place: (3, 4))
    shown: Any = {(party, 0, 1): None for party in (0, 1)}
    assert due_comparisons(round_, shown, 2) == [(0, 1, (0, 1))]


@dataclass
class Slow:
    """A worker whose runs end when they are told to."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[bytes] = field(default_factory=list)

    async def rerun(self, task: Any) -> bytes:
        self.started.append(task.task_id)
        await self.end.wait()
        if task.task_id == b"fails":
            raise WorkerFailed("out of memory")
        return bytes(task.task_id)


async def test_long_runs_go_on_beside_each_other_and_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reverify, "PATIENCE", 0.001)
    nobody: Any = None
    worker: Any = Slow()
    node = reverify.Reverifier(nobody, nobody, worker, nobody, None)
    tasks: list[Any] = [SimpleNamespace(task_id=each) for each in (b"one", b"two", b"fails")]
    for _ in range(2):
        assert [await node._run(task) for task in tasks] == [None, None, None]
    assert worker.started == [b"one", b"two", b"fails"]
    worker.end.set()
    done: list[Any] = [await node._run(task) for task in tasks[:2]]
    assert done == [b"one", b"two"]
    for _ in range(2):  # and is tried again
        with pytest.raises(WorkerFailed):
            await node._run(tasks[2])
    assert worker.started == [b"one", b"two", b"fails", b"fails"]


async def test_runs_that_ended_after_their_job_are_let_go_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reverify, "PATIENCE", 0.001)
    chain: Any = SimpleNamespace(
        block=lambda: SimpleNamespace(number=7), deployment=SimpleNamespace(block=8)
    )
    worker: Any = Slow()
    nobody: Any = None
    node = reverify.Reverifier(chain, nobody, worker, nobody, None)
    caplog.set_level("INFO")
    for each in (b"one", b"fails"):
        task: Any = SimpleNamespace(task_id=each)
        assert await node._run(task) is None
    await node.round()
    assert len(node._running) == 2
    worker.end.set()
    await asyncio.wait(node._running.values())
    await node.round()
    assert node._running == {}
    assert [record.message for record in caplog.records] == ["rerun_in_vain"]
