"""A public round by what the contract added up: who opened what, and the verdict of its sums.

Read from the contract's own storage and not from events: anyone can open a round of its own at the
adjudicator under a stranger's job id, and have it tell stories.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verillm.chain.contract import Chain, PairSums, Round
from verillm.evidence import INFERENCER
from verillm.statistics import PairStatistics
from verillm.types import Hash32, Outcome, Reason
from verillm.verdict import Details, PartyStatus, Verdict, decide

if TYPE_CHECKING:
    from verillm_verifier.facts import Facts

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sums:
    """The round of a challenged job; pairs are (lower, higher) party numbers.

    Parties beyond the `committee` are witnesses of a re-verification, and decide nothing.
    """

    round: Round
    pairs: Mapping[Pair, PairSums]
    committee: int


def read_sums(chain: Chain, record: Hash32, committee: int, witnesses: int = 0) -> Sums:
    """What the contract holds of the round over a record."""
    parties = range(committee + witnesses + 1)
    pairs = {(a, b): chain.pair_of(record, a, b) for a in parties for b in parties if a < b}
    return Sums(chain.round_of(record), pairs, committee)


def silent(facts: "Facts", sums: Sums) -> frozenset[int]:
    """The parties that left a position closed; without lengths only the inferencer can be.

    Whose item is another text has shown that, and opens nothing.
    """
    found = sums.round
    if not is_revealed(facts, sums):
        return frozenset({INFERENCER})
    parties = range(sums.committee + 1)
    others = found.mismatched
    return frozenset(
        k for k in parties if found.served[k] < found.positions and not others >> k & 1
    )


def verdict_of(facts: "Facts", sums: Sums) -> Verdict:
    """The verdict on states that the sums give, by the same function as everyone's."""
    found, quiet = sums.round, silent(facts, sums)
    if INFERENCER in quiet:
        opened = f"opened {found.served[INFERENCER]} of {found.positions} positions"
        fact = f"{opened}, {found.revealed} of {_expected(facts)} requests revealed"
        return Verdict(Outcome.SLASH, Reason.WITHHELD, details=Details(fact=fact))
    statuses = statuses_of(facts, sums)
    compared = [k for k, status in enumerate(statuses) if status is PartyStatus.OPEN]
    pairs = {(a, b): _statistics(sums.pairs[a, b]) for a in compared for b in compared if a < b}
    cells = found.positions * len(facts.spec.profile.layers)
    if statuses[INFERENCER] is PartyStatus.OPEN and any(p.cells != cells for p in pairs.values()):
        return Verdict(Outcome.INCONCLUSIVE, Reason.NOT_COMPARED)
    return decide(statuses, pairs, found.positions, facts.spec.profile, found.revealed)


def statuses_of(facts: "Facts", sums: Sums) -> list[PartyStatus]:
    """What the openings of each party that decides are worth."""
    quiet = silent(facts, sums)
    return [_status(k, sums.round, quiet) for k in range(sums.committee + 1)]


def is_revealed(facts: "Facts", sums: Sums) -> bool:
    """Whether there are positions at all: the lengths of every checked request are known."""
    return sums.round.revealed >= _expected(facts)


def statistics_of(sums: Sums, first: int, second: int) -> PairStatistics:
    """What two parties differ by, as far as they were compared."""
    return _statistics(sums.pairs[first, second])


def _expected(facts: "Facts") -> int:
    return min(facts.posting.job.requests, facts.spec.checked_requests)


def _status(k: int, found: Round, quiet: frozenset[int]) -> PartyStatus:
    if k in quiet:
        return PartyStatus.SILENT
    if found.non_finite >> k & 1:
        return PartyStatus.NON_FINITE
    return PartyStatus.MISMATCHED if found.mismatched >> k & 1 else PartyStatus.OPEN


def _statistics(sums: PairSums) -> PairStatistics:
    return PairStatistics(sums.sum, sums.cells, sums.over)
