"""One job as the verdict sees it, whatever its distances and votes come from.

A draw of a committee and of positions then only adds numbers up. `Judged.verdict` is proven equal
to `verillm.verdict.judge` by a test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from verillm.model import CheckProfile
from verillm.roughness import squares
from verillm.statistics import PairStatistics, ratios, zone
from verillm.tokens import TokenStatistics, Vote, collected, judge_tokens, majority
from verillm.types import Ints, Mask, Outcome, Reason
from verillm.verdict import PartyStatus, Verdict, decide

INFERENCER = 0
OWN = "own"


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


class Judged(ABC):
    """A job of which some views are known: what the inferencer and each verifier may show."""

    def __init__(self, prompt_tokens: int, new_tokens: int, profile: CheckProfile) -> None:
        self.prompt_tokens = prompt_tokens
        self.new_tokens = new_tokens
        self.profile = profile
        self._cells: dict[tuple[str, str], Cells] = {}

    @property
    @abstractmethod
    def views(self) -> Collection[str]:
        """Names of the views."""

    @abstractmethod
    def apart(self, one: str, other: str) -> Ints:
        """Return the distances [positions, layers + 1] in ppm of two views."""

    @abstractmethod
    def votes(self, name: str) -> tuple[Vote | None, ...]:
        """Return what one view's states say of each token."""

    def is_finite(self, name: str) -> bool:
        """Whether a view could be compared at all."""
        return name in self.views

    def under(self, profile: CheckProfile) -> Self:
        """Return the job under other thresholds; scales and borders must be the same."""
        other = copy(self)
        other.profile = profile
        other._cells = self._cells if profile.layers == self.profile.layers else {}
        return other

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

    def verdict(self, shown: str, committee: Sequence[str], positions: Sequence[int]) -> Verdict:
        """Judge an inferencer's view by a committee's at the drawn positions."""
        parties = (shown, *committee)
        finite = [self.is_finite(name) for name in parties]
        statuses = [PartyStatus.OPEN if each else PartyStatus.NON_FINITE for each in finite]
        pairs = {
            (a, b): self.cells(parties[a], parties[b]).at(positions)
            for a, b in combinations(range(len(parties)), 2)
            if finite[a] and finite[b]
        }
        verdict = decide(statuses, pairs, len(positions), self.profile, 1)
        if not verdict.accepted:
            return verdict
        found = {
            judge_tokens(self.margins([parties[k] for k in clique]), self.profile)
            for clique in verdict.details.accepting
        }
        outcome, reason = found.pop() if len(found) == 1 else (Outcome.INCONCLUSIVE, Reason.DIVIDED)
        return Verdict(outcome, reason, verdict.suspects, verdict.details)

    def squares(
        self, shown: str, clique: Sequence[str], positions: Sequence[int]
    ) -> tuple[int, ...]:
        """Return how far a shown view's final states are from the average of a clique's, squared,
        at those of the positions whose states chose a token, ppm².
        """
        where = [at for at in sorted(positions) if at >= self.prompt_tokens - 1]

        def finals(one: str, other: str) -> Ints:
            same = one == other
            return np.zeros(len(where), np.int64) if same else self.apart(one, other)[where, -1]

        mine = [finals(shown, name) for name in clique]
        return squares(mine, [finals(*pair) for pair in combinations(clique, 2)])

    def limits(self) -> tuple[Ints, Ints]:
        """Return medians and caps [positions, layers + 1] of the positions' zones."""
        count = self.prompt_tokens + self.new_tokens - 1
        zones = [zone(at, self.prompt_tokens) for at in range(count)]
        med, cap = (
            np.array([getattr(layer, name) for layer in self.profile.layers], np.int64).T[zones]
            for name in ("med", "cap")
        )
        return med, cap

    def _compare(self, one: str, other: str) -> Cells:
        med, cap = self.limits()
        if one == other:
            nothing = np.zeros(len(med), np.int64)
            return Cells(nothing, nothing > 0, med.shape[1])
        apart = self.apart(one, other)
        over: Mask = np.any(apart > cap, axis=-1)
        return Cells(ratios(apart, med).sum(axis=-1), over, med.shape[1])
