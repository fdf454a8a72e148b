from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, strategies as st

from verillm.economics import lemmas
from verillm.errors import InputError

SHARE = st.floats(0.01, 0.99)


def test_published_sizes_of_reverification_hold_for_one_noise() -> None:
    for noise in (0.0185, 0.019, 0.0192):
        assert lemmas.reverification_size(0.8, noise, 1e-2) == 29
        assert lemmas.reverification_size(2 / 3, noise, 1e-3) == 146
    assert lemmas.reverification_size(0.8, 0, 1e-2) == 26
    assert lemmas.reverification_size(2 / 3, 0.0184, 1e-3) == 145
    assert lemmas.reverification_size(2 / 3, 0.0193, 1e-3) == 147
    assert lemmas.reverification_size(0.8, 0.0164, 1e-2) == 28
    assert lemmas.reverification_size(0.8, 0.0228, 1e-2) == 30


@given(st.floats(0.6, 1), st.floats(0, 0.1), st.floats(1e-6, 0.4))
def test_size_of_reverification_is_the_least_that_keeps_its_bound(
    honest: float, noise: float, error: float
) -> None:
    if honest * (1 - noise) <= 0.51:
        return
    size = lemmas.reverification_size(honest, noise, error)
    assert lemmas.reverification_error(size, honest, noise) < error * (1 + 1e-9)
    if size > 1:
        assert lemmas.reverification_error(size - 1, honest, noise) >= error * (1 - 1e-9)


@given(st.floats(0, 0.25), st.sampled_from([1, 3, 5, 7, 29]))
def test_first_committee_beats_a_coin_exactly_over_the_least_honest_share(
    noise: float, members: int
) -> None:
    least = lemmas.least_honest_share(noise)
    assert lemmas.majority_right(members, least, noise) == pytest.approx(0.5)
    assert lemmas.majority_right(members, least + 0.01, noise) > 0.5
    assert lemmas.majority_right(members, least - 0.01, noise) < 0.5


def test_true_error_of_a_reverification_is_below_its_bound() -> None:
    for honest, size in ((0.8, 29), (2 / 3, 147)):
        right = honest * (1 - 0.019)
        wrong = 1 - lemmas.binomial_tail(size, size // 2 + 1, right)
        assert wrong < lemmas.reverification_error(size, honest, 0.019)


@given(SHARE, SHARE)
def test_exposure_over_one_by_pq_is_where_a_cheat_worth_the_fee_stops_paying(
    check_rate: float, detection: float
) -> None:
    kappa = lemmas.least_kappa(check_rate, detection)
    caught = check_rate * detection

    def gain(exposure: float) -> float:
        return 1 - caught * exposure  # the fee for sure, the lock if caught

    assert gain(kappa) == pytest.approx(0, abs=1e-9)
    assert gain(kappa * 1.01) < 0 < gain(kappa * 0.99)
    if kappa * detection > 1.001:
        assert lemmas.least_check_rate(kappa, detection) == pytest.approx(check_rate)


@given(st.floats(0, 1000), SHARE, st.floats(0, 1))
def test_least_lock_is_where_a_forgery_breaks_even(gain: float, escape: float, pay: float) -> None:
    lock = lemmas.least_lock(gain, escape, pay)
    worth = escape * gain - (1 - escape) * (lock + pay)
    assert worth == pytest.approx(0, abs=1e-9) or (lock == 0 and worth < 0)


def test_least_detection_and_hiding_compare_saving_with_what_is_at_stake() -> None:
    assert lemmas.least_detection(0.3, 0.7, 0.8) == pytest.approx(0.2)
    assert lemmas.least_detection(2, 1, 0) == 2
    assert lemmas.least_hiding(0.01, 0.7, 1.3) == pytest.approx(0.005)


@pytest.mark.parametrize(("requests", "cheated", "checked"), [(6, 2, 3), (5, 5, 2), (7, 0, 4)])
def test_chance_to_catch_some_of_many_requests_is_the_mean_over_all_draws(
    requests: int, cheated: int, checked: int
) -> None:
    draws = list(combinations(range(requests), checked))
    missed = np.mean([0.7 ** sum(r < cheated for r in draw) for draw in draws])
    assert lemmas.caught(requests, cheated, checked, 0.3) == pytest.approx(1 - float(missed))
    assert len(draws) == comb(requests, checked)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: lemmas.least_honest_share(1.0),
        lambda: lemmas.majority_right(4, 0.8, 0),
        lambda: lemmas.reverification_size(0.5, 0, 0.01),
        lambda: lemmas.reverification_size(0.8, 0, 0),
        lambda: lemmas.reverification_size(float("nan"), 0, 0.1),
        lambda: lemmas.reverification_error(0, 0.8, 0),
        lambda: lemmas.least_kappa(0, 0.5),
        lambda: lemmas.least_check_rate(2, 0.5),
        lambda: lemmas.least_detection(1, 0, 0),
        lambda: lemmas.least_lock(1, 1, 0),
        lambda: lemmas.caught(4, 5, 1, 0.5),
    ],
)
def test_values_without_an_answer_are_refused(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(InputError):
        ask()
