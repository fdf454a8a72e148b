"""A worker's eyes on the chain: whose commitments are posted and sealed, which jobs are ours.

A job that could not pay for our work is no answer to it: the task stays unposted in our book, so
that `Wages` claims its fee.
"""

import logging
import threading
from typing import Any

from verillm.chain.contract import Chain
from verillm.chain.events import At, Posted, Sealed, job_history, stream
from verillm.errors import MalformedError
from verillm.records import Posting, Sealing
from verillm.settlement import could_pay
from verillm.task import inner_hash, task_id, task_numbers
from verillm.types import JobId
from verillm_node.store import Database
from verillm_node.tasks import TaskBook, TaskRecord

log = logging.getLogger(__name__)

REREAD_BLOCKS = 128
"""How far back reading starts again after the chain went back; what is read twice is harmless."""
_CURSOR = "follow.cursor"


class Follower:
    """Reads posts and seals in order; its place survives restarts. Every method blocks."""

    def __init__(self, chain: Chain, database: Database, book: TaskBook) -> None:
        self._chain, self._db, self._book = chain, database, book
        self._lock = threading.Lock()

    def poll(self) -> None:
        """Reads everything up to the newest block."""
        with self._lock:
            newest = self._chain.block()
            first = self._place()
            if first > newest.number:
                return
            for each in stream(self._chain, (Posted, Sealed), first, newest.number):
                self._see(each)
            cursor = newest.number.to_bytes(8, "big") + newest.hash
            self._db.set_note(_CURSOR, cursor)

    def _place(self) -> int:
        start = self._chain.deployment.block
        cursor = self._db.note(_CURSOR)
        if cursor is None:
            return start
        number, digest = int.from_bytes(cursor[:8], "big"), cursor[8:]
        newest = self._chain.block().number
        if number <= newest and self._chain.block(number).hash == digest:
            return number + 1
        log.warning("chain_went_back", extra={"block": number, "newest": newest})
        return max(start, min(number, newest) - REREAD_BLOCKS)

    def _see(self, at: At[Any]) -> None:
        event = at.event
        if isinstance(event, Posted):
            self._see_post(event.job_id, event.posting)
        elif isinstance(event, Sealed):
            self._see_seal(event.job_id, event.sealing)

    def _see_post(self, job_id: JobId, posting: Posting) -> None:
        record = self._book.of_commitment(posting.commitment)
        if record is not None and self._is_paid(record, job_id, posting, 0, posting.seat):
            self._book.on_chain(posting.commitment)

    def _see_seal(self, job_id: JobId, sealing: Sealing) -> None:
        """Finds own commitments among the sealed: by task id, then by what was committed to."""
        inners = (inner_hash(sealing.inner), *(each.inner for each in sealing.committee))
        for party, inner in enumerate(inners):
            for number in task_numbers(party, len(sealing.committee)):
                record = self._book.find(task_id(sealing.secret, job_id, number))
                if record is None or record.commitment is None:
                    continue
                if inner_hash(record.commitment.inner) == inner:
                    paid = self._is_sealed_paid(record, job_id, sealing, party)
                    self._book.sealed(record.task.task_id, job_id, party, paid)
                    log.info("sealed", extra={"job": job_id, "party": party})

    def _is_sealed_paid(
        self, record: TaskRecord, job_id: JobId, sealing: Sealing, party: int
    ) -> bool:
        posted = job_history(self._chain, job_id).posted
        if posted is None:
            raise MalformedError("logs", f"no post of the sealed job {job_id.hex()}")
        posting = posted.event.posting
        seat = sealing.committee[party - 1].seat if party else posting.seat
        return self._is_paid(record, job_id, posting, party, seat)

    def _is_paid(
        self, record: TaskRecord, job_id: JobId, posting: Posting, party: int, seat: int
    ) -> bool:
        """Whether the contract takes the job as an answer to a claim of this task."""
        if record.commitment is None:
            raise RuntimeError(f"task {record.task.task_id.hex()} has no commitment")
        job, quote, inner = posting.job, posting.quote, record.commitment.inner
        tokens = inner.prompt_tokens + inner.new_tokens
        due = min(record.task.fee, self._chain.seat_of(quote.model_id, seat).price * tokens)
        of_job = inner.prompt_tokens if party else tokens
        paid = could_pay(job.max_fee, quote.unit_price, of_job, due)
        if not paid:
            extra = {"job": job_id, "party": party, "max_fee": job.max_fee, "due": due}
            log.warning("job_underpaid", extra=extra)
        return paid
