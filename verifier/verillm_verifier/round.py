"""What the chain's events tell of a public round: who opened what, who stayed silent."""

from dataclasses import dataclass

from verillm.chain.events import At, PositionServed, Revealed
from verillm.draw import positions
from verillm.evidence import INFERENCER
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.facts import Draws, Facts


@dataclass(frozen=True, slots=True)
class Round:
    """A public round: positions to open, and how many of them each party (0..m) opened.

    `unrevealed`: checked requests whose lengths the inferencer never fixed.
    """

    positions: int
    served: tuple[int, ...]
    unrevealed: int

    @property
    def silent(self) -> frozenset[int]:
        """The parties that left a position closed; without lengths only the inferencer can be."""
        if self.unrevealed:
            return frozenset({INFERENCER})
        return frozenset(k for k, served in enumerate(self.served) if served < self.positions)


def round_of(facts: Facts, draws: Draws) -> Round | None:
    """The round of a challenged job; InconsistentChain if its events name what was not drawn."""
    if facts.history.challenged is None:
        return None
    places: dict[int, int] = {}
    for revealed in facts.history.all(Revealed):
        event = revealed.event
        if event.checked_index >= len(draws.checked):
            raise InconsistentChain(f"request {event.checked_index} was revealed and not drawn")
        request = draws.checked[event.checked_index]
        lengths = (event.prompt_tokens, event.new_tokens, facts.spec.positions)
        places[event.checked_index] = len(positions(draws.position_seed, request, *lengths))
    opened = {_place(each.event, places, facts.spec.committee) for each in _served(facts)}
    served = tuple(
        sum(party == k for party, _, _ in opened) for k in range(facts.spec.committee + 1)
    )
    return Round(sum(places.values()), served, len(draws.checked) - len(places))


def _served(facts: Facts) -> tuple[At[PositionServed], ...]:
    return facts.history.all(PositionServed)


def _place(event: PositionServed, places: dict[int, int], committee: int) -> tuple[int, int, int]:
    known = event.position_index < places.get(event.checked_index, 0)
    if not known or event.party > committee:
        raise InconsistentChain("an opening was served where none was drawn")
    return event.party, event.checked_index, event.position_index
