"""How rough a job's states are, which is how near a tie must be for an honest worker to lose it.

What rounds a state rounds its logits: the farther an inferencer's final states are from the average
of a clique's, the farther apart two tokens may be whose order the two see differently. Over kinds
of attention, batches and types it differs by a factor of two and more; in roughnesses of its own
job the share of ties that honest work loses is one curve for all (docs/detection.md). A test over
plain distances that was fitted on some kinds came to suspect honest workers of a noisier one.

The inferencer chooses what it shows. Few positions, or states too near to the clique's, are drawn
to what is typical; what is rougher than honest jobs are counts as the roughest of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from verillm.errors import MalformedError
from verillm.types import Ints

UNIT = 1000
"""Leads are told in thousandths of their job's roughness."""
_TYPICAL_POSITIONS = 4
"""So many typical positions are added to those of a job."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What is honest for a model, ppm of a state: the median job's roughness, and the most that
    counts.
    """

    typical: int
    most: int

    def __post_init__(self) -> None:
        if not 0 < self.typical <= self.most:
            raise MalformedError("roughness", "not ascending from above 0")

    def of(self, squares: Sequence[int]) -> int:
        """Return a job's roughness, ppm and never 0, from the squares of its positions."""
        known = sum(squares) + _TYPICAL_POSITIONS * self.typical**2
        return max(1, min(self.most, isqrt(known // (len(squares) + _TYPICAL_POSITIONS))))

    def scaled(self, leads: Iterable[int], squares: Sequence[int]) -> tuple[int, ...]:
        """Return leads, ppm of a logit, in thousandths of their job's roughness (floor)."""
        rough = self.of(squares)
        return tuple(lead * UNIT // rough for lead in leads)


def squares(shown: Sequence[Ints], among: Sequence[Ints]) -> tuple[int, ...]:
    """Return the squared distance to the average of a clique at each position, ppm².

    `shown`: per member its distances [positions] from the inferencer's final states, ppm; `among`:
    per pair of members theirs. Distances are relative to norms that are nearly alike, so that an
    average's follows from its members'.
    """
    members = len(shown)
    apart = sum(np.square(each) for each in shown) // members
    spread = sum(np.square(each) for each in among) // members**2
    beyond: Ints = np.maximum(0, apart - spread)
    return tuple(beyond.tolist())
