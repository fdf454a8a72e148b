"""What moved against what the outcome demands: one unit amiss is found."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.verifier.lab import CLIENT, CONFIG, END, SCHEDULER, Played, at
from verillm.chain.events import Burnt, Paid, Slashed
from verillm.types import Outcome, Reason
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.facts import Facts
from verillm_verifier.money import check_money, moved

BPS = 10_000


def paid(facts: Facts, *events: Any) -> Facts:
    """The same job, with money events before its end."""
    *before, end = facts.history.events
    told = (*before, *(at(event, END) for event in events), end)
    return replace(facts, history=replace(facts.history, events=told))


def accepted(played: Played) -> Facts:
    """The events of an accepted job, written out by hand."""
    facts = played.facts()
    job, fee, most = facts.history.job_id, played.sealing.fee, played.posting.job.max_fee
    each = fee * CONFIG.committee_bps // BPS // 3
    first = fee * CONFIG.inferencer_bps // BPS
    owners = owners_of(played)
    return paid(
        facts,
        *(Paid(job, owner, each) for owner in owners),
        Paid(job, played.posting.worker, first),
        Paid(job, SCHEDULER.address, fee - first - 3 * each),
        Paid(job, CLIENT.address, most - fee),
    )


def slashed(played: Played) -> Facts:
    """The events of a slashed job: committee and finder from the lock, the rest burnt."""
    facts = played.facts(Outcome.SLASH, Reason.STATES_DIFFER)
    claiming = facts.claiming
    assert claiming is not None
    job, fee, lock = facts.history.job_id, played.sealing.fee, played.posting.lock
    each = fee * CONFIG.committee_bps // BPS // 3
    found = min(lock - 3 * each, fee)
    return paid(
        facts,
        *(Paid(job, owner, each) for owner in owners_of(played)),
        Slashed(job, played.posting.worker, lock),
        Paid(job, claiming.claimer, found),
        Paid(job, CLIENT.address, played.posting.job.max_fee),
        Burnt(job, lock - 3 * each - found),
    )


def owners_of(played: Played) -> tuple[Any, ...]:
    return played.sealing.owners


@pytest.mark.parametrize("story", [accepted, slashed])
def test_the_money_of_an_outcome_is_recomputed_account_by_account(
    honest: Played, story: Any
) -> None:
    found = check_money(story(honest))
    assert sum(found.accounts.values()) + found.burnt == honest.posting.job.max_fee


def test_a_slash_takes_the_whole_lock(honest: Played) -> None:
    found = moved(slashed(honest))
    assert found.accounts[honest.posting.worker] == -honest.posting.lock
    assert found.burnt > 0


@pytest.mark.parametrize("story", [accepted, slashed])
def test_one_unit_more_for_anyone_is_found(honest: Played, story: Any) -> None:
    facts = story(honest)
    for number, told in enumerate(facts.history.events):
        if isinstance(told.event, Paid | Slashed | Burnt):
            event = replace(told.event, amount=told.event.amount + 1)
            changed = list(facts.history.events)
            changed[number] = replace(told, event=event)
            history = replace(facts.history, events=tuple(changed))
            with pytest.raises(InconsistentChain, match="add up"):
                check_money(replace(facts, history=history))


@pytest.mark.parametrize("story", [accepted, slashed])
def test_a_unit_moved_from_one_account_to_another_is_found(honest: Played, story: Any) -> None:
    facts = story(honest)
    job = facts.history.job_id
    with pytest.raises(InconsistentChain, match="demands"):
        check_money(
            paid(facts, Paid(job, SCHEDULER.address, 1), Slashed(job, honest.posting.worker, 1))
        )


def test_a_running_job_has_nothing_to_add_up(honest: Played) -> None:
    assert check_money(honest.facts(until=20)).accounts == {}
