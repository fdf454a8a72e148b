"""What more positions would show: how far a subtle cheat stands from the noisiest honest work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verillm.draw import positions
from verillm.types import Hash32
from verillm_verifier.lab.judged import OWN, Judged
from verillm_verifier.lab.study import CHECKERS

POSITIONS = (16, 32, 64, 128)
KINDS = ("bf16", "fp32")
LONG = 64
"""New tokens of a job that counts: shorter ones have fewer positions than are asked for."""
DRAWS = 20


@dataclass(frozen=True, slots=True)
class Reach:
    """How often a cheat's mean, by one kind of verifier, is beyond every honest draw's."""

    cheat: str
    kind: str
    positions: int
    jobs: int
    honest: int
    """The largest mean of any honest draw, ppm of the honest median."""
    beyond: float


def reaches(
    honest: Iterable[Judged], cheats: Mapping[str, Sequence[Judged]], seed: int
) -> tuple[Reach, ...]:
    """Compare honest work of every setup with each cheat, at every number of positions."""
    random = np.random.default_rng(seed)
    long = [case for case in honest if case.new_tokens >= LONG]
    if not long:
        return ()
    found = []
    for count in POSITIONS:
        noisiest = max(
            mean
            for case in long
            for kind in CHECKERS
            if kind in case.views
            for mean in _means(case, kind, count, random)
        )
        for name, cases in cheats.items():
            jobs = [case for case in cases if case.new_tokens >= LONG]
            for kind in KINDS if jobs else ():
                means = [mean for case in jobs for mean in _means(case, kind, count, random)]
                beyond = float(np.mean([mean > noisiest for mean in means]))
                found.append(Reach(name, kind, count, len(jobs), noisiest, beyond))
    return tuple(found)


def _means(case: Judged, kind: str, count: int, random: np.random.Generator) -> list[int]:
    cells = case.cells(OWN, kind)
    drawn = (
        positions(Hash32(random.bytes(32)), 0, case.prompt_tokens, case.new_tokens, count)
        for _ in range(DRAWS)
    )
    return [cells.at(rows).mean for rows in drawn]
