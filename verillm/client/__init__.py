"""The SDK: deposit, submit, stream, wait, verify, withdraw. Trusts the chain and its own eyes only.

`Client` and `AsyncClient` are one implementation: each operation is a generator of steps (ask the
chain, talk HTTP, sleep) that one of two small drivers carries out. `flows` has the operations,
`handle` a submitted job; what is checked before money can move is in `terms`, what a receipt
proves in `receipts`, and what is proven against a scheduler in `proofs`.
"""

from verillm.client.blocking import Client, JobHandle
from verillm.client.coroutines import AsyncClient, AsyncJobHandle
from verillm.client.handle import STAGES
from verillm.client.proofs import SentProof
from verillm.client.receipts import ReceiptCheck, Settlement
from verillm.client.steps import MAX_FILE, UNREACHABLE, Flow, Step
from verillm.client.terms import QUOTE_MARGIN, Prompt, Scheduler

__all__ = [
    "MAX_FILE",
    "QUOTE_MARGIN",
    "STAGES",
    "UNREACHABLE",
    "AsyncClient",
    "AsyncJobHandle",
    "Client",
    "Flow",
    "JobHandle",
    "Prompt",
    "ReceiptCheck",
    "Scheduler",
    "SentProof",
    "Settlement",
    "Step",
]
