"""A worker's eyes on the chain: whose commitments are posted and sealed, which jobs are ours."""

import logging
import threading
from typing import Any

from verillm.chain.contract import Chain
from verillm.chain.events import At, Posted, Sealed, stream
from verillm.records import Sealing
from verillm.task import inner_hash, task_id, task_numbers
from verillm.types import Hash32, JobId
from verillm_node.store import Database
from verillm_node.tasks import TaskBook

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
            self._book.on_chain(event.posting.commitment)
        elif isinstance(event, Sealed):
            self._see_seal(event.job_id, event.sealing)

    def _see_seal(self, job_id: JobId, sealing: Sealing) -> None:
        """Finds own commitments among the sealed: by task id, then by what was committed to."""
        inners = (inner_hash(sealing.inner), *(each.inner for each in sealing.committee))
        for party, inner in enumerate(inners):
            for number in task_numbers(party, len(sealing.committee)):
                if self._own_inner(sealing.secret, job_id, number) == inner:
                    self._book.sealed(task_id(sealing.secret, job_id, number), job_id, party)
                    log.info("sealed", extra={"job": job_id, "party": party})

    def _own_inner(self, secret: Hash32, job_id: JobId, number: int) -> Hash32 | None:
        record = self._book.find(task_id(secret, job_id, number))
        if record is None or record.commitment is None:
            return None
        return inner_hash(record.commitment.inner)
