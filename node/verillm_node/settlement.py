"""From post to final: one function per step, each harmless to repeat.

What a step did is read back from the chain; a step that failed is simply due again.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Self

from verillm import api
from verillm.chain.contract import Status
from verillm.codec import bundle_hash, decode_bundle, encode_bundle
from verillm.errors import VeriLLMError, WorkerFailed
from verillm.files import write_atomically
from verillm.records import Attestation
from verillm.signing import recover
from verillm.task import inner_hash
from verillm.types import ATTESTED, Hash32, Outcome, Reason
from verillm.verdict import Verdict, paid_mask
from verillm_node.bundle import collect, make_bundle, wanted_openings
from verillm_node.committee import checked_requests
from verillm_node.context import Context
from verillm_node.defend import advance_round, is_ours_to_advance, openings_of
from verillm_node.flow import Flow
from verillm_node.inference import give_receipts, post_call
from verillm_node.jobs import Party
from verillm_node.judging import Case, verdict_of
from verillm_node.rounds import Round, due_chunks
from verillm_node.sending import send_all
from verillm_node.threads import blocking
from verillm_node.view import View

log = logging.getLogger(__name__)


async def post(context: Context, flow: Flow) -> None:
    """Gives the receipts, then posts; a signature that no longer holds raises before either."""
    party = (await blocking(context.book.parties, flow.job_id))[0]
    if party.commitment is None:
        raise LookupError("nothing to post")
    await context.check_client(flow.submission)
    await give_receipts(context, flow, party.commitment)
    call = post_call(context, flow, party, party.commitment)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.POSTED))


async def post_claimed(context: Context, flow: Flow) -> None:
    """Posts at our own cost what a worker claims to have done."""
    if flow.claimed is None:
        raise LookupError("nothing was claimed")
    job, quote = flow.submission.job, flow.submission.quote.quote
    call = context.chain.calls.post_claimed(job, quote, flow.claimed.commitment)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.POSTED))


async def seal(context: Context, flow: Flow, view: View) -> None:
    """Shows the secret and the committee's commitments."""
    parties = await blocking(context.book.parties, flow.job_id)
    commitments = [party.commitment for party in parties if party.commitment is not None]
    if len(commitments) != len(parties):
        raise LookupError("not every party has committed")
    first, *rest = commitments
    inners = [inner_hash(each.inner) for each in rest]
    signatures = [each.signature for each in rest]
    if view.state.status is Status.SUMMONED:
        call = context.chain.calls.seal_summoned(view.posting, first.inner, inners, signatures)
    else:
        call = context.chain.calls.seal(view.posting, flow.secret, first.inner, inners, signatures)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.SEALED))


async def refund(context: Context, flow: Flow, view: View) -> None:
    """Ends a job that was not sealed in time; the client gets its escrow back."""
    call = context.chain.calls.refund(view.posting)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.FINAL))


async def dismiss(context: Context, flow: Flow, view: View) -> None:
    """Ends a job that was summoned and not sealed in time; the client gets its escrow back."""
    call = context.chain.calls.dismiss(view.posting)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.FINAL))


async def keep(context: Context, flow: Flow, view: View) -> None:
    """Stores a beacon before the chain forgets it."""
    block = view.beacon_block
    if block is None:
        return
    call = context.chain.calls.keep(block)
    await blocking(context.chain.send, call)


# ── Judging ──────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Judged:
    """What we will claim of a job, and for which course of the chain."""

    record: Hash32
    outcome: Outcome
    reason: Reason
    paid: int
    bundle: Hash32
    attestations: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """For the store."""
        return api.dumps(
            {
                "record": api.to_hex(self.record),
                "outcome": int(self.outcome),
                "reason": int(self.reason),
                "paid": self.paid,
                "bundle": api.to_hex(self.bundle),
                "attestations": [api.to_hex(each) for each in self.attestations],
            }
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """From the store."""
        fields = api.Fields(api.loads(data), "judged")
        return cls(
            record=fields.hash("record"),
            outcome=Outcome(fields.number("outcome")),
            reason=Reason(fields.number("reason")),
            paid=fields.number("paid", 8),
            bundle=fields.hash("bundle"),
            attestations=fields.many("attestations", api.parse_hex, 256),
        )


def judged(context: Context, flow: Flow, record: Hash32) -> Judged | None:
    """The remembered verdict, if it is of this very seal."""
    data = context.book.fact(flow.job_id, "verdict")
    found = None if data is None else Judged.from_bytes(data)
    return found if found is not None and found.record == record else None


async def judge_job(context: Context, flow: Flow, view: View, beacon_lost: bool) -> None:
    """Collects, judges, gathers signatures where the reason needs them, remembers the verdict."""
    offer = context.offer(view.posting.quote.model_id)
    beacon = (await blocking(context.chain.block, view.sealing.sealed_block)).hash
    data = await _write_bundle(context, flow, view, beacon)
    # What is judged are the bytes that will be published, not what they were made from.
    case = Case(view.posting, view.sealing, offer.spec, context.identity.domain, beacon)
    verdict = await blocking(verdict_of, data, case, offer.head)
    if beacon_lost:
        verdict = Verdict(Outcome.INCONCLUSIVE, Reason.BEACON_LOST)
    attestations = await _attestations(context, flow, view, data, verdict)
    known = Judged(
        record=view.state.record,
        outcome=verdict.outcome,
        reason=verdict.reason,
        paid=paid_mask(verdict),
        bundle=bundle_hash(data),
        attestations=attestations,
    )
    await blocking(context.book.set_fact, flow.job_id, "verdict", known.to_bytes())
    extra = {"job": flow.job_id, "outcome": verdict.outcome.name, "reason": verdict.reason.name}
    log.info("judged", extra=extra)


async def _write_bundle(context: Context, flow: Flow, view: View, beacon: Hash32) -> bytes:
    spec = context.offer(view.posting.quote.model_id).spec
    checked = checked_requests(context, flow)
    wanted = wanted_openings(flow, view, spec, checked, beacon)
    parties = await collect(context, flow, view, wanted)
    data: bytes = await blocking(encode_bundle, make_bundle(flow, view, checked, parties))
    await blocking(write_atomically, context.bundle_path(flow.job_id), data)
    return data


async def _attestations(
    context: Context, flow: Flow, view: View, data: bytes, verdict: Verdict
) -> tuple[bytes, ...]:
    """One signature per committee member, empty where there is none; or none at all."""
    if verdict.reason not in ATTESTED:  # the chain recomputes it from openings
        return ()
    word = Attestation(flow.job_id, verdict.outcome, verdict.reason, bundle_hash(data))
    members = [party for party in context.book.parties(flow.job_id) if party.k > 0]
    signatures = await asyncio.gather(
        *(_attestation(context, party, view, data, word) for party in members)
    )
    enough = len(members) // 2 + 1
    if sum(map(bool, signatures)) < enough:
        raise WorkerFailed(f"fewer than {enough} of the committee attest to {verdict.reason.name}")
    return tuple(signatures)


async def _attestation(
    context: Context, party: Party, view: View, data: bytes, word: Attestation
) -> bytes:
    model_id = view.posting.quote.model_id
    try:
        member = await blocking(context.registry.member, model_id, party.owner, party.seat)
        if member is None:
            return b""
        signed = await context.link.attest(member.endpoint, word.job_id, data)
        for key in member.keys:
            if recover(context.identity.domain, word, signed.signature) == key:
                return signed.signature
    except VeriLLMError as error:
        log.info("no_attestation", extra={"owner": party.owner, "error": str(error)})
    return b""


# ── The end ──────────────────────────────────────────────────────────────────────────────────────
async def claim(context: Context, flow: Flow, view: View) -> None:
    """Claims the verdict, bonded."""
    known = judged(context, flow, view.state.record)
    if known is None:
        raise LookupError("nothing to claim")
    call = context.chain.calls.claim(
        view.posting,
        view.sealing,
        known.outcome,
        known.reason,
        known.paid,
        known.bundle,
        known.attestations,
    )
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.CLAIMED))


async def finalize(context: Context, flow: Flow, view: View) -> None:
    """Settles by the claim that nobody challenged."""
    call = context.chain.calls.finalize(view.posting, view.sealing, view.claiming)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.FINAL))


async def open_forced(context: Context, flow: Flow, view: View) -> None:
    """Opens the public round that the draw demands, without a bond."""
    call = context.chain.calls.challenge(view.posting, view.sealing, view.claiming)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.CHALLENGED))


async def settle(context: Context, flow: Flow, view: View) -> None:
    """Settles by the verdict that nobody appealed."""
    call = context.chain.calls.settle(view.posting, view.sealing, view.claiming)
    await context.transact(flow.job_id, call, lambda: _reached(context, flow, Status.FINAL))


async def serve_bundle(context: Context, flow: Flow, view: View) -> None:
    """Puts what is missing of the demanded bundle into calldata, if it is ours."""
    path = context.bundle_path(flow.job_id)
    data = await blocking(path.read_bytes) if path.exists() else b""
    if bundle_hash(data) != view.claiming.bundle:
        log.warning("bundle_not_ours", extra={"job": flow.job_id})
        return
    await send_all(context.chain, due_chunks(context.chain.calls, view, data))


async def void_claim(context: Context, flow: Flow, view: View) -> None:
    """Ends a claim whose bundle nobody served: then we claim anew."""
    call = context.chain.calls.void_claim(view.posting, view.sealing, view.claiming)
    await context.transact(flow.job_id, call, lambda: not _is_demanded(context, flow))


def _is_demanded(context: Context, flow: Flow) -> bool:
    return context.chain.job_state(flow.job_id).status is Status.DEMANDED


async def defend(context: Context, flow: Flow, view: View) -> None:
    """Takes part in the public round with every opening that the bundle holds."""
    if not is_ours_to_advance(view, context.identity.operator):
        return
    path = context.bundle_path(flow.job_id)
    if path.exists():
        data = await blocking(path.read_bytes)
    else:
        data = await _write_bundle(context, flow, view, view.claiming.beacon)
    bundle = await blocking(decode_bundle, data)
    spec = context.offer(view.posting.quote.model_id).spec
    await advance_round(context.chain, Round(view, spec, openings_of(bundle)))


def _reached(context: Context, flow: Flow, status: Status) -> bool:
    return context.chain.job_state(flow.job_id).status.has_reached(status)
