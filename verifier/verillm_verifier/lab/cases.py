"""One job as the verdict sees it, for any inferencer's states, committee and drawn positions.

Distances and margins are computed once per pair of views and per clique; a draw then only adds
numbers up. `Case.verdict` is proven equal to `verillm.verdict.judge` by a test.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from verillm.model import CheckProfile
from verillm.statistics import PairStatistics, States, distances, is_finite, zone
from verillm.task import Item
from verillm.tokens import (
    Generated,
    Head,
    TokenStatistics,
    Vote,
    collected,
    judge_tokens,
    majority,
    votes,
)
from verillm.types import PPM, Bits, Ints, Mask, Outcome, Reason
from verillm.verdict import PartyStatus, Verdict, decide
from verillm_verifier.runs import Job

INFERENCER = 0


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """States that a party may show of one job: [positions 0..P+N-2, …]."""

    slices: Bits
    finals: Bits

    @classmethod
    def of(cls, job: Job) -> View:
        """Return a run's own states."""
        return cls(job.slices, job.finals)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Two views compared at every position: summed ratios (ppm), and whether any cell is over."""

    sums: Ints
    over: Mask
    columns: int

    def at(self, rows: Sequence[int]) -> PairStatistics:
        """Return the statistics over some positions."""
        where = np.asarray(rows, dtype=np.intp)
        return PairStatistics(
            int(self.sums[where].sum()), len(where) * self.columns, int(self.over[where].sum())
        )


Votes = MutableMapping[str, tuple[Vote | None, ...]]
"""What the states of a view say of the tokens: the costly part, which a caller may keep."""


class Case:
    """A job's item and output, and the named views of it."""

    def __init__(
        self,
        item: Item,
        output: tuple[int, ...],
        views: Mapping[str, View],
        profile: CheckProfile,
        head: Head,
        kept: Votes | None = None,
    ) -> None:
        self.item = item
        self.output = output
        self.views = dict(views)
        self.profile = profile
        self._head = head
        self._cells: dict[tuple[str, str], Cells] = {}
        self._votes: Votes = {} if kept is None else kept
        self._finite = {
            name: is_finite(view.slices) and is_finite(view.finals) for name, view in views.items()
        }

    def under(self, profile: CheckProfile) -> Case:
        """Return the case under other thresholds; layers and borders must be the same."""
        other = copy(self)
        other.profile = profile
        return other

    def forget(self) -> None:
        """Drop what was computed, so that it can be timed."""
        self._cells.clear()
        self._votes.clear()

    @property
    def prompt_tokens(self) -> int:
        """P."""
        return len(self.item.tokens)

    @property
    def new_tokens(self) -> int:
        """N."""
        return len(self.output)

    def cells(self, one: str, other: str) -> Cells:
        """Return two views compared at every position; row 0 is never drawn."""
        key = (min(one, other), max(one, other))
        if key not in self._cells:
            self._cells[key] = self._compare(*key)
        return self._cells[key]

    def margins(self, clique: Sequence[str]) -> TokenStatistics:
        """Return the token statistics by the states of some views."""
        cast = zip(*(self.votes(name) for name in clique), strict=True)
        return collected(majority(each) for each in cast)

    def votes(self, name: str) -> tuple[Vote | None, ...]:
        """Return what one view's states say of each token."""
        finals = self.views[name].finals[self.prompt_tokens - 1 :]
        key = f"{name} {sha256(finals.tobytes()).hexdigest()[:16]}"
        if key not in self._votes:
            generated = Generated(
                self.prompt_tokens, self.output, self.item.sampling, self.item.seed, (finals,)
            )
            self._votes[key] = votes(generated, finals, self._head, self.profile)
        return self._votes[key]

    def verdict(self, shown: str, committee: Sequence[str], positions: Sequence[int]) -> Verdict:
        """Judge an inferencer's view by a committee's at the drawn positions."""
        parties = (shown, *committee)
        statuses = [
            PartyStatus.OPEN if self._finite[name] else PartyStatus.NON_FINITE for name in parties
        ]
        pairs = {
            (a, b): self.cells(parties[a], parties[b]).at(positions)
            for a, b in combinations(range(len(parties)), 2)
            if self._finite[parties[a]] and self._finite[parties[b]]
        }
        verdict = decide(statuses, pairs, len(positions), self.profile)
        if not verdict.accepted:
            return verdict
        found = {
            judge_tokens(self.margins([parties[k] for k in clique]), self.profile)
            for clique in verdict.details.accepting
        }
        outcome, reason = found.pop() if len(found) == 1 else (Outcome.INCONCLUSIVE, Reason.DIVIDED)
        return Verdict(outcome, reason, verdict.suspects, verdict.details)

    def _compare(self, one: str, other: str) -> Cells:
        count = len(self.views[one].finals)
        columns = len(self.profile.layers)
        if one == other:
            return Cells(np.zeros(count, np.int64), np.zeros(count, np.bool_), columns)
        apart = distances(self._states(one), self._states(other), self.profile)
        med, cap = self.limits()
        ratios = np.minimum(apart, cap) * PPM // med
        over: Mask = np.any(apart > cap, axis=-1)
        return Cells(ratios.sum(axis=-1), over, columns)

    def limits(self) -> tuple[Ints, Ints]:
        """Return medians and caps [positions, layers + 1] of the positions' zones."""
        zones = [zone(at, self.prompt_tokens) for at in range(len(self._any().finals))]
        med, cap = (
            np.array([getattr(layer, name) for layer in self.profile.layers], np.int64).T[zones]
            for name in ("med", "cap")
        )
        return med, cap

    def _states(self, name: str) -> States:
        view = self.views[name]
        return States(tuple(range(len(view.finals))), view.slices, view.finals)

    def _any(self) -> View:
        return next(iter(self.views.values()))


def distance_cells(case: Case, one: str, other: str) -> NDArray[np.int64]:
    """Return the distances [positions, layers + 1] in ppm of two views."""
    views = [case.views[name] for name in (one, other)]
    states = [States(tuple(range(len(view.finals))), view.slices, view.finals) for view in views]
    return distances(states[0], states[1], case.profile)
