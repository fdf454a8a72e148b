"""Deploying the contracts from the bytecode that the package carries: planned, looked at, sent.

`prepare` plans, or finds the begun plan again; `survey` looks without sending; `Deployer.run` sends
what is missing. Whether a step is done is asked of its effect: the code at its planned address,
immutables included. So a run that was killed anywhere is simply run again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from eth_account.signers.local import LocalAccount
from web3.providers.base import BaseProvider

from verillm import __version__
from verillm.chain import artifacts, rpc
from verillm.chain.contract import Call, Chain, Mined, sender_lock, transaction_hash
from verillm.chain.deployment import NOTHING, ZERO_ADDRESS, Config, Deployment, Made
from verillm.chain.journal import Journal
from verillm.chain.plan import SUPPLY, Plan, Step, make_plan
from verillm.chain.refused import DeploymentDiffers, DeployRefused, NonceTaken, PlanChanged
from verillm.chain.standing import code_hashes, differences
from verillm.chain.survey import code_at, expected_codes
from verillm.errors import Timeout, TransactionFailed
from verillm.model import ModelSpec
from verillm.types import ChecksumAddress

LOST_POLLS: Final = 20
"""How often a mined nonce may show no effect before it counts as taken: servers lag behind."""
MAX_RAISES: Final = 10


def deploy(
    rpc_: str | BaseProvider, account: LocalAccount, config: Config, *, token_supply: int = SUPPLY
) -> Deployment:
    """Deploy at once, with no dry run and no way to resume: for devnets and tests.

    A DevToken if `config` names no token; `token_supply` of it goes to the deployer. Raises
    TransactionFailed(ConfigUnsafe) if the contract refuses the configuration.
    """
    chain = bare_chain(rpc_, account)
    try:
        journal = Journal()
        plan = prepare(chain, config, journal, supply=token_supply)
        journal.plan(plan)
        return Deployer(chain, plan, expected_codes(chain, plan.steps), journal).run()
    finally:
        chain.close()


def deploy_token(rpc_: str | BaseProvider, account: LocalAccount) -> tuple[ChecksumAddress, int]:
    """Deploy a DevToken alone; its address and block."""
    chain = bare_chain(rpc_, account)
    try:
        data = artifacts.artifact("DevToken").constructor()
        mined = chain.send(Call("deploy DevToken", None, data))
    finally:
        chain.close()
    if mined.contract is None:
        raise DeployRefused("the server's receipt of a deployment names no contract")
    return mined.contract, mined.block_number


def bare_chain(rpc_: str | BaseProvider, account: LocalAccount, timeout: float = 60.0) -> Chain:
    """The chain behind a server, on which nothing of ours has to stand yet."""
    return _Bare(rpc_, account, timeout)


class _Bare(Chain):
    def __init__(self, rpc_: str | BaseProvider, account: LocalAccount, timeout: float) -> None:
        connection = rpc.Rpc.of(rpc_)
        try:
            chain_id = rpc.quantity(connection.call("eth_chainId"), "chainId")
        finally:
            connection.close()
        nothing = Deployment(chain_id, *(ZERO_ADDRESS,) * 4, 0, NOTHING)
        super().__init__(rpc_, nothing, account, timeout=timeout)
        self._checked = True


def prepare(
    chain: Chain,
    terms: Config,
    journal: Journal,
    *,
    specs: Sequence[ModelSpec] = (),
    supply: int = SUPPLY,
) -> Plan:
    """The plan for these terms: the begun one's nonces if one has begun, else from now on."""
    chain_id, deployer = chain.deployment.chain_id, chain.sender.address
    progress = journal.progress
    if progress is None or not journal.has_begun:
        nonce = chain.nonce(deployer)
        if chain.nonce(deployer, "pending") != nonce:
            raise DeployRefused(f"{deployer} has transactions on their way; wait for them")
        return make_plan(chain_id, deployer, nonce, terms, specs=specs, supply=supply)
    if (progress.chain_id, progress.deployer) != (chain_id, deployer):
        raise PlanChanged(
            f"{progress.deployer} began to deploy on chain {progress.chain_id}, "
            f"this is {deployer} on chain {chain_id}"
        )
    nonce = progress.first_nonce
    plan = make_plan(chain_id, deployer, nonce, terms, specs=specs, supply=supply)
    if plan.digest != progress.plan:
        raise PlanChanged("a deployment was begun with other terms, models or contracts")
    return plan


class Deployer:
    """Sends what is missing of a plan, one step after the other."""

    def __init__(
        self,
        chain: Chain,
        plan: Plan,
        codes: Sequence[bytes | None],
        journal: Journal,
        *,
        say: Callable[[str], None] = lambda _line: None,
        stuck_after: float = 60.0,
        confirmations: int = 0,
    ) -> None:
        self.chain, self.plan, self.journal, self._say = chain, plan, journal, say
        self._codes = dict(zip(plan.steps, codes, strict=True))
        self._stuck_after, self._confirmations = stuck_after, confirmations

    def run(self) -> Deployment:
        """All steps, in order; then what stands is compared with what was planned."""
        for step in self.plan.steps:
            self._settle(step)
            self._say(f"{step.name}: {step.address or 'done'}")
        created = next(step for step in self.plan.steps if step.address == self.plan.contract)
        mined = self._confirmed(created)
        config = self.plan.config
        deployment = Deployment(
            chain_id=self.plan.chain_id,
            contract=self.plan.contract,
            adjudicator=config.adjudicator,
            prover=config.prover,
            token=config.token,
            block=mined.block_number,
            transaction=mined.transaction,
        )
        made = Made(
            version=__version__,
            deployer=self.plan.deployer,
            extensions=self.plan.extensions,
            config=config,
            code_hashes=code_hashes(self.chain, self.plan.contract, self.plan.extensions, config),
        )
        if found := differences(self.chain, deployment, made):
            raise DeploymentDiffers(found)
        return replace(deployment, made=made)

    # ── One step ─────────────────────────────────────────────────────────────────────────────────
    def _settle(self, step: Step) -> None:
        deadline, send_at, lost = time.monotonic() + self.chain.timeout, 0.0, 0
        while not self._is_done(step):
            now = time.monotonic()
            # Anyone may register a model: its step needs no nonce of its own, since no address
            # follows from it.
            if step.spec is None and self.chain.nonce(self.plan.deployer) > step.nonce:
                lost += 1
                self._refuse_failed(step)
                if lost > LOST_POLLS:
                    raise NonceTaken(f"nonce {step.nonce} was used by what is not {step.name}")
            elif now >= send_at:
                self._send(step)
                send_at = now + self._stuck_after
            if now > deadline:
                raise Timeout(f"{step.name} was not mined in {self.chain.timeout:.0f} s")
            time.sleep(self.chain.poll)

    def _is_done(self, step: Step) -> bool:
        if step.address is not None:
            code = code_at(self.chain, step.address)
            if code and code != self._codes[step]:
                raise DeploymentDiffers((f"other code than {step.name}'s at {step.address}",))
            return bool(code)
        if any(each is not None and each.ok for each in self._receipts(step)):
            return True
        return self._is_registered(step) if step.spec is not None else self._is_minted(step)

    def _is_minted(self, step: Step) -> bool:
        """A fresh token has a supply once somebody minted."""
        supply = artifacts.functions("DevToken")["totalSupply"]
        answer = self.chain.simulate(Call("totalSupply", step.call.to, supply.encode()))
        return int.from_bytes(answer) > 0

    def _is_registered(self, step: Step) -> bool:
        """Models have no other trace that a call could ask for than that none is twice."""
        try:
            self.chain.simulate(step.call)
        except TransactionFailed as error:
            return error.error == "ModelKnown"
        return False

    def _receipts(self, step: Step) -> list[Mined | None]:
        return [self.chain.mined(each) for each in self.journal.sent(step)]

    def _refuse_failed(self, step: Step) -> None:
        for found in self._receipts(step):
            if found is not None and not found.ok:
                self.chain.raise_revert(step.call, found)

    def _send(self, step: Step) -> None:
        """Sign for the planned nonce, record, send; each try offers more than the one before."""
        fees, gas = self.chain.fees(), self.chain.estimate(step.call)
        for _ in self.journal.sent(step)[:MAX_RAISES]:
            fees = fees.raised()
        with sender_lock(self.plan.chain_id, self.plan.deployer):
            nonce = step.nonce if step.spec is None else self.chain.nonce(self.plan.deployer)
            raw = self.chain.sign(step.call, nonce, gas, fees)
            self.journal.sending(step, transaction_hash(raw))
            try:
                self.chain.broadcast(raw)
            except TransactionFailed as error:
                if error.error != "NonceTooLow":  # mined since we looked: the next look finds it
                    raise

    def _confirmed(self, step: Step) -> Mined:
        """The receipt of a creation, once enough blocks stand on it."""
        deadline = time.monotonic() + self.chain.timeout
        while True:
            found = next((each for each in self._receipts(step) if each and each.ok), None)
            if found and self.chain.block().number >= found.block_number + self._confirmations:
                return found
            if time.monotonic() > deadline:
                raise Timeout(f"no receipt of {step.name} with {self._confirmations} blocks on it")
            time.sleep(self.chain.poll)
