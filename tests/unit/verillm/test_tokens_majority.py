"""No single verifier convicts an honest token or acquits a forged one."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.unit.verillm.builders import DOMAIN, SEAL_BEACON, Plan, World, head, make_world
from verillm.errors import EvidenceError
from verillm.tokens import Vote, majority
from verillm.trace import TraceItem
from verillm.types import Outcome, Reason
from verillm.verdict import Verdict, judge_bundle

VOTES = st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans())
ABSTAINS = None
STRANGE = np.uint16(0x4180)  # 16.0


@given(VOTES, VOTES, st.one_of(VOTES, st.none()), st.permutations(range(3)))
def test_what_three_say_isWithinWhatTheTwoHonestSay_whateverTheThirdSays(
    one: Vote, other: Vote, liar: Vote | None, order: list[int]
) -> None:
    cast = [(one, other, liar)[at] for at in order]
    found = majority(cast)
    for tier in (0, 1):
        low, high = sorted((one[tier], other[tier]))
        assert low <= found[tier] <= high
    if one[2] == other[2]:
        assert found[2] == one[2]


@given(st.lists(VOTES, min_size=1, max_size=9))
def test_a_margin_isReached_byMoreThanHalf_andNoLargerOneIs(cast: list[Vote]) -> None:
    found = majority(cast)
    for tier in (0, 1):
        reached = sum(vote[tier] >= found[tier] for vote in cast)
        assert 2 * reached > len(cast)
        assert 2 * sum(vote[tier] > found[tier] for vote in cast) <= len(cast)


@pytest.mark.parametrize("cast", [[], [ABSTAINS], [(1, 1, True), ABSTAINS]], ids=str)
def test_without_a_majority_nothingIsSaid(cast: list[Vote | None]) -> None:
    with pytest.raises(EvidenceError) as raised:
        majority(cast)
    assert raised.value.reason is Reason.EVIDENCE_MISSING


def shifted(liars: frozenset[int], party: int, item: TraceItem) -> TraceItem:
    """A liar's final state that chose one token is far off; everything else is true."""
    if party not in liars or item.item:
        return item
    finals = item.finals.copy()
    finals[-2] = STRANGE
    return replace(item, finals=finals)


def judged(world: World) -> Verdict:
    return judge_bundle(
        world.bundle, world.posting, world.sealing, world.spec, DOMAIN, SEAL_BEACON, head()
    )


@pytest.mark.parametrize("liar", [1, 2, 3])
def test_one_verifiersGarbageAtOneToken_movesNothing(liar: int) -> None:
    verdict = judged(make_world(Plan(run=partial(shifted, frozenset({liar})))))
    assert (verdict.outcome, verdict.reason) == (Outcome.ACCEPT, Reason.NONE)
    assert liar in verdict.details.accepting[0], "the liar was within the tolerance of states"


def test_power_twoVerifiersGarbage_wouldConvict_soTheOneAboveIsSeen() -> None:
    verdict = judged(make_world(Plan(run=partial(shifted, frozenset({1, 2})))))
    assert verdict.outcome is not Outcome.ACCEPT
