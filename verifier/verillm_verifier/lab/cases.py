"""One job with the states of all its parties: distances and votes are computed when asked for."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from verillm.model import CheckProfile
from verillm.statistics import States, distances, is_finite
from verillm.task import Item
from verillm.tokens import Generated, Head, Vote, averaged_leads, votes
from verillm.types import Bits, Ints
from verillm_verifier.lab.judged import Judged
from verillm_verifier.runs import Job


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """States that a party may show of one job: [positions 0..P+N-2, …]."""

    slices: Bits
    finals: Bits

    @classmethod
    def of(cls, job: Job) -> View:
        """Return a run's own states."""
        return cls(job.slices, job.finals)


Votes = MutableMapping[str, tuple[Vote | None, ...]]
"""What the states of a view say of the tokens: the costly part, which a caller may keep."""


class Case(Judged):
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
        super().__init__(len(item.tokens), len(output), profile)
        self.item = item
        self.output = output
        self._views = dict(views)
        self._head = head
        self._votes: Votes = {} if kept is None else kept
        self._finite = {
            name: is_finite(view.slices) and is_finite(view.finals) for name, view in views.items()
        }

    @property
    def views(self) -> Mapping[str, View]:
        """The views by name."""
        return self._views

    def forget(self) -> None:
        """Drop what was computed, so that it can be timed."""
        self._cells.clear()
        self._votes.clear()

    def is_finite(self, name: str) -> bool:
        """Whether a view's states are all finite."""
        return self._finite[name]

    def apart(self, one: str, other: str) -> Ints:
        """Return the distances [positions, layers + 1] in ppm of two views."""
        return distances(self._states(one), self._states(other), self.profile)

    def votes(self, name: str) -> tuple[Vote | None, ...]:
        """Return what one view's states say of each token."""
        key = f"{name} {self._digest(name)}"
        if key not in self._votes:
            generated = self._generated((name,))
            self._votes[key] = votes(generated, generated.finals[0], self._head, self.profile)
        return self._votes[key]

    def leads(self, clique: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens' leads by the average of some views' logits."""
        key = "leads " + " ".join(f"{name} {self._digest(name)}" for name in clique)
        if key not in self._votes:
            found = averaged_leads(self._generated(clique), self._head, self.profile)
            self._votes[key] = tuple((lead, 0, False) for lead in found)
        return tuple(vote[0] for vote in self._votes[key] if vote is not None)

    def _digest(self, name: str) -> str:
        return sha256(self._finals(name).tobytes()).hexdigest()[:16]

    def _finals(self, name: str) -> Bits:
        return self._views[name].finals[self.prompt_tokens - 1 :]

    def _generated(self, clique: Sequence[str]) -> Generated:
        item, shown = self.item, tuple(map(self._finals, clique))
        return Generated(self.prompt_tokens, self.output, item.sampling, item.seed, shown)

    def _states(self, name: str) -> States:
        view = self._views[name]
        return States(tuple(range(len(view.finals))), view.slices, view.finals)
