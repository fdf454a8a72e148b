"""How rough a job's states are: by hand, by vectors, and within what it is drawn and capped to."""

from itertools import combinations
from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from verillm.errors import MalformedError
from verillm.roughness import Scale, squares
from verillm.types import Ints

SCALE = Scale(10_000, 16_000)


def apart(*each: int) -> Ints:
    return np.array(each, np.int64)


def test_one_member_isItsOwnAverage() -> None:
    assert squares([apart(3, 0, 70_000)], []) == (9, 0, 4_900_000_000)


def test_between_two_members_aQuarterOfTheirOwnSpreadIsNone() -> None:
    # (5² + 7²) / 2 - 6² / 4, and (5² + 8²) // 2 - 7² // 4.
    assert squares([apart(5, 5), apart(7, 8)], [apart(6, 7)]) == (28, 32)


def test_among_three_members_aNinthOfTheirPairsIsNone() -> None:
    # (10² + 11² + 13²) / 3 - (5² + 6² + 7²) // 9.
    assert squares([apart(10), apart(11), apart(13)], [apart(5), apart(6), apart(7)]) == (118,)


def test_a_spread_beyondWhatIsShown_isNothing_neverLess() -> None:
    assert squares([apart(3, 3), apart(3, 3)], [apart(6, 20)]) == (0, 0)


def test_no_positions_haveNoSquares() -> None:
    assert squares([apart(), apart()], [apart()]) == ()


def test_squares_arePlainIntegers() -> None:
    assert {type(each) for each in squares([apart(5, 7)], [])} == {int}


def test_a_square_ofTheFarthestDistance_isExact() -> None:
    assert squares([apart(2_000_000)] * 3, [apart(0)] * 3) == (4 * 10**12,)


def relative(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The distance of `verillm.statistics` without its rounding, ppm."""
    return 1e6 * sqrt(2 * float(((a - b) ** 2).sum()) / float((a**2 + b**2).sum()))


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_the_squares_areThoseOfTheDistanceToTheAverage_ofRealVectors(members: int) -> None:
    random = np.random.default_rng(members)
    shown: list[list[int]] = [[] for _ in range(members)]
    among: list[list[int]] = [[] for _ in combinations(range(members), 2)]
    expected = []
    for _ in range(20):
        true = random.standard_normal(576)
        mine, *others = (
            true + noise * random.standard_normal(576)
            for noise in random.uniform(0.005, 0.02, members + 1)
        )
        for k, other in enumerate(others):
            shown[k].append(int(relative(mine, other)))
        for k, pair in enumerate(combinations(others, 2)):
            among[k].append(int(relative(*pair)))
        expected.append(relative(mine, np.mean(others, axis=0)) ** 2)
    found = squares([apart(*each) for each in shown], [apart(*each) for each in among])
    assert found == pytest.approx(expected, rel=0.01)


DISTANCES = st.lists(st.integers(0, 2_000_000), min_size=6, max_size=6)


@given(DISTANCES)
def test_squares_areNeverNegative_norBeyondTheFarthestMembers(each: list[int]) -> None:
    one = [apart(distance) for distance in each]
    (found,) = squares(one[:3], one[3:])
    assert 0 <= found <= max(each[:3]) ** 2


# ── A job's roughness ────────────────────────────────────────────────────────────────────────────
def test_a_job_withoutPositions_isTypical() -> None:
    assert SCALE.of(()) == 10_000


def test_identical_states_areDrawnToWhatIsTypical_andNeverNothing() -> None:
    # √(4 / (4 + 12)) of the typical, and of so many positions still something to divide by.
    assert SCALE.of((0,) * 12) == 5_000
    assert SCALE.of((0,) * 396) == 1_000


def test_a_job_isNeverWithoutRoughness_howeverLittleIsTypical() -> None:
    assert Scale(1, 1).of((0,)) == Scale(2, 9).of((0,) * 100) == 1
    assert Scale(1, 1).scaled([7, -7], (0,)) == (7_000, -7_000)


def test_many_rough_positions_countAsTheMost() -> None:
    assert SCALE.of((10**12,) * 64) == 16_000


def test_a_middleCase_isAsByHand() -> None:
    # (4 · 10⁸ + 1 · 10⁸ + 4 · 10⁸) / 6 = 1.5 · 10⁸
    assert SCALE.of((100_000_000, 400_000_000)) == isqrt(150_000_000) == 12_247


def test_a_roughness_justBelowTheMost_isItsOwn() -> None:
    just, over = 16_000**2, 16_001**2
    assert Scale(10_000, 16_001).of((5 * over - 4 * 10**8,)) == 16_001
    assert SCALE.of((5 * just - 4 * 10**8 - 1,)) == 15_999
    assert SCALE.of((5 * over - 4 * 10**8,)) == 16_000


SQUARES = st.lists(st.integers(0, 10) | st.integers(0, 4 * 10**12), max_size=40)
SCALES = st.tuples(st.integers(1, 10) | st.integers(1, 100_000), st.integers(0, 100_000)).map(
    lambda drawn: Scale(drawn[0], drawn[0] + drawn[1])
)


@given(SCALES, SQUARES)
def test_a_roughness_isBetweenItsShareOfTheTypical_andTheMost(
    scale: Scale, found: list[int]
) -> None:
    least = max(1, isqrt(4 * scale.typical**2 // (len(found) + 4)))
    assert least <= scale.of(found) <= scale.most


@given(SCALES, SQUARES)
def test_a_roughness_isBetweenTheTypicalAndThePositionsOwn_upToTheMost(
    scale: Scale, found: list[int]
) -> None:
    own = isqrt(sum(found) // len(found)) if found else scale.typical
    low, high = sorted((own, scale.typical))
    assert max(1, min(low, scale.most)) <= scale.of(found) <= min(high, scale.most)


@given(SCALES, SQUARES.filter(bool), st.integers(0, 10**12))
def test_a_rougher_position_makesNoJobSmoother(scale: Scale, found: list[int], more: int) -> None:
    first, *rest = found
    assert scale.of([first + more, *rest]) >= scale.of(found)


@given(SCALES, SQUARES)
def test_a_roughness_isTheSame_inAnyOrder(scale: Scale, found: list[int]) -> None:
    assert scale.of(found[::-1]) == scale.of(found)


# ── Leads ────────────────────────────────────────────────────────────────────────────────────────
def test_leads_areToldInThousandths_roundedDown() -> None:
    scale = Scale(3_000, 3_000)
    assert scale.scaled([10_000, 10, -10, 3, 2, 0, -1, -3], ()) == (3333, 3, -4, 1, 0, 0, -1, -1)


def test_leads_areDivided_byTheirOwnJobsRoughness() -> None:
    assert SCALE.scaled([50_000, -50_000], (0,) * 12) == (10_000, -10_000)
    assert SCALE.scaled(iter([32_000, -32_000]), (10**12,) * 64) == (2_000, -2_000)


def test_a_job_withoutTokens_hasNoLeads() -> None:
    assert SCALE.scaled([], (1, 2)) == ()


@given(SCALES, SQUARES, st.lists(st.integers(-(10**9), 10**9)))
def test_scaled_leads_keepOrder_andWhoWins(
    scale: Scale, found: list[int], leads: list[int]
) -> None:
    told = scale.scaled(sorted(leads), found)
    assert list(told) == sorted(told)
    assert sum(each < 0 for each in told) == sum(each < 0 for each in leads)


# ── Scales that cannot be ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("typical", "most"), [(0, 0), (0, 5), (-1, 5), (2, 1), (1, 0)])
def test_a_scale_thatDoesNotAscendFromAboveZero_isRefused(typical: int, most: int) -> None:
    with pytest.raises(MalformedError, match=r"^roughness: not ascending from above 0$"):
        Scale(typical, most)


def test_a_scale_whoseTypicalIsTheMost_isOne() -> None:
    assert Scale(1, 1).of((10**6,)) == 1
