"""Re-verification on the chain: its calls, its events, and where it stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from verillm.appeal import Content
from verillm.records import Claiming, Member, Posting, Sealing
from verillm.task import Inner
from verillm.types import ChecksumAddress, Hash32, JobId, Outcome, Reason


class AppealPhase(IntEnum):
    """How far a re-verification has come; it stays where it was when the job ended."""

    NONE = 0
    ASKED = 1
    COMPLETE = 2
    CONVENED = 3
    CLOSED = 4
    OPENED = 5


@dataclass(frozen=True, slots=True)
class AppealState:
    """Where a re-verification stands, who asked for it, and its committee."""

    phase: AppealPhase
    requester: ChecksumAddress
    committee: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class ReverificationAsked:
    """Somebody wants a job judged again; `status` is where it stood."""

    job_id: JobId
    requester: ChecksumAddress
    status: int
    supply_by: int


@dataclass(frozen=True, slots=True)
class ContentSupplied:
    """One checked request, by its place in the drawn order, with its output."""

    job_id: JobId
    place: int
    content: Content


@dataclass(frozen=True, slots=True)
class ContentsComplete:
    """The hash of this block draws the new committee."""

    job_id: JobId
    tokens: int
    convene_by: int


@dataclass(frozen=True, slots=True)
class Convened:
    """The new committee is drawn and locked."""

    job_id: JobId
    committee: tuple[Member, ...]
    commit_by: int


@dataclass(frozen=True, slots=True)
class Recommitted:
    """A new member committed; `index` from 0."""

    job_id: JobId
    index: int
    inner: Inner


@dataclass(frozen=True, slots=True)
class CommitsClosed:
    """The hash of this block draws the fresh positions."""

    job_id: JobId
    committed: int
    start_by: int


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """The round over these values began."""

    job_id: JobId
    sealing: Sealing
    beacon: Hash32
    open_by: int


@dataclass(frozen=True, slots=True)
class TokensRejected:
    """A new member's own states reject the tokens."""

    job_id: JobId
    index: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Concluded:
    """What the new committee says; bit k-1 of `strangers` is member k of the first one."""

    job_id: JobId
    outcome: Outcome
    reason: Reason
    stands: bool
    strangers: int


EVENTS: tuple[type[Any], ...] = (
    ReverificationAsked,
    ContentSupplied,
    ContentsComplete,
    Convened,
    Recommitted,
    CommitsClosed,
    RoundStarted,
    TokensRejected,
    Concluded,
)


def split(contents: Sequence[Content], most_bytes: int = 100_000) -> list[tuple[Content, ...]]:
    """Contents in parts that each fit a call, in order: `reverify` takes the first."""
    parts: list[list[Content]] = [[]]
    size = 0
    for each in contents:
        own = len(each.tokens) + len(each.output)
        if parts[-1] and size + own > most_bytes:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += own
    return [tuple(part) for part in parts]


Record = tuple[Posting, Sealing, Claiming]
"""What the calls about a claimed job bring."""
