"""Objective proofs, sent by whoever holds one: they decide without a committee, and pay the finder.

A proof costs its gas alone and is tried before it is sent. Nobody proves its own fault.
"""

import logging
from dataclasses import dataclass, field

from verillm.chain.contract import Call, Chain
from verillm.evidence import INFERENCER, Bundle
from verillm.model import ModelSpec
from verillm.proofs.find import SCHEDULER, Case, Proof, proofs
from verillm.proofs.rivals import ProvenHead
from verillm.signing import Domain
from verillm.types import JobId
from verillm_node.sending import send_all
from verillm_node.threads import blocking
from verillm_node.view import View

log = logging.getLogger(__name__)

_DECIDE = (INFERENCER, SCHEDULER)
"""Parties whose fault ends an open job; a member's waits for the end."""
_MARGINS = ("marginOwn", "marginCommittee")


@dataclass(frozen=True, slots=True)
class Prosecutor:
    """Finds proofs in the evidence of a job and sends them; `chain` sends with the hot key."""

    chain: Chain
    spec: ModelSpec
    domain: Domain
    head: ProvenHead | None
    _later: dict[JobId, list[Proof]] = field(default_factory=dict)
    """Proofs that wait for the end of their job: of a member's fault, or of a second party's."""

    async def prosecute(
        self, view: View, bundle: Bundle, ours: frozenset[int], tokens: bool
    ) -> bool:
        """Whether a proof against another party, or against the claim, was sent.

        `tokens`: search the head for rivals too, which takes a while.
        """
        case = Case(bundle, view.posting, view.sealing, self.spec, self.domain)
        found = await blocking(self._found, view, case, ours, tokens)
        if found is not None:
            await self._send(view, found)
        return found is not None

    async def finish(self, view: View) -> None:
        """Sends what had to wait until the job was over; each party is convicted once."""
        for proof in self._later.pop(view.job_id, ()):
            if await blocking(self._holds, view, proof):
                await self._send(view, proof)

    async def _send(self, view: View, proof: Proof) -> None:
        extra = {"job": view.job_id, "proof": proof.name, "party": proof.party}
        log.info("proof_sent", extra=extra | {"fact": proof.fact})
        await send_all(self.chain, [self._call(view, proof)])

    def _found(self, view: View, case: Case, ours: frozenset[int], tokens: bool) -> Proof | None:
        """The first proof that the chain believes now; what else there is waits for the end."""
        now, later = None, []
        for proof in proofs(case):
            if proof.party in ours:
                continue
            if now is None and proof.party in _DECIDE and self._holds(view, proof):
                now = proof
            else:
                later.append(proof)
        self._later[view.job_id] = later
        if now is None and tokens:
            margins = (each for each in proofs(case, self.head) if each.name in _MARGINS)
            held = (each for each in margins if each.party not in ours and self._holds(view, each))
            now = next(held, None)
        return now

    def _call(self, view: View, proof: Proof) -> Call:
        return self.chain.calls.prove(view.posting, view.sealing, view.claiming, proof)

    def _holds(self, view: View, proof: Proof) -> bool:
        refusal = self.chain.refusal(self._call(view, proof))
        if refusal is not None:
            log.info("proof_refused", extra={"proof": proof.name, "error": str(refusal)})
        return refusal is None
