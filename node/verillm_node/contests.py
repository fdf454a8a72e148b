"""A scheduler's answers to claims on its stake: a job that says otherwise, or a trial.

What a worker computed and we did not post is owed, and paid by letting its claim be. But a worker
that kept silent may claim for tokens that it made up: what never came here is posted at our cost,
so that a committee judges it.
"""

import logging
from collections.abc import Callable

from verillm.api import CommitmentEvent, TokenEvent
from verillm.chain.contract import Call, Status
from verillm.chain.events import TaskClaimed, stream
from verillm.errors import WorkerFailed
from verillm.hashing import tokens_of
from verillm.proofs.shown import HashedTask
from verillm.records import Sealing
from verillm.task import MAX_REPLACED, Inner, derive_secret, inference_task, task_id
from verillm.types import Hash32, JobId
from verillm_node.context import Context
from verillm_node.flow import Attempt, Text
from verillm_node.inference import signed
from verillm_node.jobs import FAILED, ClaimedWork, Party
from verillm_node.sending import send_all
from verillm_node.threads import blocking
from verillm_node.view import NO_HASH, View, look

log = logging.getLogger(__name__)

_NUMBERS = range(1 + 7 + MAX_REPLACED)
"""Of all tasks that a job can have: a committee has at most seven members."""
_UNSEALED = Sealing(NO_HASH, NO_HASH, Inner(NO_HASH, NO_HASH, 0, 0, 0), 0, 0, ())


class Contests:
    """Looks for claims on our stake; `resume` drives a job of ours again."""

    def __init__(self, context: Context, master: bytes, resume: Callable[[JobId], None]) -> None:
        self._context, self._master, self._resume = context, master, resume
        self._from = context.chain.deployment.block
        self._open: dict[Hash32, TaskClaimed] = {}
        self._said: set[tuple[Hash32, str]] = set()

    async def round(self) -> None:
        """Answers every open claim that can be answered now."""
        calls, trials = await blocking(self._due)
        for call in calls:
            await send_all(self._context.chain, [call])
        for job_id in trials:
            self._resume(job_id)

    def _due(self) -> tuple[list[Call], list[JobId]]:
        chain = self._context.chain
        newest = chain.block().number
        for at in stream(chain, (TaskClaimed,), self._from, newest):
            if at.event.scheduler == self._context.identity.operator:
                self._open[at.event.commitment] = at.event
        self._from = newest + 1
        calls, trials = [], []
        for commitment, event in list(self._open.items()):
            claim = chain.task_claim_of(commitment)
            if claim is None or not claim.amount:
                del self._open[commitment]
                continue
            job_id = self._job_of(event)
            if job_id is None:
                self._say(event, "of no job of ours")
                continue
            view = look(chain, job_id)
            if view.state.status is Status.NONE:
                if self._is_tried(event, job_id):
                    trials.append(job_id)
                continue
            call = chain.calls.contest_task(commitment, view.posting, _sealing(view), view.claiming)
            if self._holds(event, call):
                calls.append(call)
        return calls, trials

    def _job_of(self, event: TaskClaimed) -> JobId | None:
        for job_id, nonce in self._context.book.every_job():
            secret = derive_secret(self._master, nonce)
            if any(task_id(secret, job_id, each) == event.task.task_id for each in _NUMBERS):
                return job_id
        return None

    def _holds(self, event: TaskClaimed, call: Call) -> bool:
        """Whether the contract takes it now; a job that is not final may say more later."""
        refusal = self._context.chain.refusal(call)
        if refusal is not None:
            self._say(event, f"not answered: {refusal}")
        return refusal is None

    def _say(self, event: TaskClaimed, said: str) -> None:
        if (event.commitment, said) not in self._said:
            self._said.add((event.commitment, said))
            extra = {"commitment": event.commitment, "worker": event.worker, "said": said}
            log.info("claim_on_us", extra=extra)

    # ── A trial ──────────────────────────────────────────────────────────────────────────────────
    def _is_tried(self, event: TaskClaimed, job_id: JobId) -> bool:
        """Writes that a job is to be posted as it was claimed, where that is right and worth it."""
        book, settings = self._context.book, self._context.settings
        submission = book.find(job_id)
        if submission is None or book.state(job_id) != FAILED or not settings.judge_claims:
            return False
        work = ClaimedWork(event.commitment, tuple(map(tokens_of, event.outputs)))
        told = Text.of(len(submission.requests), book.events(job_id))
        if [*map(tuple, told.tokens)] == [*work.outputs]:
            self._say(event, "owed: these tokens came here, and were not posted")
            return False
        job, quote = submission.job, submission.quote.quote
        tokens = event.inner.prompt_tokens + event.inner.new_tokens
        cost = job.max_fee - min(job.max_fee, quote.unit_price * tokens)
        if cost > event.amount:
            self._say(event, f"paid: a trial would cost {cost}, it wants {event.amount}")
            return False
        party = self._party(event, job_id)
        call = self._context.chain.calls.post_claimed(job, quote, event.commitment)
        if party is None or not self._can_be_run(event, job_id, work):
            return False
        if not self._holds(event, call):
            return False
        commitment = CommitmentEvent(event.inner, event.leaves, event.signature)
        book.adopt(job_id, party, commitment, work)
        self._say(event, f"tried: these tokens never came here; it wants {event.amount}")
        return True

    def _party(self, event: TaskClaimed, job_id: JobId) -> Party | None:
        """The claimed task as we sent it; a member's cannot be posted."""
        book = self._context.book
        submission = book.find(job_id)
        if submission is None:
            return None
        secret = derive_secret(self._master, book.nonce_of(submission.job.quote))
        sent = event.task
        task = inference_task(
            secret, job_id, submission.requests, event.worker, sent.model_id, sent.deadline,
            sent.lock, sent.fee,
        )  # fmt: skip
        if HashedTask.of(task) != sent:
            self._say(event, "not the job's own task")
            return None
        return Party(0, event.seat, event.worker, signed(self._context, task), None)

    def _can_be_run(self, event: TaskClaimed, job_id: JobId, work: ClaimedWork) -> bool:
        """Whether a verifier could run the claimed tokens: else the job could not be sealed."""
        submission = self._context.book.find(job_id)
        if submission is None:
            return False
        spec = self._context.offer(submission.quote.quote.model_id).spec
        text = Text([[] for _ in submission.requests])
        attempt = Attempt(text, submission.requests, spec)
        try:
            for item, output in enumerate(work.outputs):
                for index, token in enumerate(output):
                    attempt.add(TokenEvent(item, index, token))
        except WorkerFailed as error:
            self._say(event, f"not tried: {error}")
            return False
        return True


def _sealing(view: View) -> Sealing:
    return _UNSEALED if view.history.sealed is None else view.sealing
