"""What stands, what it costs whom, and what a party can show of its job by itself."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.verillm.builders import DOMAIN, Plan, World, make_world
from verillm.appeal import content, holds, inferencer_task
from verillm.chain.appeals import ContentSupplied
from verillm.chain.contract import JobState, Status
from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.chain.events import At, Claimed, JobHistory, Judged, Posted, Sealed, Supported
from verillm.records import Claiming
from verillm.settlement import share
from verillm.signing import job_id
from verillm.types import Hash32, Outcome, Reason
from verillm_node import own
from verillm_node.config import DefendSettings
from verillm_node.plead import Pleader
from verillm_node.stakes import Stand, at_stake, stand
from verillm_node.view import NO_HASH, View

TERMS = Config.devnet()
SLASH = Stand(Outcome.SLASH, Reason.STATES_DIFFER, 0, 0b111)


def viewed(world: World, status: Status, *events: Any) -> View:
    """A job that is sealed, and what came since."""
    job = job_id(DOMAIN, world.posting.job)
    posted = Posted(job, ZERO_ADDRESS, ZERO_ADDRESS, world.posting)
    told = (posted, Sealed(job, world.sealing), *events)
    placed = tuple(At(each, NO_HASH, n, NO_HASH, n, 0) for n, each in enumerate(told))
    return View(job, JobState(status, 100, NO_HASH), JobHistory(job, placed), 10, 10)


def claimed(world: World, outcome: Outcome, reason: Reason, paid: int = 0b111) -> Claimed:
    claiming = Claiming(ZERO_ADDRESS, outcome, reason, paid, NO_HASH, NO_HASH)
    return Claimed(job_id(DOMAIN, world.posting.job), claiming)


def judged(world: World, outcome: Outcome, reason: Reason, lost: int, paid: int) -> Judged:
    return Judged(job_id(DOMAIN, world.posting.job), outcome, reason, lost, paid, 100)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(Plan(requests=3))


def test_a_claim_stands_until_a_verdict_does(world: World) -> None:
    claim = claimed(world, Outcome.ACCEPT, Reason.NONE)
    assert stand(viewed(world, Status.CLAIMED, claim)) == Stand(Outcome.ACCEPT, Reason.NONE, 0, 7)
    verdict = judged(world, Outcome.SLASH, Reason.WITHHELD, 0b1, 0b110)
    found = stand(viewed(world, Status.JUDGED, claim, verdict))
    assert found == Stand(Outcome.SLASH, Reason.WITHHELD, 0b1, 0b110)
    for status in (Status.SEALED, Status.CHALLENGED, Status.REVERIFYING, Status.FINAL):
        assert stand(viewed(world, status, claim)) is None


def test_what_the_committee_says_of_a_verdict_turns_acceptance_into_a_refund(world: World) -> None:
    job = job_id(DOMAIN, world.posting.job)
    word = Supported(job, ZERO_ADDRESS, Reason.MARGIN_MAX, 100)
    accepted = judged(world, Outcome.ACCEPT, Reason.NONE, 0, 0b111)
    found = stand(viewed(world, Status.JUDGED, accepted, word))
    assert found is not None
    assert (found.outcome, found.reason) == (Outcome.REFUND, Reason.MARGIN_MAX)
    slashed = judged(world, Outcome.SLASH, Reason.STATES_DIFFER, 0, 0b111)
    found = stand(viewed(world, Status.JUDGED, slashed, word))
    assert found is not None
    assert found.outcome is Outcome.SLASH


def test_a_slash_costs_the_inferencer_its_lock_and_its_share(world: World) -> None:
    view, fee = viewed(world, Status.CLAIMED), world.sealing.fee
    own_share = share(fee, TERMS.inferencer_bps)
    assert at_stake(view, 0, SLASH, TERMS) == world.posting.lock + own_share
    refund = replace(SLASH, outcome=Outcome.REFUND)
    assert at_stake(view, 0, refund, TERMS) == own_share + share(fee, TERMS.committee_bps)
    for outcome in (Outcome.ACCEPT, Outcome.INCONCLUSIVE):
        assert at_stake(view, 0, replace(SLASH, outcome=outcome), TERMS) == 0


def test_a_member_has_its_part_at_stake_and_its_lock_where_it_lost(world: World) -> None:
    view, members = viewed(world, Status.JUDGED), world.sealing.committee
    part = share(world.sealing.fee, TERMS.committee_bps) // len(members)
    assert at_stake(view, 2, SLASH, TERMS) == 0
    assert at_stake(view, 2, replace(SLASH, paid=0b101), TERMS) == part
    lost = replace(SLASH, lost=0b100, paid=0b101)
    assert at_stake(view, 2, lost, TERMS) == members[1].lock + part
    assert at_stake(view, 1, lost, TERMS) == 0


# ── The texts ────────────────────────────────────────────────────────────────────────────────────
def record(world: World, party: int) -> Any:
    """What a party's book says of its task."""
    return SimpleNamespace(party=party, task=world.bundle.parties[party].task)


def whole(world: World, view: View, shown: Any) -> bool:
    """Whether these are the job's checked requests with their outputs."""
    posting = world.posting
    task = inferencer_task(world.sealing.secret, view.job_id)
    roots = (posting.job.requests_root, posting.outputs_root)
    numbers = own.checked_of(view, world.spec)
    return len(shown) == len(numbers) and all(
        holds(each, *roots, task, number, posting.job.requests)
        for number, each in zip(numbers, shown, strict=True)
    )


def test_the_inferencers_own_task_and_trace_are_all_the_texts(world: World) -> None:
    view = viewed(world, Status.CLAIMED)
    shown = own.contents(view, world.spec, record(world, 0), world.committed[0])
    assert shown is not None
    assert whole(world, view, shown)


def test_a_member_has_the_texts_from_a_bundle_or_from_the_chain(world: World) -> None:
    view = viewed(world, Status.CLAIMED)
    mine = record(world, 1)
    assert own.contents(view, world.spec, mine, world.committed[1]) is None
    shown = own.contents(view, world.spec, mine, world.committed[1], world.bundle)
    assert shown is not None
    assert whole(world, view, shown)
    told = [ContentSupplied(view.job_id, place, each) for place, each in enumerate(shown)]
    asked = viewed(world, Status.REVERIFYING, *told)
    assert own.contents(asked, world.spec, mine, world.committed[1]) == shown


def test_power_texts_that_are_not_the_jobs_are_none(world: World) -> None:
    view = viewed(world, Status.CLAIMED)
    first, *others = world.bundle.checked
    forged = replace(first, output=(*first.output[:-1], first.output[-1] ^ 1))
    bundle = replace(world.bundle, checked=(forged, *others))
    assert own.contents(view, world.spec, record(world, 1), world.committed[1], bundle) is None
    told = content(forged.request, forged.path, forged.output, forged.output_path)
    asked = viewed(world, Status.REVERIFYING, ContentSupplied(view.job_id, 0, told))
    assert own.contents(asked, world.spec, record(world, 1), world.committed[1]) is None


def test_a_task_that_is_not_the_jobs_gives_no_texts(world: World) -> None:
    view = viewed(world, Status.CLAIMED)
    mine = record(world, 0)
    item = replace(mine.task.items[0], salt=Hash32(b"x" * 32))
    mine.task = replace(mine.task, items=(item, *mine.task.items[1:]))
    assert own.contents(view, world.spec, mine, world.committed[0]) is None


@pytest.mark.parametrize("outcome", [Outcome.REFUND, Outcome.SLASH])
@pytest.mark.parametrize("said", [False, True])
def test_nobody_asks_where_what_was_said_of_the_tokens_refunds_whatever_is_found(
    world: World, outcome: Outcome, said: bool
) -> None:
    verdict = judged(world, outcome, Reason.STATES_DIFFER, 0, 0b111)
    job = job_id(DOMAIN, world.posting.job)
    word = (Supported(job, ZERO_ADDRESS, Reason.MARGIN_MEAN, 100),) if said else ()
    view = viewed(world, Status.JUDGED, claimed(world, Outcome.ACCEPT, Reason.NONE), verdict, *word)
    nobody: Any = None
    terms = replace(TERMS, reverify_bond=1, forced_every=0)
    pleader = Pleader(nobody, terms, ZERO_ADDRESS, nobody, nobody, DefendSettings())
    assert pleader.is_due(view, 0, stand(view)) is (outcome is Outcome.SLASH or not said)
