"""A job's evidence: the bundle that a claim names, and whether it holds together (§5 and §7).

Everything is checked against the chain's own posting and sealing; nothing in a bundle is believed.
What no party could have done makes the evidence missing; what one party did has its own reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.errors import EvidenceError, MalformedError
from verillm.merkle import verify_proof
from verillm.model import ModelSpec, Shape, check_spec, model_id
from verillm.records import Posting, Sealing, record_hash
from verillm.request import Job, Quote, Request, request_leaf
from verillm.signing import Domain, job_id, struct_hash, task_hash
from verillm.statistics import States
from verillm.task import (
    Commitment,
    Inner,
    Item,
    Task,
    draw_commit,
    inner_hash,
    output_hash,
    output_leaf,
    seed,
    task_id,
    task_numbers,
    verification_prompt,
)
from verillm.trace import Entry, Opening, check_opening
from verillm.types import Bits, Hash32, JobId, Reason, TaskId

INFERENCER = 0


@dataclass(frozen=True, slots=True)
class CheckedOutput:
    """A checked request with its output, each with its place under the job's roots."""

    index: int
    request: Request
    path: tuple[Hash32, ...]
    output: tuple[int, ...]
    output_path: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PartyEvidence:
    """What one party was given and showed; `openings` by place in the checked order."""

    party: int
    task: Task
    task_signature: bytes
    commitment_signature: bytes
    openings: Mapping[int, Opening]


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """All evidence of one job. A party that opened nothing is absent, or has no openings."""

    job: Job
    quote: Quote
    signature: bytes
    checked: tuple[CheckedOutput, ...]
    parties: tuple[PartyEvidence, ...]


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A checked request, with everything derived that its check needs."""

    index: int
    request: Request
    output: tuple[int, ...]
    seed: Hash32
    positions: tuple[int, ...]

    @property
    def prompt_tokens(self) -> int:
        """P of the inferencer."""
        return len(self.request.tokens)

    @property
    def new_tokens(self) -> int:
        """N of the inferencer."""
        return len(self.output)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.request.tokens + self.output

    @property
    def generated(self) -> range:
        """The positions whose states chose the output."""
        return range(self.prompt_tokens - 1, len(self.tokens) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class PartyStates:
    """What one party showed of all checked requests.

    `states` is None for a party that left any compared position closed. `generated` holds, per
    request, the final states uint16 [N, hidden] that its tokens are judged by, None if not all are
    open. `mismatched`: its items are not prompt‖output.
    """

    states: tuple[States, ...] | None
    generated: tuple[Bits | None, ...] = ()
    mismatched: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Evidence that holds together: party 0 the inferencer, 1..m the committee in drawn order.

    `fault` is what the inferencer's own sealed words prove against it, before any state is looked
    at; the committee's states still say who of it is paid.
    """

    job_id: JobId
    spec: ModelSpec
    checked: tuple[CheckedRequest, ...]
    parties: tuple[PartyStates, ...]
    fault: EvidenceError | None = None


def check_bundle(
    bundle: Bundle,
    posting: Posting,
    sealing: Sealing,
    spec: ModelSpec,
    domain: Domain,
    beacon: Hash32,
) -> Evidence:
    """`gather`, and EvidenceError for the inferencer's fault too: what is left is to be judged."""
    evidence = gather(bundle, posting, sealing, spec, domain, beacon)
    if evidence.fault is not None:
        raise evidence.fault
    return evidence


def gather(
    bundle: Bundle,
    posting: Posting,
    sealing: Sealing,
    spec: ModelSpec,
    domain: Domain,
    beacon: Hash32,
) -> Evidence:
    """The evidence of a bundle; EvidenceError for a bundle that proves nothing.

    Posting and sealing come from the chain, which has checked the signatures; `beacon` is the hash
    of the block of `seal`. A silent party is no error: the verdict knows what to make of it.
    """
    _check_spec(spec, posting)
    _demand(bundle.job == posting.job and bundle.quote == posting.quote, "another job")
    identity = _check_records(posting, sealing, spec, domain)
    checked = _checked(bundle, posting, sealing, spec, beacon, identity)
    by_number = _parties(bundle, spec.committee)
    inners = (inner_hash(sealing.inner), *sealing.inners)
    parties = tuple(
        _party(by_number.get(number), number, inners[number], identity, sealing, spec, checked)
        for number in range(spec.committee + 1)
    )
    identifier = task_id(sealing.secret, identity, INFERENCER)
    unchecked = posting.job.requests - len(checked)
    fault = _fault(by_number.get(INFERENCER), identifier, sealing.inner, spec, checked, unchecked)
    return Evidence(identity, spec, checked, parties, fault)


def expected_items(checked: Sequence[CheckedRequest], verifier: bool) -> tuple[Item, ...]:
    """The items that a party's task must hold for the checked requests, in the checked order.

    A verifier's max_new_tokens is the scheduler's choice; here it is the request's.
    """
    return tuple(
        Item(
            each.request.salt,
            verification_prompt(each.request, each.output) if verifier else each.request.tokens,
            each.request.max_new_tokens,
            each.request.sampling,
            each.seed,
        )
        for each in checked
    )


# ── The frame: spec, records, requests ──────────────────────────────────────────────────────────
def _check_spec(spec: ModelSpec, posting: Posting) -> None:
    _demand(model_id(spec) == posting.quote.model_id, "the spec of another model")
    try:
        check_spec(spec)
    except MalformedError as error:
        raise EvidenceError(Reason.PROFILE_MISSING, str(error)) from error


def _check_records(posting: Posting, sealing: Sealing, spec: ModelSpec, domain: Domain) -> JobId:
    identity = job_id(domain, posting.job)
    _demand(struct_hash(posting.quote) == posting.job.quote, "another quote than the client's")
    _demand(draw_commit(sealing.secret) == posting.quote.draw_commit, "another secret")
    commitment = Commitment(task_id(sealing.secret, identity, 0), inner_hash(sealing.inner))
    _demand(struct_hash(commitment) == posting.commitment, "another commitment than posted")
    _demand(len(sealing.inners) == spec.committee, "a committee of another size")
    return identity


def _checked(
    bundle: Bundle,
    posting: Posting,
    sealing: Sealing,
    spec: ModelSpec,
    beacon: Hash32,
    identity: JobId,
) -> tuple[CheckedRequest, ...]:
    drawn = draw(sealing.secret, posting.commitment, sealing.beacon)
    wanted = checked_requests(drawn, posting.job.requests, spec.checked_requests)
    _demand(tuple(each.index for each in bundle.checked) == wanted, "other requests than drawn")
    stream = position_seed(record_hash(posting, sealing), beacon)
    first_task = task_id(sealing.secret, identity, 0)
    return tuple(
        _checked_request(shown, posting, sealing.secret, first_task, stream, spec)
        for shown in bundle.checked
    )


def _checked_request(
    shown: CheckedOutput,
    posting: Posting,
    secret: Hash32,
    first_task: TaskId,
    stream: Hash32,
    spec: ModelSpec,
) -> CheckedRequest:
    job, request = posting.job, shown.request
    _demand(bool(request.tokens) and bool(shown.output), "a request without tokens")
    leaf = request_leaf(request)
    _demand(
        verify_proof(job.requests_root, leaf, shown.index, job.requests, shown.path),
        f"request {shown.index} is not the client's",
    )
    digest = output_leaf(shown.index, output_hash(first_task, shown.output))
    _demand(
        verify_proof(posting.outputs_root, digest, shown.index, job.requests, shown.output_path),
        f"output {shown.index} is not the posted one",
    )
    where = positions(stream, shown.index, len(request.tokens), len(shown.output), spec.positions)
    chosen = seed(secret, leaf, shown.index)
    return CheckedRequest(shown.index, request, shown.output, chosen, where)


# ── The parties ─────────────────────────────────────────────────────────────────────────────────
def _parties(bundle: Bundle, committee: int) -> dict[int, PartyEvidence]:
    numbers = [party.party for party in bundle.parties]
    _demand(len(set(numbers)) == len(numbers), "a party stands twice")
    _demand(all(0 <= number <= committee for number in numbers), "a party that was not drawn")
    return {party.party: party for party in bundle.parties}


def _party(
    shown: PartyEvidence | None,
    number: int,
    sealed: Hash32,
    identity: JobId,
    sealing: Sealing,
    spec: ModelSpec,
    checked: Sequence[CheckedRequest],
) -> PartyStates:
    if shown is None or not shown.openings:
        return _unopened(spec.shape, checked)
    _check_openings(shown, sealed, spec.shape, checked)
    identifiers = [
        task_id(sealing.secret, identity, each)
        for each in task_numbers(number, len(sealing.committee))
    ]
    if number == INFERENCER:
        _demand(_is_committed(shown), "another task than committed to", INFERENCER)
    mismatched = number != INFERENCER and _mismatched(shown, identifiers, checked)
    return PartyStates(
        None if mismatched else _states(shown, spec.shape, checked),
        () if mismatched else tuple(_generated(shown, at, each) for at, each in enumerate(checked)),
        mismatched,
    )


def _unopened(shape: Shape, checked: Sequence[CheckedRequest]) -> PartyStates:
    """A party that opened nothing is silent, unless there was nothing to open."""
    if any(each.positions for each in checked):
        return PartyStates(None)
    return PartyStates(tuple(_nowhere(shape) for _ in checked), (None,) * len(checked))


def _nowhere(shape: Shape) -> States:
    """The states of a request of one token and one output, which has no position to compare."""
    slices = np.zeros((0, shape.layers, shape.slice_dims), np.uint16)
    return States((), slices, np.zeros((0, shape.hidden), np.uint16))


def _check_openings(
    shown: PartyEvidence, sealed: Hash32, shape: Shape, checked: Sequence[CheckedRequest]
) -> None:
    for at, opening in shown.openings.items():
        _demand(0 <= at < len(checked), "an opening of no checked request", shown.party)
        item = checked[at].index if shown.party == INFERENCER else at
        _demand(opening.leaf.item == item, "an opening of another item", shown.party)
        try:
            check_opening(opening, sealed, shape)
        except EvidenceError as error:
            raise EvidenceError(error.reason, error.fact, shown.party) from error


def _is_committed(shown: PartyEvidence) -> bool:
    """Whether the task shown is the one that the party committed to."""
    return task_hash(shown.task) == next(iter(shown.openings.values())).inner.task_hash


def _fault(
    shown: PartyEvidence | None,
    identifier: TaskId,
    inner: Inner,
    spec: ModelSpec,
    checked: Sequence[CheckedRequest],
    unchecked: int,
) -> EvidenceError | None:
    """What the inferencer's own task, leaves and output prove against it; silence nothing."""
    if shown is None or not shown.openings:
        return None
    reason = (
        _task_fault(shown.task, identifier, spec, checked)
        or _trace_fault(shown, checked)
        or _vocabulary_fault(checked, spec)
        or _length_fault(checked, spec)
        or _count_fault(inner, checked, unchecked, spec)
    )
    return EvidenceError(reason, "by its own commitment", INFERENCER) if reason else None


def _task_fault(
    task: Task, identifier: TaskId, spec: ModelSpec, checked: Sequence[CheckedRequest]
) -> Reason | None:
    """Hold the inferencer's task to the client's requests."""
    held = [task.items[each.index] for each in checked if each.index < len(task.items)]
    ours = task.model_id == model_id(spec) and task.task_id == identifier
    same = ours and held == list(expected_items(checked, False))
    return None if same else Reason.TASK_MISMATCH_INFERENCER


def _trace_fault(shown: PartyEvidence, checked: Sequence[CheckedRequest]) -> Reason | None:
    """Hold the inferencer's leaves to the posted output."""
    for at, opening in shown.openings.items():
        each = checked[at]
        digest = output_hash(shown.task.task_id, each.output)
        leaf = (opening.leaf.prompt_tokens, opening.leaf.new_tokens, opening.leaf.output_hash)
        follows = all(_follows(entry, each.tokens) for entry in opening.entries)
        if leaf != (each.prompt_tokens, each.new_tokens, digest) or not follows:
            return Reason.OUTPUT_MISMATCH
    return None


def _vocabulary_fault(checked: Sequence[CheckedRequest], spec: ModelSpec) -> Reason | None:
    """What is no token at all no model can have chosen, and no verifier can run."""
    largest = max(max(each.output) for each in checked)
    return Reason.OUTSIDE_NUCLEUS if largest >= spec.vocabulary else None


def _count_fault(
    inner: Inner, checked: Sequence[CheckedRequest], unchecked: int, spec: ModelSpec
) -> Reason | None:
    """The fee follows from the counts: they must be those of the checked requests and leave what
    the others can hold, which is nothing where all are checked.
    """
    prompt = inner.prompt_tokens - sum(each.prompt_tokens for each in checked)
    new = inner.new_tokens - sum(each.new_tokens for each in checked)
    possible = min(prompt, new) >= unchecked and prompt + new <= unchecked * spec.context
    return None if possible else Reason.LENGTH


def _length_fault(checked: Sequence[CheckedRequest], spec: ModelSpec) -> Reason | None:
    """An output ends at its first end token, or is as long as was asked."""
    for each in checked:
        ends = [token in spec.end_tokens for token in each.output]
        if any(ends[:-1]):
            return Reason.AFTER_END
        asked = each.request.max_new_tokens
        if each.new_tokens > asked or (each.new_tokens < asked and not ends[-1]):
            return Reason.LENGTH
    return None


def _follows(entry: Entry, tokens: Sequence[int]) -> bool:
    at = entry.position
    return at + 1 < len(tokens) and (entry.token, entry.next) == (tokens[at], tokens[at + 1])


def _mismatched(
    shown: PartyEvidence, identifiers: Sequence[TaskId], checked: Sequence[CheckedRequest]
) -> bool:
    """Whether a verifier ran anything but its own task of prompt‖output.

    `identifiers` are its own task's and those of replacements: which of them holds a place the
    chain says, and it took the signature under that very task. Whoever's fault it is: the scheduler
    may have handed out another task, the verifier may have committed to one that it copied. It
    drops out, and nobody is convicted by it.
    """
    if shown.task.task_id not in identifiers or not _is_committed(shown):
        return True
    held = [(item.tokens, item.seed) for item in shown.task.items]
    if held != [(item.tokens, item.seed) for item in expected_items(checked, True)]:
        return True
    for at, opening in shown.openings.items():
        tokens = checked[at].tokens
        if opening.leaf.prompt_tokens != len(tokens) - 1:
            return True
        for entry in opening.entries:
            if entry.position < len(tokens) - 1 and entry.token != tokens[entry.position]:
                return True
    return False


def _states(
    shown: PartyEvidence, shape: Shape, checked: Sequence[CheckedRequest]
) -> tuple[States, ...] | None:
    """The compared positions of all checked requests; None if any is closed."""
    found = [
        _compared(shown.openings.get(at), each) if each.positions else _nowhere(shape)
        for at, each in enumerate(checked)
    ]
    states = tuple(each for each in found if each is not None)
    return states if len(states) == len(found) else None


def _compared(opening: Opening | None, each: CheckedRequest) -> States | None:
    if opening is None:
        return None
    entries = {entry.position: entry for entry in opening.entries if entry.slices is not None}
    where = tuple(sorted(each.positions))
    if not entries.keys() >= set(where):
        return None
    slices = [entries[position].slices for position in where]
    finals = [entries[position].final for position in where]
    return States(where, np.stack([bits for bits in slices if bits is not None]), np.stack(finals))


def _generated(shown: PartyEvidence, at: int, each: CheckedRequest) -> Bits | None:
    opening = shown.openings.get(at)
    if opening is None:
        return None
    finals = {entry.position: entry.final for entry in opening.entries}
    if not finals.keys() >= set(each.generated):
        return None
    return np.stack([finals[position] for position in each.generated])


def _demand(holds: bool, fact: str, party: int | None = None) -> None:
    if not holds:
        raise EvidenceError(Reason.EVIDENCE_MISSING, fact, party)
