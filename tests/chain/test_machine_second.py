"""The machine of `test_machine` where second committees are asked too, in a town of more owners.

A module of its own: two towns on one chain would move each other's clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis.errors import FlakyFailure

from tests.chain.casework import Plan
from tests.chain.conftest import Net
from tests.chain.jobs import Jobs
from tests.chain.life import AS_EVER, SIZE, VERDICTS, Life, live
from tests.chain.questions import Questions
from tests.chain.town import CONFIG, Town, inhabited
from tests.reference import Network, appeals as reference
from tests.reference.state import Appeal
from verillm.appeal import size_of
from verillm.chain.reads import Status
from verillm.second import conclude
from verillm.types import Reason

OWNERS: Final = 9
"""With first committees of three a second one has seven members, and the inferencer is none."""


@pytest.fixture(scope="module")
def city(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed, workers=OWNERS) as made:
        yield made


class Doubts(Questions, Jobs):
    """Re-verifications beside everything that happens to jobs."""


def test_a_second_committee_does_what_the_reference_says(city: Town) -> None:
    live(city, Questions, max_examples=4, stateful_step_count=15, **AS_EVER)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rules", [Questions, Doubts])
def test_a_second_committee_does_what_the_reference_says_for_long(
    city: Town, rules: type[Life]
) -> None:
    live(city, rules, max_examples=10, stateful_step_count=40)


# ── Would a wrong rule be seen? ──────────────────────────────────────────────────────────────────
Patch = pytest.MonkeyPatch
NEW: Final = size_of(SIZE)
LIARS: Final = Plan(wrong=frozenset(range(SIZE + 1)), alike=True)


@dataclass(frozen=True)
class Doubt:
    """One question that the machine asks of an accepted job, and goes through with.

    absent : new members that commit to nothing. words : of these, one by one, on the tokens.
    """

    plan: Plan = Plan()  # noqa: RUF009 - frozen
    absent: frozenset[int] = frozenset()
    words: tuple[int, ...] = ()


def doubted(city: Town, doubt: Doubt) -> None:
    """A life of the machine's own steps, one after the other."""
    life: Any = type("Here", (Questions,), {"town": city})()
    try:
        while not life.cases or life.work.forced(life.cases[-1]):
            life.claim_another(plan=doubt.plan, verdict=VERDICTS[0])
        life.ask(by=2, parts="all", before=0)
        assert life._at(Status.REVERIFYING)
        life.convene(by=0, wait=12)
        life.recommit(by=0, absent=doubt.absent, strange=False)
        if doubt.absent:
            life.wait(seconds=2 * CONFIG.opening_window)
            life.close_commits(by=0)
        life.start_round(by=0, wait=12)
        assert life.again
        life.both_hold_the_same()
        for who in doubt.words:
            life.reject_tokens(who=who, many=False, reason=Reason.LENGTH)
        life.open_again(silent=frozenset(), lazy=NEW)
        life.conclude(by=0, late=2 * CONFIG.opening_window)
        assert not life._at(Status.REVERIFYING)
        life.both_hold_the_same()
    finally:
        life.teardown()


def a_smaller_committee_sits(patch: Patch) -> None:
    patch.setattr(reference, "size_of", lambda size: size_of(size) - 2)


def asks_without_a_bond(patch: Patch) -> None:
    lock = Network._lock

    def wrong(self: Network, operator: Any, amount: int, reserve: int = 0) -> None:
        if amount != CONFIG.reverify_bond:
            lock(self, operator, amount, reserve)

    patch.setattr(Network, "_lock", wrong)


def new_members_lock_nothing(patch: Patch) -> None:
    patch.setattr(Network, "_lock_up_to", lambda *_: 0)


def no_wage(patch: Patch) -> None:
    def wrong(terms: Any, stakes: Any, bond: int, ending: Any, second: Any) -> Any:
        return conclude(terms, stakes, 0, ending, second)

    patch.setattr(reference, "conclude", wrong)


def whoever_is_absent_is_paid(patch: Patch) -> None:
    patch.setattr(Appeal, "committed", property(lambda _: frozenset(range(1, NEW + 1))))


def of_liars_only_the_first_is_seen(patch: Patch) -> None:
    """Right for first committees of one."""
    witness = Network._witness

    def wrong(self: Network, found: Any, profile: Any, party: int, *values: Any) -> str:
        how = witness(self, found, profile, party, *values)
        return how if party == NEW + 1 else how.replace("strange", "")

    patch.setattr(Network, "_witness", wrong)


def two_words_are_enough(patch: Patch) -> None:
    """Right for first committees of one."""

    def wrong(appeal: Appeal) -> Reason:
        return Reason.LENGTH if len(appeal.objections) > 1 else Reason.NONE

    patch.setattr(reference, "_majority", wrong)


BROKEN: list[tuple[Callable[[Patch], None], Doubt]] = [
    (a_smaller_committee_sits, Doubt()),
    (asks_without_a_bond, Doubt()),
    (new_members_lock_nothing, Doubt()),
    (no_wage, Doubt()),
    (whoever_is_absent_is_paid, Doubt(absent=frozenset({1}))),
    (of_liars_only_the_first_is_seen, Doubt(LIARS)),
    (two_words_are_enough, Doubt(words=(0, 4, 6))),
]


@pytest.mark.parametrize(("wrong", "doubt"), BROKEN)
def test_power_a_wrong_rule_of_a_second_committee_is_seen_in_a_life(
    city: Town, wrong: Callable[[Patch], None], doubt: Doubt
) -> None:
    doubted(city, doubt)
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            doubted(city, doubt)


@pytest.mark.parametrize("wrong", [asks_without_a_bond, new_members_lock_nothing])
def test_power_the_machine_comes_upon_a_wrong_rule_of_a_second_committee(
    city: Town, wrong: Callable[[Patch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises((AssertionError, FlakyFailure)) as caught:
            live(city, Questions, max_examples=4, stateful_step_count=15, **AS_EVER)
    # The same life again has other block hashes: where it differs elsewhere it is called flaky.
    group = caught.value
    found = group.exceptions if isinstance(group, FlakyFailure) else (group,)
    assert all(isinstance(each, AssertionError) for each in found)
