"""The committee of a posted job: who is drawn, what each is asked, and what each committed to.

A verifier's task looks like any other: it comes through the same call, with the same fields, and
ends in the same commitment (`disguise` chooses the fields). It is in the store before it is sent,
so a scheduler that crashed sends the very same task again.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from hashlib import sha256

from verillm.api import CommitmentEvent, FailedEvent, TaskSubmission
from verillm.errors import VeriLLMError, WorkerFailed
from verillm.settlement import least_lock
from verillm.task import Task, verification_task
from verillm.types import ChecksumAddress
from verillm_node.context import Context
from verillm_node.disguise import Asked, asked, blurred, on_grid
from verillm_node.flow import Flow
from verillm_node.inference import posted_slack, signed
from verillm_node.jobs import Party
from verillm_node.link import check_commitment
from verillm_node.threads import blocking, until
from verillm_node.view import View

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 5.0


async def verify(context: Context, flow: Flow, view: View) -> None:
    """Asks every drawn worker until it has committed, or it is time to summon it on the chain."""
    parties = await _drawn_parties(context, flow, view)
    async with asyncio.TaskGroup() as group:
        for party in parties:
            if party.commitment is None:
                group.create_task(_persist(context, flow, party, view))


def asked_until(context: Context, view: View) -> int:
    """Until when members are asked over HTTP; half of the time to seal is left for a summons."""
    patience = min(context.settings.summon_seconds, context.terms.seal_window // 2)
    return view.posting.posted_at + patience


def checked_requests(context: Context, flow: Flow) -> tuple[int, ...]:
    """The requests that the committee checks, in drawn order."""
    packed = context.book.fact(flow.job_id, "checked") or b""
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, len(packed), 2))


def successor(
    context: Context, flow: Flow, view: View, k: int, seat: int, owner: ChecksumAddress, number: int
) -> Party:
    """Whoever takes place k after a silent member, with its own task."""
    checked = checked_requests(context, flow)
    fields = _fields(context, flow, view, checked)
    deadline = on_grid(int(time.time() + posted_slack(context, flow)))
    task = _task(context, flow, view, owner, checked, number, fields, deadline)
    return Party(k, seat, owner, signed(context, task), None)


def is_complete(context: Context, flow: Flow, view: View, parties: Sequence[Party]) -> bool:
    """Whether every member of the committee has committed, for the draw of this very post."""
    marked = context.book.fact(flow.job_id, "draw")
    size = context.offer(view.posting.quote.model_id).spec.committee
    committed = [each for each in parties if each.k > 0 and each.commitment is not None]
    return marked == _mark(view) and len(committed) == size


def _mark(view: View) -> bytes:
    """Which post a committee was drawn for: block and record, for a lost one may come again."""
    at = view.history.posted
    return view.state.record + (b"" if at is None else at.block_hash)


async def _drawn_parties(context: Context, flow: Flow, view: View) -> list[Party]:
    """The committee for this post; another one, from before a reorganisation, is forgotten."""
    book = context.book
    if book.fact(flow.job_id, "draw") != _mark(view):
        book.drop_committee(flow.job_id)
    parties = [party for party in book.parties(flow.job_id) if party.k > 0]
    if parties:
        return parties
    beacon = (await blocking(context.chain.block, view.posting.posted_block)).hash
    drawn = await blocking(context.chain.draw_of, view.posting, flow.secret, beacon)
    extra = {"job": flow.job_id, "seats": drawn.seats, "checked": drawn.checked}
    log.info("committee_drawn", extra=extra)
    fields = _fields(context, flow, view, drawn.checked)
    slack = posted_slack(context, flow)
    parties = []
    for k, (seat, owner) in enumerate(zip(drawn.seats, drawn.owners, strict=True), 1):
        deadline = on_grid(int(time.time() + _delay(context, flow, k, view) + slack))
        task = _task(context, flow, view, owner, drawn.checked, k, fields, deadline)
        parties.append(Party(k, seat, owner, signed(context, task), None))
    with book.transaction():
        book.set_fact(flow.job_id, "draw", _mark(view))
        book.set_fact(flow.job_id, "checked", b"".join(n.to_bytes(2, "big") for n in drawn.checked))
        for party in parties:
            book.set_party(flow.job_id, party)
    return parties


def _fields(context: Context, flow: Flow, view: View, checked: Sequence[int]) -> Asked:
    posting = view.posting
    spec = context.offer(posting.quote.model_id).spec
    return asked(
        posting.job,
        flow.submission.requests,
        {number: flow.outputs[number] for number in checked},
        spec.context,
        spec.end_tokens,
        posting.quote.unit_price,
        context.settings.dummy_tokens,
    )


def _task(
    context: Context,
    flow: Flow,
    view: View,
    owner: ChecksumAddress,
    checked: Sequence[int],
    number: int,
    fields: Asked,
    deadline: int,
) -> Task:
    requests = flow.submission.requests
    fee = blurred(fields.fee, flow.secret, number)
    return verification_task(
        flow.secret,
        flow.job_id,
        number,
        [(each, requests[each]) for each in checked],
        [flow.outputs[each] for each in checked],
        owner,
        view.posting.quote.model_id,
        deadline,
        least_lock(fee, context.terms.kappa_bps),
        fee,
        fields.new_tokens,
    )


async def _persist(context: Context, flow: Flow, party: Party, view: View) -> None:
    """Asks one worker again and again: it may be restarting."""
    await asyncio.sleep(_delay(context, flow, party.k, view))
    wait = FIRST_WAIT
    last = asked_until(context, view)
    while time.time() < last:
        try:
            commitment = await _ask(context, party, view, last)
        except VeriLLMError as error:
            extra = {"job": flow.job_id, "worker": party.owner, "k": party.k, "error": str(error)}
            log.warning("verifier_failed", extra=extra)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
            continue
        await blocking(context.book.set_commitment, flow.job_id, party.k, commitment)
        log.info("verifier_committed", extra={"job": flow.job_id, "k": party.k})
        return
    log.error("verifier_silent", extra={"job": flow.job_id, "worker": party.owner, "k": party.k})


def _delay(context: Context, flow: Flow, k: int, view: View) -> float:
    """A wait of each task's own, so that tasks do not come in bursts behind a post.

    From the job's secret: from the task's id its worker could recompute it, and know its role.
    """
    left = max(0.0, asked_until(context, view) - time.time())
    mark = sha256(b"delay" + flow.secret + bytes([k])).digest()
    share = int.from_bytes(mark[:4], "big") / 2**32
    return share * min(context.settings.shuffle_seconds, left / 2)


async def _ask(context: Context, party: Party, view: View, last: int) -> CommitmentEvent:
    model_id = view.posting.quote.model_id
    member = await blocking(context.registry.member, model_id, party.owner, party.seat)
    if member is None:
        raise WorkerFailed("this worker has no endpoint on the chain")
    async with until(last, "the summons"):
        commitment = await commitment_from(context, member.endpoint, party.submission)
    check_commitment(context.identity.domain, party.submission.task, member.keys, commitment)
    return commitment


async def commitment_from(
    context: Context, endpoint: str, submission: TaskSubmission
) -> CommitmentEvent:
    """Sends a task, ignores its tokens, returns what its worker committed to."""
    async with until(submission.task.deadline, "the worker's stream"):
        async for events in context.link.run(endpoint, submission):
            for event in events:
                if isinstance(event, FailedEvent):
                    raise WorkerFailed(f"{event.error.code}: {event.error.message}")
                if isinstance(event, CommitmentEvent):
                    return event
    raise WorkerFailed("the worker's stream ended without a commitment")
