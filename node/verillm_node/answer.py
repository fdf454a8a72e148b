"""A worker's ear on the chain: it runs a summons that names it and answers there, or is fined.

A summoned task is run whatever its own deadline and lock: the chain has taken both over.
"""

import logging
from dataclasses import dataclass

from verillm.api import CommitmentEvent, FailedEvent, TaskSubmission
from verillm.chain.contract import Chain, Status
from verillm.chain.events import Summoned, stream
from verillm.errors import VeriLLMError, WorkerFailed
from verillm.records import Posting
from verillm.types import ChecksumAddress, JobId
from verillm_node.follow import REREAD_BLOCKS
from verillm_node.sending import send_all
from verillm_node.threads import blocking
from verillm_node.view import look
from verillm_node.worker import Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A summons of ours that waits for its answer."""

    event: Summoned
    scheduler: ChecksumAddress


class Answering:
    """Looks for summonses of one worker and answers them, one after the other."""

    def __init__(self, chain: Chain, worker: Worker) -> None:
        self._chain, self._worker = chain, worker
        self._from = chain.deployment.block
        self._open: dict[tuple[JobId, int, int], Summoned] = {}

    async def round(self) -> None:
        """Answers every open summons of ours."""
        for waiting in await blocking(self._waiting):
            try:
                await self._answer(waiting)
            except VeriLLMError as error:
                extra = {"job": waiting.event.job_id, "code": error.code, "error": str(error)}
                log.warning("answer_failed", extra=extra)

    def _waiting(self) -> list[Waiting]:
        """Summonses that are ours, unanswered, and of jobs that wait for them."""
        newest = self._chain.block().number
        for at in stream(self._chain, (Summoned,), self._from, newest):
            event = at.event
            if event.owner == self._worker.identity.operator:
                self._open[event.job_id, event.index, event.answer_by] = event
        # What a reorganisation may put elsewhere is read again.
        self._from = max(self._chain.deployment.block, newest - REREAD_BLOCKS)
        found = []
        for key, event in list(self._open.items()):
            waiting = self._look(event)
            if waiting is None:
                del self._open[key]
            else:
                found.append(waiting)
        return found

    def _look(self, event: Summoned) -> Waiting | None:
        if self._chain.job_state(event.job_id).status is not Status.SUMMONED:
            return None
        place = self._chain.places_of(event.job_id)[event.index]
        if place.owner != event.owner or not place.pending:
            return None
        posting: Posting = look(self._chain, event.job_id).posting
        return Waiting(event, posting.quote.scheduler)

    async def _answer(self, waiting: Waiting) -> None:
        event = waiting.event
        submission = TaskSubmission(event.whole_task, waiting.scheduler, event.signature)
        log.info("summoned", extra={"job": event.job_id, "place": event.index})
        async for numbered in self._worker.summoned(submission).follow():
            each = None if numbered is None else numbered[1]
            if isinstance(each, FailedEvent):
                raise WorkerFailed(f"{each.error.code}: {each.error.message}")
            if isinstance(each, CommitmentEvent):
                calls = self._chain.calls
                call = calls.answer(event.job_id, event.index, each.inner, each.signature)
                await send_all(self._chain, [call])
                return
        raise WorkerFailed("a summoned task ended without a commitment")
