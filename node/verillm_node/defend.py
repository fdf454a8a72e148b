"""What keeps claims honest: recompute, challenge what is wrong, take part in the public round.

Nobody votes. A challenge is won by openings alone, so whoever recomputed a verdict from them can
challenge without trusting, or being trusted by, anyone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eth_typing import ChecksumAddress

from verillm.chain.contract import Call, Chain, Status, sender_lock, transaction_hash
from verillm.codec import bundle_hash, decode_bundle, decode_opening
from verillm.errors import (
    ChainUnreachable,
    EvidenceError,
    NotFound,
    VeriLLMError,
)
from verillm.evidence import Bundle, PartyEvidence, gather
from verillm.model import ModelSpec
from verillm.records import Attestation, Claiming, Member, Posting, Sealing
from verillm.signing import sign, verify
from verillm.task import inner_hash, task_id
from verillm.tokens import Head
from verillm.trace import Opening, check_opening
from verillm.types import Hash32, JobId, Outcome, Reason
from verillm.verdict import judge_states, paid_mask, quorum
from verillm_node.judging import Case, verdict_of
from verillm_node.link import Link
from verillm_node.registry import Registry, hot_key_of
from verillm_node.rounds import (
    Openings,
    Round,
    due_comparisons,
    due_reveals,
    due_services,
    is_complete,
)
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.threads import blocking
from verillm_node.view import View, is_forced, look
from verillm_node.worker import Worker

log = logging.getLogger(__name__)

AT_ONCE = 12
"""Calls on their way at the same time: one a block would miss the deadline."""
MINED_SECONDS = 20.0
ATTESTED = frozenset(range(Reason.MARGIN_MEAN, Reason.OUTPUT_MISMATCH + 1))
"""Reasons that the chain cannot recompute; whoever challenges them loses its bond."""


# ── What the contract would say ──────────────────────────────────────────────────────────────────
def public_verdict(bundle: Bundle, case: Case) -> tuple[Outcome, int] | None:
    """Outcome and paid members as the contract would compute them; None if nothing says so.

    Tokens are not judged on the chain, so an inferencer that agrees on states is accepted there.
    """
    try:
        evidence = gather(bundle, case.posting, case.sealing, case.spec, case.domain, case.beacon)
    except EvidenceError:
        return None
    prompts = [each.prompt_tokens for each in evidence.checked]
    verdict = judge_states(evidence.parties, case.spec.profile, prompts)
    return verdict.outcome, paid_mask(verdict)


def openings_of(bundle: Bundle) -> Openings:
    """Every opening of a bundle by party and place."""
    return {
        (party.party, place): opening
        for party in bundle.parties
        for place, opening in party.openings.items()
    }


def with_own(bundle: Bundle, party: int, own: PartyEvidence) -> Bundle:
    """A bundle in which our own evidence stands as we know it, whatever its maker left out."""
    others = tuple(each for each in bundle.parties if each.party != party)
    return replace(bundle, parties=tuple(sorted((*others, own), key=lambda each: each.party)))


# ── The public round ─────────────────────────────────────────────────────────────────────────────
async def advance_round(chain: Chain, round_: Round) -> None:
    """Makes the calls that are due now: reveals, then comparisons, then the verdict."""
    calls, view = chain.calls, round_.view
    due = due_reveals(calls, round_) or due_comparisons(calls, round_)
    if due:
        await send_all(chain, due)
    elif is_complete(round_) or round_.is_late:
        await send_all(chain, [calls.adjudicate(view.posting, view.sealing, view.claiming)])


def is_ours_to_advance(view: View, operator: ChecksumAddress) -> bool:
    """Whether to act now: challenger and claimer at once, others only when nobody else does."""
    opened = view.history.challenged
    if opened is None:
        return False
    concerned = operator in (opened.event.challenger, view.claiming.claimer)
    return concerned or 2 * view.now >= opened.timestamp + view.state.deadline


async def send_all(chain: Chain, calls: Sequence[Call]) -> None:
    """Sends calls, many to a block. One that is refused was made by someone else, or comes later.

    Not through the outbox: what is due is read from the chain each time, so a crash loses nothing.
    """
    for first in range(0, len(calls), AT_ONCE):
        await blocking(_send_batch, chain, calls[first : first + AT_ONCE])


def _send_batch(chain: Chain, calls: Sequence[Call]) -> None:
    sent, sender = [], chain.sender.address
    with sender_lock(chain.deployment.chain_id, sender):
        # Counted here and not asked for each: a server that is just mining answers too low.
        nonce, fees = chain.nonce(sender, "pending"), chain.fees()
        for call in calls:
            gas = _gas_of(chain, call)
            if gas is not None:
                raw = chain.sign(call, nonce, gas, fees)
                chain.broadcast(raw)
                sent.append((call, transaction_hash(raw)))
                nonce += 1
    _wait_for(chain, sent)


def _gas_of(chain: Chain, call: Call) -> int | None:
    try:
        return chain.estimate(call)
    except ChainUnreachable:
        raise
    except VeriLLMError as error:  # the contract's word, under any of our names for it
        log.info("round_call_refused", extra={"call": call.name, "error": str(error)})
        return None


def _wait_for(chain: Chain, sent: Sequence[tuple[Call, Hash32]]) -> None:
    """Waits a while for transactions; what is not mined by then is due again."""
    deadline = time.monotonic() + MINED_SECONDS
    for call, transaction in sent:
        while (found := chain.mined(transaction)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        gas = None if found is None else found.gas_used
        log.info("round_call", extra={"call": call.name, "gas": gas})


# ── A worker's watch ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Watch:
    """A worker's interest in the jobs that it takes part in; `chain` sends with its hot key."""

    chain: Chain
    spec: ModelSpec
    worker: Worker
    book: TaskBook
    registry: Registry
    link: Link
    head: Head | None
    forced_every: int = 0
    examined: set[tuple[JobId, bytes]] = field(default_factory=set)
    """Claims already looked at: job and record."""
    shown: dict[JobId, dict[tuple[int, int], Opening]] = field(default_factory=dict)
    """Openings of challenged jobs, from wherever they could be had."""

    async def round(self) -> None:
        """Looks once at every job of ours that is not final."""
        for job_id in self.book.unsettled():
            try:
                await self._look(job_id)
            except VeriLLMError as error:
                extra = {"job": job_id, "code": error.code, "error": str(error)}
                log.warning("watch_failed", extra=extra)

    async def _look(self, job_id: JobId) -> None:
        view = await blocking(look, self.chain, job_id)
        match view.state.status:
            case Status.FINAL:
                self.book.settled(job_id)
                self.shown.pop(job_id, None)
            case Status.CLAIMED if view.is_late and is_forced(view, self.forced_every):
                # Whoever wants its pay opens it; all but the first are refused.
                await self._send(self.chain.calls.challenge, view)
            case Status.CLAIMED:
                await self._examine(view)
            case Status.CHALLENGED:
                await self._take_part(view)
            case Status.JUDGED if view.is_late and self._opened(view):
                await self._send(self.chain.calls.settle, view)
            case _:
                pass

    async def _send(self, make: Callable[[Posting, Sealing, Claiming], Call], view: View) -> None:
        await send_all(self.chain, [make(view.posting, view.sealing, view.claiming)])

    # ── A claim ──────────────────────────────────────────────────────────────────────────────────
    async def _examine(self, view: View) -> None:
        key = (view.job_id, bytes(view.state.record))
        if key in self.examined:
            return
        own, data = self._own(view), await self._bundle(view)
        call = await self._challenge(view, own, data)
        if call is not None:
            await send_all(self.chain, [call])
        wrong = call is not None
        extra = {"job": view.job_id, "wrong": wrong, "claimed": view.claiming.outcome.name}
        log.info("claim_examined", extra=extra)
        self.examined.add(key)

    async def _challenge(self, view: View, own: TaskRecord, data: bytes | None) -> Call | None:
        """The challenge that a claim deserves, if any."""
        posting, sealing, claim = view.posting, view.sealing, view.claiming
        if await self._is_wrong(view, own, data):
            return self.chain.calls.challenge(posting, sealing, claim)
        if data is None or claim.outcome is not Outcome.ACCEPT or not own.party:
            return None
        found = await self._attested_reject(view, data)
        if found is None:
            return None
        word, signatures = found
        return self.chain.calls.challenge(
            posting, sealing, claim, word.outcome, word.reason, word.bundle, signatures
        )

    async def _is_wrong(self, view: View, own: TaskRecord, data: bytes | None) -> bool:
        """Whether the contract would compute something else than the claim says."""
        claim = view.claiming
        if claim.reason in ATTESTED:
            return False
        expected = None
        if data is not None:
            expected = await blocking(self._expected, view, own, data)
        if expected is None:
            # Nothing to recompute from. Whoever knows its own work is condemned still challenges.
            return own.party == 0 and claim.outcome in (Outcome.SLASH, Outcome.REFUND)
        return expected != (claim.outcome, claim.paid)

    def _expected(self, view: View, own: TaskRecord, data: bytes) -> tuple[Outcome, int] | None:
        bundle = self._completed(decode_bundle(data), view, own)
        return public_verdict(bundle, self._case(view))

    async def _attested_reject(
        self, view: View, data: bytes
    ) -> tuple[Attestation, list[bytes]] | None:
        """What a majority of the committee signs against an acceptance that only tokens belie.

        The contract cannot recompute that, so it takes the committee's word, for a refund at most.
        """
        verdict = await blocking(verdict_of, data, self._case(view), self.head)
        if verdict.reason not in ATTESTED:
            return None
        word = Attestation(view.job_id, verdict.outcome, verdict.reason, bundle_hash(data))
        members = view.sealing.committee
        signatures = await asyncio.gather(*(self._word_of(each, word, data) for each in members))
        if sum(map(bool, signatures)) < quorum(len(members)):
            return None
        return word, list(signatures)

    async def _word_of(self, member: Member, word: Attestation, data: bytes) -> bytes:
        """One member's signature under our verdict, empty if it has another one or is away."""
        identity = self.worker.identity
        if member.owner == identity.operator:
            return sign(identity.domain, word, identity.hot)
        try:
            endpoint = await blocking(self.registry.endpoint, member.owner)
            if endpoint is None:
                return b""
            signed = await self.link.attest(endpoint, word.job_id, data)
            key = await blocking(hot_key_of, self.chain, member.owner)
            verify(identity.domain, word, signed.signature, key)
        except VeriLLMError as error:
            log.info("no_attestation", extra={"owner": member.owner, "error": str(error)})
            return b""
        return signed.signature

    async def _bundle(self, view: View) -> bytes | None:
        """The bytes of the bundle that the claim names, if its scheduler shows them."""
        scheduler = view.posting.quote.scheduler
        endpoint = await blocking(self.registry.endpoint, scheduler)
        if endpoint is None:
            return None
        try:
            data = await self.link.bundle(endpoint, view.job_id)
            await blocking(decode_bundle, data)
        except VeriLLMError as error:
            log.info("bundle_missing", extra={"job": view.job_id, "error": str(error)})
            return None
        return data if bundle_hash(data) == view.claiming.bundle else None

    def _case(self, view: View) -> Case:
        domain = self.worker.identity.domain
        return Case(view.posting, view.sealing, self.spec, domain, view.claiming.beacon)

    def _completed(self, bundle: Bundle, view: View, own: TaskRecord) -> Bundle:
        if own.party is None or own.commitment is None:
            return bundle
        mine = PartyEvidence(
            own.party,
            own.task,
            own.submission.signature,
            own.commitment.signature,
            self._own_openings(view, own),
        )
        return with_own(bundle, own.party, mine)

    # ── A challenge ──────────────────────────────────────────────────────────────────────────────
    async def _take_part(self, view: View) -> None:
        """Reveals and serves what is ours; whoever has all openings compares and adjudicates."""
        own = self._own(view)
        shown = self.shown.get(view.job_id)
        if shown is None:
            data = await self._bundle(view)
            shown = {} if data is None else dict(openings_of(decode_bundle(data)))
            shown |= {(own.party or 0, at): o for at, o in self._own_openings(view, own).items()}
            self.shown[view.job_id] = shown
        round_ = Round(view, self.spec, shown)
        reveals = due_reveals(self.chain.calls, round_)
        if reveals:
            await send_all(self.chain, reveals)
        elif self._opened(view):
            await self._fetch_missing(round_, shown)
            await advance_round(self.chain, round_)
        elif is_ours_to_advance(view, self.worker.identity.operator) and not round_.is_late:
            await send_all(self.chain, due_services(self.chain.calls, round_, own.party or 0))

    async def _fetch_missing(self, round_: Round, shown: dict[tuple[int, int], Opening]) -> None:
        """Asks the parties themselves for what no bundle shows; a silent one stays silent."""
        view, checked = round_.view, round_.checked
        owners = (view.posting.worker, *(m.owner for m in view.sealing.committee))
        for party, owner in enumerate(owners):
            for place in sorted(round_.lengths):
                if (party, place) in shown:
                    continue
                item = checked[place] if party == 0 else place
                try:
                    shown[party, place] = await self._fetch(round_, party, owner, place, item)
                except VeriLLMError as error:
                    log.info("opening_missing", extra={"party": party, "error": str(error)})

    async def _fetch(
        self, round_: Round, party: int, owner: ChecksumAddress, place: int, item: int
    ) -> Opening:
        view = round_.view
        endpoint = await blocking(self.registry.endpoint, owner)
        if endpoint is None:
            raise NotFound(f"{owner} has no endpoint on the chain")
        number = view.history.number_of(party)
        task = task_id(view.sealing.secret, view.job_id, number)
        data = await self.link.opening(endpoint, task, item, round_.where(place), ())
        opening = decode_opening(data)
        sealing = view.sealing
        inner = inner_hash(sealing.inner) if party == 0 else sealing.committee[party - 1].inner
        check_opening(opening, inner, self.spec.shape)
        return opening

    def _opened(self, view: View) -> bool:
        """Whether this worker opened the challenge, so that the work is its own."""
        opened = view.history.challenged
        return opened is not None and opened.event.challenger == self.worker.identity.operator

    # ── Own evidence ─────────────────────────────────────────────────────────────────────────────
    def _own(self, view: View) -> TaskRecord:
        records = self.book.of_job(view.job_id)
        if not records:
            raise NotFound("no task of ours in this job")
        return records[0]

    def _own_openings(self, view: View, own: TaskRecord) -> Mapping[int, Opening]:
        """Everything that we may have to open, by place in the checked order."""
        checked = Round(view, self.spec, {}).checked
        items = checked if own.party == 0 else range(len(checked))
        return {
            place: self.worker.open_everything(own.task.task_id, item)
            for place, item in enumerate(items)
        }
