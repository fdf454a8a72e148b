"""What is kept of honest jobs that are too many for their states: distances, votes and leads.

A *unit* is one run of all prompts by one worker's setup, checked by verifiers of some kinds. Its
record answers every question that thresholds, medians and caps can ask; only the scales and the
borders of the nucleus are baked in, and named in the folder.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from verillm.model import CheckProfile
from verillm.tokens import Vote
from verillm.types import Ints
from verillm_verifier.lab.cases import Case
from verillm_verifier.lab.judged import OWN, Judged


@dataclass(frozen=True, slots=True)
class About:
    """What a unit was: its number, the worker's setup, the kinds of its verifiers, threads."""

    unit: int
    worker: str
    checkers: tuple[str, ...]
    threads: int

    @property
    def views(self) -> tuple[str, ...]:
        """Names of all views, the worker's own first."""
        return (OWN, *self.checkers)


class Record(Judged):
    """A job without its states."""

    def __init__(
        self,
        about: About,
        prompt: int,
        sizes: tuple[int, int],
        apart: Mapping[tuple[str, str], Ints],
        votes: Mapping[str, tuple[Vote | None, ...]],
        leads: tuple[int, ...],
        profile: CheckProfile,
    ) -> None:
        super().__init__(*sizes, profile)
        self.about = about
        self.prompt = prompt
        """Which of the prompts it answers."""
        self.leads = leads
        """Of its tokens, by the average of all its verifiers' logits."""
        self._apart = apart
        self._votes = votes

    @property
    def views(self) -> Collection[str]:
        """Names of the views."""
        return self.about.views

    def apart(self, one: str, other: str) -> Ints:
        """Return the distances [positions, layers + 1] in ppm of two views."""
        return self._apart[min(one, other), max(one, other)]

    def votes(self, name: str) -> tuple[Vote | None, ...]:
        """Return what one view's states say of each token."""
        return self._votes[name]


def write(path: Path, about: About, cases: Sequence[Case], prompts: Sequence[int]) -> None:
    """Keep a unit's statistics."""
    arrays: dict[str, Any] = {
        "about": np.array(json.dumps(asdict(about))),
        "sizes": np.array(
            [(p, c.prompt_tokens, c.new_tokens) for p, c in zip(prompts, cases, strict=True)]
        ),
    }
    for place, case in enumerate(cases):
        pairs = [case.apart(*pair) for pair in _pairs(about)]
        cast = [[vote or (-1, -1, False) for vote in case.votes(n)] for n in about.checkers]
        arrays |= {
            f"{place} apart": np.stack(pairs).astype(np.uint32),
            f"{place} votes": np.array(cast, dtype=np.int64),
            f"{place} leads": np.array(case.leads(about.checkers), dtype=np.int64),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
    unfinished.replace(path)


def sizes(path: Path) -> list[tuple[int, int, int]]:
    """Return each job's prompt, P and N."""
    with np.load(path) as arrays:
        return [tuple(each) for each in arrays["sizes"].tolist()]


def read(path: Path, profile: CheckProfile) -> Iterator[Record]:
    """Yield a unit's jobs under a profile with the scales and borders that they were kept with."""
    with np.load(path) as arrays:
        document = json.loads(str(arrays["about"]))
        about = About(**{**document, "checkers": tuple(document["checkers"])})
        for place, (prompt, prompt_tokens, new_tokens) in enumerate(arrays["sizes"].tolist()):
            apart = arrays[f"{place} apart"].astype(np.int64)
            cast = arrays[f"{place} votes"].tolist()
            yield Record(
                about,
                prompt,
                (prompt_tokens, new_tokens),
                dict(zip(_pairs(about), apart, strict=True)),
                {
                    name: tuple(None if m < 0 else (m, above, bool(out)) for m, above, out in each)
                    for name, each in zip(about.checkers, cast, strict=True)
                },
                tuple(arrays[f"{place} leads"].tolist()),
                profile,
            )


def _pairs(about: About) -> list[tuple[str, str]]:
    return [(min(pair), max(pair)) for pair in combinations(about.views, 2)]
