"""Would a wrong rule be seen? One of each group is broken in the reference: it turns red."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.chain.casework import Plan, posted
from tests.chain.conftest import Net
from tests.chain.test_endings import Story, check
from tests.chain.town import CONFIG, Town, inhabited
from tests.reference import Network, ledger
from verillm.chain.reads import JobState, Status
from verillm.settlement import Way
from verillm.types import Outcome, Reason

HONEST = Story(
    way=Way.FINALIZED,
    claim=(Outcome.ACCEPT, Reason.NONE),
    paid=0b111,
    plan=Plan(),
    silent=frozenset(),
    price=7,
    max_fee=83,
    more=0,
    attested=False,
    late=False,
    poor=frozenset(),
)


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


Patch = pytest.MonkeyPatch


def never_unlocks(patch: Patch) -> None:
    patch.setattr(Network, "_unlock", lambda *_: None)


def burns_what_it_pays(patch: Patch) -> None:
    credit = Network._credit

    def wrong(self: Network, job: Any, operator: Any, amount: int) -> None:
        if amount >= CONFIG.claim_bond:
            return self._burn(job, amount)
        return credit(self, job, operator, amount)

    patch.setattr(Network, "_credit", wrong)


def locks_no_bond(patch: Patch) -> None:
    lock = Network._lock

    def wrong(self: Network, operator: Any, amount: int, reserve: int = 0) -> None:
        if amount != CONFIG.claim_bond:
            lock(self, operator, amount, reserve)

    patch.setattr(Network, "_lock", wrong)


def gives_no_escrow_back(patch: Patch) -> None:
    patch.setattr(Network, "_give_back", lambda *_: None)


def draws_the_inferencer(patch: Patch) -> None:
    drawn = Network.drawn_seats

    def wrong(self: Network, posting: Any, seed: Any) -> Any:
        return drawn(self, replace(posting, worker=ledger.DEAD), seed)

    patch.setattr(Network, "drawn_seats", wrong)


def ends_a_window_late(patch: Patch) -> None:
    enter = Network._enter

    def wrong(self: Network, job: Any, status: Status, window: int, record: Any) -> None:
        enter(self, job, status, window + 1, record)

    patch.setattr(Network, "_enter", wrong)


def forgets_the_record(patch: Patch) -> None:
    end = Network._end

    def wrong(self: Network, posting: Any, *values: Any, **named: Any) -> None:
        end(self, posting, *values, **named)
        self.state.jobs[self._identity(posting)] = JobState(Status.FINAL, 0, bytes(32))  # type: ignore[arg-type]

    patch.setattr(Network, "_end", wrong)


def takes_any_attestation(patch: Patch) -> None:
    patch.setattr(Network, "_require_attested", lambda *_: None)


def pays_the_silent(patch: Patch) -> None:
    judged = Network._judged

    def wrong(self: Network, record: Any) -> Any:
        found, reason = judged(self, record)
        return replace(found, lost=found.lost & {0}), reason

    patch.setattr(Network, "_judged", wrong)


OVERTURNED = replace(HONEST, way=Way.UPHELD, plan=Plan(wrong=frozenset({0})))
MUTE = replace(HONEST, way=Way.UPHELD, silent=frozenset({2}))


@pytest.mark.parametrize(
    ("wrong", "story"),
    [
        (never_unlocks, HONEST),
        (burns_what_it_pays, OVERTURNED),
        (locks_no_bond, HONEST),
        (gives_no_escrow_back, HONEST),
        (ends_a_window_late, HONEST),
        (forgets_the_record, HONEST),
        (pays_the_silent, MUTE),
    ],
)
def test_power_a_wrong_rule_of_money_or_time_is_seen(
    town: Town, wrong: Callable[[Patch], None], story: Story
) -> None:
    check(town, story)
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            check(town, story)


def test_power_a_wrong_draw_is_seen(town: Town) -> None:
    """One of several drafts at least meets a draw in which the inferencer would stand."""
    with pytest.MonkeyPatch.context() as patch, town.beside.undone():
        draws_the_inferencer(patch)
        with pytest.raises((AssertionError, StopIteration)):
            for _ in range(12):
                town.seal(town.post(town.draft(Plan())))


def test_power_an_attestation_that_only_the_reference_takes_is_seen(town: Town) -> None:
    with pytest.MonkeyPatch.context() as patch, town.beside.undone():
        case = town.seal(town.post(town.draft(Plan())))
        takes_any_attestation(patch)
        nobody = [b"", b"", b""]
        values = [posted(case), case.sealing, Outcome.REFUND, Reason.LENGTH, 7, case.bundle, nobody]
        with pytest.raises(AssertionError, match="AttestationsInsufficient"):
            town.beside.send(case.scheduler.address, "claim", *values)


def test_power_a_seat_that_only_the_reference_has_is_seen(town: Town) -> None:
    with town.beside.undone():
        model = town.work.model
        seat = town.beside.reference.seat_of(model, 0)
        town.beside.reference.state.seats[model, 0] = replace(seat, left_at=1)
        with pytest.raises(AssertionError, match="seatOf"):
            town.beside.compare()
