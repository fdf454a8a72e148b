"""A sealed job's evidence: every party's openings, then the bundle that a claim names."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from verillm.codec import decode_opening
from verillm.draw import position_seed, positions
from verillm.errors import EvidenceError, MalformedError, VeriLLMError, WorkerFailed
from verillm.evidence import Bundle, CheckedOutput, PartyEvidence
from verillm.model import ModelSpec
from verillm.records import record_hash
from verillm.request import requests_tree
from verillm.task import inner_hash, output_hash, outputs_tree
from verillm.trace import Opening, check_opening
from verillm.types import Hash32
from verillm_node.context import Context
from verillm_node.flow import Flow
from verillm_node.jobs import Party
from verillm_node.threads import blocking
from verillm_node.view import View

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
CLAIM_MARGIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every party has to open of one checked request: `place` in the checked order."""

    place: int
    request: int
    full: tuple[int, ...]
    final_only: tuple[int, ...]


def wanted_openings(
    flow: Flow, view: View, spec: ModelSpec, checked: Sequence[int], beacon: Hash32
) -> tuple[Wanted, ...]:
    """The challenged positions in full, and all whose state chose a token by their final state."""
    stream = position_seed(record_hash(view.posting, view.sealing), beacon)
    found = []
    for place, number in enumerate(checked):
        prompt, new = len(flow.submission.requests[number].tokens), len(flow.outputs[number])
        full = set(positions(stream, number, prompt, new, spec.positions))
        generated = set(range(prompt - 1, prompt + new - 1))
        found.append(Wanted(place, number, tuple(sorted(full)), tuple(sorted(generated - full))))
    return tuple(found)


async def collect(
    context: Context, flow: Flow, view: View, wanted: Sequence[Wanted]
) -> tuple[PartyEvidence, ...]:
    """All parties' evidence; who does not open in time is in it without openings."""
    parties = await blocking(context.book.parties, flow.job_id)
    spec = context.offer(view.posting.quote.model_id).spec
    evidence = (
        _evidence(context, party, view, wanted, spec, _until(context, party, view))
        for party in parties
    )
    return tuple(await asyncio.gather(*evidence))


def _until(context: Context, party: Party, view: View) -> float:
    """Until when to ask a party, in this machine's seconds.

    An inferencer without openings is slashed, so it is asked until the claim is nearly due; a
    verifier without them only drops out of the cliques.
    """
    left = view.state.deadline - time.time()
    patience = left - min(CLAIM_MARGIN_SECONDS, left / 3)
    if party.k > 0:
        patience = min(patience, context.settings.patience_seconds)
    return time.monotonic() + max(patience, WAIT_SECONDS)


async def _evidence(
    context: Context,
    party: Party,
    view: View,
    wanted: Sequence[Wanted],
    spec: ModelSpec,
    until: float,
) -> PartyEvidence:
    openings: dict[int, Opening] = {}
    signature = b"" if party.commitment is None else party.commitment.signature
    while len(openings) < len(wanted):
        try:
            for each in wanted:
                if each.place not in openings:
                    openings[each.place] = await _open(context, party, view, each, spec)
        except VeriLLMError as error:
            extra = {"owner": party.owner, "k": party.k, "error": str(error)}
            log.info("opening_missing", extra=extra)
            if time.monotonic() > until:
                break
            await asyncio.sleep(WAIT_SECONDS)
    submission = party.submission
    return PartyEvidence(party.k, submission.task, submission.signature, signature, openings)


async def _open(
    context: Context, party: Party, view: View, wanted: Wanted, spec: ModelSpec
) -> Opening:
    model_id = view.posting.quote.model_id
    member = await blocking(context.registry.member, model_id, party.owner, party.seat)
    if member is None:
        raise WorkerFailed("this worker has no endpoint on the chain")
    task_id = party.submission.task.task_id
    item = wanted.request if party.k == 0 else wanted.place
    data = await context.link.opening(
        member.endpoint, task_id, item, wanted.full, wanted.final_only
    )
    return await blocking(_checked, data, party.k, view, wanted, spec)


def _checked(data: bytes, k: int, view: View, wanted: Wanted, spec: ModelSpec) -> Opening:
    """Parses an opening and holds it to the sealed commitment and to what was asked."""
    sealing = view.sealing
    expected = inner_hash(sealing.inner) if k == 0 else sealing.committee[k - 1].inner
    try:
        opening = decode_opening(data)
        check_opening(opening, expected, spec.shape)
    except (MalformedError, EvidenceError) as error:
        raise WorkerFailed(f"a useless opening: {error}") from error
    whole = tuple(entry.position for entry in opening.entries if entry.slices is not None)
    everything = {entry.position for entry in opening.entries}
    if whole != wanted.full or everything != {*wanted.full, *wanted.final_only}:
        raise WorkerFailed("an opening of other positions than were asked for")
    return opening


def make_bundle(
    flow: Flow, view: View, checked: Sequence[int], parties: tuple[PartyEvidence, ...]
) -> Bundle:
    """The bundle of a job, from what the client sent and what the parties opened."""
    submission, outputs = flow.submission, flow.outputs
    requests = requests_tree(submission.requests)
    first = parties[0].task.task_id
    tree = outputs_tree([output_hash(first, tokens) for tokens in outputs])
    shown = tuple(
        CheckedOutput(
            number,
            submission.requests[number],
            requests.proof(number),
            outputs[number],
            tree.proof(number),
        )
        for number in checked
    )
    posting = view.posting
    return Bundle(posting.job, posting.quote, submission.signature, shown, parties)
