"""A committee that does not answer over HTTP: summon it, take its answers, replace the silent.

Everything is read from the chain each time, so that a crash or a reorganisation needs no case of
its own. Once a member is summoned the committee is public, and only `seal_summoned` seals.
"""

import logging
from collections.abc import Sequence

from verillm.api import CommitmentEvent
from verillm.chain.contract import Call, PlaceState
from verillm.chain.events import Answered
from verillm.errors import VeriLLMError
from verillm.task import inner_hash, task_id
from verillm_node.committee import successor
from verillm_node.context import Context
from verillm_node.flow import Flow
from verillm_node.jobs import Party
from verillm_node.threads import blocking
from verillm_node.view import View

log = logging.getLogger(__name__)


async def attend(context: Context, flow: Flow, view: View) -> None:
    """Does what is due for each place: takes an answer, summons, or replaces."""
    places = await blocking(context.chain.places_of, flow.job_id)
    parties = [party for party in context.book.parties(flow.job_id) if party.k > 0]
    for index, party in enumerate(parties):
        try:
            await _attend(context, flow, view, index, party, places)
        except VeriLLMError as error:  # of one place: the others go on
            extra = {"job": flow.job_id, "place": index, "error": str(error)}
            log.warning("summons_failed", extra=extra)


async def _attend(
    context: Context,
    flow: Flow,
    view: View,
    index: int,
    party: Party,
    places: Sequence[PlaceState],
) -> None:
    place = places[index] if places else None
    if place is not None and _number(flow, party, place) != place.number:
        k, number = party.k, place.number
        party = successor(context, flow, view, k, place.seat, place.owner, number)
        await blocking(context.book.set_party, flow.job_id, party)
        log.info("member_replaced", extra={"job": flow.job_id, "k": k, "owner": party.owner})
    if place is not None and any(place.inner):
        await _take(context, flow, view, party, place)
    elif party.commitment is not None:
        return
    elif place is None or not place.answer_by:
        call = await blocking(_summon, context, flow, view, index, party)
        await _send(context, flow, index, call)
    elif view.now >= place.answer_by:
        await _send(context, flow, index, context.chain.calls.replace(view.posting, index))


def _number(flow: Flow, party: Party, place: PlaceState) -> int | None:
    """The place's number if the party's task has it."""
    same = party.submission.task.task_id == task_id(flow.secret, flow.job_id, place.number)
    return place.number if same and party.owner == place.owner else None


async def _take(context: Context, flow: Flow, view: View, party: Party, place: PlaceState) -> None:
    """Keeps an answer like any other commitment; its leaves are with its worker."""
    if party.commitment is not None and inner_hash(party.commitment.inner) == place.inner:
        return
    for at in view.history.all(Answered):
        if at.event.index == party.k - 1 and inner_hash(at.event.inner) == place.inner:
            event = CommitmentEvent(at.event.inner, (), at.event.signature)
            await blocking(context.book.set_commitment, flow.job_id, party.k, event)
            log.info("summons_answered", extra={"job": flow.job_id, "k": party.k})


def _summon(context: Context, flow: Flow, view: View, index: int, party: Party) -> Call:
    first = context.book.parties(flow.job_id)[0].commitment
    if first is None:
        raise LookupError("nothing was posted")
    return context.chain.calls.summon(
        view.posting,
        flow.secret,
        first.inner,
        index,
        context.offer(view.posting.quote.model_id).spec,
        party.submission.task,
        party.submission.signature,
    )


async def _send(context: Context, flow: Flow, index: int, call: Call) -> None:
    """Once: what was done is seen in the places."""
    before = context.chain.places_of(flow.job_id)
    seen = before[index] if before else None

    def done() -> bool:
        after = context.chain.places_of(flow.job_id)
        return bool(after) and _step(after[index]) != _step(seen)

    await context.transact(flow.job_id, call, done)
    log.info(call.name, extra={"job": flow.job_id, "place": index})


def _step(place: PlaceState | None) -> tuple[int, bool]:
    return (0, False) if place is None else (place.number, bool(place.answer_by))
