"""A worker's node claims its fee where its job's client signed next to nothing for the work."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chain.test_summons import Work, verification, work
from tests.chain.unposted import UNCLAIMED, UNSEALED
from tests.chain.world import PRICE, Operator, Running, World
from verillm.chain.events import Posted, TaskClaimed, TaskCollected, events_of, stream
from verillm.signing import task_hash
from verillm.task import inner_hash
from verillm.types import Hash32
from verillm_node.follow import Follower
from verillm_node.store import Database
from verillm_node.tasks import TaskBook
from verillm_node.wages import Wages

WORTH = 7 * PRICE
"""Of the inferencer's work: three tokens of the prompt and four of the output."""
TEXT = 6 * PRICE
"""Of what a member reads: all but the last of them."""


@dataclass
class Desk:
    """A worker's book, its eyes on the chain and its claims."""

    world: World
    run: Running
    worker: Operator
    found: Work
    database: Database

    def __post_init__(self) -> None:
        worker = self.worker
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
        return self.chain.account_of(self.worker.address).balance

    def round(self) -> None:
        self.follower.poll()
        asyncio.run(self.wages.round())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "worker.sqlite")
    yield made
    made.close()


def posted(world: World, max_fee: int) -> tuple[Running, Work]:
    """A job whose task names more than its client signed."""
    run = world.draft(max_fee=max_fee)
    found = work(world, replace(run.task, fee=2 * WORTH), run.outputs)
    run.inner, run.commitment = found.commitment.inner, found.digest
    run.worker_signature = found.commitment.signature
    mined = world.send(world.scheduler.account, world.post_call(run))
    run.posting = next(each for each in events_of(mined) if isinstance(each, Posted)).posting
    return run, found


def drawn(world: World, run: Running, monkeypatch: pytest.MonkeyPatch) -> tuple[Operator, Work]:
    """The job's first member, sealed with what it made of its task."""
    member, others = world.committee(run)[0], world.verified
    task = verification(world, run, member.address, 1)
    found = work(world, replace(task, fee=2 * WORTH), ((9,),))

    def verified(run: Running, k: int, by: Operator) -> Hash32:
        return inner_hash(found.commitment.inner) if k == 1 else others(run, k, by)

    monkeypatch.setattr(world, "verified", verified)
    world.seal(run)
    return member, found


@pytest.mark.parametrize("sealed", [False, True])
def test_a_worker_whose_job_could_not_pay_claims_its_fee(
    world: World, database: Database, sealed: bool
) -> None:
    run, found = posted(world, WORTH - 1)
    if sealed:
        world.seal(run)
    desk = Desk(world, run, run.inferencer, found, database)
    before, config = desk.balance, world.net.config
    desk.round()
    assert not list(stream(desk.chain, (TaskClaimed,)))  # not due yet
    world.net.pass_time(300 + config.seal_window + 1)
    desk.round()
    (claimed,) = stream(desk.chain, (TaskClaimed,))
    assert claimed.event.amount == desk.run.job.max_fee + 1
    record = desk.run.posting, desk.run.sealing if sealed else UNSEALED, UNCLAIMED
    contest = world.calls.contest_task(desk.found.digest, *record)
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
    run, found = posted(world, WORTH)
    desk = Desk(world, run, run.inferencer, found, database)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    desk.round()
    assert not list(stream(desk.chain, (TaskClaimed,)))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_member_claims_its_fee_where_its_job_could_not_pay_for_the_text(
    world: World, database: Database, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    run, _ = posted(world, TEXT - missing)
    desk = Desk(world, run, *drawn(world, run, monkeypatch), database)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    desk.round()
    assert len(list(stream(desk.chain, (TaskClaimed,)))) == missing
    if missing:
        contest = world.calls.contest_task(
            desk.found.digest, desk.run.posting, desk.run.sealing, UNCLAIMED
        )
        assert "Underpriced" in str(desk.chain.refusal(contest))
