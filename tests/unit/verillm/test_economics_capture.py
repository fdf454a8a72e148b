import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from verillm.draw import draw_seats
from verillm.economics import capture
from verillm.errors import InputError
from verillm.hashing import keccak


def by_hand(seats: list[int], coalition: set[int], members: int) -> list[float]:
    """Every order in which owners can be drawn, one by one."""
    law = [0.0] * (members + 1)

    def step(left: frozenset[int], chance: float, inside: int, drawn: int) -> None:
        if drawn == members:
            law[inside] += chance
            return
        total = sum(seats[owner] for owner in left)
        for owner in left:
            part = chance * seats[owner] / total
            step(left - {owner}, part, inside + (owner in coalition), drawn + 1)

    step(frozenset(range(len(seats))), 1, 0, 0)
    return law


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=6),
    st.sets(st.integers(0, 2)),
    st.integers(1, 3),
)
def test_law_of_unequal_owners_is_that_of_every_order_by_hand(
    seats: list[int], coalition: set[int], members: int
) -> None:
    law = capture.coalition_members(seats, coalition, members)
    assert law == pytest.approx(by_hand(seats, coalition, members), abs=1e-12)
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize("seats", [1, 4])
@pytest.mark.parametrize(("owners", "coalition", "members"), [(20, 5, 5), (40, 13, 7), (5, 5, 3)])
def test_law_of_equal_owners_is_hypergeometric(
    owners: int, coalition: int, members: int, seats: int
) -> None:
    law = capture.coalition_members([seats] * owners, range(coalition), members)
    assert law == pytest.approx(capture.hypergeometric(owners, coalition, members), abs=1e-12)


def test_law_is_that_of_the_real_draw() -> None:
    seats, members, draws = [6, 1, 1, 3, 2, 2], 3, 3000
    coalition = {0, 3}
    slots = [str(owner) for owner, held in enumerate(seats) for _ in range(held)]
    seen = np.zeros(members + 1)
    for job in range(draws):
        seed = keccak(job.to_bytes(32, "big"))
        drawn = draw_seats(seed, len(slots), slots.__getitem__, "nobody", members)
        seen[sum(int(owner) in coalition for _, owner in drawn)] += 1
    law = capture.coalition_members(seats, coalition, members)
    spread = np.sqrt(law * (1 - law) / draws)
    assert np.all(np.abs(seen / draws - law) < 4.5 * spread + 1e-9)


def test_splitting_stake_over_seats_changes_nothing_but_over_owners_it_does() -> None:
    whole = capture.capture([4, 4, 4, 4, 4, 4], {0, 1}, 3)
    scaled = capture.capture([1, 1, 1, 1, 1, 1], {0, 1}, 3)
    split = capture.capture([4, 4, 4, 4, 2, 2, 2, 2], {4, 5, 6, 7}, 3)
    assert whole == pytest.approx(scaled)
    assert split > whole


def test_majority_blocking_and_unanimity_are_tails_of_one_law() -> None:
    seats, coalition = [1] * 12, range(5)
    law = capture.hypergeometric(12, 5, 4)
    assert capture.capture(seats, coalition, 4) == pytest.approx(law[3:].sum())
    assert capture.blocking(seats, coalition, 4) == pytest.approx(law[2:].sum())
    assert capture.unanimity(seats, coalition, 4) == pytest.approx(law[4])


def test_only_an_owner_of_nearly_all_seats_exhausts_a_draw() -> None:
    assert capture.exhaustion([1] * 8, 7) < 1e-12
    assert capture.exhaustion([1000, 1, 1], 3) > 0.1
    assert capture.exhaustion([5], 1) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: capture.coalition_members([1, 0, 1], {0}, 1),
        lambda: capture.coalition_members([], set(), 1),
        lambda: capture.coalition_members([1, 1], {2}, 1),
        lambda: capture.coalition_members([1, 1], {0}, 3),
        lambda: capture.hypergeometric(3, 4, 1),
        lambda: capture.exhaustion([1], 2),
    ],
)
def test_impossible_draws_are_refused(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(InputError):
        ask()
