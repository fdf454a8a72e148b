"""A committee that is asked on chain, where a drawn member keeps silent: `Summonses`."""

from collections.abc import Sequence
from dataclasses import replace

from tests.reference.docket import Docket
from tests.reference.state import NO_PLACE, Panel, require
from verillm.chain import events
from verillm.chain.reads import JobState, PlaceState, Status
from verillm.draw import draw
from verillm.errors import InputError
from verillm.hashing import tokens_bytes
from verillm.model import ModelSpec, model_id
from verillm.proofs.shown import HashedTask
from verillm.records import Member, Posting, Sealing, record_hash
from verillm.request import check_request
from verillm.settlement import Ending, Way, fee_of
from verillm.signing import digest, task_hash
from verillm.task import MAX_REPLACED, Commitment, Inner, Item, Task, inner_hash, task_id
from verillm.types import Hash32, JobId, Outcome, Reason

TOKENS_PER_SECOND, NEW_TOKEN = 50, 10


class Summons(Docket):
    """From the first summons of a posted job to its seal, or to its end without one."""

    def summon(
        self,
        posting: Posting,
        secret: Hash32,
        inner: Inner,
        index: int,
        spec: ModelSpec,
        task: Task,
        signature: bytes,
    ) -> None:
        """Ask a drawn member on chain, with all of its task; the first call fixes the committee."""
        identity = self._convene(posting, secret, inner)
        place = self._place(identity, index)
        require(place.answer_by == 0, "AlreadySummoned")
        require(model_id(spec) == posting.quote.model_id, "TaskInvalid")
        self._require_task(posting, place, task_id(secret, identity, place.number), task)
        scheduler = posting.quote.scheduler
        require(self._signed(scheduler, digest(self.domain, task), signature), "SignatureInvalid")
        # What one member computes for summonses it computes one after the other.
        done = max(self.now, self.state.busy.get(place.owner, 0)) + seconds_of(task)
        self.state.busy[place.owner] = done
        answer_by = done + self.config.opening_window
        latest = posting.posted_at + self.config.seal_window + 4 * self.config.opening_window
        require(answer_by <= latest, "SummonsTooLate")
        locked = self._lock_up_to(place.owner, posting.lock)
        self._lock(scheduler, self.config.answer_fee)
        self._seat(
            identity,
            index,
            replace(place, lock=locked, answer_by=answer_by, task_hash=task_hash(task)),
        )
        state = self.job_state(identity)
        seal_by = max(state.deadline, answer_by + self.config.seal_window)
        self.state.jobs[identity] = JobState(Status.SUMMONED, seal_by, state.record)
        self.events.append(_summoned(identity, index, answer_by, task, signature))

    def answer(self, identity: JobId, index: int, inner: Inner, signature: bytes) -> None:
        """Commit a summoned member to its task; it is paid for that, whoever sends it."""
        self._require_open(identity)
        place = self._pending(identity, index)
        require(inner.task_hash == place.task_hash, "CommitmentMismatch")
        self._require_committed(identity, place, inner_hash(inner), signature)
        self._seat(identity, index, replace(place, inner=inner_hash(inner)))
        self.events.append(events.Answered(identity, place.owner, index, inner, signature))
        fee, scheduler = self.config.answer_fee, self.state.panels[identity].scheduler
        self._unlock(scheduler, fee)
        self._credit(identity, scheduler, -fee)
        self._credit(identity, place.owner, fee)

    def replace(self, posting: Posting, index: int) -> None:
        """Put out a member that did not answer in time; the next of the stream has its place."""
        identity = self._identity(posting)
        self._require_open(identity)
        require(self.job_state(identity).record == record_hash(posting), "RecordMismatch")
        place = self._pending(identity, index)
        require(self.now >= place.answer_by, "DeadlineNotReached")
        panel = self.state.panels[identity]
        require(panel.replaced < MAX_REPLACED, "TooManyReplaced")
        number = len(panel.places) + panel.replaced + 1
        seed = draw(panel.secret, posting.commitment, panel.beacon)
        seat, owner = self.drawn_seats(posting, seed, number)[-1]
        self.state.panels[identity] = replace(panel, replaced=panel.replaced + 1)
        self._seat(identity, index, replace(NO_PLACE, owner=owner, seat=seat, number=number))
        self._unlock(panel.scheduler, self.config.answer_fee)
        self._forfeit(identity, place)
        self._burn(identity, place.lock)
        put_out = (place.owner, index, number, seat, owner)
        self.events.append(events.Replaced(identity, *put_out))

    def seal_summoned(
        self,
        posting: Posting,
        inner: Inner,
        inners: Sequence[Hash32],
        signatures: Sequence[bytes],
    ) -> None:
        """Seal with what was answered on chain, and by signature what was not."""
        identity = self._at(Status.SUMMONED, posting)
        self._require_before(identity)
        panel = self.state.panels[identity]
        self._require_inferencer(identity, posting, panel.secret, inner)
        given = len(inners) == len(signatures) == len(panel.places)
        require(given, "CommitteeSizeWrong")
        committee = []
        for place, other, signature in zip(panel.places, inners, signatures, strict=True):
            own, lock = place.inner, place.lock
            if not any(own):
                self._require_committed(identity, place, other, signature)
                own = other
            if place.answer_by == 0:
                lock = self._lock_up_to(place.owner, posting.lock)
            elif place.pending:
                self._unlock(panel.scheduler, self.config.answer_fee)
            committee.append(Member(place.seat, place.owner, own, lock))
        fee = fee_of(
            posting.quote.unit_price, inner.prompt_tokens, inner.new_tokens, posting.job.max_fee
        )
        sealing = Sealing(panel.secret, panel.beacon, inner, fee, self.block, tuple(committee))
        record = record_hash(posting, sealing)
        self._enter(identity, Status.SEALED, self.config.claim_window, record)
        self.events.append(events.Sealed(identity, sealing))

    def dismiss(self, posting: Posting) -> None:
        """End a job that was summoned and not sealed, at the cost of scheduler and silent ones."""
        identity = self._at(Status.SUMMONED, posting)
        self._require_after(identity)
        panel = self.state.panels[identity]
        silent = frozenset(k for k, place in enumerate(panel.places, 1) if place.pending)
        unasked = frozenset(k for k, place in enumerate(panel.places, 1) if not place.answer_by)
        self._unlock(panel.scheduler, len(silent) * self.config.answer_fee)
        members = tuple(Member(p.seat, p.owner, p.inner, p.lock) for p in panel.places)
        ending = Ending(Outcome.REFUND, Way.DISMISSED, silent, unasked)
        self._end(posting, None, ending, Reason.NOT_SEALED, members=members)

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def task_number_of(self, identity: JobId, party: int) -> int:
        """The number of a party's task: its own, unless it replaced somebody."""
        panel = self.state.panels.get(identity)
        known = panel is not None and 1 <= party <= len(panel.places)
        return panel.places[party - 1].number if panel is not None and known else party

    # ── Checks ──────────────────────────────────────────────────────────────────────────────────
    def _convene(self, posting: Posting, secret: Hash32, inner: Inner) -> JobId:
        identity = self._identity(posting)
        first = self.job_state(identity).status is Status.POSTED
        self._at(Status.POSTED if first else Status.SUMMONED, posting)
        self._require_before(identity)
        scheduler = posting.quote.scheduler
        require(self._acts_for(self.sender, scheduler), "NotOperator")
        self._require_inferencer(identity, posting, secret, inner)
        if first:
            beacon = self._beacon_of(posting.posted_block)
            drawn = self.drawn_seats(posting, draw(secret, posting.commitment, beacon))
            places = tuple(
                replace(NO_PLACE, owner=owner, seat=seat, number=k)
                for k, (seat, owner) in enumerate(drawn, 1)
            )
            self.state.panels[identity] = Panel(secret, beacon, scheduler, places)
            seats, owners = zip(*drawn, strict=True)
            self.events.append(events.Convened(identity, secret, inner, seats, owners))
        return identity

    def _require_task(
        self, posting: Posting, place: PlaceState, number: Hash32, task: Task
    ) -> None:
        """Whose task it is, and that an honest worker would take it."""
        model = posting.quote.model_id
        named = (task.task_id, task.worker, task.model_id)
        require(named == (number, place.owner, model), "TaskInvalid")
        spec = self._known(model).spec
        checked = min(posting.job.requests, spec.checked_requests)
        require(len(task.items) == checked, "TaskInvalid")
        for item in task.items:
            require(_takes(spec, item), "TaskInvalid")

    def _require_open(self, identity: JobId) -> None:
        require(self.job_state(identity).status is Status.SUMMONED, "StatusWrong")
        self._require_before(identity)

    def _place(self, identity: JobId, index: int) -> PlaceState:
        places = self.state.panels[identity].places
        require(index < len(places), "PlaceUnknown")
        return places[index]

    def _pending(self, identity: JobId, index: int) -> PlaceState:
        place = self._place(identity, index)
        require(place.answer_by != 0, "NotSummoned")
        require(place.pending, "AlreadyAnswered")
        return place

    def _require_committed(
        self, identity: JobId, place: PlaceState, inner: Hash32, signature: bytes
    ) -> None:
        task = task_id(self.state.panels[identity].secret, identity, place.number)
        message = digest(self.domain, Commitment(task, inner))
        require(self._signed(place.owner, message, signature), "SignatureInvalid")

    # ── Effects ─────────────────────────────────────────────────────────────────────────────────
    def _seat(self, identity: JobId, index: int, place: PlaceState) -> None:
        panel = self.state.panels[identity]
        places = (*panel.places[:index], place, *panel.places[index + 1 :])
        self.state.panels[identity] = replace(panel, places=places)

    def _forfeit(self, identity: JobId, place: PlaceState) -> None:
        self._unlock(place.owner, place.lock)
        self._credit(identity, place.owner, -place.lock)


def seconds_of(task: Task) -> int:
    """How long a member is given to compute a task: new tokens count ten times."""
    work = sum(item.length + NEW_TOKEN * item.max_new_tokens for item in task.items)
    return -(-work // TOKENS_PER_SECOND)


def _takes(spec: ModelSpec, item: Item) -> bool:
    try:
        check_request(item.request, spec.context, spec.vocabulary)
    except InputError:
        return False
    return True


def _summoned(
    identity: JobId, index: int, answer_by: int, task: Task, signature: bytes
) -> events.Summoned:
    items = tuple(
        events.HashedItem(
            Hash32(item.salt),
            item.tokens_root,
            item.length,
            item.max_new_tokens,
            item.sampling,
            item.seed,
        )
        for item in task.items
    )
    tokens = tuple(tokens_bytes(item.tokens) for item in task.items)
    shown = (HashedTask.of(task), items, tokens, signature)
    return events.Summoned(identity, task.worker, index, answer_by, *shown)
