from collections.abc import Iterator
from itertools import count

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from hypothesis import example, given, strategies as st

from verillm.draw import (
    checked_requests,
    draw,
    draw_seats,
    is_forced,
    position_seed,
    positions,
)
from verillm.errors import DrawExhausted, InputError
from verillm.types import Hash32

SEEDS = st.binary(min_size=32, max_size=32).map(Hash32)


def number(seed: bytes, tag: int, step: int) -> int:
    words = encode(["bytes32", "uint256", "uint256"], [seed, tag, step])
    return int.from_bytes(keccak(words), "big")


def first_distinct(stream: Iterator[int], wanted: int) -> tuple[int, ...]:
    found: list[int] = []
    while len(found) < wanted:
        each = next(stream)
        if each not in found:
            found.append(each)
    return tuple(found)


def test_power_draw_is_the_abi_hash_of_secret_commitment_and_beacon() -> None:
    parts = [b"r" * 32, b"c" * 32, b"b" * 32]
    assert draw(*parts) == keccak(encode(["bytes32"] * 3, parts))
    assert position_seed(*parts[1:]) == keccak(encode(["bytes32"] * 2, parts[1:]))


@given(SEEDS, st.lists(st.sampled_from([None, *"abcdef"]), min_size=1, max_size=20))
def test_seats_are_the_first_distinct_owners_of_the_stream(
    seed: Hash32, owners: list[str | None]
) -> None:
    expected: list[tuple[int, str]] = []
    for step in range(256):
        slot = number(seed, 1, step) % len(owners)
        owner = owners[slot]
        if owner and owner != "a" and owner not in [taken for _, taken in expected]:
            expected.append((slot, owner))
        if len(expected) == 3:
            break
    if len(expected) < 3:
        with pytest.raises(DrawExhausted):
            draw_seats(seed, len(owners), owners.__getitem__, "a", 3)
    else:
        assert draw_seats(seed, len(owners), owners.__getitem__, "a", 3) == expected


def test_a_draw_ends_after_256_steps_and_over_no_slots_at_once() -> None:
    asked: list[int] = []

    def nobody(slot: int) -> None:
        asked.append(slot)

    with pytest.raises(DrawExhausted):
        draw_seats(Hash32(b"d" * 32), 5, nobody, "a", 1)
    assert len(asked) == 256
    with pytest.raises(DrawExhausted):
        draw_seats(Hash32(b"d" * 32), 0, nobody, "a", 1)


def test_the_only_slot_is_drawn_and_an_exhausted_draw_says_what_it_lacked() -> None:
    assert draw_seats(Hash32(b"d" * 32), 1, lambda slot: "b", "a", 1) == [(0, "b")]
    with pytest.raises(DrawExhausted) as raised:
        draw_seats(Hash32(b"d" * 32), 1, lambda slot: "b", "a", 2)
    assert (raised.value.found, raised.value.required) == (1, 2)


@given(SEEDS, st.integers(1, 9))
def test_a_round_is_forced_where_its_own_word_of_the_draw_divides(seed: Hash32, every: int) -> None:
    word = int.from_bytes(keccak(encode(["bytes32", "uint256"], [seed, 3])), "big")
    assert is_forced(seed, every) is (word % every == 0)
    assert is_forced(seed, 1) and not is_forced(seed, 0)


@given(SEEDS, st.integers(1, 200), st.integers(1, 20))
@example(Hash32(b"d" * 32), 20, 20)
def test_checked_requests_are_all_or_the_first_distinct_of_the_stream(
    seed: Hash32, requests: int, wanted: int
) -> None:
    found = checked_requests(seed, requests, wanted)
    if requests <= wanted:
        assert found == tuple(range(requests))
        return
    assert found == first_distinct((number(seed, 2, step) % requests for step in count()), wanted)


@given(SEEDS, st.integers(0, 4095), st.integers(1, 60), st.integers(1, 60), st.integers(1, 40))
@example(Hash32(b"d" * 32), 0, 10, 12, 20)
@example(Hash32(b"d" * 32), 0, 1, 1, 1)
def test_positions_are_distinct_never_zero_and_hold_the_last(
    seed: Hash32, request: int, prompt: int, new: int, wanted: int
) -> None:
    found = positions(seed, request, prompt, new, wanted)
    last = prompt + new - 2
    assert len(set(found)) == len(found) == min(wanted, last)
    assert all(1 <= position <= last for position in found)
    if last > wanted:
        stream = (1 + number(seed, request, step) % (last - 1) for step in count())
        assert found == (last, *first_distinct(stream, wanted - 1))
    else:
        assert found == tuple(range(1, last + 1))


@pytest.mark.parametrize("case", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_positions_of_nothing_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(InputError):
        positions(Hash32(bytes(32)), 0, *case)


def test_power_draws_are_uniform_over_slots() -> None:
    counts = [0] * 8
    for n in range(2000):
        seed = Hash32(n.to_bytes(32, "big"))
        counts[draw_seats(seed, 8, str, "none", 1)[0][0]] += 1
    assert max(abs(count - 250) for count in counts) < 75
