"""What every step of a scheduler works with."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verillm.api import JobSubmission
from verillm.chain.contract import Call, Chain, Mined
from verillm.chain.deployment import Config
from verillm.chain.wallet import Outbox
from verillm.errors import UnknownModel
from verillm.hashing import keccak
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.types import JobId, ModelId
from verillm_node.config import SchedulerSettings
from verillm_node.errors import Stopped
from verillm_node.intake import check_signature
from verillm_node.jobs import JobBook
from verillm_node.link import Link
from verillm_node.registry import Registry
from verillm_node.threads import blocking
from verillm_node.worker import Identity


@dataclass(frozen=True, slots=True)
class Offer:
    """A model on sale; `head` is there where the scheduler holds the model's folder."""

    model_id: ModelId
    spec: ModelSpec
    unit_price: int
    folder: Path | None
    head: HeadRows | None


@dataclass(frozen=True, slots=True)
class Context:
    """One scheduler's parts."""

    identity: Identity
    settings: SchedulerSettings
    chain: Chain
    terms: Config
    outbox: Outbox
    book: JobBook
    registry: Registry
    link: Link
    offers: Mapping[ModelId, Offer]
    bundles: Path
    stopping: threading.Event

    def offer(self, model_id: ModelId) -> Offer:
        """A model on sale; raises `UnknownModel`."""
        if model_id not in self.offers:
            raise UnknownModel("0x" + model_id.hex())
        return self.offers[model_id]

    async def check_client(self, submission: JobSubmission) -> None:
        """The client's signature holds now; raises `SignatureError` or `ContractWallet`."""
        taken = self.settings.contract_wallets
        await blocking(check_signature, self.chain, submission.job, submission.signature, taken)

    async def transact(
        self, job_id: JobId, call: Call, is_done: Callable[[], bool]
    ) -> Mined | None:
        """Sends a call that takes effect once, however often it is asked for."""
        # The calldata is part of the key: after a reorganisation a step may say other things.
        key = f"{call.name}:0x{job_id.hex()}:{keccak(call.data).hex()[:16]}"

        def done() -> bool:
            if self.stopping.is_set():  # the entry stays in the outbox for the next start
                raise Stopped("this daemon is stopping")
            return is_done()

        return await blocking(self.outbox.run, key, call, done)

    def bundle_path(self, job_id: JobId) -> Path:
        """Where a job's bundle lies."""
        return self.bundles / f"{job_id.hex()}.vlb1"
