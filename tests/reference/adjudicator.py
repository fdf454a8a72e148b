"""The public round: openings, sums, the verdict. `Adjudicator` of the contracts."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from tests.reference.state import Place, Round, require
from tests.reference.summons import Summons
from verillm.chain import events
from verillm.chain.calls import Checked, Opening
from verillm.chain.reads import Round as RoundState
from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.hashing import sha, u32
from verillm.merkle import LeafKind, leaf_hash, verify_proof
from verillm.model import ModelSpec, model_id
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.settlement import Judged
from verillm.statistics import PairStatistics, States, compare, is_finite
from verillm.task import ItemLeaf, inner_hash, item_leaf_hash
from verillm.types import Bits, Hash32, Outcome, Reason
from verillm.verdict import PartyStatus, decide, paid_mask

Record = tuple[Posting, Sealing, Claiming]
NOTHING = PairStatistics(0, 0, 0)


class Adjudicator(Summons):
    """Rounds are found by the record that they are about."""

    def reveal(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        checked_index: int,
        leaf: ItemLeaf,
        item_path: Sequence[Hash32],
    ) -> None:
        """Fix the lengths of a checked request."""
        record, found = self._round((posting, sealing, claiming))
        require(self.now < found.reveal_by, "DeadlinePassed")
        spec = self._known(posting.quote.model_id).spec
        request = self._drawn(posting, sealing, spec, checked_index)
        inner = sealing.inner
        proof = (item_leaf_hash(leaf), request, inner.items, item_path)
        included = leaf.item == request and verify_proof(inner.items_root, *proof)
        require(included, "OpeningInvalid")
        prompt, new = leaf.prompt_tokens, leaf.new_tokens
        require(prompt > 0 and new > 0 and prompt + new < 2**32, "OpeningInvalid")
        require(checked_index not in found.lengths, "AlreadyRevealed")
        self.state.rounds[record] = replace(
            found,
            lengths={**found.lengths, checked_index: (prompt, new)},
            positions=found.positions + min(prompt + new - 2, spec.positions),
        )
        self.events.append(events.Revealed(found.job_id, checked_index, prompt, new))

    def serve(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        opening: Opening,
    ) -> None:
        """Put one party's opening of one position into calldata."""
        record, found = self._round((posting, sealing, claiming))
        position = self._position(
            found, (posting, sealing, claiming), spec, checked, position_index
        )
        if self._is_mismatched(opening, posting, sealing, spec, checked, position):
            require(self.now < found.open_by, "DeadlinePassed")
            found = self._mark(found, opening.party, checked.index)
        else:
            found = self._take_opening(found, Place(checked.index, position_index), opening)
        self.state.rounds[record] = found

    def compare(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        openings: Sequence[Opening],
    ) -> None:
        """Compare openings of several parties, ascending, of one position; serves them too."""
        record, found = self._round((posting, sealing, claiming))
        position = self._position(
            found, (posting, sealing, claiming), spec, checked, position_index
        )
        place, first, before = Place(checked.index, position_index), openings[0], -1
        for opening in openings:
            require(opening.party > before, "PartiesNotAscending")
            before = opening.party
            mismatched = self._is_mismatched(opening, posting, sealing, spec, checked, position)
            require(not mismatched, "OpeningInvalid")
            found = self._take_opening(found, place, opening)
            if first.party == 0 and opening.token != first.token:
                found = self._mark(found, opening.party, checked.index)
        for one, other in combinations(openings, 2):
            found = self._add(found, place, spec, checked.prompt_tokens, one, other)
        self.state.rounds[record] = found

    def round_of(self, record: Hash32) -> RoundState:
        """Where the public round over a job's record stands."""
        found = self.state.rounds[record]
        served = [sum(party == each for each, _ in found.served) for party in range(16)]
        masks = [sum(1 << party for party in out) for out in (found.non_finite, found.mismatched)]
        return RoundState(
            found.job_id, len(found.lengths), found.positions, masks[0], masks[1], tuple(served)
        )

    # ── For what builds on it ───────────────────────────────────────────────────────────────────
    def _open(self, record: Hash32, posting: Posting) -> int:
        """Begin a round; returns until when it takes openings."""
        identity, window = self._identity(posting), self.config.opening_window
        open_by = self.now + window
        self.state.rounds[record] = Round(
            identity, self.now + window // 2, open_by, self.now + 2 * window
        )
        return open_by

    def _judged(self, record: Record) -> tuple[Judged, Reason]:
        """What follows from a job's round, as soon as nobody may add to it."""
        posting, sealing, _ = record
        return self._verdict(record_hash(*record), posting, len(sealing.committee))

    def _verdict(self, at: Hash32, posting: Posting, size: int) -> tuple[Judged, Reason]:
        """What the parties up to `size` say; those beyond decide nothing."""
        found, spec = self.state.rounds[at], self._known(posting.quote.model_id).spec
        if len(found.lengths) < min(posting.job.requests, spec.checked_requests):
            require(self.now >= found.reveal_by, "DeadlineNotReached")
            return Judged(Outcome.SLASH, frozenset({0})), Reason.WITHHELD
        statuses = [self._status(found, party) for party in range(size + 1)]
        silent = PartyStatus.SILENT in statuses
        require(not silent or self.now >= found.open_by, "DeadlineNotReached")
        good = [k for k, status in enumerate(statuses) if status is PartyStatus.OPEN]
        sums = {pair: found.sums.get(pair, NOTHING) for pair in combinations(good, 2)}
        verdict = decide(statuses, sums, found.positions, spec.profile, len(found.lengths))
        outcome, reason = verdict.outcome, verdict.reason
        paid = {k for k in range(1, size + 1) if paid_mask(verdict) >> (k - 1) & 1}
        early = 0 not in good or found.positions < spec.profile.min_positions
        cells = found.positions * len(spec.profile.layers)
        if not early and any(each.cells != cells for each in sums.values()):
            require(self.now >= found.compare_by, "NotCompared")
            outcome, reason, paid = Outcome.INCONCLUSIVE, Reason.NOT_COMPARED, set(good) - {0}
        lost = {k for k, status in enumerate(statuses) if status is PartyStatus.SILENT}
        lost |= {party for party in found.non_finite if party <= size}
        unpaid = frozenset(range(1, size + 1)) - paid
        return Judged(outcome, frozenset(lost), unpaid), reason

    # ── What a call is about ────────────────────────────────────────────────────────────────────
    def _round(self, record: Record) -> tuple[Hash32, Round]:
        at = record_hash(*record)
        require(at in self.state.rounds, "RoundUnknown")
        return at, self.state.rounds[at]

    def _drawn(self, posting: Posting, sealing: Sealing, spec: ModelSpec, index: int) -> int:
        seed = draw(sealing.secret, posting.commitment, sealing.beacon)
        checked = checked_requests(seed, posting.job.requests, spec.checked_requests)
        require(index < len(checked), "CheckedOutOfBounds")
        return checked[index]

    def _position(
        self, found: Round, record: Record, spec: ModelSpec, checked: Checked, index: int
    ) -> int:
        posting, sealing, claiming = record
        require(model_id(spec) == posting.quote.model_id, "SpecMismatch")
        lengths = (checked.prompt_tokens, checked.new_tokens)
        require(found.lengths.get(checked.index) == lengths, "NotRevealed")
        request = self._drawn(posting, sealing, spec, checked.index)
        seed = position_seed(record_hash(posting, sealing), claiming.beacon)
        drawn = positions(seed, request, *lengths, spec.positions)
        require(index < len(drawn), "PositionOutOfBounds")
        return drawn[index]

    def _is_mismatched(
        self,
        opening: Opening,
        posting: Posting,
        sealing: Sealing,
        spec: ModelSpec,
        checked: Checked,
        position: int,
    ) -> bool:
        """Whether the item is not prompt‖output at all; else the opening lies where it must."""
        party, inner, leaf = opening.party, opening.inner, opening.leaf
        require(party <= len(sealing.committee), "OpeningInvalid")
        committed = sealing.inners[party - 1] if party else inner_hash(sealing.inner)
        require(inner_hash(inner) == committed, "OpeningInvalid")
        if party and inner.items != min(posting.job.requests, spec.checked_requests):
            return True
        index = checked.index if party else self._drawn(posting, sealing, spec, checked.index)
        proof = (item_leaf_hash(leaf), index, inner.items, opening.item_path)
        under = leaf.item == index and verify_proof(inner.items_root, *proof)
        require(under, "OpeningInvalid")
        if party and leaf.prompt_tokens != checked.prompt_tokens + checked.new_tokens - 1:
            return True
        self._require_states(opening, position, spec)
        return False

    def _require_states(self, opening: Opening, position: int, spec: ModelSpec) -> None:
        leaf, shape = opening.leaf, spec.shape
        require(opening.position == position, "OpeningInvalid")
        require(len(opening.slices) == 2 * shape.layers * shape.slice_dims, "OpeningInvalid")
        require(len(opening.final_state) == 2 * shape.hidden, "OpeningInvalid")
        head = opening.inner.task_hash + u32(leaf.item) + u32(position)
        head += u32(opening.token) + u32(opening.next)
        digest = leaf_hash(LeafKind.TRACE, head + sha(opening.slices) + sha(opening.final_state))
        count = leaf.prompt_tokens + leaf.new_tokens - 1
        require(
            verify_proof(leaf.trace_root, digest, position, count, opening.path), "OpeningInvalid"
        )

    # ── Sums ────────────────────────────────────────────────────────────────────────────────────
    def _mark(self, found: Round, party: int, checked: int) -> Round:
        if party in found.mismatched:
            return found
        self.events.append(events.ItemMismatched(found.job_id, party, checked))
        return replace(found, mismatched=found.mismatched | {party})

    def _take_opening(self, found: Round, place: Place, opening: Opening) -> Round:
        """Before `openBy` an opening counts as served; after it only what was served counts."""
        party = opening.party
        if not (is_finite(_bits(opening.slices)) and is_finite(_bits(opening.final_state))):
            found = replace(found, non_finite=found.non_finite | {party})
        if (party, place) in found.served:
            return found
        require(self.now < found.open_by, "DeadlinePassed")
        served = events.PositionServed(found.job_id, party, place.checked, place.index)
        self.events.append(served)
        return replace(found, served=found.served | {(party, place)})

    def _add(
        self,
        found: Round,
        place: Place,
        spec: ModelSpec,
        prompt: int,
        one: Opening,
        other: Opening,
    ) -> Round:
        pair = (one.party, other.party)
        if (*pair, place) in found.compared:
            return found
        states = ([_states(one, spec)], [_states(other, spec)])
        more = compare(*states, spec.profile, [prompt])
        was = found.sums.get(pair, NOTHING)
        total = PairStatistics(was.sum + more.sum, was.cells + more.cells, was.over + more.over)
        at = (place.checked, place.index)
        self.events.append(events.PairCompared(found.job_id, *pair, *at))
        return replace(
            found,
            compared=found.compared | {(*pair, place)},
            sums={**found.sums, pair: total},
        )

    def _status(self, found: Round, party: int) -> PartyStatus:
        if party in found.mismatched:
            return PartyStatus.MISMATCHED
        if sum(party == each for each, _ in found.served) < found.positions:
            return PartyStatus.SILENT
        return PartyStatus.NON_FINITE if party in found.non_finite else PartyStatus.OPEN


def _bits(raw: bytes) -> Bits:
    return np.frombuffer(raw, ">u2").astype(np.uint16)


def _states(opening: Opening, spec: ModelSpec) -> States:
    shape = spec.shape
    slices = _bits(opening.slices).reshape(1, shape.layers, shape.slice_dims)
    return States((opening.position,), slices, _bits(opening.final_state).reshape(1, shape.hidden))
