"""Choosing from few exact logits, against the reference over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from verillm.engine.bits import from_bits, rounded, to_bits
from verillm.engine.vllm.choosing import SLACK, Choice, check_slack, choose_batch
from verillm.errors import ModelNotTraceable, NonFiniteLogits
from verillm.hashing import sha
from verillm.request import Sampling
from verillm.sampling import select
from verillm.types import Bits, Floats, Ints

VOCABULARY, HIDDEN = 3000, 32


@dataclass
class CountingHead:
    """`Head` in numpy that counts how often all rows were needed."""

    rows: Floats
    whole: int = 0

    def some(self, finals: Bits, rows: Ints, ids: Ints) -> Floats:
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


SAMPLINGS = st.builds(
    Sampling.of,
    st.sampled_from([0.0, 0.05, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    top_k=st.sampled_from([0, 1, 40, 2999]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    samplings=st.lists(SAMPLINGS, min_size=6, max_size=6),
    spread=st.sampled_from([0.1, 1.0, 4.0, 8.0]),
    seed=st.integers(0, 50),
)
def test_every_row_gets_the_references_token(
    samplings: list[Sampling], spread: float, seed: int
) -> None:
    head, finals = head_and_states(spread, seed=seed)
    exact = exact_of(head, finals)
    choices = [Choice(s, sha(bytes([n, seed])), 7 * n) for n, s in enumerate(samplings)]
    found = choose_batch(head, finals, rounded(exact), choices)
    for row, choice in enumerate(choices):
        expected = select(exact[row], choice.sampling, choice.seed, choice.position)
        assert found[row] == expected, (row, choice.sampling)


def test_power_logits_beyond_the_slack_change_tokens() -> None:
    head, finals = head_and_states(4.0)
    exact = exact_of(head, finals)
    wrong = exact + 3 * SLACK * np.abs(exact).max() * np.sign(np.sin(np.arange(VOCABULARY)))
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(6)]
    expected = [select(exact[n], c.sampling, c.seed, c.position) for n, c in enumerate(choices)]
    assert choose_batch(head, finals, wrong.astype(np.float32), choices) != expected


def test_a_clear_nucleus_needs_no_more_than_the_logits_near_the_best() -> None:
    head, finals = head_and_states(8.0)
    choices = [Choice(Sampling.of(0.7, top_p=0.9), sha(bytes([n])), n) for n in range(6)]
    choose_batch(head, finals, rounded(exact_of(head, finals)), choices)
    assert head.whole == 0


def test_a_nucleus_of_almost_everything_asks_for_all_logits() -> None:
    head, finals = head_and_states(4.0)
    choices = [Choice(Sampling.of(0.1, top_k=2900), sha(bytes([n])), n) for n in range(6)]
    choose_batch(head, finals, rounded(exact_of(head, finals)), choices)
    assert head.whole == 6


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_choose_nothing_and_leave_the_other_rows_alone(
    bad: float,
) -> None:
    head, finals = head_and_states(1.0)
    logits = rounded(exact_of(head, finals))
    choices = [Choice(Sampling.of(1.0), sha(bytes([n])), n) for n in range(6)]
    expected = choose_batch(head, finals, logits, choices)
    logits[2, 17] = bad
    found = choose_batch(head, finals, logits, choices)
    assert isinstance(found[2], NonFiniteLogits)
    assert found[:2] + found[3:] == expected[:2] + expected[3:]


def test_a_head_that_does_more_than_multiply_is_refused() -> None:
    head, finals = head_and_states(4.0)
    logits = exact_of(head, finals)
    check_slack(head, finals, rounded(logits))
    with pytest.raises(ModelNotTraceable, match="differ by up to"):
        check_slack(head, finals, (np.tanh(logits / 30) * 30 * np.float32(1.02)).astype(np.float32))


def test_rows_on_a_device_are_the_rows_in_numpy() -> None:
    torch = pytest.importorskip("torch")
    from verillm.engine.vllm.choosing import HeadRows

    head, finals = head_and_states(4.0)
    rows: Any = torch.from_numpy(head.rows).to(torch.bfloat16)
    ids, states = np.array([5, 2999, 0]), np.array([0, 5, 5])
    there = HeadRows(rows)
    assert np.allclose(there.some(finals, states, ids), head.some(finals, states, ids), atol=1e-5)
    assert np.allclose(there.all(finals[3]), head.all(finals[3]), atol=1e-5)
