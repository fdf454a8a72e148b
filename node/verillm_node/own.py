"""What a party of a job holds itself: its openings, and the texts that everything else is about."""

from collections.abc import Mapping
from dataclasses import replace

from verillm.appeal import Content, content, contents_of, holds, inferencer_task
from verillm.chain.appeals import ContentSupplied
from verillm.draw import checked_requests, draw
from verillm.errors import NotFound
from verillm.evidence import INFERENCER, Bundle, CheckedOutput, PartyEvidence
from verillm.model import ModelSpec
from verillm.request import Request
from verillm.trace import CommittedTrace, Opening
from verillm.types import JobId
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.view import View
from verillm_node.worker import Worker


def record_of(book: TaskBook, job_id: JobId) -> TaskRecord:
    """Our task in a sealed job; the inferencer's where we have several. Raises `NotFound`."""
    records = book.of_job(job_id)
    if not records:
        raise NotFound("no task of ours in this job")
    return min(records, key=lambda each: each.party or 0)


def parties_of(book: TaskBook, job_id: JobId) -> frozenset[int]:
    """Who we are in a sealed job."""
    return frozenset(each.party for each in book.of_job(job_id) if each.party is not None)


def checked_of(view: View, spec: ModelSpec) -> tuple[int, ...]:
    """The checked requests in drawn order."""
    seed = draw(view.sealing.secret, view.posting.commitment, view.sealing.beacon)
    return checked_requests(seed, view.posting.job.requests, spec.checked_requests)


def openings(worker: Worker, view: View, spec: ModelSpec, own: TaskRecord) -> Mapping[int, Opening]:
    """Everything that we may have to open, by place in the checked order.

    A scheduler may have given us fewer items than it should.
    """
    checked = checked_of(view, spec)
    items = checked if own.party == INFERENCER else range(len(checked))
    return {
        place: worker.open_everything(own.task.task_id, item)
        for place, item in enumerate(items)
        if item < len(own.task.items)
    }


def completed(
    bundle: Bundle, worker: Worker, view: View, spec: ModelSpec, own: TaskRecord
) -> Bundle:
    """A bundle in which our own evidence stands as we know it, whatever its maker left out."""
    if own.party is None or own.commitment is None:
        return bundle
    signatures = own.submission.signature, own.commitment.signature
    shown = openings(worker, view, spec, own)
    mine = PartyEvidence(own.party, own.task, *signatures, shown)
    others = (each for each in bundle.parties if each.party != mine.party)
    return replace(bundle, parties=tuple(sorted((*others, mine), key=lambda each: each.party)))


def told(
    bundle: Bundle | None, view: View, contents: tuple[Content, ...], spec: ModelSpec
) -> Bundle:
    """A bundle of the job's own texts, whatever its maker wrote in their place or if it made none.

    The texts lie under what the client signed and the scheduler posted; a bundle's need not, and
    one that repeats a false task's prompt would hide the proof against it.
    """
    shown = tuple(
        CheckedOutput(number, each.request, each.path, each.new_tokens, each.output_path)
        for number, each in zip(checked_of(view, spec), contents, strict=True)
    )
    if bundle is not None:
        return replace(bundle, checked=shown)
    return Bundle(view.posting.job, view.posting.quote, b"", shown, ())


# ── The texts ────────────────────────────────────────────────────────────────────────────────────
def contents(
    view: View,
    spec: ModelSpec,
    own: TaskRecord,
    made: CommittedTrace,
    bundle: Bundle | None = None,
) -> tuple[Content, ...] | None:
    """The checked requests with their outputs, as a re-verification takes them; None if not ours.

    From the inferencer's own task, which is all of the job where its scheduler was honest; else
    from whatever bundle there is; else from the chain.
    """
    checked = checked_of(view, spec)
    found: list[Content | None] = [None] * len(checked)
    if own.party == INFERENCER and len(own.task.items) == view.posting.job.requests:
        items = own.task.items
        requests = [Request(i.salt, i.tokens, i.max_new_tokens, i.sampling) for i in items]
        outputs = [item.output for item in made.trace.items]
        found = list(contents_of(requests, outputs, own.task.task_id, checked))
    if not _hold(view, checked, found) and bundle is not None:
        held = {each.index: each for each in bundle.checked}
        found = [_shown(held.get(number)) for number in checked]
    if not _hold(view, checked, found):
        told = {at.event.place: at.event.content for at in view.history.all(ContentSupplied)}
        found = [told.get(place) for place in range(len(checked))]
    if not _hold(view, checked, found):
        return None
    return tuple(each for each in found if each is not None)


def _shown(each: CheckedOutput | None) -> Content | None:
    if each is None or not each.request.tokens or not each.output:
        return None
    return content(each.request, each.path, each.output, each.output_path)


def _hold(view: View, checked: tuple[int, ...], found: list[Content | None]) -> bool:
    """Whether the contract would take them all."""
    posting = view.posting
    task = inferencer_task(view.sealing.secret, view.job_id)
    roots = (posting.job.requests_root, posting.outputs_root)
    return all(
        each is not None and holds(each, *roots, task, number, posting.job.requests)
        for number, each in zip(checked, found, strict=True)
    )
