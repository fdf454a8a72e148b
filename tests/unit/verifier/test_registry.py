"""Seats, keys and endpoints, replayed from events, at any block and time."""

from typing import Any

from eth_utils.address import to_checksum_address

from verillm.chain.events import (
    At,
    BeaconKept,
    EndpointSet,
    HotKeySet,
    SeatEvicted,
    SeatJoined,
    SeatLeft,
    SeatReleased,
)
from verillm.types import Hash32, ModelId
from verillm_verifier.registry import Registry

MODEL = ModelId(Hash32(b"m" * 32))
OTHER = ModelId(Hash32(b"o" * 32))
ALICE, BOB, KEY1, KEY2 = (to_checksum_address(f"0x{n:040x}") for n in range(1, 5))
GRACE = 100


def at(event: Any, block: int) -> At[Any]:
    """An event in a block whose timestamp is ten times its number."""
    return At(event, Hash32(bytes(32)), block, Hash32(bytes(32)), 10 * block, 0)


def registry(*events: At[Any]) -> Registry:
    return Registry.of(events, GRACE)


def test_a_seat_is_active_strictly_after_its_join() -> None:
    seats = registry(at(SeatJoined(MODEL, 0, ALICE, 1), 5))
    assert seats.owner_at(MODEL, 0, 50) is None
    assert seats.owner_at(MODEL, 0, 51) == ALICE


def test_a_seat_left_or_evicted_before_the_post_is_not_drawn() -> None:
    for gone in (SeatLeft(MODEL, 0, ALICE, 99), SeatEvicted(MODEL, 0, ALICE, 99)):
        seats = registry(at(SeatJoined(MODEL, 0, ALICE, 1), 5), at(gone, 8))
        assert seats.owner_at(MODEL, 0, 80) == ALICE
        assert seats.owner_at(MODEL, 0, 81) is None


def test_a_released_slot_belongs_to_whoever_took_it_next() -> None:
    seats = registry(
        at(SeatJoined(MODEL, 0, ALICE, 1), 1),
        at(SeatLeft(MODEL, 0, ALICE, 99), 3),
        at(SeatReleased(MODEL, 0, ALICE), 5),
        at(SeatJoined(MODEL, 0, BOB, 1), 7),
    )
    assert [seats.owner_at(MODEL, 0, time) for time in (20, 40, 60, 80)] == [
        ALICE,
        None,
        None,
        BOB,
    ]


def test_other_seats_models_and_events_do_not_matter() -> None:
    seats = registry(
        at(SeatJoined(OTHER, 0, BOB, 1), 1),
        at(SeatJoined(MODEL, 1, BOB, 1), 1),
        at(BeaconKept(1, Hash32(bytes(32))), 1),
    )
    assert seats.owner_at(MODEL, 0, 50) is None
    assert len(seats.events) == 2


def test_an_operator_always_signs_for_itself() -> None:
    assert registry().keys_within(ALICE, 0, 10**9) == {ALICE}


def test_a_rotated_key_signs_until_its_grace_ends() -> None:
    keys = registry(at(HotKeySet(ALICE, KEY1), 1), at(HotKeySet(ALICE, KEY2), 20))
    assert keys.keys_within(ALICE, 0, 5) == {ALICE}
    assert keys.keys_within(ALICE, 50, 60) == {ALICE, KEY1}
    assert keys.keys_within(ALICE, 250, 250) == {ALICE, KEY1, KEY2}
    assert keys.keys_within(ALICE, 300, 300) == {ALICE, KEY2}


def test_a_key_of_another_operator_does_not_sign() -> None:
    assert registry(at(HotKeySet(BOB, KEY1), 1)).keys_within(ALICE, 50, 60) == {ALICE}


def test_the_endpoint_is_the_last_word() -> None:
    said = registry(
        at(EndpointSet(ALICE, "http://old"), 1),
        at(EndpointSet(BOB, "http://bob"), 2),
        at(EndpointSet(ALICE, "http://new"), 3),
    )
    assert said.endpoint(ALICE) == "http://new"
    assert said.endpoint(KEY1) is None


def test_events_out_of_order_are_put_in_order() -> None:
    said = registry(
        at(EndpointSet(ALICE, "http://new"), 3), at(EndpointSet(ALICE, "http://old"), 1)
    )
    assert said.endpoint(ALICE) == "http://new"
