"""Which objective proofs a bundle holds: the inverse of what the Prover checks (§8).

Pure. A bundle is a stranger's: what does not lie under the sealed commitments is passed over here,
and refused by the Prover. Whoever sends a proof simulates it first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verillm.draw import checked_requests, draw
from verillm.evidence import INFERENCER, Bundle, CheckedOutput, PartyEvidence
from verillm.hashing import tokens_bytes
from verillm.model import ModelSpec
from verillm.proofs.rivals import ProvenHead
from verillm.proofs.shown import (
    NO_ENTRY,
    NO_PIECE,
    Asked,
    Entry,
    Given,
    HashedTask,
    Made,
    Output,
    Piece,
    Told,
    Witness,
)
from verillm.records import Posting, Sealing
from verillm.request import Receipt, broken_bound, request_leaf
from verillm.signing import Domain, job_id, task_hash
from verillm.task import Item, Task, inner_hash, output_hash, seed, task_id
from verillm.trace import Entry as TraceEntry, Opening, state_bytes
from verillm.types import PPM, Reason, TaskId
from verillm.verdict import quorum

SCHEDULER = 255
"""The party that a scheduler is to a conviction."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One call of the Prover: whom it convicts (None: it overrules), and what it brings."""

    name: str
    party: int | None
    reason: Reason
    fact: str
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A sealed job with its bundle."""

    bundle: Bundle
    posting: Posting
    sealing: Sealing
    spec: ModelSpec
    domain: Domain

    @property
    def first_task(self) -> TaskId:
        """The inferencer's task, which `seal` fixes."""
        return task_id(self.sealing.secret, job_id(self.domain, self.posting.job), INFERENCER)

    @property
    def checked(self) -> tuple[int, ...]:
        """The checked requests in drawn order."""
        seen = draw(self.sealing.secret, self.posting.commitment, self.sealing.beacon)
        requests = self.posting.job.requests
        return checked_requests(seen, requests, self.spec.checked_requests)

    @property
    def views(self) -> tuple["View", ...]:
        """Every item that some party showed under its own task."""
        return tuple(_views(self))


@dataclass(frozen=True, slots=True)
class View:
    """One party's item of a checked request: its task and its opening, both under its inner."""

    party: int
    task: Task
    given: Given
    opening: Opening
    checked: CheckedOutput

    @property
    def item(self) -> Item:
        """What the party was given."""
        return self.given.item

    @property
    def made(self) -> Made:
        """What it made of it."""
        return Made.of(self.opening)


def proofs(case: Case, head: ProvenHead | None = None) -> Iterator[Proof]:
    """Every proof, the clearest first; tokens only with the model's head."""
    yield from _leaves(case)
    for view in case.views:
        yield from _bounds(case, view)
        yield from _lengths(view)
        yield from _trace(view)
        if view.party == INFERENCER:
            yield from _output(case, view)
        yield from _task(case, view)
        if view.party != INFERENCER:
            yield from _prompt(case, view)
    if head is not None and case.spec.token_proof and case.spec.head_scale == PPM:
        yield from _own_margins(case, head)
        yield from _committee_margins(case, head)


def receipt_proof(case: Case, receipt: Receipt, signature: bytes) -> Proof | None:
    """A receipt for another output than the posted one; None where it is the posted one's."""
    for shown in case.bundle.checked:
        posted = output_hash(case.first_task, shown.output)
        if shown.index == receipt.request and posted != receipt.output_hash:
            values = (receipt, signature, posted, shown.output_path)
            return _by_scheduler("receiptDiffers", Reason.RECEIPT_DIFFERS, shown, "", values)
    return None


# ── Views ────────────────────────────────────────────────────────────────────────────────────────
def _views(case: Case) -> Iterator[View]:
    for shown in case.bundle.parties:
        for place, opening in shown.openings.items():
            if not _is_sealed(case, shown, place, opening):
                continue
            checked = case.bundle.checked[place]
            index = checked.index if shown.party == INFERENCER else place
            if index < len(shown.task.items):
                task = HashedTask.of(shown.task)
                given = Given(opening.inner, task, index, shown.task.items[index])
                yield View(shown.party, shown.task, given, opening, checked)


def _is_sealed(case: Case, shown: PartyEvidence, place: int, opening: Opening) -> bool:
    """Whether this is of a checked request, under the party's sealed inner and its task."""
    inners = (inner_hash(case.sealing.inner), *case.sealing.inners)
    return (
        shown.party < len(inners)
        and place < len(case.bundle.checked)
        and inner_hash(opening.inner) == inners[shown.party]
        and task_hash(shown.task) == opening.inner.task_hash
    )


def _asked(view: View) -> Asked:
    return Asked.of(view.checked.request, view.checked.path)


def _posted(view: View) -> Output:
    return Output(tokens_bytes(view.checked.output), view.checked.output_path)


def _by_scheduler(
    name: str, reason: Reason, shown: CheckedOutput, fact: str, values: tuple[object, ...]
) -> Proof:
    return Proof(name, SCHEDULER, reason, f"request {shown.index}{fact}", values)


# ── What a worker signed ─────────────────────────────────────────────────────────────────────────
def _lengths(view: View) -> Iterator[Proof]:
    leaf, item, inner = view.opening.leaf, view.item, view.given.inner
    follows = (
        inner.items == len(view.task.items)
        and (leaf.item, leaf.prompt_tokens) == (view.given.index, item.length)
        and 1 <= leaf.new_tokens <= item.max_new_tokens
    )
    if not follows:
        fact = f"item {view.given.index} is not as long as its task says"
        values = (view.party, view.given, view.made)
        yield Proof("lengthsDiffer", view.party, Reason.LENGTH, fact, values)


def _bounds(case: Case, view: View) -> Iterator[Proof]:
    item, spec = view.item, case.spec
    if view.task.model_id != case.posting.quote.model_id:
        return  # which bounds were its own is another spec's business: its scheduler's fault
    bound = broken_bound(item.sampling, item.length, item.max_new_tokens, spec.context)
    strange = (at for at, token in enumerate(item.tokens) if token >= spec.vocabulary)
    at = 0 if bound is not None else next(strange, None)
    if at is not None:
        piece = NO_PIECE if bound is not None else Piece.of(item.salt, item.tokens, at)
        what = f"its {bound} is out of bounds" if bound else f"prompt token {at} is none"
        fact = f"no worker can run item {view.given.index}: {what}"
        values = (spec, view.party, view.given, at, piece)
        yield Proof("outOfBounds", view.party, Reason.OUT_OF_BOUNDS, fact, values)


def _trace(view: View) -> Iterator[Proof]:
    for entry in view.opening.entries:
        for at, token in ((entry.position, entry.token), (entry.position + 1, entry.next)):
            if at < view.item.length and token != view.item.tokens[at]:
                piece = Piece.of(view.item.salt, view.item.tokens, at)
                values = (view.party, view.given, view.made, at, piece, Entry.of(entry))
                fact = f"prompt token {at} of item {view.given.index} is not its task's"
                yield Proof("traceDiffers", view.party, Reason.TRACE_DIFFERS, fact, values)
                return


def _output(case: Case, view: View) -> Iterator[Proof]:
    shown, leaf = view.checked, view.opening.leaf
    digest = output_hash(case.first_task, shown.output)
    if digest != leaf.output_hash:
        posted = (shown.index, view.made, digest, shown.output_path)
        fact = " is posted with another output than was committed to"
        yield _by_scheduler("outputsDiffer", Reason.OUTPUT_MISMATCH, shown, fact, posted)
        return
    tokens = tokens_bytes(shown.output)
    entry = _strange_entry(view) if leaf.new_tokens == len(shown.output) else NO_ENTRY
    if entry is not None:
        fact = f"the trace of request {shown.index} is of another output"
        traced = (shown.index, view.made, tokens, entry)
        yield Proof("outputDiffers", INFERENCER, Reason.OUTPUT_MISMATCH, fact, traced)
    at = _first_fault(shown.output, case.spec)
    if at is not None:
        ends = shown.output[at] < case.spec.vocabulary
        reason = Reason.AFTER_END if ends else Reason.OUTSIDE_NUCLEUS
        fact = f"new token {at} of request {shown.index} ends the output, or is none"
        ended = (case.spec, view.given, view.made, tokens, at)
        yield Proof("afterEnd", INFERENCER, reason, fact, ended)


def _strange_entry(view: View) -> Entry | None:
    """The first opened position whose tokens are not those of the output."""
    first, output = view.opening.leaf.prompt_tokens, view.checked.output
    for entry in view.opening.entries:
        for at, token in ((entry.position, entry.token), (entry.position + 1, entry.next)):
            if first <= at < first + len(output) and token != output[at - first]:
                return Entry.of(entry)
    return None


def _first_fault(output: Sequence[int], spec: ModelSpec) -> int | None:
    last = len(output) - 1
    for at, token in enumerate(output):
        if token >= spec.vocabulary or (token in spec.end_tokens and at < last):
            return at
    return None


# ── What a scheduler signed ──────────────────────────────────────────────────────────────────────
def _leaves(case: Case) -> Iterator[Proof]:
    """Lengths that the scheduler posted though its client's requests have others; by no task."""
    for shown in case.bundle.parties:
        if shown.party != INFERENCER:
            continue
        for place, opening in shown.openings.items():
            if place >= len(case.bundle.checked) or opening.inner != case.sealing.inner:
                continue
            asked, leaf = case.bundle.checked[place], opening.leaf
            request = asked.request
            own = (leaf.item, leaf.prompt_tokens) == (asked.index, len(request.tokens))
            if not (own and 1 <= leaf.new_tokens <= request.max_new_tokens):
                values = (asked.index, Made.of(opening), Asked.of(request, asked.path))
                fact = " is not as long in the posted commitment as it was asked"
                yield _by_scheduler("leafDiffers", Reason.LENGTH, asked, fact, values)


def _task(case: Case, view: View) -> Iterator[Proof]:
    if _is_own_task(case, view) and _is_own_item(case, view):
        return
    values = (case.spec, view.party, view.given, _asked(view), _posted(view))
    fact = f" is another in the task of party {view.party}"
    yield _by_scheduler("taskDiffers", Reason.TASK_DIFFERS, view.checked, fact, values)


def _is_own_task(case: Case, view: View) -> bool:
    task, posting = view.task, case.posting
    if task.model_id != posting.quote.model_id:
        return False
    if view.party == INFERENCER:
        count, own = posting.job.requests, task.task_id == case.first_task
        expected = (posting.worker, posting.lock)
    else:
        member = case.sealing.committee[view.party - 1]
        count, own = len(case.checked), True
        expected = (member.owner, member.lock)
    return (
        own
        and task.worker == expected[0]
        and task.lock >= expected[1]
        and (len(task.items) == count)
    )


def _is_own_item(case: Case, view: View) -> bool:
    item, shown = view.item, view.checked
    leaf = request_leaf(shown.request)
    if item.seed != seed(case.sealing.secret, leaf, shown.index):
        return False
    if item.sampling != shown.request.sampling:
        return False
    if view.party == INFERENCER:
        asked = _asked(view)
        own = (item.tokens_root, item.length, item.max_new_tokens)
        return own == (asked.tokens_root, asked.length, asked.max_new_tokens)
    return item.length + 1 == len(shown.request.tokens) + len(shown.output)


def _prompt(case: Case, view: View) -> Iterator[Proof]:
    request = view.checked.request
    expected = request.tokens + view.checked.output
    for at, (told, asked) in enumerate(zip(view.item.tokens, expected, strict=False)):
        if told != asked:
            given = Piece.of(view.item.salt, view.item.tokens, at)
            own = at < len(request.tokens)
            piece = Piece.of(request.salt, request.tokens, at) if own else NO_PIECE
            values = (
                case.spec, view.party, view.given, _asked(view), Told(at, given, piece),
                _posted(view),
            )  # fmt: skip
            fact = f" has another token {at} in the task of party {view.party}"
            yield _by_scheduler("promptDiffers", Reason.TASK_DIFFERS, view.checked, fact, values)
            return


# ── Margins ──────────────────────────────────────────────────────────────────────────────────────
def _own_margins(case: Case, head: ProvenHead) -> Iterator[Proof]:
    for view in case.views:
        if view.party == INFERENCER and view.task.model_id == case.posting.quote.model_id:
            for entry in view.opening.entries:
                yield from _own_margin(case, head, view, entry)


def _own_margin(case: Case, head: ProvenHead, view: View, entry: TraceEntry) -> Iterator[Proof]:
    profile = case.spec.profile
    if entry.position + 1 < view.item.length or entry.next >= head.rows.vocabulary:
        return
    rival = head.best(entry.final, view.item, entry.position, entry.next, profile.logit_tau)
    if rival is None:
        return
    margin = head.margin(entry.final, view.item, entry.position, entry.next, rival)
    most = profile.margin_max_slash
    if margin and margin.convicts(view.item.sampling, profile.logit_tau, most):
        values = (
            case.spec, view.given, view.made, Entry.of(entry), state_bytes(entry.final),
            head.rival(entry.next, rival),
        )  # fmt: skip
        fact = f"position {entry.position}: {rival} beats {entry.next}"
        yield Proof("marginOwn", INFERENCER, Reason.MARGIN_MAX, fact, values)


def _committee_margins(case: Case, head: ProvenHead) -> Iterator[Proof]:
    for first in case.views:
        if first.party == INFERENCER:
            shown = first.checked
            tokens = shown.request.tokens + shown.output
            members = [view for view in case.views if view.party != INFERENCER]
            others = [view for view in members if view.checked.index == shown.index]
            for at in range(len(shown.request.tokens) - 1, len(tokens) - 1):
                yield from _committee_margin(case, head, first, others, at, tokens)


def _committee_margin(
    case: Case,
    head: ProvenHead,
    first: View,
    others: Sequence[View],
    at: int,
    tokens: tuple[int, ...],
) -> Iterator[Proof]:
    """A quorum of members whose states say by one rival that the token after `at` is not theirs."""
    token, tau = tokens[at + 1], case.spec.profile.logit_tau
    if token >= head.rows.vocabulary:
        return
    opened = [
        (view, entry) for view in others for entry in view.opening.entries if entry.position == at
    ]
    rivals = [head.best(entry.final, first.item, at, token, tau) for _, entry in opened]
    for rival in dict.fromkeys(each for each in rivals if each is not None):
        against = [
            (view, entry)
            for view, entry in opened
            if _objects(case, head, first.item, entry, token, rival)
        ]
        if len(against) >= quorum(len(case.sealing.committee)):
            witnesses = tuple(
                Witness.of(view.party, view.given, view.opening, entry) for view, entry in against
            )
            shown = (tokens_bytes(tokens), witnesses, head.rival(token, rival))
            values = (case.spec, first.given, first.made, *shown)
            fact = f"position {at}: by {len(against)} members' states {rival} beats {token}"
            yield Proof("marginCommittee", None, Reason.MARGIN_MAX, fact, values)
            return


def _objects(
    case: Case, head: ProvenHead, item: Item, entry: TraceEntry, token: int, rival: int
) -> bool:
    margin = head.margin(entry.final, item, entry.position, token, rival)
    profile = case.spec.profile
    if margin is None or not margin.counts(item.sampling, profile.logit_tau):
        return False
    return margin.margin > profile.margin_max_refund
