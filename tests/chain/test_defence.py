"""Workers' nodes defend their stake by themselves: proofs, the committee's word, a larger one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import Net
from tests.chain.house import House, Node, deployed_with
from tests.chain.test_audit import engines, folder  # noqa: F401 - fixtures
from tests.unit.verifier.lab import SCHEDULER, WORKERS, Engines, Story, worker_of
from verillm.chain.appeals import Concluded, ReverificationAsked
from verillm.chain.events import ChallengeOpened, Convicted, Judged, Slashed, Supported
from verillm.chain.wallet import Outbox
from verillm.errors import ChainUnreachable
from verillm.hashing import keccak
from verillm.request import Sampling
from verillm.task import Task, verification_task
from verillm.types import JobId, Outcome, Reason
from verillm_node.config import DefendSettings
from verillm_node.plead import Plea, Pleas
from verillm_node.store import Database
from verillm_verifier.attacks import ATTACKS

Make = Callable[..., House]
BOND = 10**15
"""Less than the job's lock, which is 2e15."""
SWAPPED = Story(cheats={0: ATTACKS["swapped"]}, new_tokens=24, sampling=Sampling(0))
FRAMED = Story(((10, 20, 30, 40, 50, 60),), 12, cheats={1: ATTACKS["int4"]})
"""Its only member serves another model: an honest inferencer is rejected."""
DUMB = DefendSettings(prove=False, reverify=False)


@pytest.fixture
def house(
    net: Net,
    folder: Path,  # noqa: F811
    engines: Engines,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Make]:
    with deployed_with(net, reverify_bond=BOND) as cheap:

        def make(story: Story, **more: Any) -> House:
            return House(more.pop("net", cheap), engines, folder, tmp_path, story, **more)

        yield make


def claim(made: House, outcome: Outcome, reason: Reason, paid: int) -> None:
    made.ground.claim(made.played, outcome, reason, paid)


# ── Proofs ───────────────────────────────────────────────────────────────────────────────────────
def test_a_member_sends_the_proof_that_its_claims_bundle_holds(house: Make) -> None:
    made = house(SWAPPED)
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b111)
    before = {worker.address: made.balance(worker) for worker in WORKERS}
    history = made.carry()
    convicted = history.all(Convicted)
    assert [(each.event.party, each.event.reason) for each in convicted] == [(0, Reason.MARGIN_MAX)]
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.SLASH
    finder = convicted[0].event.finder  # its operator, though its hot key sent it
    assert finder in {member.owner for member in made.played.sealing.committee}
    assert made.balance(finder) > before[finder]
    assert not history.all(ReverificationAsked)


def test_power_nobody_proves_anything_of_an_honest_job_and_it_is_paid(house: Make) -> None:
    made = house(Story(new_tokens=12))
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b111)
    history = made.carry()
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.ACCEPT
    for kind in (Convicted, ChallengeOpened, ReverificationAsked, Supported, Slashed):
        assert not history.all(kind), kind


def test_a_member_that_was_handed_another_prompt_has_its_scheduler_convicted(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def false(secret: Any, identity: Any, k: int, *more: Any, **options: Any) -> Task:
        task = verification_task(secret, identity, k, *more, **options)
        if k != 2:
            return task
        item = task.items[0]
        other = replace(item, tokens=(item.tokens[0] ^ 1, *item.tokens[1:]))
        return replace(task, items=(other, *task.items[1:]))

    monkeypatch.setattr("tests.unit.verifier.lab.verification_task", false)
    made = house(Story(new_tokens=12))
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b101)
    before = made.balance(SCHEDULER)
    history = made.carry()
    (convicted,) = history.all(Convicted)
    assert (convicted.event.party, convicted.event.reason) == (255, Reason.TASK_DIFFERS)
    assert made.balance(SCHEDULER) < before


def test_who_is_told_not_to_prove_does_not(house: Make) -> None:
    made = house(SWAPPED, settings=lambda _address: DefendSettings(prove=False))
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b111)
    history = made.carry()
    assert not history.all(Convicted)
    # The committee's word is enough for a refund.
    assert history.all(ChallengeOpened)[0].event.reason == Reason.MARGIN_MAX
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.REFUND


# ── The committee's word in a round that was opened without it ───────────────────────────────────
def weakly_challenged(house: Make, settings: Any) -> House:
    made = house(SWAPPED, settings=settings)
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b111)
    chain = made.net.chain(worker_of(made.played.posting.worker))
    claimed = made.history().claimed
    assert claimed is not None
    record = (made.played.posting, made.played.sealing, claimed.event.claiming)
    chain.send(chain.calls.challenge(*record))  # the forger itself, with nothing
    return made


def test_members_bring_their_word_into_a_round_that_was_opened_without_it(house: Make) -> None:
    made = weakly_challenged(house, lambda _address: DefendSettings(prove=False))
    history = made.carry()
    (supported,) = history.all(Supported)
    assert supported.event.reason == Reason.MARGIN_MAX
    owners = {member.owner for member in made.played.sealing.committee}
    assert supported.event.finder in owners
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.REFUND


def test_power_without_their_word_the_forger_is_accepted(house: Make) -> None:
    made = weakly_challenged(house, lambda _address: DUMB)

    async def silent(*_: object) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("verillm_node.words.Words.support", silent)
        history = made.carry()
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.ACCEPT


# ── A larger committee ───────────────────────────────────────────────────────────────────────────
def test_an_inferencer_that_a_captured_committee_rejects_has_it_overturned(house: Make) -> None:
    made = house(FRAMED, committee=1)
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b1)
    inferencer = worker_of(made.played.posting.worker)
    before, liars = made.balance(inferencer), made.balance(made.member(1))
    history = made.carry()
    (asked,) = history.all(ReverificationAsked)
    assert asked.event.requester == inferencer.address
    concluded = history.first(Concluded)
    assert concluded is not None
    assert (concluded.event.outcome, concluded.event.stands) == (Outcome.ACCEPT, False)
    assert made.balance(inferencer) > before
    assert liars - made.balance(made.member(1)) >= made.played.posting.lock


@pytest.mark.slow
def test_a_public_verdict_against_honest_work_is_overturned_too(house: Make) -> None:
    made = house(FRAMED, committee=1)
    claim(made, Outcome.ACCEPT, Reason.NONE, 0b1)  # the liar's own node challenges this
    inferencer = worker_of(made.played.posting.worker)
    before = made.balance(inferencer)
    history = made.carry()
    judged = history.judged
    assert judged is not None
    assert judged.event.outcome is Outcome.SLASH
    (asked,) = history.all(ReverificationAsked)
    assert asked.event.requester == inferencer.address
    concluded = history.first(Concluded)
    assert concluded is not None
    assert (concluded.event.outcome, concluded.event.stands) == (Outcome.ACCEPT, False)
    assert made.balance(inferencer) > before


@pytest.mark.slow
def test_it_is_asked_for_without_the_schedulers_help(house: Make) -> None:
    made = house(FRAMED, committee=1, shows_bundle=False)
    claim(made, Outcome.SLASH, Reason.WITHHELD, 0b1)
    history = made.carry()
    assert [each.event.outcome for each in history.all(Judged)] == [Outcome.SLASH]
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.ACCEPT


def test_power_nobody_asks_where_the_bond_exceeds_what_is_at_stake(house: Make, net: Net) -> None:
    made = house(FRAMED, net=net, committee=1)
    assert net.config.reverify_bond > made.played.posting.lock
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b1)
    history = made.carry()
    assert not history.all(ReverificationAsked)
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.SLASH


def test_who_is_told_not_to_ask_does_not(house: Make) -> None:
    made = house(FRAMED, committee=1, settings=lambda _address: DefendSettings(reverify=False))
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b1)
    assert not made.carry().all(ReverificationAsked)


# ── Once, and within limits ──────────────────────────────────────────────────────────────────────
def framed(house: Make, **more: Any) -> tuple[House, LocalAccount]:
    """A job whose honest inferencer is claimed to have lost its lock; and the inferencer."""
    made = house(FRAMED, committee=1, **more)
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b1)
    return made, worker_of(made.played.posting.worker)


def one_round(made: House) -> None:
    async def once(nodes: list[Node]) -> None:
        for node in nodes:
            await node.watch.round()

    made.run(once)


@pytest.mark.parametrize("sent", [False, True], ids=["before it was sent", "after it was sent"])
def test_who_is_killed_while_asking_asks_once(
    house: Make, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    made, inferencer = framed(house)
    honest = Outbox.run

    def killed(self: Outbox, *values: Any) -> None:
        if sent:
            honest(self, *values)
        raise ChainUnreachable("here", "killed")

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "run", killed)
        one_round(made)
    assert len(made.history().all(ReverificationAsked)) == int(sent)
    one_round(made)
    locked = made.chain.account_of(inferencer.address).locked
    one_round(made)
    asked = made.history().all(ReverificationAsked)
    assert [each.event.requester for each in asked] == [inferencer.address]
    assert made.chain.account_of(inferencer.address).locked == locked


def remembered(made: House, who: LocalAccount, plea: Plea, many: int) -> None:
    """What a node's store says of re-verifications of other jobs."""
    database = Database(made.home / who.address / "worker.sqlite")
    pleas = Pleas(database)
    for number in range(many):
        job_id = JobId(keccak(b"another job %d" % number))
        pleas.open(job_id)
        pleas.end(job_id, plea)
    database.close()


@pytest.mark.parametrize(("plea", "many"), [(Plea.LOST, 1), (Plea.ASKED, 2)])
def test_who_lost_one_or_has_enough_under_way_asks_for_no_more(
    house: Make, plea: Plea, many: int
) -> None:
    made, inferencer = framed(house)
    remembered(made, inferencer, plea, many)
    one_round(made)
    assert not made.history().all(ReverificationAsked)


@pytest.mark.parametrize(("plea", "many"), [(Plea.LOST, 0), (Plea.ASKED, 1), (Plea.WON, 9)])
def test_power_below_those_limits_it_is_asked_for(house: Make, plea: Plea, many: int) -> None:
    made, inferencer = framed(house)
    remembered(made, inferencer, plea, many)
    one_round(made)
    assert len(made.history().all(ReverificationAsked)) == 1


def test_a_question_that_the_chain_would_refuse_is_no_plea(house: Make) -> None:
    made = house(Story(cheats={0: ATTACKS["int4"]}))  # of 5 owners no 7 members can be drawn
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b111)
    one_round(made)
    inferencer = worker_of(made.played.posting.worker)
    database = Database(made.home / inferencer.address / "worker.sqlite")
    assert Pleas(database).find(made.job) is None
    database.close()
    assert not made.history().all(ReverificationAsked)


@pytest.mark.slow
def test_a_question_that_was_lost_is_remembered(house: Make) -> None:
    # A cheat's node is as sure of itself as an honest one.
    made = house(Story(((10, 20, 30, 40, 50, 60),), 12, cheats={0: ATTACKS["int4"]}), committee=1)
    claim(made, Outcome.SLASH, Reason.STATES_DIFFER, 0b1)
    inferencer = worker_of(made.played.posting.worker)
    history = made.carry()
    concluded = history.first(Concluded)
    assert concluded is not None
    assert concluded.event.stands
    database = Database(made.home / inferencer.address / "worker.sqlite")
    assert Pleas(database).find(made.job) is Plea.LOST
    database.close()
