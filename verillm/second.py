"""Who gets what when a re-verification ends a job: `Reverifications`, once more (§6.1, Money).

What stood is paid as it would have been, less to who lied; what is overturned goes by the new
verdict, and who asked for it stands in the place of whoever was right.
"""

from dataclasses import dataclass, replace

from verillm.errors import InputError
from verillm.settlement import (
    Claim,
    Ending,
    Judged,
    Settlement,
    Stakes,
    Terms,
    Way,
    adjudicate,
    settle,
)
from verillm.types import Outcome, Reason


@dataclass(frozen=True, slots=True)
class Second:
    """What a re-verification found. New members are 1..m', those of the first committee 1..m.

    outcome : with what was attested while it ran. heard : there was a round. withheld : the
    inferencer opened nothing, or what is not finite. lost : new members that fell silent or opened
    what is not finite; paid : those that get a wage. near : first members that agree with a new
    one that decides; strangers : those that have other states, or opened none.
    """

    outcome: Outcome
    locks: tuple[int, ...]
    heard: bool = True
    withheld: bool = False
    lost: frozenset[int] = frozenset()
    paid: frozenset[int] = frozenset()
    near: frozenset[int] = frozenset()
    strangers: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        known = range(1, len(self.locks) + 1)
        if self.lost & self.paid or not (self.lost | self.paid) <= set(known):
            raise InputError("a new member is paid, or loses its lock, or neither")

    @property
    def says_nothing(self) -> bool:
        """Whether it leaves everything as it was, first members included."""
        return self.outcome == Outcome.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Concluded:
    """What everyone ends with; `shares.finder` is the requester's, apart from its bond."""

    shares: Settlement
    requester: int
    members: tuple[int, ...]
    burnt: int

    @property
    def total(self) -> int:
        """The job's `max_fee`."""
        return self.shares.total + self.requester + sum(self.members) + self.burnt


def stands(before: Outcome, second: Second) -> bool:
    """Whether a job ends as it would have without the re-verification."""
    return second.says_nothing or second.outcome == before


def ending_of(
    claim: Claim | None,
    size: int,
    second: Second,
    judged: Judged | None = None,
    attested: Reason = Reason.NONE,
) -> Ending:
    """How the job ends; `judged` where a public round was held first, `size` is its committee's.

    Whether a challenge was bonded, and the round forced, the caller adds.
    """
    if judged is None:
        return _of_claim(claim, size, second)
    if not stands(adjudicate(claim, judged, attested).outcome, second):
        return _overturned(claim, size, second)
    strangers = _liars(second)
    kept = Judged(judged.outcome, judged.lost | strangers, judged.unpaid | strangers)
    return adjudicate(claim, kept, attested)


def _of_claim(claim: Claim | None, size: int, second: Second) -> Ending:
    if claim is None:
        raise InputError("a claim or a verdict is verified again")
    if not stands(claim.outcome, second):
        return _overturned(claim, size, second)
    strangers = _liars(second)
    return Ending(claim.outcome, Way.FINALIZED, strangers, claim.unpaid | strangers, bonded=False)


def _liars(second: Second) -> frozenset[int]:
    return frozenset() if second.says_nothing else second.strangers


def _overturned(claim: Claim | None, size: int, second: Second) -> Ending:
    """The larger committee judged the tokens too: no reason that was attested counts any more."""
    lost = second.strangers | (frozenset({0}) if second.withheld else frozenset())
    unpaid = frozenset(range(1, size + 1)) - second.near
    found = Judged(second.outcome, lost, unpaid)
    if claim is not None and claim.reason != Reason.WITHHELD:
        claim = replace(claim, reason=Reason.NONE)
    return replace(adjudicate(claim, found), bonded=False, appealed=True)


def conclude(
    terms: Terms, stakes: Stakes, reverify_bond: int, ending: Ending, second: Second
) -> Concluded:
    """All of the money: that of the ending, wages and locks of the new members, the bond.

    The requester pays the wages; where what it doubted stands, all of its bond.
    """
    wage = reverify_bond // (2 * len(second.locks)) if second.locks else 0
    members = tuple(
        -lock if k in second.lost else wage * (k in second.paid)
        for k, lock in enumerate(second.locks, 1)
    )
    wages = sum(pay for pay in members if pay > 0)
    nobodys_fault = second.heard and second.says_nothing
    due = wages if ending.appealed or nobodys_fault else reverify_bond
    lost = -sum(pay for pay in members if pay < 0)
    return Concluded(settle(terms, stakes, ending), -due, members, lost + due - wages)
