import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.verillm.builders import PROFILE, noisy
from verillm.errors import InputError
from verillm.model import CheckProfile, LayerProfile
from verillm.statistics import (
    FARTHEST,
    MOST_RATIO,
    PairStatistics,
    PaperStatistics,
    States,
    compare,
    compare_one,
    distance,
    distance_one,
    is_finite,
    paper_statistics,
    quantise,
    quantise_one,
    to_floats,
    zone,
)
from verillm.types import Bits

FINITE = st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7F80 != 0x7F80)
# Ordinary magnitudes, where most of the arithmetic is, and now and then anything.
ORDINARY = st.one_of(st.integers(0x3D00, 0x4180), st.integers(0xBD00, 0xC180), FINITE)
SCALES = st.integers(-20, 20)


def array(bits: list[int]) -> Bits:
    return np.array(bits, dtype=np.uint16)


def exact(bits: int) -> Fraction:
    """The value of bf16 bits, subnormals taken as zero."""
    exponent, mantissa = bits >> 7 & 0xFF, bits & 0x7F
    if exponent == 0:
        return Fraction(0)
    value = Fraction(128 + mantissa) * Fraction(2) ** (exponent - 134)
    return -value if bits >> 15 else value


@given(FINITE, st.integers(-128, 127))
@settings(max_examples=400)
def test_power_quantise_rounds_half_away_from_zero_and_clamps(bits: int, scale: int) -> None:
    value = exact(bits) / Fraction(2) ** scale
    rounded = min(math.floor(abs(value) + Fraction(1, 2)), 1 << 15)
    assert quantise_one(bits, scale) == (-rounded if value < 0 else rounded)


@pytest.mark.parametrize("scale", [-128, -40, -8, -1, 0, 3, 30, 127])
def test_quantise_by_table_equals_the_reference_for_every_finite_value(scale: int) -> None:
    bits = [each for each in range(1 << 16) if each & 0x7F80 != 0x7F80]
    assert quantise(array(bits), scale).tolist() == [quantise_one(b, scale) for b in bits]


def test_to_floats_is_exact() -> None:
    assert to_floats(array([0x3F80, 0xC040, 0x0000])).tolist() == [1.0, -3.0, 0.0]


@given(st.lists(st.tuples(ORDINARY, ORDINARY), min_size=1, max_size=40), SCALES)
@settings(max_examples=300)
def test_power_distance_is_the_floor_of_the_relative_norm(
    pairs: list[tuple[int, int]], scale: int
) -> None:
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    qx, qy = [quantise_one(a, scale) for a in x], [quantise_one(b, scale) for b in y]
    d = sum((a - b) ** 2 for a, b in zip(qx, qy, strict=True))
    s = sum(a * a + b * b for a, b in zip(qx, qy, strict=True))
    found = distance_one(x, y, scale)
    if s == 0:
        assert found == FARTHEST
    else:
        assert found**2 <= 2 * d * 10**12 // s < (found + 1) ** 2
    assert int(distance(array(x), array(y), scale)) == found
    assert distance_one(y, x, scale) == found


def test_distance_of_16384_dimensions_at_the_clamp_does_not_overflow() -> None:
    x, y = np.full(16384, 0x7F7F, np.uint16), np.full(16384, 0xFF7F, np.uint16)
    assert int(distance(x, y, -128)) == 2_000_000
    assert int(distance(x, x, -128)) == 0
    half = np.concatenate([x[:8192], y[:8192]])
    assert int(distance(x, half, -128)) == math.isqrt(2 * 10**12)


def test_zeros_and_subnormals_are_as_far_apart_as_can_be_because_they_prove_nothing() -> None:
    assert int(distance(array([0, 0x8000]), array([0x7F, 1]), 0)) == FARTHEST


def test_power_distance_of_one_part_in_64_is_about_that() -> None:
    one, more = array([0x3F80] * 64), array([0x3F82] * 64)
    assert abs(int(distance(one, more, -10)) - 15_500) < 200


def test_states_of_other_shapes_do_not_compare() -> None:
    with pytest.raises(InputError):
        distance(np.zeros(16, np.uint16), np.zeros(32, np.uint16), 0)


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7F81, 0xFFFF])
def test_infinity_and_nan_are_not_finite(bits: int) -> None:
    assert not is_finite(array([0x3F80, bits]))
    assert is_finite(array([0x7F7F, 0xFF7F, 0, 0x8000]))


def test_zones_split_at_the_third_position_and_the_prompts_end() -> None:
    assert [zone(position, 10) for position in (1, 3, 4, 9, 10, 50)] == [0, 0, 1, 1, 2, 2]
    assert [zone(position, 1) for position in (1, 3, 4)] == [0, 0, 2]


def states(rng: np.random.Generator, positions: tuple[int, ...]) -> States:
    def draw(*shape: int) -> Bits:
        floats = rng.standard_normal(shape, dtype=np.float32)
        return (floats.view(np.uint32) >> np.uint32(16)).astype(np.uint16)

    return States(positions, draw(len(positions), 2, 16), draw(len(positions), 32))


def disturbed(given_states: States, key: int, every: int) -> States:
    """Noise everywhere, and a far larger error at every so many positions."""
    finals = noisy(given_states.finals, key)
    finals[::every] ^= np.uint16(0x30)
    return States(given_states.positions, noisy(given_states.slices, key + 1), finals)


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_statistics_in_arrays_equal_the_reference_cell_by_cell(
    key: int, count: int, prompt: int, every: int
) -> None:
    rng = np.random.default_rng(key)
    profile = profile_of(rng)
    x = [states(rng, tuple(range(1, count + 1))), states(rng, (2, 5, 11))]
    y = [disturbed(each, key, every) for each in x]
    prompts = [prompt, 4]
    assert compare(x, y, profile, prompts) == compare_one(x, y, profile, prompts)
    assert compare(y, x, profile, prompts) == compare(x, y, profile, prompts)


def profile_of(rng: np.random.Generator) -> CheckProfile:
    def triple(low: int, high: int) -> tuple[int, int, int]:
        a, b, c = rng.integers(low, high, 3).tolist()
        return a, b, c

    layers = tuple(
        LayerProfile(int(rng.integers(-9, 2)), triple(1, 20_000), triple(20_000, 90_000))
        for _ in range(3)
    )
    fields = {name: getattr(PROFILE, name) for name in PROFILE.__slots__}
    return CheckProfile(**(fields | {"layers": layers}))


def test_over_counts_positions_not_cells() -> None:
    rng = np.random.default_rng(5)
    x = states(rng, (4, 5, 6))
    y = States(x.positions, x.slices.copy(), x.finals.copy())
    y.slices[1] ^= np.uint16(0x8000)
    y.finals[1] ^= np.uint16(0x8000)
    found = compare([x], [y], PROFILE, [2])
    assert (found.over, found.cells) == (1, 9)
    assert found.sum == 3 * MOST_RATIO


def test_a_distance_of_just_its_cap_is_not_over_it() -> None:
    rng = np.random.default_rng(5)
    x = states(rng, (4,))
    y = States(x.positions, x.slices, x.finals ^ np.uint16(0x30))
    apart = int(distance(x.finals, y.finals, PROFILE.layers[-1].scale)[0])
    for cap, over in ((apart, 0), (apart - 1, 1)):
        last = replace(PROFILE.layers[-1], cap=(cap,) * 3)
        profile = replace(PROFILE, layers=(*PROFILE.layers[:-1], last))
        for of in (compare, compare_one):
            assert of([x], [y], profile, [2]).over == over


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_position_is_over_where_any_one_layer_is(layer: int) -> None:
    x = states(np.random.default_rng(5), (4,))
    slices, finals = x.slices.copy(), x.finals.copy()
    changed = finals if layer == 2 else slices[:, layer]
    changed ^= np.uint16(0x8000)
    for of in (compare, compare_one):
        assert of([x], [States(x.positions, slices, finals)], PROFILE, [2]).over == 1


def test_agreement_includes_both_borders_and_needs_something_compared() -> None:
    assert PairStatistics(1_600_009, 1, 2).agrees(1_600_009, 2)
    assert not PairStatistics(1_600_009, 1, 2).agrees(1_600_008, 2)
    assert not PairStatistics(1_600_009, 1, 2).agrees(1_600_009, 1)
    assert PairStatistics(19, 10, 0).agrees(1, 0)
    assert not PairStatistics(0, 0, 0).agrees(10**9, 10**9)


def test_states_at_other_positions_do_not_compare() -> None:
    rng = np.random.default_rng(6)
    with pytest.raises(InputError):
        compare([states(rng, (1, 2))], [states(rng, (1, 3))], PROFILE, [4])
    one, none = [states(rng, (1, 2))], list[States]()
    for of in (compare, compare_one):
        for x, y, prompts in ((one, none, [4]), (none, one, [4]), (one, one, list[int]())):
            with pytest.raises(ValueError, match="zip"):
                of(x, y, PROFILE, prompts)
    with pytest.raises(ValueError, match="zip"):
        paper_statistics(one, [])
    fewer = [States(each.positions, each.slices[:, :1], each.finals) for each in one]
    with pytest.raises(ValueError, match="zip"):
        paper_statistics(one, fewer)
    with pytest.raises(ValueError, match="zip"):
        distance_one([1, 2], [1], 0)


def test_states_of_other_layers_than_the_profiles_do_not_compare() -> None:
    one = states(np.random.default_rng(6), (1, 2))
    for layers in (PROFILE.layers[:-1], (*PROFILE.layers, PROFILE.layers[0])):
        with pytest.raises(InputError):
            compare([one], [one], replace(PROFILE, layers=layers), [4])


def test_nothing_compared_is_no_distance_and_no_agreement() -> None:
    nothing = States((), np.zeros((0, 2, 16), np.uint16), np.zeros((0, 32), np.uint16))
    assert compare([nothing], [nothing], PROFILE, [1]) == PairStatistics(0, 0, 0)
    assert nothing.finite
    assert distance(nothing.finals, nothing.finals, 0).dtype == np.int64


def test_the_papers_statistics_are_as_it_defines_them() -> None:
    slices = np.full((2, 1, 16), 0x3F80, np.uint16)
    x = States((1, 2), slices, np.array([[0x3F80] * 16, [0x4000] * 16], np.uint16))
    y = States((1, 2), slices + np.uint16(4), np.array([[0x3FFF] * 16, [0x3FFF] * 16], np.uint16))
    found = paper_statistics([x], [y])
    assert found.mismatches == 16 and found.p_e == 16 / 64
    assert found.p_m == 1.0
    assert found.p_w == 32 / 48
    same = paper_statistics([x], [x])
    assert (same.p_e, same.p_m, same.p_w, same.relative_l2) == (0.0, 0.0, 1.0, 0.0)
    nothing = paper_statistics([], [])
    assert nothing == PaperStatistics(0.0, 0.0, 0.0, 0.0, 0)


def test_the_papers_mantissas_are_far_over_64_apart_and_near_up_to_4() -> None:
    def compared(one: int, other: int) -> PaperStatistics:
        x, y = (
            States((1,), np.full((1, 1, 2), 0x3F80, np.uint16), np.array([[bits] * 2], np.uint16))
            for bits in (one, other)
        )
        return paper_statistics([x], [y])

    assert [compared(0x3F80, 0x4000 + apart).p_m for apart in (64, 65)] == [0.0, 1.0]
    for one in (0x3F80, 0x3F8B):
        assert [compared(one, one + apart).p_w for apart in (4, 5)] == [1.0, 0.5]
        assert [compared(one + apart, one).p_w for apart in (4, 5)] == [1.0, 0.5]
    assert compared(0x3F80, 0xBF80).mismatches == 2  # a sign is as much as an exponent


def test_the_papers_distance_is_the_median_over_positions_and_layers_relative_to_the_other() -> (
    None
):
    ones, twos = np.full((3, 1, 4), 0x3F80, np.uint16), np.full((3, 1, 4), 0x4000, np.uint16)
    x, y = States((1, 2, 3), twos, ones[:, 0]), States((1, 2, 3), ones, twos[:, 0])
    # Slices are 1 apart from 1, finals 1 apart from 2.
    assert paper_statistics([x], [y]).relative_l2 == 0.75
    zero = States((1, 2, 3), np.zeros_like(ones), np.zeros_like(ones[:, 0]))
    assert paper_statistics([zero], [zero]).relative_l2 == 0.0
    assert paper_statistics([zero, x], [zero, x]).p_e == 0.0
    # Far beyond all others, and a number still.
    assert 1e30 < paper_statistics([x], [zero]).relative_l2 < math.inf
