"""What both clients are made of."""

from pathlib import Path
from typing import Final

import httpx
from eth_account.signers.local import LocalAccount

from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.chain.rpc import Provider
from verillm.client.flows import Flows

TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)


class Face:
    """A chain, an account, and the operations over both."""

    def __init__(
        self,
        rpc: Provider,
        deployment: Deployment | Path,
        account: LocalAccount,
        *,
        scheduler: str | None = None,
        cache: Path | None = None,
        patience: float = 120.0,
        proves: bool = True,
    ) -> None:
        if isinstance(deployment, Path):
            deployment = Deployment.load(deployment)
        self.chain = Chain(rpc, deployment, account)
        self.account = account
        self._flows = Flows(self.chain, account, scheduler, cache, proves)
        self._patience = patience
