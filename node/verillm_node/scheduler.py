"""One job's life: quote → accept → infer → post → draw → seal → judge → claim → finalize.

Each open job has one driver, a loop that looks at the store and at the chain, asks `next_step` what
is due, does it, and looks again. It starts in the same way for a new job and after a crash.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine

from verillm.api import (
    AcceptedEvent,
    ErrorBody,
    FailedEvent,
    JobEvent,
    JobStatus,
    JobSubmission,
    SignedQuote,
    StageEvent,
)
from verillm.chain.contract import Status
from verillm.errors import (
    DeadlinePassedError,
    InputError,
    NotFound,
    NoWorkers,
    SignatureError,
    TransactionFailed,
    VeriLLMError,
)
from verillm.request import Quote
from verillm.settlement import bond_of, least_lock
from verillm.signing import job_id as job_id_of, sign, struct_hash
from verillm.task import derive_secret, draw_commit
from verillm.types import JobId, ModelId
from verillm_node import committee, inference, settlement, summons
from verillm_node.context import Context
from verillm_node.disguise import FEE_FACTOR, most_lock
from verillm_node.errors import ContractWallet, Overloaded, Stopped
from verillm_node.feed import Feed
from verillm_node.flow import Flow
from verillm_node.intake import (
    ClientStanding,
    check_client,
    check_job,
    check_times,
)
from verillm_node.jobs import CLOSED, FAILED
from verillm_node.registry import free_stake, staying_stake
from verillm_node.settle import Known, Seen, Step, next_step
from verillm_node.threads import blocking
from verillm_node.view import View, beacon_blocks, is_forced, look

log = logging.getLogger(__name__)

LONGEST_BACKOFF = 10.0
_STAGES = ("posted", "sealed", "claimed", "challenged", "judged", "finalized")


class Scheduler:
    """Quotes, takes and settles jobs; lives on one event loop."""

    def __init__(self, context: Context, master: bytes, group: asyncio.TaskGroup) -> None:
        self.context = context
        self._master, self._group = master, group
        self._rota = inference.Rota(context.settings.fair_turns)
        self._flows: dict[JobId, Flow] = {}
        self._taking = asyncio.Lock()

    # ── Quotes ───────────────────────────────────────────────────────────────────────────────────
    async def quote(self, model_id: ModelId) -> SignedQuote:
        """A signed offer, good for one job; its draw secret is fixed from here on."""
        context = self.context
        offer = context.offer(model_id)
        now = await blocking(context.chain.now)
        nonce = secrets.token_bytes(32)
        quote = Quote(
            scheduler=context.identity.operator,
            model_id=model_id,
            unit_price=offer.unit_price,
            draw_commit=draw_commit(derive_secret(self._master, nonce)),
            expiry=now + context.settings.quote_seconds,
        )
        context.book.forget_quotes(now)
        context.book.add_quote(struct_hash(quote), nonce, quote.expiry)
        return SignedQuote(quote, sign(context.identity.domain, quote, context.identity.hot))

    # ── Jobs in ──────────────────────────────────────────────────────────────────────────────────
    async def submit(self, submission: JobSubmission) -> Feed[JobEvent]:
        """Takes a job, or finds it again; its stream. Raises a coded refusal, nothing spent."""
        context = self.context
        job_id = job_id_of(context.identity.domain, submission.job)
        if context.book.state(job_id) is None:
            await self._take(job_id, submission)
        return self.feed(job_id)

    async def _take(self, job_id: JobId, submission: JobSubmission) -> None:
        context = self.context
        if len(self._flows) >= context.settings.max_jobs:
            raise Overloaded("this scheduler has as many jobs as it can hold")
        offer = context.offer(submission.quote.quote.model_id)
        await asyncio.to_thread(
            check_job,
            submission,
            offer.spec,
            context.identity.domain,
            context.identity.operator,
            context.identity.hot.address,
        )
        await context.check_client(submission)
        # One at a time, so that two jobs cannot count on the same deposit.
        async with self._taking:
            if context.book.state(job_id) is not None:  # a copy of it came in meanwhile
                return
            await self._check_funds(submission)
            context.book.open(job_id, submission)
        flow = self._flow(job_id, submission)
        await flow.emit(AcceptedEvent(job_id))
        self._drive(flow)

    async def _check_funds(self, submission: JobSubmission) -> None:
        context, job, quote = self.context, submission.job, submission.quote.quote
        standing = await blocking(self._client_standing, submission)
        check_times(submission, standing.now, standing.job_window)
        check_client(job, standing)
        lock = least_lock(job.max_fee, context.terms.kappa_bps)
        free = await blocking(self._own_free)
        if free < bond_of(lock, job.max_fee):
            raise Overloaded("this scheduler has too little free stake to bond the job")
        able = await inference.able(context, quote.model_id, quote.unit_price)
        most = most_lock(job.max_fee, context.terms.kappa_bps)
        if not any(member.free >= most for member in able):
            raise NoWorkers("no worker can take this job now")

    def _client_standing(self, submission: JobSubmission) -> ClientStanding:
        context, job = self.context, submission.job
        own = context.identity.operator
        held = context.chain.deposit_of(job.client, own)
        theirs = [
            flow for flow in list(self._flows.values()) if flow.submission.job.client == job.client
        ]
        promised = sum(
            flow.submission.job.max_fee for flow in theirs if "posted" not in flow.stages
        )
        # Of two jobs under one nonce only one can be posted: the other would be served for nothing.
        running = any(flow.submission.job.nonce == job.nonce for flow in theirs)
        return ClientStanding(
            available=held.amount - held.unlocking - promised,
            nonce_used=running or context.chain.nonce_used(job.client, own, job.nonce),
            now=context.chain.now(),
            job_window=context.terms.job_window,
        )

    def _own_free(self) -> int:
        """Stake that can bond another job, also in the eyes of workers.

        They hold each task that is not sealed against our stake, at the fee that it names.
        """
        account = self.context.chain.account_of(self.context.identity.operator)
        can_post = free_stake(account) - self._bonds("posted")
        return min(can_post, staying_stake(account) // FEE_FACTOR - self._bonds("sealed"))

    def _bonds(self, stage: str) -> int:
        """Bonds of the open jobs that have not come to a stage yet."""
        kappa = self.context.terms.kappa_bps
        fees = [
            flow.submission.job.max_fee
            for flow in list(self._flows.values())
            if stage not in flow.stages
        ]
        return sum(bond_of(least_lock(fee, kappa), fee) for fee in fees)

    # ── Jobs out ─────────────────────────────────────────────────────────────────────────────────
    def feed(self, job_id: JobId) -> Feed[JobEvent]:
        """A job's stream: live while it is open, from the store afterwards; raises `NotFound`."""
        if job_id in self._flows:
            return self._flows[job_id].feed
        if self.context.book.state(job_id) is None:
            raise NotFound("no such job here")
        return Feed(self.context.book.events(job_id), closed=True)

    def status(self, job_id: JobId) -> JobStatus:
        """Where a job stands here; raises `NotFound`."""
        state = self.context.book.state(job_id)
        if state is None:
            raise NotFound("no such job here")
        events = self.context.book.events(job_id)
        stage, error = "accepted", None
        for event in events:
            if isinstance(event, StageEvent):
                stage = event.stage
            elif isinstance(event, FailedEvent):
                stage, error = "failed", event.error
            elif stage == "accepted" and not isinstance(event, AcceptedEvent):
                stage = "running"
        return JobStatus(job_id, stage, len(events), error)

    def bundle(self, job_id: JobId) -> bytes:
        """A job's bundle; raises `NotFound`."""
        try:
            return self.context.bundle_path(job_id).read_bytes()
        except FileNotFoundError as error:
            raise NotFound("no bundle of this job here yet") from error

    def metrics(self) -> dict[str, float]:
        """Figures for Prometheus."""
        counts = self.context.book.counts()
        return {f'verillm_jobs{{state="{state}"}}': float(many) for state, many in counts.items()}

    # ── Driving ──────────────────────────────────────────────────────────────────────────────────
    def resume(self) -> None:
        """Goes on with every open job after a start."""
        for job_id in self.context.book.open_jobs():
            submission = self.context.book.find(job_id)
            if submission is not None:
                log.info("job_resumed", extra={"job": job_id})
                self._drive(self._flow(job_id, submission))

    def take_up(self, job_id: JobId) -> None:
        """Goes on with a job that was opened again."""
        submission = self.context.book.find(job_id)
        if job_id not in self._flows and submission is not None:
            log.info("job_taken_up", extra={"job": job_id})
            self._drive(self._flow(job_id, submission))

    def _flow(self, job_id: JobId, submission: JobSubmission) -> Flow:
        nonce = self.context.book.nonce_of(submission.job.quote)
        secret = derive_secret(self._master, nonce)
        flow = Flow(job_id, submission, secret, self.context.book)
        self._flows[job_id] = flow
        return flow

    def _drive(self, flow: Flow) -> None:
        self._group.create_task(self._drive_on(flow), name=f"job {flow.job_id.hex()[:8]}")

    async def _drive_on(self, flow: Flow) -> None:
        pause = poll = self.context.settings.chain.poll_seconds
        while True:
            try:
                if await self._advance(flow):
                    break
                pause = poll
            except Stopped:
                return
            except VeriLLMError as error:
                extra = {"job": flow.job_id, "code": error.code, "error": str(error)}
                log.warning("step_failed", extra=extra)
                pause = min(2 * pause, LONGEST_BACKOFF)
            except Exception:  # unforeseen, and still no reason to end everybody else's jobs
                log.exception("step_crashed", extra={"job": flow.job_id})
                pause = LONGEST_BACKOFF
            await asyncio.sleep(pause)
        self._flows.pop(flow.job_id, None)

    async def _advance(self, flow: Flow) -> bool:
        """Does the step that is due; whether it was the last."""
        view, seen = await blocking(self._look, flow.job_id)
        await self._announce(flow, view)
        step = next_step(self._known(flow, view), seen)
        if step is Step.WAIT:
            return False
        log.info("step", extra={"job": flow.job_id, "step": step})
        return await self._do(step, flow, view, seen)

    def _look(self, job_id: JobId) -> tuple[View, Seen]:
        view = look(self.context.chain, job_id)
        left = beacon_blocks(self.context.chain, view)
        state, forced = view.state, is_forced(view, self.context.terms.forced_every)
        return view, Seen(state.status, state.deadline, view.now, left, forced)

    def _known(self, flow: Flow, view: View) -> Known:
        parties = self.context.book.parties(flow.job_id)
        inferred = bool(parties) and parties[0].k == 0 and parties[0].commitment is not None
        verified = overdue = False
        if view.state.status in (Status.POSTED, Status.SUMMONED):
            verified = committee.is_complete(self.context, flow, view, parties)
            overdue = view.now >= committee.asked_until(self.context, view)
        job, quote = flow.submission.job, flow.submission.quote.quote
        return Known(
            inferred=inferred,
            verified=verified,
            overdue=overdue,
            judged=settlement.judged(self.context, flow, view.state.record) is not None,
            deadline=min(job.deadline, quote.expiry),
            claimed=flow.claimed is not None,
        )

    async def _do(self, step: Step, flow: Flow, view: View, seen: Seen) -> bool:
        context = self.context
        match step:
            case Step.INFER:
                return await self._infer(flow)
            case Step.POST | Step.POST_CLAIMED:
                return await self._post(flow)
            case Step.GIVE_UP:
                return await self._fail(flow, DeadlinePassedError(flow.submission.job.deadline))
            case Step.JUDGE:
                await settlement.judge_job(context, flow, view, seen.beacon_blocks == 0)
            case Step.CLOSE:
                context.book.close(flow.job_id, CLOSED)
                return True
            case _:
                await self._steps()[step](context, flow, view)
        return False

    @staticmethod
    def _steps() -> "dict[Step, Callable[[Context, Flow, View], Coroutine[None, None, None]]]":
        return {
            Step.VERIFY: committee.verify,
            Step.SUMMON: summons.attend,
            Step.SEAL: settlement.seal,
            Step.DISMISS: settlement.dismiss,
            Step.REFUND: settlement.refund,
            Step.KEEP: settlement.keep,
            Step.CLAIM: settlement.claim,
            Step.FINALIZE: settlement.finalize,
            Step.OPEN: settlement.open_forced,
            Step.DEFEND: settlement.defend,
            Step.SETTLE: settlement.settle,
            Step.SERVE: settlement.serve_bundle,
            Step.VOID: settlement.void_claim,
        }

    async def _infer(self, flow: Flow) -> bool:
        try:
            await inference.infer(self.context, self._rota, flow)
        except inference.Hopeless as error:
            return await self._fail(flow, error.error)
        return False

    async def _post(self, flow: Flow) -> bool:
        try:
            await (settlement.post if flow.claimed is None else settlement.post_claimed)(
                self.context, flow
            )
        except (ContractWallet, InputError, SignatureError) as error:  # can never be posted
            return await self._fail(flow, error)
        except TransactionFailed as error:
            if flow.claimed is None:
                raise
            return await self._fail(flow, error)  # somebody else answered the claim
        return False

    async def _fail(self, flow: Flow, error: VeriLLMError) -> bool:
        """Ends a job that never reached the chain: nothing was taken from anyone."""
        log.warning("job_failed", extra={"job": flow.job_id, "code": error.code})
        await flow.emit(FailedEvent(ErrorBody.of(error)), last=True)
        self.context.book.close(flow.job_id, FAILED)
        return True

    async def _announce(self, flow: Flow, view: View) -> None:
        """Tells the client each stage once, from what the chain shows."""
        for name in _STAGES:
            at = getattr(view.history, name)
            stage = "final" if name == "finalized" else name
            if at is None or stage in flow.stages:
                continue
            event = StageEvent(
                stage,
                at.transaction,
                at.block_number,
                getattr(getattr(at.event, "claiming", at.event), "outcome", 0),
                getattr(getattr(at.event, "claiming", at.event), "reason", 0),
            )
            await flow.emit(event, last=stage == "final")
