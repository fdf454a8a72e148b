"""What a client proves against its scheduler by itself: it holds the receipts and the requests."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from verillm import api
from verillm.api import ReceiptEvent
from verillm.chain.appeals import ContentSupplied
from verillm.chain.calls import Call
from verillm.chain.contract import Chain
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.events import JobHistory
from verillm.client.steps import Flow, ask, fetch
from verillm.client.terms import Draft
from verillm.codec import decode_bundle
from verillm.draw import checked_requests, draw
from verillm.errors import MalformedError, RemoteError
from verillm.evidence import Bundle, CheckedOutput
from verillm.proofs.find import SCHEDULER, Case, Proof, proofs, receipt_proof
from verillm.records import Claiming
from verillm.request import requests_tree
from verillm.task import outputs_root
from verillm.types import Hash32, Outcome, Reason

log = logging.getLogger(__name__)

_NOTHING: Final = Hash32(bytes(32))


@dataclass(frozen=True, slots=True)
class SentProof:
    """A proof that the chain believed: the scheduler pays for it."""

    name: str
    fact: str
    transaction: Hash32


def is_suspect(
    draft: Draft,
    outputs: Sequence[Sequence[int]],
    receipts: Sequence[ReceiptEvent | None],
    history: JobHistory,
) -> bool:
    """Whether a sealed job is on the chain otherwise than its client knows it; costs no fetch.

    By the outputs' root and the sums of tokens: lengths that are false and add up are not seen.
    """
    if history.posted is None or history.sealed is None:
        return False
    inner = history.sealed.event.sealing.inner
    asked = sum(len(request.tokens) for request in draft.submission.requests)
    sums = (inner.prompt_tokens, inner.new_tokens) == (asked, sum(map(len, outputs)))
    hashes = [each.receipt.output_hash for each in receipts if each is not None]
    same = len(hashes) == len(receipts)
    same = same and outputs_root(hashes) == history.posted.event.posting.outputs_root
    return not (sums and same)


def prove(
    chain: Chain, draft: Draft, receipts: Sequence[ReceiptEvent | None], history: JobHistory
) -> Flow[SentProof | None]:
    """Sends the first proof that holds; None where nothing that can be had shows anything."""
    bundle = yield from _bundle(chain, draft, history)
    case = None if bundle is None else _case(chain, draft, history, bundle)
    if case is None:
        return None
    for proof in _found(case, receipts):
        call = _call(chain, history, proof)
        if (yield from ask(partial(_holds, chain, call))):
            mined = yield from ask(partial(chain.send, call))
            return SentProof(proof.name, proof.fact, mined.transaction)
    return None


def _found(case: Case, receipts: Sequence[ReceiptEvent | None]) -> Iterator[Proof]:
    for each in receipts:
        if each is not None:
            proof = receipt_proof(case, each.receipt, each.signature)
            if proof is not None:
                yield proof
    yield from (proof for proof in proofs(case) if proof.party == SCHEDULER)


def _bundle(chain: Chain, draft: Draft, history: JobHistory) -> Flow[Bundle | None]:
    """The scheduler's own bundle, or the texts that a re-verification put on the chain."""
    try:
        url = draft.scheduler.url + api.job_path(draft.job_id, "bundle")
        return decode_bundle((yield from fetch("GET", url)))
    except (RemoteError, MalformedError) as error:
        log.info("no bundle", extra={"job": draft.job_id.hex(), "error": error.code})
    return _on_chain(draft, history, (yield from ask(lambda: _checked(chain, draft, history))))


def _checked(chain: Chain, draft: Draft, history: JobHistory) -> tuple[int, ...]:
    if history.posted is None or history.sealed is None:
        return ()
    posting, sealing = history.posted.event.posting, history.sealed.event.sealing
    seed = draw(sealing.secret, posting.commitment, sealing.beacon)
    return checked_requests(seed, posting.job.requests, draft.spec.checked_requests)


def _on_chain(draft: Draft, history: JobHistory, checked: Sequence[int]) -> Bundle | None:
    told = {at.event.place: at.event.content for at in history.all(ContentSupplied)}
    shown = tuple(
        CheckedOutput(checked[place], each.request, each.path, each.new_tokens, each.output_path)
        for place, each in sorted(told.items())
    )
    submission = draft.submission
    return Bundle(submission.job, submission.quote.quote, b"", shown, ()) if shown else None


def _case(chain: Chain, draft: Draft, history: JobHistory, bundle: Bundle) -> Case | None:
    """The job as its client knows it: what was asked is its own word, whatever the bundle says."""
    if history.posted is None or history.sealed is None:
        return None
    requests = draft.submission.requests
    tree = requests_tree(requests)
    checked = tuple(
        replace(each, request=requests[each.index], path=tree.proof(each.index))
        for each in bundle.checked
        if each.index < len(requests)
    )
    if len(checked) != len(bundle.checked):
        return None
    posting, sealing = history.posted.event.posting, history.sealed.event.sealing
    known = replace(bundle, checked=checked)
    return Case(known, posting, sealing, draft.spec, chain.deployment.domain)


def _call(chain: Chain, history: JobHistory, proof: Proof) -> Call:
    if history.posted is None or history.sealed is None:
        raise LookupError("a job that is not sealed has nothing to prove")
    posting, sealing = history.posted.event.posting, history.sealed.event.sealing
    return chain.calls.prove(posting, sealing, _claiming(history), proof)


def _claiming(history: JobHistory) -> Claiming:
    if history.claimed is not None:
        return history.claimed.event.claiming
    opened = history.challenged
    beacon = _NOTHING if opened is None else opened.event.beacon
    return Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, _NOTHING, beacon)


def _holds(chain: Chain, call: Call) -> bool:
    refusal = chain.refusal(call)
    if refusal is not None:
        log.info("proof refused", extra={"proof": call.name, "error": str(refusal)})
    return refusal is None
