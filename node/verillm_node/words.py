"""What a majority of a committee signs of tokens: the contract takes its word, for a refund."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from verillm.chain.contract import Chain
from verillm.chain.events import Supported
from verillm.codec import bundle_hash
from verillm.errors import VeriLLMError
from verillm.model import ModelSpec
from verillm.records import Attestation, Member
from verillm.signing import sign, verify
from verillm.tokens import Head
from verillm.types import ATTESTED, Hash32, JobId, Reason
from verillm.verdict import Verdict, quorum
from verillm_node.judging import Case, verdict_of
from verillm_node.link import Link
from verillm_node.registry import Registry, hot_key_of
from verillm_node.sending import send_all
from verillm_node.threads import blocking
from verillm_node.view import View
from verillm_node.worker import Identity

log = logging.getLogger(__name__)

AGAIN_SECONDS = 15.0
"""Between two attempts to get the others' words: they answer six times a minute."""

Word = tuple[Attestation, Sequence[bytes]]


def is_supported(view: View) -> bool:
    """Whether a round was given the committee's word, or a proof's, when it began or since."""
    opened = view.history.challenged
    brought = opened is not None and opened.event.reason != Reason.NONE
    return brought or view.history.first(Supported) is not None


def has_reason(view: View) -> bool:
    """Whether a claim or a round brought the committee's word, or a proof's, with it."""
    return is_supported(view) or view.claiming.reason in ATTESTED


@dataclass(frozen=True, slots=True)
class Words:
    """A member's way to the words of the others; `chain` sends with its hot key."""

    chain: Chain
    spec: ModelSpec
    identity: Identity
    registry: Registry
    link: Link
    head: Head | None
    _judged: dict[tuple[JobId, Hash32], Verdict] = field(default_factory=dict)
    _asked: dict[JobId, float] = field(default_factory=dict)

    def case(self, view: View) -> Case:
        """What a bundle is judged against."""
        beacon = view.claiming.beacon
        return Case(view.posting, view.sealing, self.spec, self.identity.domain, beacon)

    async def verdict(self, view: View, data: bytes) -> Verdict:
        """Our verdict on a bundle, computed once."""
        key = (view.job_id, bundle_hash(data))
        if key not in self._judged:
            self._judged[key] = await blocking(verdict_of, data, self.case(view), self.head)
        return self._judged[key]

    def forget(self, job_id: JobId) -> None:
        """Drops what was kept of a job that is over."""
        self._asked.pop(job_id, None)
        for key in [key for key in self._judged if key[0] == job_id]:
            del self._judged[key]

    async def reject(self, view: View, data: bytes) -> Word | None:
        """What a majority signs against the tokens alone, if our own verdict is against them."""
        verdict = await self.verdict(view, data)
        if verdict.reason not in ATTESTED:
            return None
        word = Attestation(view.job_id, verdict.outcome, verdict.reason, bundle_hash(data))
        members = view.sealing.committee
        signatures = await asyncio.gather(*(self._word_of(each, word, data) for each in members))
        if sum(map(bool, signatures)) < quorum(len(members)):
            return None
        return word, signatures

    async def support(self, view: View, data: bytes) -> None:
        """Brings the committee's word into a round that was opened without it.

        Who brings it stands in the challenger's place where it decides; without it whoever forged
        tokens could challenge itself first, with nothing, and be accepted by its states.
        """
        last = self._asked.get(view.job_id)
        if has_reason(view) or (last is not None and time.monotonic() < last + AGAIN_SECONDS):
            return
        self._asked[view.job_id] = time.monotonic()
        found = await self.reject(view, data)
        if found is not None:
            word, signatures = found
            extra = {"job": view.job_id, "reason": word.reason.name}
            log.info("round_supported", extra=extra)
            record = (view.posting, view.sealing, view.claiming)
            await send_all(self.chain, [self.chain.calls.attest(*record, word, signatures)])

    async def _word_of(self, member: Member, word: Attestation, data: bytes) -> bytes:
        """One member's signature under our verdict, empty if it has another one or is away."""
        identity = self.identity
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
