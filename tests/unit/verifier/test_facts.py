"""What the chain says, held against itself: any fact that cannot be ends the audit."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.verifier.lab import CLAIM, END, KEY_GRACE, POST, SEAL, Played, at, block_hash
from tests.unit.verifier.mutate import mutations
from verillm.chain import events
from verillm.chain.contract import Status
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.events import At, JobHistory
from verillm.records import Claiming, record_hash
from verillm.types import Hash32, Outcome, Reason
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.facts import Facts, check
from verillm_verifier.registry import Registry


def told(facts: Facts, *changed: At[Any]) -> Facts:
    """The same job, told by other events."""
    return replace(facts, history=JobHistory(facts.history.job_id, changed))


def forged(facts: Facts) -> Facts:
    """The same, with the record that these events would have."""
    record = record_hash(facts.posting, facts.sealing, facts.claiming)
    return replace(facts, state=replace(facts.state, record=record))


def test_an_honest_job_holds_at_every_stage(honest: Played) -> None:
    assert check(honest.facts(until=POST)) is None
    for until in (SEAL, CLAIM, END):
        draws = check(honest.facts(until=until))
        assert draws is not None
        assert draws.seats == honest.sealing.seats
        assert draws.owners == honest.sealing.owners
        assert draws.checked == honest.checked


@pytest.mark.parametrize("until", [POST, SEAL, CLAIM, END])
def test_no_field_of_an_event_can_be_changed(honest: Played, until: int) -> None:
    facts = honest.facts(until=until)
    for number, told_at in enumerate(facts.history.events):
        if isinstance(told_at.event, events.Finalized):
            continue
        for part in ("posting", "sealing", "claiming"):
            for path, changed in mutations(getattr(told_at.event, part, None), part):
                event = replace(told_at, event=replace(told_at.event, **{part: changed}))
                others = list(facts.history.events)
                others[number] = event
                with pytest.raises(InconsistentChain):
                    check(told(facts, *others))
                    pytest.fail(f"{path} passes")


CAUGHT_WITHOUT_RECORD = (
    "posting.job.", "posting.quote.", "posting.worker", "posting.commitment", "posting.seat",
    "posting.posted_block", "sealing.secret", "sealing.beacon", "sealing.inner.", "sealing.fee",
    "sealing.sealed_block", "claiming.beacon", "sealing.committee shortened",
)  # fmt: skip


def test_the_draws_are_held_even_where_the_endpoint_forges_the_record(honest: Played) -> None:
    facts = honest.facts()
    for number, told_at in enumerate(facts.history.events):
        for part in ("posting", "sealing", "claiming"):
            for path, changed in mutations(getattr(told_at.event, part, None), part):
                if not (
                    path.startswith(CAUGHT_WITHOUT_RECORD) or path.endswith((".seat", ".owner"))
                ):
                    continue
                others = list(facts.history.events)
                others[number] = replace(told_at, event=replace(told_at.event, **{part: changed}))
                with pytest.raises(InconsistentChain):
                    check(forged(told(facts, *others)))
                    pytest.fail(f"{path} passes")


@pytest.mark.parametrize("block", [POST, SEAL])
def test_a_beacon_that_is_not_the_blocks_hash_is_found(honest: Played, block: int) -> None:
    facts = honest.facts()
    with pytest.raises(InconsistentChain, match="in the block"):
        check(replace(facts, beacons={**facts.beacons, block: block_hash(999)}))


def test_a_status_that_the_events_do_not_tell_is_found(honest: Played) -> None:
    facts = honest.facts()
    for status in Status:
        if status != Status.FINAL:
            with pytest.raises(InconsistentChain, match="status"):
                check(replace(facts, state=replace(facts.state, status=status)))


def test_a_hidden_event_is_found(honest: Played) -> None:
    facts = honest.facts()
    posted, sealed, claimed, final = facts.history.events
    for others in ((posted, sealed, claimed), (posted, claimed, final), (sealed, claimed, final)):
        with pytest.raises(InconsistentChain):
            check(told(facts, *others))


def test_a_step_told_twice_or_out_of_order_is_found(honest: Played) -> None:
    facts = honest.facts()
    posted, sealed, claimed, final = facts.history.events
    early = replace(claimed, block_number=SEAL - 5)
    for others in ((posted, sealed, claimed, final, final), (posted, sealed, early, final)):
        with pytest.raises(InconsistentChain):
            check(told(facts, *others))


def test_a_record_that_is_not_the_hash_of_the_events_is_found(honest: Played) -> None:
    wrong = Hash32(b"w" * 32)
    running = honest.facts(until=SEAL)
    with pytest.raises(InconsistentChain, match="record"):
        check(replace(running, state=replace(running.state, record=wrong)))
    final = honest.facts()
    with pytest.raises(InconsistentChain, match="record"):
        check(replace(final, state=replace(final.state, record=wrong)))


def test_another_committee_than_the_drawn_one_is_found(honest: Played) -> None:
    """The very attack: a scheduler that could seal friends."""
    facts = honest.facts()
    gone = honest.sealing.owners[0]
    seat = honest.sealing.seats[0]
    left = at(events.SeatLeft(honest.posting.quote.model_id, seat, gone, 0), POST - 1)
    registry = Registry.of([*facts.registry.events, left], KEY_GRACE)
    with pytest.raises(InconsistentChain, match="sealed seats"):
        check(replace(facts, registry=registry))


def test_a_committee_that_nobody_could_draw_is_found(honest: Played) -> None:
    facts = honest.facts()
    few = [each for each in facts.registry.events if getattr(each.event, "seat", 0) < 3]
    with pytest.raises(InconsistentChain):
        check(replace(facts, registry=Registry.of(few, KEY_GRACE)))


def test_a_challenge_before_any_claim_records_an_empty_claim(honest: Played) -> None:
    facts = honest.facts(until=SEAL)
    opened = events.ChallengeOpened(
        facts.history.job_id, honest.posting.worker, 1, block_hash(SEAL), Reason.NONE
    )
    challenged = told(facts, *facts.history.events, at(opened, CLAIM))
    empty = Claiming(
        ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, Hash32(bytes(32)), block_hash(SEAL)
    )
    record = record_hash(honest.posting, honest.sealing, empty)
    state = replace(facts.state, status=Status.CHALLENGED, record=record)
    assert check(replace(challenged, state=state)) is not None
    with pytest.raises(InconsistentChain, match="record"):
        check(replace(challenged, state=replace(state, record=Hash32(b"w" * 32))))
