"""What keeps claims honest: recompute, challenge what is wrong, take part in the public round.

Nobody votes. A challenge is won by openings alone, so whoever recomputed a verdict from them can
challenge without trusting, or being trusted by, anyone. Before it come proofs, which cost nothing
but gas; behind it, where the openings themselves are against us, a larger committee.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from eth_typing import ChecksumAddress

from verillm.appeal import Content
from verillm.chain.appeals import ContentSupplied
from verillm.chain.contract import Call, Chain, Status
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.codec import bundle_hash, decode_bundle, decode_opening
from verillm.errors import EvidenceError, NotFound, VeriLLMError
from verillm.evidence import INFERENCER, Bundle, gather
from verillm.model import ModelSpec
from verillm.records import Claiming, Posting, Sealing
from verillm.task import inner_hash, task_id
from verillm.trace import Opening, check_opening
from verillm.types import ATTESTED, JobId, Outcome, Reason
from verillm.verdict import judge_states, paid_mask
from verillm_node import own as ours
from verillm_node.judging import Case
from verillm_node.link import Link
from verillm_node.plead import Pleader
from verillm_node.prosecute import Prosecutor
from verillm_node.registry import Registry
from verillm_node.rounds import (
    Openings,
    Round,
    due_comparisons,
    due_reveals,
    due_services,
    is_complete,
)
from verillm_node.sending import send_all
from verillm_node.stakes import stand
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.threads import blocking
from verillm_node.view import View, is_forced, look
from verillm_node.words import Words
from verillm_node.worker import Worker

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""Between two attempts to get a bundle that its scheduler did not show."""
_TOKENS = (Reason.MARGIN_MEAN, Reason.MARGIN_MAX, Reason.OUTSIDE_NUCLEUS)
_MILD = (Outcome.NONE, Outcome.ACCEPT, Outcome.INCONCLUSIVE)


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
    words: Words
    prosecutor: Prosecutor | None
    pleader: Pleader
    forced_every: int = 0
    examined: set[tuple[JobId, bytes]] = field(default_factory=set)
    """Claims already looked at: job and record."""
    searched: set[tuple[JobId, bytes | None, int]] = field(default_factory=set)
    """Evidence already searched for proofs: job, bundle, texts on the chain."""
    bundles: dict[JobId, tuple[float, bytes | None]] = field(default_factory=dict)
    """Bundles of disputed jobs, and when they were asked for."""
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
                await self._close(view)
            case Status.CLAIMED if view.is_late and is_forced(view, self.forced_every):
                # Whoever wants its pay opens it; all but the first are refused.
                await self._send(self.chain.calls.challenge, view)
            case Status.CLAIMED:
                await self._examine(view)
            case Status.CHALLENGED:
                await self._take_part(view)
                await self._speak(view)
            case Status.JUDGED if view.is_late and self._opened(view):
                await self._send(self.chain.calls.settle, view)
            case Status.JUDGED if not view.is_late:
                await self._speak(view)
                await self._plead(view, self._own(view), await self._kept(view))
            case Status.REVERIFYING:
                # Not by its scheduler's leave: who was framed by it has until the openings are due.
                if await self._prove(view, self._own(view), None):
                    return
                await self._speak(view)
                await self._supply(view)
            case _:
                pass

    async def _send(self, make: Callable[[Posting, Sealing, Claiming], Call], view: View) -> None:
        await send_all(self.chain, [make(view.posting, view.sealing, view.claiming)])

    async def _close(self, view: View) -> None:
        if self.prosecutor is not None:
            await self.prosecutor.finish(view)
        self.pleader.close(view)
        self.words.forget(view.job_id)
        self.bundles.pop(view.job_id, None)
        self.shown.pop(view.job_id, None)
        self.book.settled(view.job_id)

    # ── A claim ──────────────────────────────────────────────────────────────────────────────────
    async def _examine(self, view: View) -> None:
        key = (view.job_id, bytes(view.state.record))
        if key in self.examined:
            return
        own, data = self._own(view), await self._bundle(view)
        evidence = await blocking(self._evidence, view, own, data)
        if await self._prove(view, own, data, evidence):
            return  # looked at again: the proof may have been too late
        call = await self._challenge(view, own, data, evidence)
        if call is not None:
            await send_all(self.chain, [call])
        else:
            await self._plead(view, own, data)
        wrong = call is not None
        extra = {"job": view.job_id, "wrong": wrong, "claimed": view.claiming.outcome.name}
        log.info("claim_examined", extra=extra)
        self.examined.add(key)

    async def _challenge(
        self, view: View, own: TaskRecord, data: bytes | None, evidence: Bundle | None
    ) -> Call | None:
        """The challenge that a claim deserves, if any."""
        posting, sealing, claim = view.posting, view.sealing, view.claiming
        if await self._is_wrong(view, own, None if data is None else evidence):
            return self.chain.calls.challenge(posting, sealing, claim)
        if data is None or claim.outcome is not Outcome.ACCEPT or not own.party:
            return None
        found = await self.words.reject(view, data)
        if found is None:
            return None
        word, signatures = found
        return self.chain.calls.challenge(
            posting, sealing, claim, word.outcome, word.reason, word.bundle, signatures
        )

    async def _is_wrong(self, view: View, own: TaskRecord, evidence: Bundle | None) -> bool:
        """Whether the contract would compute something else than the claim says.

        Who is accepted is silent: it knows its own work, and a captured committee would thank it.
        """
        claim = view.claiming
        accepted = own.party == INFERENCER and claim.outcome is Outcome.ACCEPT
        if accepted or claim.reason in ATTESTED:
            return False
        expected = None
        if evidence is not None:
            expected = await blocking(public_verdict, evidence, self.words.case(view))
        if expected is None:
            # Nothing to recompute from. Whoever knows its own work is condemned still challenges.
            return own.party == INFERENCER and claim.outcome in (Outcome.SLASH, Outcome.REFUND)
        return expected != (claim.outcome, claim.paid)

    async def _bundle(self, view: View) -> bytes | None:
        """The bytes of the bundle that the claim names, if its scheduler shows them.

        Where nobody claimed, whatever it shows: nothing in it is believed.
        """
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
        claim = view.claiming
        any_will_do = claim.claimer == ZERO_ADDRESS
        return data if any_will_do or bundle_hash(data) == claim.bundle else None

    async def _kept(self, view: View) -> bytes | None:
        """The same, asked for now and then until it is there."""
        asked, data = self.bundles.get(view.job_id, (0.0, None))
        if data is None and time.monotonic() >= asked + AGAIN_SECONDS:
            data = await self._bundle(view)
            self.bundles[view.job_id] = (time.monotonic(), data)
        return data

    # ── What we say unasked ──────────────────────────────────────────────────────────────────────
    async def _speak(self, view: View) -> None:
        """Proofs and the committee's word, while a dispute can hear them."""
        own, data = self._own(view), await self._kept(view)
        if not await self._prove(view, own, data) and own.party and data is not None:
            await self.words.support(view, data)

    async def _prove(
        self,
        view: View,
        own: TaskRecord,
        data: bytes | None,
        evidence: Bundle | None = None,
    ) -> bool:
        """Whether a proof was sent; each evidence is searched once."""
        told = len(view.history.all(ContentSupplied))
        key = (view.job_id, None if data is None else bundle_hash(data), told)
        if self.prosecutor is None or key in self.searched:
            return False
        tokens = False
        if data is not None and own.party and view.claiming.outcome in _MILD:
            tokens = (await self.words.verdict(view, data)).reason in _TOKENS
        sent = False
        if evidence is None:
            evidence = await blocking(self._evidence, view, own, data)
        if evidence is not None:
            parties = ours.parties_of(self.book, view.job_id)
            sent = await self.prosecutor.prosecute(view, evidence, parties, tokens)
        if not sent:  # one that was sent may not be mined
            self.searched.add(key)
        return sent

    def _evidence(self, view: View, own: TaskRecord, data: bytes | None) -> Bundle | None:
        bundle, texts = None, self._contents(view, own, data)
        if data is not None:
            bundle = decode_bundle(data)
        if texts is not None:
            bundle = ours.told(bundle, view, texts, self.spec)
        if bundle is None:
            return None
        return ours.completed(bundle, self.worker, view, self.spec, own)

    async def _plead(self, view: View, own: TaskRecord, data: bytes | None) -> None:
        """Asks for a larger committee where what stands is against us, and worth it."""
        found, party = stand(view), own.party
        if found is None or party is None or not self.pleader.is_due(view, party, found):
            return
        texts = await blocking(self._contents, view, own, data)
        if texts is None:
            log.warning("texts_missing", extra={"job": view.job_id})
            return
        await self.pleader.ask(view, party, found, texts)

    async def _supply(self, view: View) -> None:
        if not await self.pleader.lacks_contents(view):
            return
        data = await self._kept(view)
        texts = await blocking(self._contents, view, self._own(view), data)
        if texts is not None:
            await self.pleader.supply(view, texts)

    def _contents(
        self, view: View, own: TaskRecord, data: bytes | None
    ) -> tuple[Content, ...] | None:
        bundle = None if data is None else decode_bundle(data)
        made = self.worker.committed(own.task.task_id)
        return ours.contents(view, self.spec, own, made, bundle)

    # ── A challenge ──────────────────────────────────────────────────────────────────────────────
    async def _take_part(self, view: View) -> None:
        """Reveals and serves what is ours; whoever has all openings compares and adjudicates."""
        own = self._own(view)
        shown = self.shown.get(view.job_id)
        if shown is None:
            data = await self._kept(view)
            shown = {} if data is None else dict(openings_of(decode_bundle(data)))
            mine = ours.openings(self.worker, view, self.spec, own)
            shown |= {(own.party or INFERENCER, at): opening for at, opening in mine.items()}
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

    def _own(self, view: View) -> TaskRecord:
        return ours.record_of(self.book, view.job_id)
