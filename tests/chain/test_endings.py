"""Every end that a job can have, with random fees, locks, masks and bonds: the contract pays what
`verillm.settlement` says.

The reference applies `settle` to its accounts, and `Beside` compares after each call what everyone
gained. Here the ways to an end are taken on purpose, so that no outcome is left to chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import DrawFn, booleans, composite, frozensets, integers, sampled_from

from tests.chain.casework import PRICE, PROMPT, Case, Plan, posted, sealed
from tests.chain.conftest import Net
from tests.chain.town import CONFIG, Town, inhabited
from verillm.chain import events
from verillm.settlement import Way
from verillm.types import Outcome, Reason
from verillm_verifier import facts
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.money import check_money

SIZE = 3
CLAIMS = [
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.REFUND, Reason.STATES_DIFFER),
    (Outcome.REFUND, Reason.LENGTH),
    (Outcome.SLASH, Reason.WITHHELD),
    (Outcome.SLASH, Reason.MARGIN_MAX),
    (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE),
]


@dataclass(frozen=True)
class Story:
    """How a job goes: what it holds, how it ends, who does what on the way."""

    way: Way
    claim: tuple[Outcome, Reason]
    paid: int
    plan: Plan
    silent: frozenset[int]
    price: int
    max_fee: int
    more: int
    attested: bool
    late: bool
    poor: frozenset[int]


@composite
def stories(draw: DrawFn) -> Story:
    tokens = len(PROMPT) + 5
    most = draw(integers(0, 3 * PRICE * tokens))
    return Story(
        way=draw(sampled_from([Way.UNSEALED, Way.FINALIZED, Way.UNCLAIMED, Way.UPHELD, Way.LOST])),
        claim=draw(sampled_from(CLAIMS)),
        paid=draw(integers(0, (1 << SIZE) - 1)),
        plan=Plan(
            requests=draw(sampled_from([1, 2])),
            wrong=draw(frozensets(integers(0, SIZE), max_size=2)),
            nan=draw(frozensets(integers(0, SIZE), max_size=1)),
        ),
        silent=draw(frozensets(integers(0, SIZE), max_size=3)),
        price=draw(integers(PRICE, 3 * PRICE)),
        max_fee=most,
        more=draw(integers(0, 500)),
        attested=draw(booleans()),
        late=draw(booleans()),
        poor=draw(frozensets(integers(0, 5), max_size=3)),
    )


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


def tell(town: Town, story: Story) -> events.Finalized:
    """Take a job to its end; `Beside` holds the contract to the reference on each step."""
    here, work, auditor = town.beside, town.work, town.auditor.address
    for worker in story.poor:  # whose withdrawal is pending has little left to lock
        free = here.reference.account(town.workers[worker].address)
        amount = max(1, free.balance - free.staked)
        here.send(town.workers[worker].address, "request_stake_withdrawal", amount)
    case = town.draft(story.plan, max_fee=story.max_fee, unit_price=story.price)
    case.lock += story.more
    town.post(case)
    if story.way is Way.UNSEALED:
        here.pass_time(CONFIG.seal_window - 1)
        return ended(here.must(auditor, "refund", posted(case)).events)
    town.seal(case)
    if story.way in (Way.UNCLAIMED, Way.LOST):
        if story.way is Way.LOST:
            here.forget(sealed(case).sealed_block)
        here.pass_time(CONFIG.claim_window - 1)
    else:
        claim(town, case, story)
    if story.way is Way.FINALIZED:
        here.pass_time(CONFIG.dispute_window - 1)
        said = here.send(auditor, "finalize", *work.record(case))
        assert (said.error == "RoundForced") is work.forced(case)
        if said.error is None:
            return ended(said.events)
    said = here.must(town.operators[1].address, "challenge", *challenge(town, case, story))
    if story.way is Way.LOST:
        return ended(said.events)
    openly(town, case, story.silent)
    here.pass_time(2 * CONFIG.opening_window)
    here.must(auditor, "adjudicate", *work.record(case))
    if story.late:
        word = work.attestation(case, Outcome.REFUND, Reason.LENGTH)
        signed = everyone(town, case, Outcome.REFUND, Reason.LENGTH)
        finder = town.hot[town.schedulers[1].address].address
        here.send(finder, "attest", *work.record(case), word, signed)
    here.pass_time(CONFIG.dispute_window)
    return ended(here.must(auditor, "settle", *work.record(case)).events)


def claim(town: Town, case: Case, story: Story) -> None:
    signed = everyone(town, case, *story.claim)
    values = [posted(case), sealed(case), *story.claim, story.paid, case.bundle, signed]
    said = town.beside.must(town.hot[town.schedulers[0].address].address, "claim", *values)
    town.took(case, said.events)


def challenge(town: Town, case: Case, story: Story) -> tuple[Any, ...]:
    record = town.work.record(case)
    if not story.attested or story.way is Way.LOST:
        return record
    verdict = (Outcome.REFUND, Reason.MARGIN_MEAN)
    return (*record, *verdict, case.bundle, everyone(town, case, *verdict))


def everyone(town: Town, case: Case, outcome: Outcome, reason: Reason) -> list[bytes]:
    members = [town.signer(owner) for owner in sealed(case).owners]
    return town.work.attestations(case, outcome, reason, members)


def openly(town: Town, case: Case, silent: frozenset[int]) -> None:
    """Everyone opens everything but the silent."""
    auditor, work = town.auditor.address, town.work
    if 0 in silent and len(silent) > 1:
        return  # not even its lengths
    shown = [party for party in range(SIZE + 1) if party not in silent]
    for place in range(len(work.checked(case))):
        town.beside.must(auditor, "reveal", *work.reveal(case, place))
        for index in range(len(work.where(case, place))):
            town.beside.must(auditor, "compare", *work.compare(case, place, index, shown))


def ended(said: tuple[Any, ...]) -> events.Finalized:
    (found,) = (each for each in said if isinstance(each, events.Finalized))
    return found


def check(town: Town, story: Story) -> None:
    with town.beside.undone():
        tell(town, story)
        town.beside.compare()
        audit(town)


def audit(town: Town) -> None:
    """A stranger recomputes everyone's money from the chain, and notices a unit that moved."""
    known = facts.read(town.beside.chain, town.beside.watched.jobs[-1])
    facts.check(known)
    check_money(known)
    job, scheduler = known.history.job_id, known.posting.quote.scheduler
    made = (events.Paid(job, known.posting.worker, 1), events.Slashed(job, scheduler, 1))
    last = known.history.events[-1]
    told = (*known.history.events, *(replace(last, event=event) for event in made))
    with pytest.raises(InconsistentChain, match="demands"):
        check_money(replace(known, history=events.JobHistory(job, told)))


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(story=stories())
def test_every_end_pays_what_the_settlement_says(town: Town, story: Story) -> None:
    check(town, story)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=200, deadline=None, database=None)
@given(story=stories())
def test_every_end_pays_what_the_settlement_says_at_length(town: Town, story: Story) -> None:
    check(town, story)
