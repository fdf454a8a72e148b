"""A scheduler answers claims on its stake by itself: by the job that says otherwise, or a trial."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chain.test_summons import Work, claim, work
from tests.chain.world import Running, World
from verillm.api import AcceptedEvent, JobSubmission, SignedQuote, TokenEvent
from verillm.chain.contract import Status
from verillm.chain.events import Posted, TaskContested, events_of, job_history, stream
from verillm.chain.wallet import MemoryStore, Outbox
from verillm.signing import sign, struct_hash
from verillm.types import JobId
from verillm_node import settlement
from verillm_node.contests import Contests
from verillm_node.flow import Flow
from verillm_node.jobs import FAILED, OPEN, JobBook
from verillm_node.store import Database
from verillm_node.worker import Identity


@dataclass
class Desk:
    """A scheduler's store and its watch over claims; `taken` are the jobs that it drives again."""

    world: World
    home: Path
    patch: pytest.MonkeyPatch
    judge_claims: bool = True
    taken: list[JobId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = Database(self.home / "scheduler.sqlite")
        self.book = JobBook(self.database)
        chain = self.world.chain(self.world.scheduler.hot)
        self.world.net.rpc("anvil_setBalance", self.world.scheduler.hot.address, hex(10**20))
        scheduler = self.world.scheduler

        async def transact(_job: JobId, call: Any, done: Any) -> Any:
            return await asyncio.to_thread(self.outbox.run, call.name, call, done)

        self.outbox = Outbox(chain, MemoryStore(), poll=0.01)
        self.context: Any = SimpleNamespace(
            chain=chain,
            book=self.book,
            identity=Identity(scheduler.address, scheduler.hot, self.world.domain),
            settings=SimpleNamespace(judge_claims=self.judge_claims),
            offer=lambda _model: SimpleNamespace(spec=self.world.spec),
            transact=transact,
        )
        self.contests = Contests(self.context, b"master", self.taken.append)  # type: ignore[arg-type]

    def remember(self, run: Running, state: str, told: tuple[tuple[int, ...], ...] = ()) -> None:
        """A job as the scheduler has it, with what its client was told."""
        job_id, nonce = self.world.id_of(run), b"n" * 32
        self.patch.setattr("verillm_node.contests.derive_secret", lambda *_: run.secret)
        quote = SignedQuote(run.quote, sign(self.world.domain, run.quote, self.world.scheduler.hot))
        submission = JobSubmission(quote, run.job, run.client_signature, run.requests)
        self.book.add_quote(struct_hash(run.quote), nonce, run.quote.expiry)
        self.book.open(job_id, submission)
        tokens = [
            TokenEvent(item, index, token)
            for item, output in enumerate(told)
            for index, token in enumerate(output)
        ]
        self.book.add_events(job_id, 0, [AcceptedEvent(job_id), *tokens])
        self.book.close(job_id, state)

    def round(self) -> None:
        asyncio.run(self.contests.round())


@pytest.fixture
def desk(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(world, tmp_path, monkeypatch)
    yield made
    made.database.close()


def claimed(world: World, run: Running) -> Work:
    """The run's task, claimed as never posted."""
    found = work(world, run.task, run.outputs)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    claim(world, found, run.inferencer)
    return found


def posted(world: World) -> tuple[Running, Work]:
    run = world.draft()
    found = work(world, run.task, run.outputs)
    run.inner, run.commitment = found.commitment.inner, found.digest
    run.worker_signature = found.commitment.signature
    mined = world.send(world.scheduler.account, world.post_call(run))
    run.posting = next(each for each in events_of(mined) if isinstance(each, Posted)).posting
    return run, found


def amount(world: World, found: Work) -> int:
    state = world.chain(world.client).task_claim_of(found.digest)
    assert state is not None
    return state.amount


def test_a_claim_of_work_that_was_posted_is_contested(world: World, desk: Desk) -> None:
    run, found = posted(world)
    desk.remember(run, OPEN)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    claim(world, found, run.inferencer)
    wanted = amount(world, found)
    before = world.chain(world.client).account_of(run.inferencer.address).balance
    desk.round()
    assert amount(world, found) == 0
    assert before - world.chain(world.client).account_of(run.inferencer.address).balance == wanted
    (contested,) = stream(world.chain(world.client), (TaskContested,))
    assert (contested.event.job_id, contested.event.burnt) == (world.id_of(run), wanted)
    assert not desk.taken


def test_power_a_claim_on_somebody_elses_stake_is_none_of_its_business(
    world: World, desk: Desk
) -> None:
    run = world.draft()
    desk.remember(run, FAILED)
    found = claimed(world, run)
    desk.context.identity = replace(desk.context.identity, operator=world.auditor.address)
    desk.round()
    assert amount(world, found) > 0 and not desk.taken


def test_tokens_that_never_came_are_posted_as_claimed_and_survive_a_restart(
    world: World, desk: Desk
) -> None:
    run = world.draft()
    desk.remember(run, FAILED)
    found, job_id = claimed(world, run), world.id_of(run)
    desk.round()
    assert desk.taken == [job_id]
    assert desk.book.state(job_id) == OPEN
    submission = desk.book.find(job_id)
    assert submission is not None
    for _ in range(2):  # as after a crash: the same step again
        flow = Flow(job_id, submission, run.secret, desk.book)
        assert flow.outputs == run.outputs
        asyncio.run(settlement.post_claimed(desk.context, flow))
    assert amount(world, found) == 0
    posting = job_history(world.chain(world.client), job_id).posted
    assert posting is not None
    assert posting.event.posting.commitment == found.digest
    assert world.chain(world.client).job_state(job_id).status is Status.POSTED
    party = desk.book.parties(job_id)[0]
    assert (party.owner, party.commitment) == (run.inferencer.address, found.commitment)


def test_what_came_here_and_was_not_posted_is_owed(world: World, desk: Desk) -> None:
    run = world.draft()
    desk.remember(run, FAILED, told=run.outputs)
    found = claimed(world, run)
    desk.round()
    assert amount(world, found) > 0 and not desk.taken


def test_other_tokens_than_came_here_are_tried(world: World, desk: Desk) -> None:
    run = world.draft()
    desk.remember(run, FAILED, told=((5, 6, 7, 9),))
    claimed(world, run)
    desk.round()
    assert desk.taken == [world.id_of(run)]


def test_a_trial_that_costs_more_than_is_wanted_is_not_made(world: World, desk: Desk) -> None:
    most = 10**12 * 40
    run = world.draft(max_fee=most)
    desk.remember(run, FAILED)
    claimed(world, run)
    desk.round()
    assert not desk.taken


def test_a_job_that_still_goes_on_is_not_posted_twice(world: World, desk: Desk) -> None:
    run = world.draft()
    desk.remember(run, OPEN)
    claimed(world, run)
    desk.round()
    assert not desk.taken


def test_tokens_that_nobody_could_run_are_paid_for_and_not_posted(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "output", (5, world.spec.vocabulary, 7, 8))
    run = world.draft()
    desk.remember(run, FAILED)
    claimed(world, run)
    desk.round()
    assert not desk.taken


def test_a_scheduler_that_is_told_not_to_posts_no_claim(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(world, tmp_path, monkeypatch, judge_claims=False)
    run = world.draft()
    desk.remember(run, FAILED)
    claimed(world, run)
    desk.round()
    assert not desk.taken
    desk.database.close()
