"""Work that was never posted: its worker claims it from the scheduler's stake, or is refuted.

Both sides read the chain each time: what is claimed, contested or collected stands there.
"""

import logging
from dataclasses import dataclass

from verillm.chain.contract import Call, Chain, Status
from verillm.chain.deployment import Config
from verillm.chain.events import TaskClaimed, stream
from verillm.errors import VeriLLMError
from verillm.records import Sealing
from verillm.task import MAX_REPLACED, Inner, derive_secret, task_id
from verillm.types import ChecksumAddress, Hash32, JobId
from verillm_node.defend import send_all
from verillm_node.jobs import JobBook
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.threads import blocking
from verillm_node.view import NO_HASH, View, look
from verillm_node.worker import Worker

log = logging.getLogger(__name__)

_NUMBERS = range(1 + 7 + MAX_REPLACED)
"""Of all tasks that a job can have: a committee has at most seven members."""
_UNSEALED = Sealing(NO_HASH, NO_HASH, Inner(NO_HASH, NO_HASH, 0, 0, 0), 0, 0, ())


@dataclass(frozen=True, slots=True)
class Wages:
    """A worker's claims; `seats` are its own for the model that it serves."""

    chain: Chain
    terms: Config
    worker: Worker
    book: TaskBook
    seats: tuple[int, ...]

    async def round(self) -> None:
        """Claims what no scheduler posted, collects what nobody contested."""
        now = await blocking(self.chain.now)
        # A claim can be made for `unbonding`, and is open for as long after that.
        span = 2 * self.terms.unbonding
        for record in self.book.unposted(now, self.terms.seal_window, span):
            try:
                await self._look(record, now)
            except VeriLLMError as error:
                extra = {"task": record.task.task_id, "code": error.code, "error": str(error)}
                log.warning("wage_failed", extra=extra)

    async def _look(self, record: TaskRecord, now: int) -> None:
        commitment, event = record.commitment_hash, record.commitment
        if commitment is None or event is None or not self.seats:
            return
        claim = await blocking(self.chain.task_claim_of, commitment)
        calls = self.chain.calls
        if claim is None:
            outputs = await blocking(self.worker.outputs, record.task.task_id)
            call = calls.claim_task(record.submission, self.seats[0], event, outputs)
            log.info("task_claimed", extra={"task": record.task.task_id})
            await send_all(self.chain, [call])
        elif not claim.amount:
            self.book.on_chain(commitment)
        elif now >= claim.collectable_at:
            await send_all(self.chain, [calls.collect_task(commitment)])
            log.info("task_collected", extra={"task": record.task.task_id})


class Contests:
    """A scheduler's answers to such claims, from the jobs that it remembers."""

    def __init__(
        self, chain: Chain, operator: ChecksumAddress, book: JobBook, master: bytes
    ) -> None:
        self._chain, self._operator = chain, operator
        self._book, self._master = book, master
        self._from = chain.deployment.block
        self._open: dict[Hash32, TaskClaimed] = {}

    async def round(self) -> None:
        """Contests every open claim on our stake that a job of ours answers."""
        for call in await blocking(self._due):
            await send_all(self._chain, [call])

    def _due(self) -> list[Call]:
        newest = self._chain.block().number
        for at in stream(self._chain, (TaskClaimed,), self._from, newest):
            if at.event.scheduler == self._operator:
                self._open[at.event.commitment] = at.event
        self._from = newest + 1
        calls = []
        for commitment, event in list(self._open.items()):
            claim = self._chain.task_claim_of(commitment)
            if claim is None or not claim.amount:
                del self._open[commitment]
                continue
            call = self._contest(event)
            if call is not None and self._holds(call):
                calls.append(call)
        return calls

    def _contest(self, event: TaskClaimed) -> Call | None:
        job_id = self._job_of(event)
        view = None if job_id is None else look(self._chain, job_id)
        if view is None or view.state.status is Status.NONE:
            # Only `post_claimed` is left, at our cost: a person decides whether the tokens are
            # worth a trial.
            log.warning("claim_unanswered", extra={"commitment": event.commitment})
            return None
        return self._chain.calls.contest_task(
            event.commitment, view.posting, _sealing(view), view.claiming
        )

    def _job_of(self, event: TaskClaimed) -> JobId | None:
        for job_id, nonce in self._book.every_job():
            secret = derive_secret(self._master, nonce)
            if any(task_id(secret, job_id, each) == event.task.task_id for each in _NUMBERS):
                return job_id
        return None

    def _holds(self, call: Call) -> bool:
        """Whether the contract takes it now; a job that is not final may say more later."""
        try:
            self._chain.simulate(call)
        except VeriLLMError as error:
            log.info("claim_not_contested", extra={"error": str(error)})
            return False
        return True


def _sealing(view: View) -> Sealing:
    return _UNSEALED if view.history.sealed is None else view.sealing
