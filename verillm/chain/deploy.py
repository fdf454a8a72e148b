"""Deploying the contracts by one call, from the bytecode that the package carries."""

from dataclasses import replace

from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress
from web3.providers.base import BaseProvider

from verillm.chain import artifacts, rpc
from verillm.chain.contract import Call, Chain, Mined
from verillm.chain.deployment import ZERO_ADDRESS, Config, Deployment
from verillm.errors import ConfigError
from verillm.hashing import keccak
from verillm.types import Hash32

NOTHING = Hash32(bytes(32))


def deploy(
    rpc_: str | BaseProvider,
    account: LocalAccount,
    config: Config,
    *,
    token_supply: int = 10**27,
) -> Deployment:
    """Deploy VeriLLM with all its contracts, and a DevToken if `config` names no token.

    Waits for each. What VeriLLM's code refers to comes first: `config.recourse` is always new.
    `token_supply` of a new DevToken goes to the deployer. Raises TransactionFailed(ConfigUnsafe)
    if the contract refuses the configuration.
    """
    chain = _Bare(rpc_, account)
    try:
        token, adjudicator, prover = config.token, config.adjudicator, config.prover
        if token == ZERO_ADDRESS:
            token = chain.create("DevToken")
            mint = artifacts.functions("DevToken")["mint"].encode(account.address, token_supply)
            chain.send(Call("mint", token, mint))
        if adjudicator == ZERO_ADDRESS:
            adjudicator = chain.create("Adjudicator")
        if prover == ZERO_ADDRESS:
            prover = chain.create("Prover")
        config = replace(config, token=token, adjudicator=adjudicator, prover=prover)
        config = replace(config, recourse=ZERO_ADDRESS)
        recourse = ZERO_ADDRESS
        for name in reversed(artifacts.EXTENSIONS):
            recourse = chain.create(name, config, recourse)
        config = replace(config, recourse=recourse)
        mined = chain.create_mined("VeriLLM", config)
    finally:
        chain.close_own(rpc_)
    return Deployment(
        chain_id=chain.deployment.chain_id,
        contract=_created(mined),
        adjudicator=adjudicator,
        prover=prover,
        token=token,
        block=mined.block_number,
        transaction=mined.transaction,
    )


def deploy_token(rpc_: str | BaseProvider, account: LocalAccount) -> tuple[ChecksumAddress, int]:
    """Deploy a DevToken alone; its address and block."""
    chain = _Bare(rpc_, account)
    try:
        mined = chain.create_mined("DevToken")
    finally:
        chain.close_own(rpc_)
    return _created(mined), mined.block_number


class _Bare(Chain):
    """A chain on which nothing of ours stands yet."""

    def __init__(self, rpc_: str | BaseProvider, account: LocalAccount) -> None:
        chain_id = _chain_id(rpc_)
        nothing = Deployment(chain_id, *(ZERO_ADDRESS,) * 4, 0, NOTHING)
        super().__init__(rpc_, nothing, account)
        self._checked = True

    def create_mined(self, name: str, *values: object) -> Mined:
        data = artifacts.artifact(name).constructor(*values)
        return self.send(Call(f"deploy {name}", None, data))

    def create(self, name: str, *values: object) -> ChecksumAddress:
        return _created(self.create_mined(name, *values))

    def close_own(self, rpc_: str | BaseProvider) -> None:
        if isinstance(rpc_, str):
            self.close()


def _created(mined: Mined) -> ChecksumAddress:
    if mined.contract is None:
        raise ConfigError("the server's receipt of a deployment names no contract")
    return mined.contract


def _chain_id(rpc_: str | BaseProvider) -> int:
    connection = rpc.Rpc.of(rpc_)
    try:
        return rpc.quantity(connection.call("eth_chainId"), "chainId")
    finally:
        if isinstance(rpc_, str):
            connection.close()


def code_hash(chain: Chain) -> Hash32:
    """keccak of the code at the contract's address, for whoever compares deployments."""
    code = chain.request("eth_getCode", chain.deployment.contract, "latest")
    return keccak(rpc.data(code, "code"))
