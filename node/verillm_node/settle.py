"""What to do next for a job: one pure function of what we remember and what the chain says.

Killed daemons, reorganised chains and a restarted Anvil are no cases of their own here: whatever
happened, the next step follows from the two states alone, and every step may be done twice.
"""

from dataclasses import dataclass
from enum import StrEnum

from verillm.chain.contract import Status

KEEP_BELOW = 96
"""Blocks left, of 256, at which a beacon is stored: time for a transaction to be replaced."""


class Step(StrEnum):
    """One action of a scheduler for one job."""

    INFER = "infer"
    POST = "post"
    POST_CLAIMED = "post_claimed"
    VERIFY = "verify"
    SUMMON = "summon"
    SEAL = "seal"
    DISMISS = "dismiss"
    REFUND = "refund"
    JUDGE = "judge"
    CLAIM = "claim"
    FINALIZE = "finalize"
    OPEN = "open"
    DEFEND = "defend"
    SETTLE = "settle"
    SERVE = "serve"
    VOID = "void"
    KEEP = "keep"
    WAIT = "wait"
    GIVE_UP = "give_up"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Known:
    """What the store holds of a job."""

    inferred: bool
    """The inferencer's commitment is here."""
    verified: bool
    """The committee's commitments are here, for the draw that the chain has now."""
    overdue: bool
    """Some of the committee had its time over HTTP."""
    judged: bool
    """The bundle is written and its verdict known."""
    deadline: int
    """Until when the job may be posted, chain time."""
    claimed: bool = False
    """A worker's claim is to be judged: by it the job is posted, whenever."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the chain says of a job; `until` is the deadline of its state, chain time."""

    status: Status
    until: int
    now: int
    beacon_blocks: int | None = None
    """Blocks until the chain forgets this state's beacon; None where it is kept or not needed."""
    is_forced: bool = False
    """Whether the draw demands a public round."""


def next_step(known: Known, seen: Seen) -> Step:
    """The action that the job needs now."""
    late = seen.now >= seen.until
    if _is_fading(seen) and not late:
        return Step.KEEP
    match seen.status:
        case Status.NONE:
            return _unposted(known, seen.now)
        case Status.POSTED | Status.SUMMONED:
            return _unsealed(known, late, seen.status is Status.SUMMONED)
        case Status.SEALED:
            # A claim is still possible after the deadline, as long as nobody has challenged.
            return Step.CLAIM if known.judged else Step.JUDGE
        case _:
            return _claimed(seen, late)


def _claimed(seen: Seen, late: bool) -> Step:
    """From the claim on nothing of ours is needed any more, and anyone may go on."""
    match seen.status:
        case Status.CLAIMED if late:
            # A forced round waits as well: whoever has the committee's word goes first.
            return Step.OPEN if seen.is_forced else Step.FINALIZE
        case Status.DEMANDED:
            return Step.VOID if late else Step.SERVE
        case Status.CHALLENGED:
            return Step.DEFEND
        case Status.JUDGED:
            return Step.SETTLE if late else Step.WAIT
        case Status.FINAL:
            return Step.CLOSE
        case _:
            return Step.WAIT


def _unsealed(known: Known, late: bool, summoned: bool) -> Step:
    if late:
        return Step.DISMISS if summoned else Step.REFUND
    if known.verified:
        return Step.SEAL
    return Step.SUMMON if summoned or known.overdue else Step.VERIFY


def _is_fading(seen: Seen) -> bool:
    left = seen.beacon_blocks
    return seen.status in (Status.POSTED, Status.SEALED) and left is not None and left < KEEP_BELOW


def _unposted(known: Known, now: int) -> Step:
    if known.claimed:
        return Step.POST_CLAIMED
    if now >= known.deadline:
        return Step.GIVE_UP
    return Step.POST if known.inferred else Step.INFER
