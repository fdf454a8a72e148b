"""The public round of a challenged job: which calls are due, as a pure function of what is known.

Anyone may make them. What is served is public, so nothing here depends on who asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from verillm.chain.contract import Call, Calls, Checked, Opening as ChainOpening
from verillm.chain.events import (
    BundleDemanded,
    ChunkServed,
    ItemMismatched,
    PairCompared,
    PositionServed,
    Revealed,
)
from verillm.codec import bundle_chunks
from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.hashing import keccak
from verillm.model import ModelSpec
from verillm.records import record_hash
from verillm.trace import Entry, Opening, state_bytes
from verillm_node.view import View

Openings = Mapping[tuple[int, int], Opening]
"""By party and place in the checked order."""


@dataclass(frozen=True, slots=True)
class Round:
    """A challenged job with the openings at hand."""

    view: View
    spec: ModelSpec
    openings: Openings

    @property
    def is_late(self) -> bool:
        """Whether openings count no more; what was served before may still be compared."""
        return self.view.now >= self.view.state.deadline

    @property
    def checked(self) -> tuple[int, ...]:
        """The checked requests in drawn order."""
        posting, sealing = self.view.posting, self.view.sealing
        seed = draw(sealing.secret, posting.commitment, sealing.beacon)
        return checked_requests(seed, posting.job.requests, self.spec.checked_requests)

    @property
    def lengths(self) -> dict[int, Checked]:
        """Revealed requests by place."""
        found = (each.event for each in self.view.history.all(Revealed))
        return {
            e.checked_index: Checked(e.checked_index, e.prompt_tokens, e.new_tokens) for e in found
        }

    def where(self, place: int) -> tuple[int, ...]:
        """The challenged positions of a revealed request, in drawn order."""
        lengths = self.lengths[place]
        seed = position_seed(
            record_hash(self.view.posting, self.view.sealing), self.view.claiming.beacon
        )
        number = self.checked[place]
        return positions(
            seed, number, lengths.prompt_tokens, lengths.new_tokens, self.spec.positions
        )


def due_reveals(calls: Calls, round_: Round) -> list[Call]:
    """Reveals of requests whose lengths are not fixed yet and whose item leaf is at hand."""
    view, known = round_.view, round_.lengths
    due = []
    for place in range(len(round_.checked)):
        opening = round_.openings.get((0, place))
        if place not in known and opening is not None:
            record = (view.posting, view.sealing, view.claiming)
            due.append(calls.reveal(*record, place, opening.leaf, opening.item_path))
    return due


def due_comparisons(calls: Calls, round_: Round) -> list[Call]:
    """Comparisons that put in every opening at hand, where a pair or an opening is missing.

    An item of another text is not compared: it is shown by itself.
    """
    members = range(1, len(round_.view.sealing.committee) + 1)
    shown = [call for party in members for call in _of_another_text(calls, round_, party)]
    return shown + [
        call
        for place in sorted(round_.lengths)
        for index, position in enumerate(round_.where(place))
        if (call := _comparison(calls, round_, place, index, position)) is not None
    ]


def due_services(calls: Calls, round_: Round, party: int) -> list[Call]:
    """One party's own openings that nobody has served yet.

    Where its item is not the inferencer's text, one opening that shows so is all that counts: its
    trace may be too short for any position that is drawn, and silence would cost it its lock.
    """
    view = round_.view
    if party in told_mismatched(view):
        return []
    if mismatched := _of_another_text(calls, round_, party):
        return mismatched
    served = _served(view)
    due = []
    for place, lengths in sorted(round_.lengths.items()):
        for index, position in enumerate(round_.where(place)):
            entry = _entry(round_, party, place, position)
            if entry is None or (party, place, index) in served:
                continue
            record = (view.posting, view.sealing, view.claiming, round_.spec)
            shown = _on_chain(party, round_.openings[party, place], entry)
            due.append(calls.serve(*record, lengths, index, shown))
    return due


def due_chunks(calls: Calls, view: View, data: bytes) -> list[Call]:
    """The chunks of a demanded bundle that nobody has served yet."""
    asked = view.history.all(BundleDemanded)
    since = asked[-1].block_number if asked else 0
    served = {e.event.index for e in view.history.all(ChunkServed) if e.block_number >= since}
    chunks = bundle_chunks(data)
    hashes = [keccak(chunk) for chunk in chunks]
    record = (view.posting, view.sealing, view.claiming)
    return [
        calls.serve_bundle(*record, index, chunk, hashes)
        for index, chunk in enumerate(chunks)
        if index not in served
    ]


def is_complete(round_: Round) -> bool:
    """Whether every party is served and every pair compared, everywhere."""
    if len(round_.lengths) < len(round_.checked):
        return False
    out = told_mismatched(round_.view)
    parties = [k for k in range(len(round_.view.sealing.committee) + 1) if k not in out]
    compared = _compared(round_.view)
    return all(
        (pair, place, index) in compared
        for place in round_.lengths
        for index in range(len(round_.where(place)))
        for pair in combinations(parties, 2)
    )


def told_mismatched(view: View) -> frozenset[int]:
    """Members that the contract knows to have been given another text."""
    return frozenset(each.event.party for each in view.history.all(ItemMismatched))


def _of_another_text(calls: Calls, round_: Round, party: int) -> list[Call]:
    """The one opening that shows a member's item to be another text, where it is one."""
    place = _mismatch(round_, party)
    if place is None or not round_.where(place) or party in told_mismatched(round_.view):
        return []
    opening = round_.openings[party, place]
    entry = next((each for each in opening.entries if each.slices is not None), None)
    if entry is None:
        return []
    record = (round_.view.posting, round_.view.sealing, round_.view.claiming, round_.spec)
    shown = _on_chain(party, opening, entry)
    return [calls.serve(*record, round_.lengths[place], 0, shown)]


def _mismatch(round_: Round, party: int) -> int | None:
    """Where a member's item is not as long as the inferencer's text, by the leaf that it has."""
    for place, lengths in sorted(round_.lengths.items()):
        opening = round_.openings.get((party, place))
        if party == 0 or opening is None:
            continue
        length = lengths.prompt_tokens + lengths.new_tokens - 1
        own = opening.inner.items == len(round_.checked)
        if not own or opening.leaf.prompt_tokens != length:
            return place
    return None


def _comparison(calls: Calls, round_: Round, place: int, index: int, position: int) -> Call | None:
    view = round_.view
    out = told_mismatched(view)
    parties = [
        party
        for party in range(len(view.sealing.committee) + 1)
        if party not in out and _mismatch(round_, party) is None
    ]
    entries = {party: _entry(round_, party, place, position) for party in parties}
    compared, served = _compared(view), _served(view)
    if round_.is_late:
        entries = {p: e for p, e in entries.items() if (p, place, index) in served}
    at_hand = [party for party, entry in entries.items() if entry is not None]
    pairs_left = any((pair, place, index) not in compared for pair in combinations(at_hand, 2))
    served_left = any((party, place, index) not in served for party in at_hand)
    if not (pairs_left or served_left):
        return None
    shown = [
        _on_chain(party, round_.openings[party, place], entry)
        for party, entry in entries.items()
        if entry is not None
    ]
    record = (view.posting, view.sealing, view.claiming, round_.spec)
    return calls.compare(*record, round_.lengths[place], index, shown)


def _entry(round_: Round, party: int, place: int, position: int) -> Entry | None:
    opening = round_.openings.get((party, place))
    if opening is None:
        return None
    for entry in opening.entries:
        if entry.position == position and entry.slices is not None:
            return entry
    return None


def _on_chain(party: int, opening: Opening, entry: Entry) -> ChainOpening:
    if entry.slices is None:
        raise LookupError("an entry without slices cannot be compared")
    return ChainOpening(
        party=party,
        inner=opening.inner,
        leaf=opening.leaf,
        item_path=opening.item_path,
        position=entry.position,
        token=entry.token,
        next=entry.next,
        slices=state_bytes(entry.slices),
        final_state=state_bytes(entry.final),
        path=entry.path,
    )


def _compared(view: View) -> set[tuple[tuple[int, int], int, int]]:
    events = (each.event for each in view.history.all(PairCompared))
    return {((e.party_a, e.party_b), e.checked_index, e.position_index) for e in events}


def _served(view: View) -> set[tuple[int, int, int]]:
    events = (each.event for each in view.history.all(PositionServed))
    return {(e.party, e.checked_index, e.position_index) for e in events}
