import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from verillm.errors import NonFiniteLogits
from verillm.request import Sampling
from verillm.sampling import (
    gumbel,
    gumbel_q64,
    kept,
    philox4x32_10,
    select,
    slice_dimensions,
    words,
)
from verillm.types import Hash32

SEED = Hash32(bytes(range(32)))
WORDS = st.integers(0, 2**32 - 1)


def philox_one(counter: list[int], key: list[int]) -> list[int]:
    """The generator in plain integers."""
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [b >> 32 ^ x[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_random123s_known_answers(
    counter: list[int], key: list[int], expected: str
) -> None:
    found = philox4x32_10(np.array(counter), np.array(key))
    assert " ".join(f"{word:08x}" for word in found) == expected
    assert philox_one(counter, key) == found.tolist()


@given(st.lists(WORDS, min_size=4, max_size=4), st.lists(WORDS, min_size=2, max_size=2))
def test_philox_in_arrays_equals_philox_in_integers(counter: list[int], key: list[int]) -> None:
    found = philox4x32_10(np.array([counter, counter[::-1]]), np.array([key, key[::-1]]))
    assert found.tolist() == [philox_one(counter, key), philox_one(counter[::-1], key[::-1])]


@given(st.binary(min_size=32, max_size=32), WORDS, st.lists(WORDS, min_size=1, max_size=9))
def test_words_follow_from_seed_position_and_entry_as_documented(
    seed: bytes, position: int, ids: list[int]
) -> None:
    s = [int.from_bytes(seed[at : at + 4], "big") for at in range(0, 32, 4)]
    expected = [philox_one([v // 4, position, s[2], s[3]], s[:2])[v % 4] for v in ids]
    assert words(Hash32(seed), position, np.array(ids)).tolist() == expected


@given(st.binary(min_size=32, max_size=32), st.integers(0, 9))
def test_slice_dimensions_are_those_with_the_smallest_words_ascending(
    seed: bytes, layer: int
) -> None:
    s = [int.from_bytes(seed[at : at + 4], "big") for at in range(0, 32, 4)]
    drawn = sorted((philox_one([d // 4, layer, s[6], s[7]], s[4:6])[d % 4], d) for d in range(48))
    expected = sorted(d for _, d in drawn[:16])
    assert slice_dimensions(Hash32(seed), layer, 48, 16).tolist() == expected
    assert slice_dimensions(Hash32(seed), layer, 48, 48).tolist() == list(range(48))


INTERESTING = sorted(
    {0, 1, 511, 512, 1023, 1024, 2**32 - 1, 2**32 - 512, 2**32 - 513}
    | {1 << bit for bit in range(32)}
    | {2**32 - (1 << bit) for bit in range(32)}
    | set(np.random.default_rng(3).integers(0, 2**32, 500).tolist())
)


def test_fixed_point_gumbel_is_within_1e9_of_float64_on_all_interesting_words() -> None:
    for word in INTERESTING:
        u = (2 * (word >> 9) + 1) / 2**24
        assert abs(gumbel_q64(word) / 2**64 + math.log(-math.log(u))) < 1e-9, word


def test_gumbel_is_finite_monotone_and_bounded_from_the_smallest_word_to_the_largest() -> None:
    noise = [gumbel_q64(word) for word in range(0, 2**32, 2**32 // 4096)]
    assert all(low < high for low, high in pairwise(noise))
    ends = gumbel(np.array([0, 2**32 - 1], dtype=np.uint32))
    assert np.isfinite(ends).all()
    assert (ends > -2.82).all() and (ends < 16.64).all()


@given(st.lists(WORDS, min_size=1, max_size=50))
def test_float_gumbel_is_the_fixed_point_rounded_once(random: list[int]) -> None:
    noise = gumbel(np.array(random, dtype=np.uint32))
    assert noise.dtype == np.float32
    for word, found in zip(random, noise, strict=True):
        assert abs(gumbel_q64(word) / 2**64 - float(found)) <= abs(float(np.spacing(found)))


def kept_by_definition(logits: list[float], sampling: Sampling) -> list[bool]:
    """The three tests, entry by entry."""
    if sampling.temperature == 0:
        return [True] * len(logits)
    temperature = sampling.temperature / 1e6
    grown = [math.exp((each - max(logits)) / temperature) for each in logits]
    mass = [each / math.fsum(grown) for each in grown]
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    left = [False] * len(logits)
    for rank, v in enumerate(order):
        above = math.fsum(mass[w] for w in order[:rank])
        left[v] = rank == 0 or (
            (sampling.top_k == 0 or rank < sampling.top_k)
            and (sampling.top_p == 10**6 or above < sampling.top_p / 1e6)
            and (sampling.min_p == 0 or mass[v] >= sampling.min_p / 1e6 * max(mass))
        )
    return left


LOGITS = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=24)
SAMPLINGS = st.builds(
    Sampling,
    st.sampled_from([0, 300_000, 1_000_000, 2_000_000]),
    st.sampled_from([0, 1, 2, 5, 100]),
    st.sampled_from([1, 123_457, 900_001, 1_000_000]),
    st.sampled_from([0, 12_347, 499_979]),
)


@given(LOGITS, SAMPLINGS)
@settings(max_examples=300)
def test_kept_entries_are_those_of_the_definition(logits: list[float], sampling: Sampling) -> None:
    found = kept(np.array(logits, dtype=np.float32), sampling)
    assert found.tolist() == kept_by_definition(logits, sampling)


@given(LOGITS, SAMPLINGS, st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_select_takes_the_best_score_among_the_kept(
    logits: list[float], sampling: Sampling, position: int
) -> None:
    array = np.array(logits, dtype=np.float32)
    noise = gumbel(words(SEED, position, np.arange(len(logits))))
    temperature = np.float32(sampling.temperature / 1e6)
    best, token = -math.inf, -1
    for v, left in enumerate(kept_by_definition(logits, sampling)):
        score = array[v] + temperature * noise[v]
        if left and score > best:
            best, token = score, v
    assert select(array, sampling, SEED, position) == token


def test_ties_go_to_the_lower_id_at_temperature_zero() -> None:
    logits = np.array([1, 5, 5, 2], dtype=np.float32)
    assert select(logits, Sampling(0), SEED, 0) == 1
    assert select(logits, Sampling(1_000_000, top_k=1), SEED, 0) == 1


def test_the_first_rank_stays_whatever_the_parameters() -> None:
    logits = np.array([1, 5, 5, 2], dtype=np.float32)
    for sampling in (Sampling(top_p=0), Sampling(min_p=2_000_000), Sampling(top_k=1)):
        assert kept(logits, sampling).tolist() == [False, True, False, False]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_choose_no_token(bad: float) -> None:
    with pytest.raises(NonFiniteLogits):
        select(np.array([1, bad], dtype=np.float32), Sampling(0), SEED, 0)


def test_power_samples_follow_the_softmax_and_change_with_seed_and_position() -> None:
    logits = np.array([0.0, 1.0, 2.0, -1.0], dtype=np.float32)
    drawn = [select(logits, Sampling(), SEED, position) for position in range(4000)]
    expected = np.exp(logits) / np.exp(logits).sum()
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.abs(shares - expected).max() < 0.03
    other = [select(logits, Sampling(), Hash32(b"x" * 32), at) for at in range(100)]
    assert other != drawn[:100]
