"""Who checks, what, and where: pure functions of secrets and beacons (docs/protocol.md §6)."""

from collections.abc import Callable, Iterator
from itertools import count

from verillm.errors import DrawExhausted, InputError
from verillm.hashing import keccak_words, u256
from verillm.types import Hash32

MAX_STEPS = 256
"""Steps that a draw of seats may take: what `seal` can pay for."""


def draw(secret: bytes, commitment: bytes, beacon: bytes) -> Hash32:
    """The draw of a job; `beacon` is the hash of the block that holds its `post`."""
    return keccak_words([secret, commitment, beacon])


def is_forced(seed: Hash32, every: int) -> bool:
    """Whether the draw demands a public round, as it does for one job in `every` (0: none)."""
    return every != 0 and int.from_bytes(keccak_words([seed, u256(3)]), "big") % every == 0


def draw_seats(
    seed: Hash32,
    slots: int,
    is_eligible: Callable[[int], str | None],
    inferencer_owner: str,
    committee: int,
) -> list[tuple[int, str]]:
    """The committee as (slot, owner), in drawn order.

    `is_eligible(slot)` is the owner of a seat that was active at `post`, None for any other slot.
    DrawExhausted if 256 steps do not find `committee` distinct owners besides the inferencer's.
    """
    drawn: list[tuple[int, str]] = []
    taken = {inferencer_owner}
    for step in range(MAX_STEPS if slots > 0 else 0):
        slot = _uint(seed, 1, step) % slots
        owner = is_eligible(slot)
        if owner is None or owner in taken:
            continue
        taken.add(owner)
        drawn.append((slot, owner))
        if len(drawn) == committee:
            return drawn
    raise DrawExhausted(len(drawn), committee)


def checked_requests(seed: Hash32, requests: int, wanted: int) -> tuple[int, ...]:
    """The requests to check, in drawn order: all, or `wanted` distinct ones."""
    if requests <= wanted:
        return tuple(range(requests))
    return _distinct((_uint(seed, 2, step) % requests for step in count()), wanted)


def position_seed(record: bytes, beacon: bytes) -> Hash32:
    """What positions derive from: the record after `seal`, and the hash of seal's own block."""
    return keccak_words([record, beacon])


def positions(
    seed: Hash32, request: int, prompt_tokens: int, new_tokens: int, wanted: int
) -> tuple[int, ...]:
    """The positions to compare of a checked request, in drawn order; never 0, always the last.

    P and N are the inferencer's; a trace has P+N-1 positions.
    """
    if prompt_tokens < 1 or new_tokens < 1 or wanted < 1:
        raise InputError("a checked request has a prompt, an output and positions")
    last = prompt_tokens + new_tokens - 2
    if last <= wanted:
        return tuple(range(1, last + 1))
    rest = (1 + _uint(seed, request, step) % (last - 1) for step in count())
    return (last, *_distinct(rest, wanted - 1))


def _uint(seed: Hash32, tag: int, step: int) -> int:
    return int.from_bytes(keccak_words([seed, u256(tag), u256(step)]), "big")


def _distinct(stream: Iterator[int], wanted: int) -> tuple[int, ...]:
    found: dict[int, None] = {}
    while len(found) < wanted:
        found.setdefault(next(stream))
    return tuple(found)
