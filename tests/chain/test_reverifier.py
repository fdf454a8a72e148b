"""Workers' nodes carry a re-verification through on the real contracts, from the chain alone."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.chain.appeals import AppealWorld
from tests.chain.conftest import Net
from tests.chain.test_appeals import ONE
from tests.chain.world import Operator, Running
from verillm.appeal import recommitted
from verillm.chain.appeals import Concluded, TokensRejected
from verillm.chain.contract import Status
from verillm.chain.events import job_history
from verillm.signing import task_hash
from verillm.task import Task
from verillm.trace import CommittedTrace, Trace, TraceItem
from verillm.types import JobId, Outcome, TaskId
from verillm_node.reverify import Reverifier
from verillm_node.worker import Identity

STEPS, SECONDS = 60, 8


@dataclass(frozen=True)
class Named:
    """Of a task, all that is asked for here."""

    task_id: TaskId


@dataclass(frozen=True)
class Known:
    """A sealed task as a worker's book has it."""

    party: int
    task: Named


@dataclass
class Books:
    """What one worker remembers of a job."""

    known: list[Known]

    def of_job(self, job_id: JobId) -> list[Known]:
        return self.known


@dataclass
class Runner:
    """A worker without an engine: its states are the world's."""

    world: AppealWorld
    run: Running
    operator: Operator
    ran: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.operator.address, self.operator.account, self.world.domain)

    async def rerun(self, task: Task) -> CommittedTrace:
        self.ran += 1
        items = []
        for number, item in enumerate(task.items):
            tokens = (*item.tokens, 1)
            slices, finals = self.world._states(item.seed, len(tokens) - 1, 101)
            items.append(TraceItem(number, item.length, tokens, slices, finals))
        return recommitted(Trace(task_hash(task), tuple(items)), task)

    def committed(self, task_id: TaskId) -> CommittedTrace:
        runs = self.world.runs[self.run.task.task_id]
        return next(each for each in runs if each.commitment.task_id == task_id)


@pytest.fixture
def world(deployed: Net) -> Iterator[AppealWorld]:
    snapshot = deployed.rpc("evm_snapshot")
    world = AppealWorld(deployed, ONE)
    yield world
    assert deployed.rpc("evm_revert", snapshot)


def nodes(world: AppealWorld, run: Running, awake: set[str]) -> list[Reverifier]:
    """A node for each worker of a claimed job that is awake."""
    parties = {run.inferencer.address: 0, run.sealing.committee[0].owner: 1}
    found = []
    for operator in world.workers:
        if operator.address not in awake:
            continue
        known = []
        if (party := parties.get(operator.address)) is not None:
            committed = world.runs[run.task.task_id][party]
            known = [Known(party, Named(committed.commitment.task_id))]
        runner = Runner(world, run, operator)
        chain = world.chain(operator.account)
        found.append(Reverifier(chain, world.spec, runner, Books(known), None))  # type: ignore[arg-type]
    return found


def carried(world: AppealWorld, run: Running, running: list[Reverifier]) -> Concluded:
    """Lets the nodes work until the job is final."""
    chain = world.chain(world.client)
    for _ in range(STEPS):
        for node in running:
            asyncio.run(node.round())
        if chain.job_state(world.id_of(run)).status is Status.FINAL:
            (concluded,) = job_history(chain, world.id_of(run)).all(Concluded)
            return concluded.event
        world.net.pass_time(SECONDS)
    raise AssertionError("not final")


def everybody(world: AppealWorld) -> set[str]:
    return {each.address for each in world.workers}


def test_nodes_overturn_what_a_captured_member_accepted(world: AppealWorld) -> None:
    world.wrong = frozenset({0, 1})
    run = world.claim(world.seal(world.post(1)), paid=1)
    world.reverify(run)
    concluded = carried(world, run, nodes(world, run, everybody(world)))
    assert (concluded.outcome, concluded.stands) == (Outcome.SLASH, False)
    assert concluded.strangers == 1


def test_nodes_let_a_right_claim_stand_and_pay_nothing_for_it(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(1)), paid=1)
    chain = world.chain(world.client)
    before = {each.address: chain.account_of(each.address).balance for each in world.workers}
    world.reverify(run)
    concluded = carried(world, run, nodes(world, run, everybody(world)))
    assert (concluded.outcome, concluded.stands) == (Outcome.ACCEPT, True)
    for owner, balance in before.items():
        assert chain.account_of(owner).balance >= balance
    assert not job_history(chain, world.id_of(run)).all(TokensRejected)


def test_a_node_that_is_away_loses_its_lock(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(1)), paid=1)
    world.reverify(run)
    chain = world.chain(world.client)
    parties = {run.inferencer.address, run.sealing.committee[0].owner}
    away = next(each.address for each in world.workers if each.address not in parties)
    before = chain.account_of(away).balance
    carried(world, run, nodes(world, run, everybody(world) - {away}))
    drawn = {each.owner for each in chain.appeal_of(world.id_of(run)).committee}
    lost = before - chain.account_of(away).balance
    assert (lost > 0) == (away in drawn)
