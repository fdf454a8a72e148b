"""Who lives in the machine's network: two clients, two schedulers, six workers, an auditor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from eth_account.signers.local import LocalAccount

from tests.chain.beside import PATIENCE, Beside
from tests.chain.casework import PRICE, SMALL, Case, Casework, Plan, key, posted, sealed
from tests.chain.conftest import Net
from tests.reference.ledger import ENDLESS
from verillm.chain import events
from verillm.chain.anvil import dev_account
from verillm.chain.deploy import deploy
from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.chain.rpc import HttpProvider
from verillm.model import ModelSpec
from verillm.types import ChecksumAddress, Outcome, Reason

CONFIG: Final = replace(
    Config.devnet(),
    inferencer_bps=7_001,
    committee_bps=1_999,
    scheduler_bps=1_000,
    reserve_bps=2_500,
    caller_fee=3,
    claim_bond=1_001,
    challenge_bond=777,
    forced_every=4,
    answer_fee=11,
    reverify_bond=1_303,
)
"""Odd amounts, so that no two are equal and every division leaves a rest."""
PURSE: Final = 100_000
STAKES: Final = (10_000, 10_400, 12_000, 30_000, 30_000, 30_000)
"""Of the workers; a seat takes 10 000, so that a slash leaves the poorest ones uncovered."""


class Town:
    """One deployment and its reference, furnished alike."""

    def __init__(self, net: Net, spec: ModelSpec = SMALL, workers: int = len(STAKES)) -> None:
        deployment = deploy(net.provider, dev_account(0), CONFIG)
        # Hundreds of blocks in one call take long where many share a machine.
        self.provider = HttpProvider(net.anvil.url, timeout=PATIENCE)
        here = replace(net, provider=self.provider, deployment=deployment, config=CONFIG)
        self.beside = Beside(here)
        self.prover = self.beside.config.prover  # impersonated: it says what no proof bears out
        self.deployer, *accounts = [dev_account(each) for each in range(6 + workers)]
        self.clients, self.schedulers = accounts[:2], accounts[2:4]
        self.workers, self.auditor = accounts[4:-1], accounts[-1]
        self.stakes = (*STAKES, *STAKES[-1:] * (workers - len(STAKES)))
        self.operators = [*self.schedulers, *self.workers, self.auditor]
        self.people = [*self.clients, *self.operators]
        self.hot = {each.address: key("hot" + each.address) for each in self.operators}
        self.work = Casework(self.beside.reference, spec)
        self._furnish()

    def close(self) -> None:
        """Leave no socket open."""
        self.beside.close()
        self.provider.close()

    def _furnish(self) -> None:
        here, watched = self.beside, self.beside.watched
        here.net.rpc("anvil_autoImpersonateAccount", True)
        for each in (*self.people, *self.hot.values()):
            here.net.rpc("anvil_setBalance", each.address, hex(10**20))
        here.net.rpc("anvil_setBalance", self.prover, hex(10**20))
        here.must(self.deployer.address, "register_model", self.work.spec)
        for each in self.people:
            here.must(self.deployer.address, "mint", each.address, PURSE)
            here.must(each.address, "approve", ENDLESS)
        for client in self.clients:
            for scheduler in self.schedulers:
                here.must(client.address, "deposit", scheduler.address, PURSE // 10)
        for operator, stake in zip(
            self.operators, (50_000,) * 2 + self.stakes + (5_000,), strict=True
        ):
            here.must(operator.address, "add_stake", stake)
        for operator in self.operators[::2]:
            here.must(operator.address, "set_hot_key", self.hot[operator.address].address)
        for worker in self.workers:
            here.must(worker.address, "join", self.work.model, PRICE)
        watched.holders = [each.address for each in self.people]
        watched.deposits = [
            (client.address, scheduler.address)
            for client in self.clients
            for scheduler in self.schedulers
        ]
        watched.operators = [each.address for each in self.operators]
        watched.keys = [each.address for each in (*self.people, *self.hot.values())]
        watched.seats = [(self.work.model, seat) for seat in range(2 + len(self.workers))]
        here.compare()

    # ── A job, step by step, as an honest scheduler takes it ────────────────────────────────────
    def signer(self, owner: ChecksumAddress) -> LocalAccount:
        """The operator's account itself: it signs at any time."""
        return next(each for each in self.operators if each.address == owner)

    def draft(self, plan: Plan, seat: int = 0, **changes: Any) -> Case:
        """A job that the owner of `seat` ran."""
        owner = self.beside.reference.seat_of(self.work.model, seat).owner
        worker = self.workers[0] if owner == ZERO_ADDRESS else self.signer(owner)
        parties = (self.clients[0], self.schedulers[0], worker)
        return self.work.draft(plan, *parties, seat, **changes)

    def post(self, case: Case) -> Case:
        """Post it."""
        said = self.beside.must(case.scheduler.address, "post", *self.work.post(case))
        return self.took(case, said.events)

    def seal(self, case: Case) -> Case:
        """Seal it with the committee that was drawn."""
        keys = {each.address: each for each in self.workers}
        said = self.beside.must(case.scheduler.address, "seal", *self.work.seal(case, keys))
        return self.took(case, said.events)

    def claim(
        self, case: Case, outcome: Outcome = Outcome.ACCEPT, reason: Reason = Reason.NONE
    ) -> Case:
        """Claim a verdict that pays everyone."""
        everyone = (1 << self.work.spec.committee) - 1
        values = [posted(case), sealed(case), outcome, reason, everyone, case.bundle]
        said = self.beside.must(case.scheduler.address, "claim", *values)
        return self.took(case, said.events)

    def took(self, case: Case, said: tuple[object, ...]) -> Case:
        """Remember what an accepted call fixed."""
        for event in said:
            if isinstance(event, events.Posted):
                case.posting = event.posting
                self.beside.watched.jobs.append(event.job_id)
            elif isinstance(event, events.Sealed):
                case.sealing = event.sealing
            elif isinstance(event, events.Claimed):
                case.claiming = event.claiming
            elif isinstance(event, events.ClaimVoided):
                case.claiming = None
        return case


@contextmanager
def inhabited(net: Net, spec: ModelSpec = SMALL, workers: int = len(STAKES)) -> Iterator[Town]:
    """A town on this Anvil, gone afterwards."""
    snapshot = net.rpc("evm_snapshot")
    town = Town(net, spec, workers)
    try:
        yield town
    finally:
        town.close()
        net.rpc("anvil_autoImpersonateAccount", False)
        assert net.rpc("evm_revert", snapshot)
