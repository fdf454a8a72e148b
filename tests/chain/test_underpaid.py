"""A worker's node claims its fee where its job's client signed next to nothing for the work."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chain.test_summons import Work, work
from tests.chain.unposted import UNCLAIMED, UNSEALED
from tests.chain.world import Running, World
from verillm.chain.events import Posted, TaskClaimed, TaskCollected, events_of, stream
from verillm.signing import task_hash
from verillm_node.follow import Follower
from verillm_node.store import Database
from verillm_node.tasks import TaskBook
from verillm_node.wages import Wages


@dataclass
class Desk:
    """A worker's book, its eyes on the chain and its claims."""

    world: World
    run: Running
    found: Work
    database: Database

    def __post_init__(self) -> None:
        worker = self.run.inferencer
        self.chain = self.world.chain(worker.hot)
        self.world.net.rpc("anvil_setBalance", worker.hot.address, hex(10**20))
        self.book = TaskBook(self.database)
        task, event = self.found.submission.task, self.found.commitment
        self.book.open(self.found.submission, task_hash(task))
        self.book.committed(task.task_id, event, self.found.digest)
        self.follower = Follower(self.chain, self.database, self.book)
        runs: Any = SimpleNamespace(outputs=lambda _task: self.found.outputs)
        self.wages = Wages(self.chain, self.world.net.config, runs, self.book, (worker.seat,))

    @property
    def balance(self) -> int:
        return self.chain.account_of(self.run.inferencer.address).balance

    def round(self) -> None:
        self.follower.poll()
        asyncio.run(self.wages.round())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "worker.sqlite")
    yield made
    made.close()


def posted(world: World, database: Database, missing: int) -> Desk:
    """A job whose maxFee is so much less than its work is worth, which its task names."""
    whole = world.draft()
    worth = whole.quote.unit_price * sum(
        len(world.prompt) + len(output) for output in whole.outputs
    )
    run = world.draft(max_fee=worth - missing)
    found = work(world, replace(run.task, fee=2 * worth), run.outputs)
    run.inner, run.commitment = found.commitment.inner, found.digest
    run.worker_signature = found.commitment.signature
    mined = world.send(world.scheduler.account, world.post_call(run))
    run.posting = next(each for each in events_of(mined) if isinstance(each, Posted)).posting
    return Desk(world, run, found, database)


def test_a_worker_whose_job_could_not_pay_claims_its_fee(world: World, database: Database) -> None:
    desk = posted(world, database, missing=1)
    before, config = desk.balance, world.net.config
    desk.round()
    assert not list(stream(desk.chain, (TaskClaimed,)))  # not due yet
    world.net.pass_time(300 + config.seal_window + 1)
    desk.round()
    (claimed,) = stream(desk.chain, (TaskClaimed,))
    assert claimed.event.amount == desk.run.job.max_fee + 1
    contest = world.calls.contest_task(desk.found.digest, desk.run.posting, UNSEALED, UNCLAIMED)
    assert "Underpriced" in str(desk.chain.refusal(contest))
    world.net.pass_time(config.unbonding)
    desk.round()
    (collected,) = stream(desk.chain, (TaskCollected,))
    assert desk.balance - before == collected.event.amount == claimed.event.amount
    desk.round()
    assert not desk.book.unposted(desk.chain.now(), config.seal_window, 10 * config.unbonding)


def test_power_a_worker_whose_job_could_pay_claims_nothing(
    world: World, database: Database
) -> None:
    desk = posted(world, database, missing=0)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    desk.round()
    assert not list(stream(desk.chain, (TaskClaimed,)))
