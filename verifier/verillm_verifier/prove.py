"""`verillm-audit prove`: which objective proofs a job's evidence holds, tried on chain, and sent.

A proof that the chain would refuse is told with the refusal, and never sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verillm import api
from verillm.api.events import ReceiptEvent
from verillm.chain.calls import Call
from verillm.chain.contract import Chain
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.codec import decode_bundle
from verillm.errors import InputError
from verillm.head import HeadRows
from verillm.proofs.find import SCHEDULER, Case, Proof, proofs, receipt_proof
from verillm.proofs.rivals import ProvenHead
from verillm.types import ChecksumAddress, Hash32
from verillm_verifier.facts import Facts, round_claim


@dataclass(frozen=True, slots=True)
class Tried:
    """A proof with what the chain says of it: nothing, or why it refuses."""

    proof: Proof
    call: Call
    refusal: str
    transaction: Hash32 | None = None

    @property
    def holds(self) -> bool:
        """Whether the chain would believe it now."""
        return not self.refusal

    @property
    def against(self) -> str:
        """Whom it convicts, in words."""
        if self.proof.party is None:
            return "the claim"
        if self.proof.party == SCHEDULER:
            return "the scheduler"
        return f"verifier {self.proof.party}" if self.proof.party else "the inferencer"

    def line(self) -> str:
        """For people."""
        end = self.refusal or "holds"
        if self.transaction is not None:
            end = f"sent in {api.to_hex(self.transaction)}"
        return f"{self.proof.name} against {self.against}: {self.proof.fact}: {end}"

    def to_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "proof": self.proof.name,
            "against": self.against,
            "reason": self.proof.reason.name.lower(),
            "fact": self.proof.fact,
            "refusal": self.refusal,
            "to": self.call.to,
            "data": "0x" + self.call.data.hex(),
            "transaction": None if self.transaction is None else api.to_hex(self.transaction),
        }


def case_of(facts: Facts, raw: bytes) -> Case:
    """The job with its bundle; MalformedError for bytes that are none."""
    if facts.sealing is None:
        raise InputError("a job that is not sealed has nothing to prove")
    return Case(decode_bundle(raw), facts.posting, facts.sealing, facts.spec, facts.domain)


def find(
    facts: Facts, raw: bytes, head: HeadRows | None, receipt: Path | None = None
) -> Iterator[Proof]:
    """Every proof that the evidence holds, and one of a receipt."""
    case = case_of(facts, raw)
    yield from proofs(case, None if head is None else ProvenHead(head))
    if receipt is not None:
        said = read_receipt(receipt)
        found = receipt_proof(case, said.receipt, said.signature)
        if found is not None:
            yield found


def read_receipt(path: Path) -> ReceiptEvent:
    """A receipt as the scheduler's API gave it, from a file."""
    try:
        return ReceiptEvent.from_json(api.loads(path.read_bytes(), "receipt"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def attempt(chain: Chain, facts: Facts, proof: Proof, sender: ChecksumAddress) -> Tried:
    """What the chain would say to a proof now."""
    sealing = facts.sealing
    if sealing is None:
        raise InputError("a job that is not sealed has nothing to prove")
    call = chain.calls.prove(facts.posting, sealing, round_claim(facts), proof)
    refusal = chain.refusal(call, sender)
    return Tried(proof, call, "" if refusal is None else f"refused: {refusal}")


def prove(chain: Chain, facts: Facts, found: Iterator[Proof], send: bool) -> Iterator[Tried]:
    """Try each proof; send the first that holds, since it may end the job."""
    sender = chain.sender.address if send else ZERO_ADDRESS
    sent = False
    for proof in found:
        tried = attempt(chain, facts, proof, sender)
        if send and tried.holds and not sent:
            sent = True
            tried = Tried(proof, tried.call, "", chain.send(tried.call).transaction)
        yield tried
