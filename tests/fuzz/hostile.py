"""Hostile evidence: honest bundles, broken with knowledge of their structure.

Each way to break takes bytes and a source of choices, and returns bytes. What must hold of every
result is `check`: parse or refuse by MalformedError, judge without an exception, in bounded time
and memory, and never accept anything that rests on altered evidence.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random
from typing import Any

import numpy as np

from tests.unit.verillm.builders import (
    DOMAIN,
    SEAL_BEACON,
    Plan,
    World,
    head,
    make_world,
)
from verillm.codec import decode_bundle, encode_bundle
from verillm.errors import MalformedError
from verillm.evidence import Bundle, PartyEvidence
from verillm.head import HeadArray
from verillm.trace import Entry, TraceItem, state_digest
from verillm.types import Bits, Outcome
from verillm.verdict import Verdict, judge_bundle

HEADER = 6
COARSE = np.uint16(0xFFE0)
SECONDS = 2.0
BYTES_PER_BYTE, SPARE_BYTES = 64, 1 << 20
"""Parsing may take so much memory per byte of input, and so much besides."""
EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
HARD_BITS = (0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0xFF7F, 0x0000, 0x8000, 0x0001, 0x0080)
"""Infinities, NaN, the largest and least numbers, both zeros."""


# ── Bytes ───────────────────────────────────────────────────────────────────────────────────────
def flip(raw: bytes, choose: Random) -> bytes:
    """One bit."""
    at = choose.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << choose.randrange(8)]) + raw[at + 1 :]


def cut(raw: bytes, choose: Random) -> bytes:
    """The end is missing."""
    return raw[: choose.randrange(len(raw))]


def drop(raw: bytes, choose: Random) -> bytes:
    """Some bytes inside are missing."""
    at = choose.randrange(len(raw))
    return raw[:at] + raw[at + choose.randint(1, 64) :]


def double(raw: bytes, choose: Random) -> bytes:
    """Some bytes inside stand twice."""
    at, size = choose.randrange(len(raw)), choose.randint(1, 256)
    return raw[: at + size] + raw[at:]


def number(raw: bytes, choose: Random) -> bytes:
    """A four-byte number, wherever it is, becomes extreme."""
    at = choose.randrange(len(raw))
    return raw[:at] + struct.pack(">I", choose.choice(EXTREMES)) + raw[at + 4 :]


# ── Sections ────────────────────────────────────────────────────────────────────────────────────
def sections_of(raw: bytes) -> list[tuple[int, bytes]]:
    """The sections of a bundle that parses."""
    found, at = [], HEADER
    while at < len(raw):
        tag, size = raw[at], int.from_bytes(raw[at + 1 : at + 5], "big")
        found.append((tag, raw[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


def joined(raw: bytes, sections: list[tuple[int, bytes]]) -> bytes:
    """A bundle of these sections."""
    return raw[:HEADER] + b"".join(
        bytes([tag]) + len(body).to_bytes(4, "big") + body for tag, body in sections
    )


def section_lost(raw: bytes, choose: Random) -> bytes:
    """A section is missing."""
    sections = sections_of(raw)
    del sections[choose.randrange(len(sections))]
    return joined(raw, sections)


def section_twice(raw: bytes, choose: Random) -> bytes:
    """A section stands twice."""
    sections = sections_of(raw)
    at = choose.randrange(len(sections))
    return joined(raw, [*sections[:at], sections[at], *sections[at:]])


def sections_swapped(raw: bytes, choose: Random) -> bytes:
    """Two sections' contents change places."""
    sections = sections_of(raw)
    one, other = (choose.randrange(len(sections)) for _ in range(2))
    bodies = [body for _, body in sections]
    bodies[one], bodies[other] = bodies[other], bodies[one]
    return joined(raw, [(tag, body) for (tag, _), body in zip(sections, bodies, strict=True)])


def section_broken(raw: bytes, choose: Random) -> bytes:
    """Bytes inside one section are broken, its length stays true."""
    sections = sections_of(raw)
    at = choose.randrange(len(sections))
    tag, body = sections[at]
    if body:
        sections[at] = (tag, choose.choice((flip, cut, drop, double, number))(body, choose))
    return joined(raw, sections)


def section_foreign(raw: bytes, choose: Random) -> bytes:
    """A section of another job stands in the place of one."""
    sections = sections_of(raw)
    at = choose.randrange(len(sections))
    tag = sections[at][0]
    others = [body for other, body in sections_of(FOREIGN.raw) if other == tag]
    if others:
        sections[at] = (tag, choose.choice(others))
    return joined(raw, sections)


# ── Values ──────────────────────────────────────────────────────────────────────────────────────
def value_changed(raw: bytes, choose: Random) -> bytes:
    """One value anywhere in the bundle is another of its kind."""
    try:
        return encode_bundle(_changed(decode_bundle(raw), choose))
    except MalformedError:
        return raw


def states_changed(raw: bytes, choose: Random) -> bytes:
    """States of an opened position are hard to compute with; their digest fits."""
    bundle = decode_bundle(raw)
    shown = [party for party in bundle.parties if party.openings]
    if not shown:
        return raw
    party = choose.choice(shown)
    place = choose.choice(list(party.openings))
    opening = party.openings[place]
    if not opening.entries:
        return raw
    at = choose.randrange(len(opening.entries))
    entries = list(opening.entries)
    entries[at] = _hardened(entries[at], choose)
    changed = replace(
        party, openings={**party.openings, place: replace(opening, entries=tuple(entries))}
    )
    return encode_bundle(_with_party(bundle, changed))


def opening_exchanged(raw: bytes, choose: Random) -> bytes:
    """A party shows what another committed to."""
    bundle = decode_bundle(raw)
    if len(bundle.parties) < 2:
        return raw
    one, other = choose.sample(list(bundle.parties), 2)
    return encode_bundle(_with_party(bundle, replace(one, openings=other.openings)))


def opening_lost(raw: bytes, choose: Random) -> bytes:
    """A party's opening of one request, or an entry of it, is missing."""
    bundle = decode_bundle(raw)
    shown = [party for party in bundle.parties if party.openings]
    if not shown:
        return raw
    party = choose.choice(shown)
    place = choose.choice(list(party.openings))
    openings = dict(party.openings)
    opening = openings.pop(place)
    if choose.random() < 0.7 and opening.entries:
        at = choose.randrange(len(opening.entries))
        kept = (*opening.entries[:at], *opening.entries[at + 1 :])
        openings[place] = replace(opening, entries=kept)
    return encode_bundle(_with_party(bundle, replace(party, openings=openings)))


Break = Callable[[bytes, Random], bytes]
BREAKS: tuple[Break, ...] = (
    flip, cut, drop, double, number, section_lost, section_twice, sections_swapped, section_broken,
    section_foreign, value_changed, value_changed, states_changed, opening_exchanged, opening_lost,
)  # fmt: skip


def broken(raw: bytes, breaks: Sequence[tuple[Break, int]]) -> bytes:
    """The bytes after all breaks with their seeds; those that need a whole bundle come first."""
    for break_, seed in sorted(breaks, key=lambda each: -BREAKS.index(each[0])):
        try:
            raw = break_(raw, Random(seed)) if len(raw) > HEADER else raw
        except MalformedError:
            return raw
    return raw


def _with_party(bundle: Bundle, changed: PartyEvidence) -> Bundle:
    parties = tuple(changed if each.party == changed.party else each for each in bundle.parties)
    return replace(bundle, parties=parties)


def _hardened(entry: Entry, choose: Random) -> Entry:
    if entry.slices is not None and choose.random() < 0.5:
        slices = _hard(entry.slices, choose)
        return replace(entry, slices=slices, slices_digest=state_digest(slices))
    return replace(entry, final=_hard(entry.final, choose))


def _hard(states: Bits, choose: Random) -> Bits:
    changed = states.copy()
    for _ in range(choose.randint(1, 4)):
        changed.flat[choose.randrange(changed.size)] = choose.choice(HARD_BITS)
    return changed


def _changed(value: Any, choose: Random) -> Any:
    """The value with one random part of it changed."""
    if is_dataclass(value) and not isinstance(value, type):
        name = choose.choice(fields(value)).name
        return replace(value, **{name: _changed(getattr(value, name), choose)})
    if isinstance(value, dict) and value:
        key = choose.choice(list(value))
        return {**value, key: _changed(value[key], choose)}
    if isinstance(value, tuple) and value:
        at = choose.randrange(len(value))
        return (*value[:at], _changed(value[at], choose), *value[at + 1 :])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = value ^ 1 << choose.randrange(max(1, value.bit_length()))
        return choose.choice((near, max(0, value - 1), choose.randrange(max(1, value) + 1)))
    if isinstance(value, bytes) and value:
        return flip(value, choose)
    if isinstance(value, np.ndarray):
        return _hard(value, choose)
    return value


# ── What must hold ──────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Subject:
    """A job, its bundle as bytes, and whether it is honest."""

    world: World
    raw: bytes
    is_honest: bool

    @classmethod
    def of(cls, plan: Plan, is_honest: bool = True) -> Subject:
        """Play a job."""
        world = make_world(plan)
        return cls(world, encode_bundle(world.bundle), is_honest)


@dataclass(frozen=True)
class Outcomes:
    """What became of one broken bundle."""

    verdict: Verdict | None
    """None if it did not parse."""
    seconds: float


def judge(subject: Subject, bundle: Bundle, rows: HeadArray) -> Verdict:
    """The verdict on a bundle against the job's records."""
    world = subject.world
    return judge_bundle(bundle, world.posting, world.sealing, world.spec, DOMAIN, SEAL_BEACON, rows)


def check(subject: Subject, raw: bytes, rows: HeadArray, trace_memory: bool = False) -> Outcomes:
    """Hold a broken bundle to what is promised; AssertionError says what does not hold."""
    began = time.process_time()
    bundle = parse(raw, trace_memory)
    verdict = None
    if bundle is not None:
        verdict = judge(subject, bundle, rows)
        if verdict.outcome is Outcome.ACCEPT:
            assert subject.is_honest, "a cheat is accepted once its evidence is broken"
            assert rests_on_truth(bundle, subject.world.bundle, verdict), "altered, and accepted"
        if verdict.outcome is Outcome.SLASH and subject.is_honest:
            withheld = not any(party.party == 0 and party.openings for party in bundle.parties)
            closed = verdict.reason.name == "WITHHELD"
            assert withheld or closed, f"broken evidence slashes the honest: {verdict.reason.name}"
    seconds = time.process_time() - began
    assert seconds < SECONDS, f"{seconds:.1f} s"
    return Outcomes(verdict, seconds)


def parse(raw: bytes, trace_memory: bool) -> Bundle | None:
    """The bundle, or None if it is refused; bounded in memory."""
    if not trace_memory:
        return _parse(raw)
    tracemalloc.start()
    try:
        bundle = _parse(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BYTES_PER_BYTE * len(raw) + SPARE_BYTES, f"{peak} bytes for {len(raw)}"
    return bundle


def _parse(raw: bytes) -> Bundle | None:
    try:
        bundle = decode_bundle(raw)
    except MalformedError:
        return None
    assert encode_bundle(bundle) == raw, "two encodings of one bundle"
    return bundle


def rests_on_truth(bundle: Bundle, original: Bundle, verdict: Verdict) -> bool:
    """Whether all that an accept rests on is what the parties sealed: outputs, and the states of
    the inferencer and of every verifier that is no suspect.
    """
    if bundle.checked != original.checked or bundle.job != original.job:
        return False
    true = {party.party: party for party in original.parties}
    trusted = [party for party in bundle.parties if party.party not in verdict.suspects]
    return all(_shows_truth(party, true[party.party]) for party in trusted)


def _shows_truth(shown: PartyEvidence, true: PartyEvidence) -> bool:
    for place, opening in shown.openings.items():
        sealed = {entry.position: entry for entry in true.openings[place].entries}
        for entry in opening.entries:
            at = sealed.get(entry.position)
            if at is None or not np.array_equal(at.final, entry.final):
                return False
            if entry.slices is not None and not _same(entry.slices, at.slices):
                return False
    return True


def _same(one: Bits, other: Bits | None) -> bool:
    return other is not None and np.array_equal(one, other)


def _coarse(party: int, item: TraceItem) -> TraceItem:
    """A cheap model's states: the last bits are gone."""
    if party:
        return item
    return replace(item, slices=item.slices & COARSE, finals=item.finals & COARSE)


def subjects() -> tuple[Subject, ...]:
    """An honest job, one whose states are a cheat's, one whose tokens are, one with a silent."""
    return (
        Subject.of(Plan(requests=2, most=4)),
        Subject.of(Plan(requests=2, most=4, run=_coarse), is_honest=False),
        Subject.of(
            Plan(requests=2, most=4, finish=lambda output: (*output[:-1], 5)), is_honest=False
        ),
        Subject.of(Plan(requests=2, most=4, silent=frozenset({2}))),
    )


FOREIGN = Subject.of(Plan(requests=2, prompt=7, most=5))
ROWS = head()
