"""A committee member's word on a bundle: judged by itself, once for each bundle."""

import asyncio
from collections import OrderedDict
from typing import Final

from verillm.api import SignedAttestation
from verillm.chain.contract import Chain
from verillm.codec import bundle_hash
from verillm.errors import NotFound
from verillm.model import ModelSpec
from verillm.records import Attestation
from verillm.signing import sign
from verillm.tokens import Head
from verillm.types import Hash32, JobId
from verillm.verdict import Verdict
from verillm_node.errors import TooManyRequests
from verillm_node.judging import Case, verdict_of
from verillm_node.tasks import TaskBook
from verillm_node.threads import blocking
from verillm_node.view import look
from verillm_node.worker import Identity

KEPT: Final = 256
ROOM: Final = 1 << 20
ROOM_PER_POSITION: Final = 2048
"""Over its states: tokens, digests and a Merkle path of at most 32 nodes."""
MOST_WAITING: Final = 4
"""Bundles in memory at the same time: one is judged, the others wait."""
RETRY_SECONDS: Final = 10.0


class Attester:
    """Signs verdicts that it recomputed itself, for jobs whose committee it sits on."""

    def __init__(
        self, chain: Chain, identity: Identity, spec: ModelSpec, head: Head | None, book: TaskBook
    ) -> None:
        self._chain, self._identity, self._spec, self._head = chain, identity, spec, head
        self._book = book
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._given: OrderedDict[tuple[JobId, Hash32, Hash32], SignedAttestation] = OrderedDict()

    def room(self, job_id: JobId) -> int:
        """The most bytes that a bundle of a job can have; raises `NotFound` if it is not ours.

        From our own task, which holds everything that was checked; costs no look at the chain.
        """
        own = next((each for each in self._book.of_job(job_id) if each.party), None)
        if own is None:
            raise NotFound("this worker is not on the committee of such a job")
        shape = self._spec.shape
        states = 2 * shape.hidden + 2 * shape.layers * shape.slice_dims
        parties = self._spec.committee + 1
        return ROOM + parties * (states + ROOM_PER_POSITION) * sum(i.length for i in own.task.items)

    async def attest(self, job_id: JobId, data: bytes) -> SignedAttestation:
        """Judges a bundle; the same one again gets the same word, as long as the seal stands."""
        if self._waiting >= MOST_WAITING:
            raise TooManyRequests(RETRY_SECONDS)
        self._waiting += 1
        try:
            async with self._turn:
                return await blocking(self._attest, job_id, data)
        finally:
            self._waiting -= 1

    def _attest(self, job_id: JobId, data: bytes) -> SignedAttestation:
        view, digest = look(self._chain, job_id), bundle_hash(data)
        sealed = view.history.sealed
        if sealed is None:
            raise NotFound("this job is not sealed")
        key = (job_id, sealed.block_hash, digest)
        if key not in self._given:
            domain = self._identity.domain
            case = Case(view.posting, view.sealing, self._spec, domain, sealed.block_hash)
            verdict = verdict_of(data, case, self._head)
            self._given[key] = self._signed(job_id, verdict, digest)
            while len(self._given) > KEPT:
                self._given.popitem(last=False)
        return self._given[key]

    def _signed(self, job_id: JobId, verdict: Verdict, digest: Hash32) -> SignedAttestation:
        identity = self._identity
        word = Attestation(job_id, verdict.outcome, verdict.reason, digest)
        signature = sign(identity.domain, word, identity.hot)
        return SignedAttestation(
            identity.operator, job_id, verdict.outcome, verdict.reason, digest, signature
        )
