"""Integer margins against exact fractions, over random and extreme inputs."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tools.make_vectors import FOLDER
from verillm.errors import InputError
from verillm.proofs.margins import Dot, Margin, between, dot, margin_of, noise_gap
from verillm.request import Sampling
from verillm.sampling import gumbel, words
from verillm.statistics import to_floats
from verillm.types import PPM, Bits, Hash32

SEED = Hash32(bytes(range(32)))
FINITE = st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7F80 != 0x7F80)
ORDINARY = st.integers(0x3800, 0x4480).map(lambda bits: bits) | st.integers(0xB800, 0xC480)
EXTREME = st.sampled_from(
    [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x807F, 0x5FFF, 0x6000, 0x7F7F, 0xFF7F, 0x2A00]
)
VALUE = EXTREME | ORDINARY | FINITE
PAIRS = st.lists(st.tuples(VALUE, VALUE), min_size=1, max_size=24)


def fraction(bits: int) -> Fraction:
    """The value of bf16 bits, by the definition of the format."""
    exponent, mantissa = bits >> 7 & 0xFF, bits & 0x7F
    power = Fraction(2) ** (max(exponent, 1) - 134)
    magnitude = (mantissa + (128 if exponent else 0)) * power
    return -magnitude if bits >> 15 else magnitude


def scale(x: int, y: int) -> int:
    return max(x >> 7 & 0xFF, 1) + max(y >> 7 & 0xFF, 1)


def fits(pairs: list[tuple[int, int]]) -> bool:
    return all(scale(x, y) < 384 for x, y in pairs)


def bits_of(values: list[float]) -> Bits:
    return (np.array(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def test_fractions_are_the_values_of_the_format() -> None:
    for bits in (0x3F80, 0xC0FF, 1, 0x7F, 0x7F7F):
        assert float(fraction(bits)) == float(to_floats(np.array([bits], np.uint16))[0])


@given(PAIRS)
@settings(max_examples=400)
def test_a_dot_product_is_exact_but_for_products_below_its_cut(
    pairs: list[tuple[int, int]],
) -> None:
    state, row = [x for x, _ in pairs], [y for _, y in pairs]
    if not fits(pairs):
        with pytest.raises(InputError):
            dot(state, row)
        return
    found = dot(state, row)
    products = [fraction(x) * fraction(y) for x, y in pairs if scale(x, y) >= 184]
    assert Fraction(found.total, 2**84) == sum(products, Fraction(0))
    assert Fraction(found.magnitude, 2**84) == sum(map(abs, products), Fraction(0))
    below = [abs(fraction(x) * fraction(y)) for x, y in pairs if scale(x, y) < 184]
    assert max(below, default=Fraction(0)) < Fraction(1, 2**68)


@given(PAIRS, st.integers(0, 2**31), st.integers(0, 200_000), st.integers(0, 2_000_000))
@settings(max_examples=200)
def test_a_margin_is_the_difference_of_scores(
    pairs: list[tuple[int, int]], position: int, token: int, temperature: int
) -> None:
    state = np.array([x for x, _ in pairs], np.uint16)
    own = np.array([y for _, y in pairs], np.uint16)
    other = own[::-1].copy()
    both = list(zip(state.tolist(), other.tolist(), strict=True)) + pairs
    if not fits(both):
        return
    rival = token + 3
    found = margin_of(state, own, other, SEED, position, token, rival, temperature)
    rows = zip(state, own, other, strict=True)
    terms = (fraction(int(x)) * (fraction(int(r)) - fraction(int(o))) for x, o, r in rows)
    logits = sum(terms, Fraction(0))
    noise = gumbel(words(SEED, position, np.array([token, rival]))).astype(np.float64)
    expected = logits * PPM + Fraction(temperature) * Fraction(float(noise[1] - noise[0]))
    assert abs(found.margin - expected) <= 21  # a floor, and float32 noise times two at most
    assert abs(found.ahead - logits * PPM) <= 1 + Fraction(2 * len(pairs) * PPM, 2**68)


@given(st.lists(st.tuples(ORDINARY, ORDINARY, ORDINARY), min_size=1, max_size=64))
@settings(max_examples=200)
def test_no_order_of_float32_errs_by_more_than_the_rounding(
    rows: list[tuple[int, int, int]],
) -> None:
    state, own, other = (np.array(column, np.uint16) for column in zip(*rows, strict=True))
    found = margin_of(state, own, other, SEED, 7, 1, 2, 0)
    for order in (slice(None), slice(None, None, -1)):
        scores = []
        for row in (own, other):
            products = to_floats(state)[order] * to_floats(row)[order]
            scores.append(float(np.add.accumulate(products, dtype=np.float32)[-1]))
        error = (scores[1] - scores[0]) * PPM - found.margin
        assert abs(error) <= found.rounding + 1


def test_ties_are_no_margin_and_temperature_0_needs_no_noise() -> None:
    state, row = bits_of([1.0, -2.0, 3.0]), bits_of([0.5, 0.25, 4.0])
    tie = margin_of(state, row, row, SEED, 5, 10, 11, 0)
    assert (tie.ahead, tie.margin) == (0, 0)
    warm = margin_of(state, row, row, SEED, 5, 10, 11, 2_000_000)
    assert warm.margin == noise_gap(SEED, 5, 10, 11, 2_000_000) >> 64 != 0
    assert noise_gap(SEED, 5, 10, 11, 0) == 0


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC1])
def test_what_is_not_finite_is_refused(bits: int) -> None:
    state, row = bits_of([1.0, 2.0]), bits_of([1.0, 1.0])
    broken = np.array([0x3F80, bits], np.uint16)
    for values in ((broken, row, row), (state, broken, row), (state, row, broken)):
        with pytest.raises(InputError):
            margin_of(*values, SEED, 0, 0, 1, 0)


def test_a_product_that_float32_cannot_hold_is_refused_and_the_largest_one_is_not() -> None:
    assert dot([0x6000], [0x5F80]).total == 1 << 213
    with pytest.raises(InputError):
        dot([0x6000], [0x6000])


def test_the_rounding_of_small_products_is_the_provers_to_the_unit() -> None:
    """2^24 more of magnitude is one more step of 33 roundings: here the one that makes a ppm."""
    steps = 2**84 // (33 * PPM)
    for more, rounding in ((-1, 32), (0, 33)):
        own = Dot(0, (steps + more) << 24)
        assert between(own, Dot(0, 0), 1, 0).rounding == rounding


def test_a_row_of_another_width_than_the_state_has_no_product() -> None:
    for state, row in (([0x3F80] * 2, [0x3F80]), ([0x3F80], [0x3F80] * 2)):
        with pytest.raises(ValueError, match="zip"):
            dot(state, row)


@pytest.mark.parametrize(
    ("sampling", "ahead", "margin", "convicts"),
    [
        (Sampling(0), -5, 401_000, True),
        (Sampling(0), -5, 400_600, False),  # within the rounding
        (Sampling(0), -5, 400_601, True),
        (Sampling(PPM), -5, 401_000, True),
        (Sampling(PPM, top_k=4), 499_999, 900_000, False),  # no rival: perhaps left out
        (Sampling(PPM, top_k=4), 500_000, 900_000, True),
        (Sampling(PPM, top_p=900_000), 0, 900_000, False),
        (Sampling(PPM, min_p=1), 0, 900_000, False),
        (Sampling(0, 1, 1, 1), 0, 900_000, True),  # nothing is left out at temperature 0
    ],
)
def test_a_rival_counts_only_where_whatever_kept_the_token_kept_it(
    sampling: Sampling, ahead: int, margin: int, convicts: bool
) -> None:
    assert Margin(ahead, margin, 600).convicts(sampling, 500_000, 400_000) is convicts


def test_the_vectors_are_these_margins() -> None:
    found = json.loads((FOLDER / "margins.json").read_text())
    names = ("states", "tokenRows", "rivalRows")
    for at, refused in enumerate(found["refused"]):
        rows = [np.frombuffer(bytes.fromhex(found[name][at][2:]), ">u2") for name in names]
        state, own, other = (row.astype(np.uint16) for row in rows)
        seed = Hash32(bytes.fromhex(found["seeds"][at][2:]))
        fields = ("positions", "tokens", "rivals", "temperatures")
        position, token, rival, temperature = (int(found[field][at]) for field in fields)
        if refused:
            with pytest.raises(InputError):
                margin_of(state, own, other, seed, position, token, rival, temperature)
            continue
        margin = margin_of(state, own, other, seed, position, token, rival, temperature)
        expected = tuple(int(found[name][at]) for name in ("ahead", "margins", "roundings"))
        assert (margin.ahead, margin.margin, margin.rounding) == expected
