import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.unit.verillm.builders import SPEC, Plan, World, make_world
from verillm.codec import (
    Limits,
    bundle_hash,
    decode_bundle,
    decode_opening,
    decode_trace,
    encode_bundle,
    encode_opening,
    encode_trace,
)
from verillm.errors import MalformedError
from verillm.trace import Trace, TraceItem, check_opening, open_positions
from verillm.types import Hash32

CODECS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "trace": (decode_trace, encode_trace),
    "opening": (decode_opening, encode_opening),
    "bundle": (decode_bundle, encode_bundle),
}


def _samples(world: World) -> dict[str, bytes]:
    committed = world.committed[0]
    return {
        "trace": encode_trace(committed.trace),
        "opening": encode_opening(open_positions(committed, 1, [1, 4], [0, 3])),
        "bundle": encode_bundle(world.bundle),
    }


SAMPLES = _samples(make_world(Plan(requests=2, most=3)))


WHOLE = bundle_hash(SAMPLES["bundle"])


@pytest.mark.parametrize("name", CODECS)
def test_decoding_and_encoding_again_gives_the_same_bytes(name: str) -> None:
    decode, encode = CODECS[name]
    assert encode(decode(SAMPLES[name])) == SAMPLES[name]


def test_a_decoded_trace_holds_the_same_values() -> None:
    rng = np.random.default_rng(4)
    slices = rng.integers(0, 2**16, (3, 2, 16), dtype=np.uint16)
    finals = rng.integers(0, 2**16, (3, 32), dtype=np.uint16)
    item = TraceItem(0, 2, (1, 2**32 - 1, 3, 4), slices, finals)
    found = decode_trace(encode_trace(Trace(Hash32(b"t" * 32), (item,)))).items[0]
    assert (found.tokens, found.prompt_tokens, found.new_tokens) == (item.tokens, 2, 2)
    assert np.array_equal(found.slices, slices) and found.slices.dtype == np.uint16
    assert np.array_equal(found.finals, finals) and found.finals.dtype == np.uint16


def test_a_decoded_opening_still_proves_itself() -> None:
    world = make_world(Plan(requests=2, most=3))
    committed = world.committed[0]
    opening = decode_opening(encode_opening(open_positions(committed, 1, [1], [0, 3])))
    check_opening(opening, committed.commitment.inner, SPEC.shape)


def test_an_opening_of_no_position_still_shows_its_item() -> None:
    committed = make_world(Plan(requests=1, prompt=1, most=1)).committed[0]
    opening = decode_opening(encode_opening(open_positions(committed, 0, [])))
    assert opening.entries == () and opening.leaf == committed.leaves[0]
    check_opening(opening, committed.commitment.inner, SPEC.shape)


def test_a_decoded_bundle_equals_what_was_encoded() -> None:
    world = make_world(Plan(requests=2, most=3, silent=frozenset({2})))
    found = decode_bundle(encode_bundle(world.bundle))
    assert (found.job, found.quote, found.signature) == (
        world.bundle.job,
        world.bundle.quote,
        world.bundle.signature,
    )
    assert found.checked == world.bundle.checked
    assert [party.task for party in found.parties] == [p.task for p in world.bundle.parties]
    assert [sorted(party.openings) for party in found.parties] == [[0, 1], [0, 1], [], [0, 1]]
    assert bundle_hash(encode_bundle(found)) == bundle_hash(encode_bundle(world.bundle))


def test_states_that_are_not_finite_parse_because_they_are_evidence() -> None:
    nan = np.full((1, 2, 16), 0x7FC1, np.uint16)
    infinite = np.full((1, 32), 0xFF80, np.uint16)
    trace = Trace(Hash32(b"t" * 32), (TraceItem(0, 1, (5, 6), nan, infinite),))
    found = decode_trace(encode_trace(trace)).items[0]
    assert np.array_equal(found.slices, nan) and np.array_equal(found.finals, infinite)


@pytest.mark.parametrize("name", CODECS)
def test_every_truncation_is_malformed(name: str) -> None:
    decode, data = CODECS[name][0], SAMPLES[name]
    cuts = set(range(len(data)) if len(data) < 3000 else range(0, len(data), 13))
    for cut in cuts - (boundaries(data) if name == "bundle" else set()):
        with pytest.raises(MalformedError):
            decode(data[:cut])


def test_a_bundle_cut_between_sections_is_another_bundle_with_silent_parties() -> None:
    for cut in sorted(boundaries(SAMPLES["bundle"]))[3:]:
        found = decode_bundle(SAMPLES["bundle"][:cut])
        assert encode_bundle(found) == SAMPLES["bundle"][:cut]
        assert (bundle_hash(encode_bundle(found)) == WHOLE) == (cut == len(SAMPLES["bundle"]))


def boundaries(data: bytes) -> set[int]:
    ends, at = set[int](), 6
    while at < len(data):
        at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        ends.add(at)
    return ends


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("tail", [b"\0", b"VLT1", bytes(100)])
def test_trailing_bytes_are_malformed(name: str, tail: bytes) -> None:
    with pytest.raises(MalformedError):
        CODECS[name][0](SAMPLES[name] + tail)


@pytest.mark.parametrize("name", CODECS)
def test_another_magic_or_version_is_malformed_and_named(name: str) -> None:
    decode, data = CODECS[name][0], SAMPLES[name]
    with pytest.raises(MalformedError, match="magic"):
        decode(b"VLX1" + data[4:])
    with pytest.raises(MalformedError, match="version"):
        decode(data[:4] + b"\0\2" + data[6:])
    with pytest.raises(MalformedError, match="magic"):
        decode(b"")


@pytest.mark.parametrize("name", CODECS)
def test_more_bytes_than_the_cap_are_malformed_before_any_is_read(name: str) -> None:
    decode: Callable[..., Any] = CODECS[name][0]
    with pytest.raises(MalformedError, match="cap"):
        decode(SAMPLES[name], Limits(bytes=len(SAMPLES[name]) - 1))


TRACE_ITEMS, OPENING_ITEMS = 38, 70
LEAF = OPENING_ITEMS + 20
PATH = LEAF + 12 + 64
SHAPE = PATH + 1 + 32
ENTRY = SHAPE + 12


@pytest.mark.parametrize(
    ("name", "offset", "value", "field"),
    [
        ("trace", TRACE_ITEMS, "00000000", "items"),
        ("trace", TRACE_ITEMS, "ffffffff", "items"),
        ("trace", TRACE_ITEMS, "00001001", "items"),
        ("trace", TRACE_ITEMS + 4, "00000001", "item"),
        ("trace", TRACE_ITEMS + 8, "00000000", "promptTokens"),
        ("trace", TRACE_ITEMS + 8, "ffffffff", "promptTokens"),
        ("trace", TRACE_ITEMS + 12, "00000000", "newTokens"),
        ("trace", TRACE_ITEMS + 12, "000fffff", "tokens"),
        ("trace", TRACE_ITEMS + 16, "0000", "layers"),
        ("trace", TRACE_ITEMS + 16, "ffff", "layers"),
        ("trace", TRACE_ITEMS + 18, "0008", "sliceDims"),
        ("trace", TRACE_ITEMS + 18, "0011", "hidden"),
        ("trace", TRACE_ITEMS + 20, "00000000", "hidden"),
        ("trace", TRACE_ITEMS + 20, "00004010", "hidden"),
        ("opening", OPENING_ITEMS, "00000000", "items"),
        ("opening", LEAF, "00000002", "leaf.item"),
        ("opening", LEAF + 4, "00000000", "leaf.promptTokens"),
        ("opening", LEAF + 8, "ffffffff", "leaf.newTokens"),
        ("opening", PATH, "21", "itemPath"),
        ("opening", ENTRY - 4, "00000000", "end"),
        ("opening", ENTRY - 4, "00010001", "entries"),
        ("opening", ENTRY, "ffffffff", "position"),
        ("opening", ENTRY, "00000001", "entries[1].position"),
        ("opening", ENTRY + 12, "00", "kind"),
        ("opening", ENTRY + 12, "03", "kind"),
        ("bundle", 6, "00", "tag"),
        ("bundle", 6, "07", "tag"),
        ("bundle", 7, "ffffffff", "section"),
    ],
)
def test_a_length_out_of_bounds_is_malformed_and_named(
    name: str, offset: int, value: str, field: str
) -> None:
    data = bytearray(SAMPLES[name])
    data[offset : offset + len(value) // 2] = bytes.fromhex(value)
    with pytest.raises(MalformedError) as raised:
        CODECS[name][0](bytes(data))
    assert field in raised.value.field


def test_entries_that_descend_or_repeat_are_malformed() -> None:
    opening = open_positions(make_world(Plan(requests=2, most=3)).committed[0], 1, [1, 4])
    for entries in (opening.entries[::-1], (opening.entries[0],) * 2):
        with pytest.raises(MalformedError, match="position"):
            decode_opening(encode_opening(replace(opening, entries=entries)))


def sections(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 6
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        found.append((data[at], data[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


def joined(parts: list[tuple[int, bytes]]) -> bytes:
    body = b"".join(bytes([tag]) + len(data).to_bytes(4, "big") + data for tag, data in parts)
    return b"VLB1\0\1" + body


def test_sections_missing_doubled_or_out_of_order_are_malformed() -> None:
    parts = sections(SAMPLES["bundle"])
    assert joined(parts) == SAMPLES["bundle"]
    for number, part in enumerate(parts):
        tag = part[0]
        if tag <= 3:
            with pytest.raises(MalformedError):
                decode_bundle(joined(parts[:number] + parts[number + 1 :]))
        if tag != 4:
            with pytest.raises(MalformedError):
                decode_bundle(joined(parts[: number + 1] + parts[number:]))
        if tag != 3:  # a contract wallet's signature has any length
            longer = [*parts[:number], (tag, part[1] + b"\0"), *parts[number + 1 :]]
            with pytest.raises(MalformedError):
                decode_bundle(joined(longer))
    with pytest.raises(MalformedError):
        decode_bundle(joined(parts[::-1]))
    without_task = [part for part in parts if not (part[0] == 5 and part[1][0] == 1)]
    with pytest.raises(MalformedError, match="without a task"):
        decode_bundle(joined(without_task))


EXTREMES = [0, 1, 2, 15, 16, 255, 2**16 - 1, 2**31, 2**32 - 1]


@st.composite
def mutated(draw: st.DrawFn, name: str) -> bytes:
    """Valid bytes with a few places changed the way that attackers change them."""
    data = bytearray(SAMPLES[name])
    for _ in range(draw(st.integers(1, 3))):
        # Headers are where the structure is: half of the hits go there.
        last = max(0, len(data) - 1)
        at = draw(st.one_of(st.integers(0, min(400, last)), st.integers(0, last)))
        kind = draw(st.sampled_from(["set", "number", "cut", "insert", "delete", "copy"]))
        size = draw(st.integers(1, 40))
        if kind == "set":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "number":
            data[at : at + 4] = draw(st.sampled_from(EXTREMES)).to_bytes(4, "big")
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=size))
        elif kind == "delete":
            del data[at : at + size]
        else:
            data[at:at] = data[at : at + size]
    return bytes(data)


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data())
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_hostile_bytes_are_malformed_or_the_one_encoding_of_what_they_hold(
    name: str, data: st.DataObject
) -> None:
    decode, encode = CODECS[name]
    hostile = data.draw(mutated(name))
    try:
        value = decode(hostile)
    except MalformedError:
        return
    assert encode(value) == hostile


@pytest.mark.parametrize("name", CODECS)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_malformed(name: str, data: bytes) -> None:
    magic = SAMPLES[name][:6]
    for prefix in (b"", magic):
        with pytest.raises(MalformedError):
            CODECS[name][0](prefix + data)


@pytest.mark.parametrize(
    ("name", "offset"),
    [("trace", TRACE_ITEMS), ("trace", TRACE_ITEMS + 8), ("opening", ENTRY - 4), ("bundle", 7)],
)
def test_a_huge_claimed_length_allocates_nothing_like_it(name: str, offset: int) -> None:
    data = bytearray(SAMPLES[name])
    data[offset : offset + 4] = (2**20 - 1).to_bytes(4, "big")
    limits = Limits(items=2**32, entries=2**32, tokens=2**32)
    decode: Callable[..., Any] = CODECS[name][0]
    tracemalloc.start()
    with pytest.raises(MalformedError):
        decode(bytes(data), limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(data) + 100_000


def test_values_that_do_not_fit_the_layout_are_malformed_when_encoded() -> None:
    bundle = make_world(Plan(requests=2, most=3)).bundle
    party = replace(bundle.parties[0], task_signature=b"short")
    with pytest.raises(MalformedError):
        encode_bundle(replace(bundle, parties=(party,)))
