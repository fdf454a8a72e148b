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
    """The round of a challenged job; pairs are (lower, higher) party numbers."""

    round: Round
    pairs: Mapping[Pair, PairSums]
    committee: int


def read_sums(chain: Chain, record: Hash32, committee: int) -> Sums:
    """What the contract holds of the round over a record."""
    parties = range(committee + 1)
    pairs = {(a, b): chain.pair_of(record, a, b) for a in parties for b in parties if a < b}
    return Sums(chain.round_of(record), pairs, committee)


def silent(facts: "Facts", sums: Sums) -> frozenset[int]:
    """The parties that left a position closed; without lengths only the inferencer can be."""
    found = sums.round
    if found.revealed < _expected(facts):
        return frozenset({INFERENCER})
    parties = range(sums.committee + 1)
    return frozenset(k for k in parties if found.served[k] < found.positions)


def verdict_of(facts: "Facts", sums: Sums) -> Verdict:
    """The verdict on states that the sums give, by the same function as everyone's."""
    found, quiet = sums.round, silent(facts, sums)
    if INFERENCER in quiet:
        opened = f"opened {found.served[INFERENCER]} of {found.positions} positions"
        fact = f"{opened}, {found.revealed} of {_expected(facts)} requests revealed"
        return Verdict(Outcome.SLASH, Reason.WITHHELD, details=Details(fact=fact))
    statuses = [_status(k, found, quiet) for k in range(sums.committee + 1)]
    compared = [k for k, status in enumerate(statuses) if status is PartyStatus.OPEN]
    pairs = {(a, b): _statistics(sums.pairs[a, b]) for a in compared for b in compared if a < b}
    cells = found.positions * len(facts.spec.profile.layers)
    if statuses[INFERENCER] is PartyStatus.OPEN and any(p.cells != cells for p in pairs.values()):
        return Verdict(Outcome.INCONCLUSIVE, Reason.NOT_COMPARED)
    return decide(statuses, pairs, found.positions, facts.spec.profile)


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
