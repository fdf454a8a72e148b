"""Re-verification on the real contracts: what Python draws, hashes and runs is what they demand."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.chain.appeals import AppealWorld
from tests.chain.conftest import Net
from tests.chain.rounds import widened
from tests.unit.verillm.builders import SPEC
from verillm.appeal import appeal_draw, holds, inferencer_task, size_of
from verillm.chain.appeals import AppealPhase, ContentSupplied, Convened
from verillm.chain.contract import Status
from verillm.chain.events import JobHistory, Paid, Slashed, job_history
from verillm.draw import draw_seats
from verillm.errors import TransactionFailed
from verillm.types import Outcome, Reason
from verillm_verifier import facts
from verillm_verifier.audit import reverified
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.money import check_money

ONE = replace(widened(SPEC, hidden=64, slice_dims=32, depth=24), committee=1)


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator[AppealWorld]:
    snapshot = deployed.rpc("evm_snapshot")
    world = AppealWorld(deployed, ONE)
    world.output = tuple(range(5, 17))
    yield world
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: AppealWorld) -> Iterator[AppealWorld]:
    snapshot = furnished.net.rpc("evm_snapshot")
    furnished.wrong = frozenset()
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)


def test_a_captured_member_cannot_save_a_cheat(world: AppealWorld) -> None:
    world.wrong = frozenset({0, 1})
    run = world.claim(world.seal(world.post(1)), paid=1)
    concluded = world.appeal(run)
    assert (concluded.outcome, concluded.reason) == (Outcome.SLASH, Reason.STATES_DIFFER)
    assert (concluded.stands, concluded.strangers) == (False, 1)
    chain = world.chain(world.client)
    assert chain.job_state(world.id_of(run)).status is Status.FINAL
    assert chain.appeal_of(world.id_of(run)).phase is AppealPhase.OPENED


def test_a_captured_member_cannot_frame_the_honest(world: AppealWorld) -> None:
    world.wrong = frozenset({1})
    run = world.seal(world.post(1))
    world.claim(run, Outcome.SLASH, Reason.STATES_DIFFER, paid=1)
    concluded = world.appeal(run)
    assert (concluded.outcome, concluded.stands) == (Outcome.ACCEPT, False)
    assert concluded.strangers == 1


def test_what_is_right_stands_for_a_batch(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(5)), paid=1)
    concluded = world.appeal(run)
    assert (concluded.outcome, concluded.stands) == (Outcome.ACCEPT, True)
    assert concluded.strangers == 0


def test_the_new_committee_is_the_one_that_python_draws(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(1)), paid=1)
    mined = world.reverify(run)
    world.net.pass_time(1)
    chain, job = world.chain(world.client), world.id_of(run)
    asked = chain.block(mined.block_number)
    convened = world.convene(run)
    owners = {each.seat: each.address for each in world.workers}
    expected = draw_seats(
        appeal_draw(job, asked.hash), len(owners), owners.get, run.posting.worker, size_of(1)
    )
    assert [(each.seat, each.owner) for each in convened.committee] == expected
    assert chain.appeal_of(job).phase is AppealPhase.CONVENED


def test_the_contents_can_be_read_and_checked_by_anyone(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(5)), paid=1)
    world.reverify(run)
    chain, job = world.chain(world.client), world.id_of(run)
    supplied = job_history(chain, job).all(ContentSupplied)
    task = inferencer_task(run.secret, job)
    roots = (run.job.requests_root, run.posting.outputs_root)
    shown = {each.event.place: each.event.content for each in supplied}
    for place, number in enumerate(world.checked(run)):
        assert holds(shown[place], *roots, task, number, run.job.requests)
        other = replace(shown[place], output=shown[place].output[:-4])
        assert not holds(other, *roots, task, number, run.job.requests)


def test_a_text_that_nobody_asked_for_is_refused(world: AppealWorld) -> None:
    run = world.claim(world.seal(world.post(1)), paid=1)
    (content,) = world.contents(run)
    false = replace(content, output=content.output[:-4] + b"\0\0\0\x63")
    with pytest.raises(TransactionFailed, match="ContentInvalid"):
        world.send(world.auditor.account, world.calls.reverify(*world.record(run), [false]))


def test_an_audit_finds_the_new_committee_and_its_verdict_again(world: AppealWorld) -> None:
    world.wrong = frozenset({0, 1})
    run = world.claim(world.seal(world.post(1)), paid=1)
    chain, job = world.chain(world.client), world.id_of(run)
    world.reverify(run)
    assert facts.status_by_events(facts.read(chain, job)) is Status.REVERIFYING
    world.net.pass_time(1)
    made = world.recommit(run, world.convene(run))
    world.net.pass_time(1)
    world.open(run, world.start(run, made))
    world.conclude(run)
    known = facts.read(chain, job)
    facts.check(known)
    found = reverified(known)
    assert found is not None
    assert found.outcome is Outcome.SLASH
    false = replace(known, history=_with_another_member(known))
    with pytest.raises(InconsistentChain, match="new committee is drawn"):
        facts.check(false)


def test_an_audit_recomputes_the_money_of_a_reverified_job(world: AppealWorld) -> None:
    known = _concluded(world)
    moved = check_money(known)
    assert moved.burnt > 0
    assert moved.accounts[known.posting.worker] == -known.posting.lock


def test_power_a_unit_moved_in_a_reverified_job_is_found(world: AppealWorld) -> None:
    known = _concluded(world)
    job, requester = known.history.job_id, world.auditor.address
    made = (Paid(job, requester, 1), Slashed(job, known.posting.worker, 1))
    last = known.history.events[-1]
    told = (*known.history.events, *(replace(last, event=event) for event in made))
    with pytest.raises(InconsistentChain, match="demands"):
        check_money(replace(known, history=JobHistory(job, told)))


def _concluded(world: AppealWorld) -> facts.Facts:
    """A job whose captured committee lied, as the chain tells it at its end."""
    world.wrong = frozenset({0, 1})
    run = world.claim(world.seal(world.post(1)), paid=1)
    world.appeal(run)
    return facts.read(world.chain(world.client), world.id_of(run))


def _with_another_member(known: facts.Facts) -> JobHistory:
    history = known.history
    events = []
    for at in history.events:
        if isinstance(at.event, Convened):
            first, *rest = at.event.committee
            other = replace(first, owner=known.posting.worker)
            at = replace(at, event=replace(at.event, committee=(other, *rest)))
        events.append(at)
    return JobHistory(history.job_id, tuple(events))
