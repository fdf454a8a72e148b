"""What a receipt proves: checked against the tokens that were streamed, and against the chain."""

from collections.abc import Sequence
from dataclasses import dataclass

from verillm.chain.events import JobHistory
from verillm.errors import EvidenceError
from verillm.request import Receipt
from verillm.task import output_hash, outputs_root, task_id
from verillm.types import Hash32, JobId, Outcome, Reason


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a job ended on chain."""

    outcome: Outcome
    reason: Reason
    transaction: Hash32


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """A receipt that holds: signed, and over the very tokens that were streamed.

    And how far the chain bears it out yet: `posted`, the posting holds all outputs; `sealed`, the
    task id is proven.
    """

    receipt: Receipt
    posted: bool
    sealed: bool


def check_tokens(receipt: Receipt, output: Sequence[int]) -> None:
    """A receipt is over this output; raises EvidenceError."""
    if receipt.output_hash != output_hash(receipt.task_id, output):
        raise EvidenceError(Reason.OUTPUT_MISMATCH, "the receipt is not of these tokens")


def check_history(
    receipt: Receipt, job_id: JobId, outputs: Sequence[Sequence[int]], history: JobHistory
) -> ReceiptCheck:
    """How far the chain bears a receipt out; raises EvidenceError where it says otherwise."""
    if history.posted is None:
        return ReceiptCheck(receipt, posted=False, sealed=False)
    root = outputs_root([output_hash(receipt.task_id, output) for output in outputs])
    if history.posted.event.posting.outputs_root != root:
        raise EvidenceError(Reason.OUTPUT_MISMATCH, "the posting holds other outputs")
    if history.sealed is None:
        return ReceiptCheck(receipt, posted=True, sealed=False)
    secret = history.sealed.event.sealing.secret
    if task_id(secret, job_id, 0) != receipt.task_id:
        raise EvidenceError(Reason.OUTPUT_MISMATCH, "the receipt names another task")
    return ReceiptCheck(receipt, posted=True, sealed=True)
