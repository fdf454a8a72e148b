"""The money of a re-verification: nothing is made or lost, and each party's part by the rules."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.unit.verillm.test_settlement import AMOUNT, TERMS, VERDICTS, stakes
from verillm.errors import InputError
from verillm.second import Second, conclude, ending_of
from verillm.settlement import Claim, Judged, Way
from verillm.types import Outcome, Reason

SIZE, MORE = 3, 7
ACCEPT = Claim(Outcome.ACCEPT, Reason.NONE)
BOND = 1_303


def second(outcome: Outcome, **changes: object) -> Second:
    """Everyone of the new committee was there, everyone of the first one agrees."""
    whole = Second(
        outcome,
        (100,) * MORE,
        paid=frozenset(range(1, MORE + 1)),
        near=frozenset(range(1, SIZE + 1)),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@st.composite
def claims(draw: st.DrawFn) -> Claim | None:
    unpaid = draw(st.frozensets(st.integers(1, SIZE)))
    reasons = st.sampled_from([Reason.NONE, Reason.WITHHELD, Reason.LENGTH])
    claim = Claim(draw(st.sampled_from(VERDICTS)), draw(reasons), unpaid)
    return draw(st.sampled_from([claim, claim, None]))


@st.composite
def seconds(draw: st.DrawFn) -> Second:
    new = st.integers(1, MORE)
    lost = draw(st.frozensets(new))
    first = st.frozensets(st.integers(1, SIZE))
    near = draw(first)
    return Second(
        draw(st.sampled_from(VERDICTS)),
        tuple(draw(st.integers(0, 2**90)) for _ in range(MORE)),
        heard=draw(st.booleans()),
        withheld=draw(st.booleans()),
        lost=lost,
        paid=draw(st.frozensets(new)) - lost,
        near=near,
        strangers=draw(first) - near,
    )


@given(
    claim=claims(), found=seconds(), before=seconds(), bond=AMOUNT, flags=st.lists(st.booleans(),
    min_size=3, max_size=3),
)  # fmt: skip
def test_whatever_a_reverification_says_money_in_is_money_out_and_burnt(
    claim: Claim | None, found: Second, before: Second, bond: int, flags: list[bool]
) -> None:
    judged = Judged(before.outcome, before.strangers, before.near)
    of_claim = flags[0] and claim is not None
    ending = ending_of(claim, SIZE, found, None if of_claim else judged)
    bonded = flags[1] and not of_claim and claim is not None
    ending = replace(ending, bonded=bonded, forced=flags[2] and not of_claim)
    held = stakes()
    paid = conclude(TERMS, held, bond, ending, found)
    assert paid.total == held.max_fee
    assert -bond <= paid.requester <= 0
    assert paid.shares.burnt + paid.burnt >= 0


def test_what_stands_costs_the_requester_its_bond() -> None:
    found = second(Outcome.ACCEPT)
    paid = conclude(TERMS, stakes(), BOND, ending_of(ACCEPT, SIZE, found), found)
    assert paid.requester == -BOND
    assert paid.members == (BOND // 14,) * MORE
    assert paid.burnt == BOND - 7 * (BOND // 14)


def test_a_round_that_says_nothing_costs_the_wages_only() -> None:
    found = second(Outcome.INCONCLUSIVE, strangers=frozenset({1}), near=frozenset[int]())
    ending = ending_of(ACCEPT, SIZE, found)
    paid = conclude(TERMS, stakes(), BOND, ending, found)
    assert paid.requester == -7 * (BOND // 14)
    assert ending.lost == frozenset()


def test_who_asked_wins_what_a_false_claim_forfeits_and_the_finders_fee() -> None:
    found = second(Outcome.SLASH, near=frozenset({2, 3}), strangers=frozenset({1}))
    ending = ending_of(ACCEPT, SIZE, found)
    paid = conclude(TERMS, stakes(), BOND, ending, found)
    assert ending.way is Way.OVERTURNED
    assert paid.shares.claimer == -TERMS.claim_bond
    assert paid.shares.finder == TERMS.claim_bond + stakes().fee
    assert paid.shares.committee[0] == -stakes().lock
    assert paid.requester == -7 * (BOND // 14)


def test_a_false_claim_of_silence_forfeits_half_to_nobody() -> None:
    claim = Claim(Outcome.SLASH, Reason.WITHHELD)
    found = second(Outcome.ACCEPT)
    paid = conclude(TERMS, stakes(), BOND, ending_of(claim, SIZE, found), found)
    assert paid.shares.claimer == -TERMS.claim_bond // 2
    assert paid.shares.finder == 0


def test_no_reason_of_a_claim_outlives_a_larger_committee() -> None:
    claim = Claim(Outcome.REFUND, Reason.LENGTH)
    found = second(Outcome.ACCEPT)
    assert ending_of(claim, SIZE, found).outcome is Outcome.ACCEPT


def test_a_member_is_not_paid_for_what_it_loses() -> None:
    with pytest.raises(InputError):
        second(Outcome.ACCEPT, lost=frozenset({1}))


def test_nothing_that_was_not_claimed_or_judged_is_verified_again() -> None:
    with pytest.raises(InputError):
        ending_of(None, SIZE, second(Outcome.ACCEPT))
