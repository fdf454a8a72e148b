"""Work that no job pays for: its worker claims it from the scheduler's stake.

The chain is read each time: what is claimed, contested or collected stands there.
"""

import logging
from dataclasses import dataclass

from verillm.chain.contract import Chain
from verillm.chain.deployment import Config
from verillm.errors import VeriLLMError
from verillm_node.sending import send_all
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.threads import blocking
from verillm_node.worker import Worker

log = logging.getLogger(__name__)


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
