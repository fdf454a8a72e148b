"""Choosing from few exact logits, against the reference over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from verillm.engine.bits import from_bits, rounded, to_bits
from verillm.engine.vllm.choosing import Choice, choose_batch
from verillm.engine.vllm.head import LEAST_SHARE, HeadRows, measure_slack
from verillm.engine.vllm.noise import Bounds, contenders
from verillm.errors import ModelNotTraceable, NonFiniteLogits
from verillm.hashing import sha
from verillm.request import Sampling
from verillm.sampling import select, words
from verillm.types import Bits, Floats, Hash32, Ints

VOCABULARY, HIDDEN = 3000, 32


@dataclass
class CountingHead:
    """`Head` in numpy that counts how many logits were needed, and how often all."""

    rows: Floats
    picked: int = 0
    whole: int = 0

    def some(self, finals: Bits, rows: Ints, ids: Ints) -> Floats:
        self.picked += len(ids)
        exact: Floats = (from_bits(finals) @ self.rows.T)[rows, ids]
        return exact

    def all(self, final: Bits) -> Floats:
        self.whole += 1
        exact: Floats = (from_bits(final[None]) @ self.rows.T)[0]
        return exact


def head_and_states(spread: float, count: int = 6, seed: int = 1) -> tuple[CountingHead, Bits]:
    random = np.random.default_rng(seed)
    rows = rounded(random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
    scale = np.float32(spread / np.sqrt(HIDDEN))
    states = to_bits((random.standard_normal((count, HIDDEN)) * scale).astype(np.float32))
    return CountingHead(rows), states


def exact_of(head: CountingHead, finals: Bits) -> Floats:
    exact: Floats = from_bits(finals) @ head.rows.T
    return exact


def choose_all(
    head: CountingHead, finals: Bits, logits: Floats, choices: list[Choice]
) -> list[int | NonFiniteLogits]:
    return choose_batch(head, finals, list(logits), choices, LEAST_SHARE)


def expected_of(exact: Floats, choices: list[Choice]) -> list[int]:
    return [
        select(logits, choice.sampling, choice.seed, choice.position)
        for logits, choice in zip(exact, choices, strict=True)
    ]


SAMPLINGS = st.builds(
    Sampling.of,
    st.sampled_from([0.0, 1e-6, 0.05, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05, 1e-6]),
    top_k=st.sampled_from([0, 1, 40, 2999]),
    min_p=st.sampled_from([0.0, 1e-6, 0.05, 0.5, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    samplings=st.lists(SAMPLINGS, min_size=6, max_size=6),
    spread=st.sampled_from([0.001, 0.1, 1.0, 4.0, 8.0, 50.0]),
    seed=st.integers(0, 50),
)
def test_every_row_gets_the_references_token(
    samplings: list[Sampling], spread: float, seed: int
) -> None:
    head, finals = head_and_states(spread, seed=seed)
    exact = exact_of(head, finals)
    choices = [Choice(s, sha(bytes([n, seed])), 7 * n) for n, s in enumerate(samplings)]
    found = choose_all(head, finals, rounded(exact), choices)
    for row, token in enumerate(expected_of(exact, choices)):
        assert found[row] == token, (row, choices[row].sampling)


def test_what_bounds_leave_open_is_decided_by_all_logits() -> None:
    """A flat row, and a winner at the edge of what is kept: of 300 some are."""
    head, finals = head_and_states(0.5, count=300)
    choices = [Choice(Sampling.of(1.0, top_p=0.5), sha(bytes([n % 256])), n) for n in range(300)]
    exact = exact_of(head, finals)
    assert choose_all(head, finals, rounded(exact), choices) == expected_of(exact, choices)
    assert 0 < head.whole < 30


def test_a_likely_token_is_chosen_however_far_below_zero_its_noise_is() -> None:
    """One entry has almost all mass, and of every six draws one leaves it far below its logit."""
    head, finals = head_and_states(4.0, count=1)
    state = from_bits(finals)[0]
    head.rows[:] = rounded(head.rows * np.float32(0.05))
    head.rows[7] = rounded(state * np.float32(12 / (state @ state)))
    finals = np.repeat(finals, 200, axis=0)
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(200)]
    exact = exact_of(head, finals)
    found = choose_all(head, finals, rounded(exact), choices)
    assert found == expected_of(exact, choices)
    assert found.count(7) > 150


def test_equal_logits_are_kept_by_the_lower_id() -> None:
    """Rows of a head that come several times tie exactly, at the edge of what is kept too."""
    head, finals = head_and_states(4.0, count=40)
    head.rows[1::3] = head.rows[::3]
    head.rows[2::3] = head.rows[::3]
    sampling = [Sampling.of(1.0, top_k=1 + n % 5) for n in range(40)]
    choices = [Choice(s, sha(bytes([n])), n) for n, s in enumerate(sampling)]
    exact = exact_of(head, finals)
    assert choose_all(head, finals, rounded(exact), choices) == expected_of(exact, choices)


def test_logits_beyond_the_slack_are_noticed_where_they_are_looked_at() -> None:
    head, finals = head_and_states(4.0)
    exact = exact_of(head, finals)
    wrong = rounded(exact + np.float32(0.1) * np.abs(exact).max(axis=-1, keepdims=True))
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(6)]
    assert choose_all(head, finals, wrong, choices) == expected_of(exact, choices)
    assert head.whole == 6


def test_power_a_winner_that_the_engine_ranks_far_too_low_is_missed() -> None:
    """The bound on the engine's logits is what the choice rests on."""
    head, finals = head_and_states(4.0)
    exact = exact_of(head, finals)
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(6)]
    expected = expected_of(exact, choices)
    wrong = exact.copy()
    wrong[np.arange(6), expected] = exact.min(axis=-1)
    found = choose_all(head, finals, rounded(wrong), choices)
    assert all(one != other for one, other in zip(found, expected, strict=True))


def test_a_clear_nucleus_needs_few_exact_logits() -> None:
    head, finals = head_and_states(8.0)
    choices = [Choice(Sampling.of(0.7, top_p=0.9), sha(bytes([n])), n) for n in range(6)]
    choose_all(head, finals, rounded(exact_of(head, finals)), choices)
    assert head.whole == 0 and head.picked < 6 * 20


@given(
    seed=st.binary(min_size=32, max_size=32),
    position=st.integers(0, 2**32 - 1),
    logits=st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=99),
    temperature=st.sampled_from([1e-6, 0.05, 1.0, 2.0]),
    sums=st.sampled_from([0.0, 0.01, 0.5]),
    errors=st.integers(0, 2**32 - 1),
)
def test_whoever_wins_by_exact_logits_is_a_contender(
    seed: bytes,
    position: int,
    logits: list[float],
    temperature: float,
    sums: float,
    errors: int,
) -> None:
    exact = np.array(logits, np.float32)
    sampling = Sampling.of(temperature)
    shares = np.random.default_rng(errors).uniform(-1, 1, len(exact))
    own = rounded(exact + np.float32(sums) * shares.astype(np.float32))
    bounds = Bounds(temperature, sums, -np.inf, -np.inf)
    ids, found = contenders(Hash32(seed), position, own, bounds)
    assert select(exact, sampling, Hash32(seed), position) in ids.tolist()
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert np.array_equal(found, words(Hash32(seed), position, ids))


def test_power_contenders_under_too_narrow_a_bound_miss_some_winner() -> None:
    random = np.random.default_rng(5)
    missed = 0
    for position in range(200):
        exact = random.standard_normal(99).astype(np.float32)
        own = exact + random.uniform(-1, 1, 99).astype(np.float32)
        ids, _ = contenders(sha(b"power"), position, own, Bounds(1.0, 0.0, -np.inf, -np.inf))
        missed += select(exact, Sampling.of(1.0), sha(b"power"), position) not in ids
    assert missed > 20


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_choose_nothing_and_leave_the_other_rows_alone(
    bad: float,
) -> None:
    head, finals = head_and_states(1.0)
    logits = rounded(exact_of(head, finals))
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(6)]
    expected = choose_all(head, finals, logits, choices)
    logits[2, 17] = bad
    found = choose_all(head, finals, logits, choices)
    assert isinstance(found[2], NonFiniteLogits)
    assert found[:2] + found[3:] == expected[:2] + expected[3:]


def test_the_slack_of_a_sum_in_float32_is_the_least() -> None:
    head, finals = head_and_states(4.0)
    assert measure_slack(head, finals, rounded(exact_of(head, finals))) == LEAST_SHARE


def test_sums_that_were_rounded_on_the_way_get_more_slack() -> None:
    head, finals = head_and_states(4.0)
    wide = from_bits(finals)
    parts = [rounded(wide[:, at : at + 8] @ head.rows[:, at : at + 8].T) for at in (0, 8, 16, 24)]
    total = rounded(sum(parts[1:], parts[0]))
    assert 8 * LEAST_SHARE < measure_slack(head, finals, total) < 2**-6


def test_a_head_that_does_more_than_multiply_is_refused() -> None:
    head, finals = head_and_states(4.0)
    logits = exact_of(head, finals)
    with pytest.raises(ModelNotTraceable, match="differ by"):
        measure_slack(head, finals, rounded(np.tanh(logits / 30) * np.float32(30.6)))


def test_rows_on_a_device_are_the_rows_in_numpy() -> None:
    torch = pytest.importorskip("torch")
    head, finals = head_and_states(4.0)
    rows: Any = torch.from_numpy(head.rows).to(torch.bfloat16)
    ids, states = np.array([5, 2999, 0]), np.array([0, 5, 5])
    there = HeadRows(rows)
    assert np.allclose(there.some(finals, states, ids), head.some(finals, states, ids), atol=1e-5)
    assert np.allclose(there.all(finals[3]), head.all(finals[3]), atol=1e-5)
