"""Random ends of jobs: the contract pays what the mirror says, account by account."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.chain.conftest import Net
from tests.chain.rounds import OpenWorld, widened
from tests.chain.world import Running
from tests.unit.verillm.builders import SPEC
from verillm.chain import artifacts
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.contract import Checked, Mined
from verillm.chain.deploy import deploy
from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.chain.events import ChallengeOpened, events_of
from verillm.chain.rpc import HttpProvider
from verillm.records import Attestation, Claiming, record_hash
from verillm.settlement import (
    Claim,
    Ending,
    Judged,
    Settlement,
    Stakes,
    Terms,
    Way,
    adjudicate,
    punished,
    settle,
)
from verillm.types import Hash32, Outcome, Reason

DEAD = "0x000000000000000000000000000000000000dEaD"
SCHEDULER = 255
CLAIMS = [
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.SLASH, Reason.STATES_DIFFER),
    (Outcome.SLASH, Reason.WITHHELD),
    (Outcome.SLASH, Reason.MARGIN_MAX),
    (Outcome.REFUND, Reason.STATES_DIFFER),
    (Outcome.REFUND, Reason.LENGTH),
    (Outcome.INCONCLUSIVE, Reason.DIVIDED),
]


@pytest.fixture(scope="module", params=[0, 1], ids=["never forced", "always forced"])
def furnished(request: pytest.FixtureRequest, anvil: Anvil) -> Iterator[OpenWorld]:
    provider = HttpProvider(anvil.url)
    config = replace(Config.devnet(), forced_every=request.param, caller_fee=10**11)
    net = Net(anvil, provider, deploy(provider, dev_account(0), config), config)
    snapshot = net.rpc("evm_snapshot")
    world = OpenWorld(net, widened(SPEC, hidden=16, slice_dims=16, depth=8))
    world.output = tuple(range(5, 17))
    yield world
    assert net.rpc("evm_revert", snapshot)
    provider.close()


class Case:
    """One job on its way to a random end, and what the mirror says of it."""

    def __init__(self, world: OpenWorld, random: Random) -> None:
        self.world, self.random, self.config = world, random, world.net.config
        world.wrong = frozenset(k for k in range(4) if random.random() < 0.25)
        self.run: Running = world.seal(world.post(random.choice([1, 3])))
        self.before = self.money()
        self.caller = world.auditor.address

    # ── Money ────────────────────────────────────────────────────────────────────────────────────
    def accounts(self) -> list[Any]:
        world = self.world
        operators = (world.scheduler, world.auditor, *world.workers)
        return [each.address for each in operators]

    def money(self) -> Counter[str]:
        """What everyone has; the escrow of a job is nobody's."""
        world, chain = self.world, self.world.chain(self.world.client)
        found = Counter({each: chain.account_of(each).balance for each in self.accounts()})
        client, scheduler = world.client.address, world.scheduler.address
        found[client] = chain.deposit_of(client, scheduler).amount
        found[DEAD] = chain.token_balance(DEAD)  # type: ignore[arg-type]
        return found

    def moved(self) -> dict[str, int]:
        after = self.money()
        return {
            who: after[who] - self.before[who] for who in after if after[who] != self.before[who]
        }

    @property
    def stakes(self) -> Stakes:
        posting, sealing = self.run.posting, self.run.sealing
        return Stakes(posting.job.max_fee, sealing.fee, posting.lock, posting.bond, sealing.locks)

    @property
    def terms(self) -> Terms:
        c = self.config
        return Terms(
            c.kappa_bps, c.inferencer_bps, c.committee_bps, c.scheduler_bps, c.caller_fee,
            c.claim_bond, c.challenge_bond,
        )  # fmt: skip

    def told(self, shares: Settlement) -> dict[str, int]:
        """The mirror's word by account: the scheduler claims, the auditor does all else."""
        world, sums = self.world, Counter[str]()
        sums[world.client.address] += shares.client
        sums[self.run.inferencer.address] += shares.inferencer
        sums[world.scheduler.address] += shares.scheduler + shares.claimer
        sums[world.auditor.address] += shares.challenger + shares.caller + shares.finder
        sums[DEAD] += shares.burnt
        for owner, part in zip(self.run.sealing.owners, shares.committee, strict=True):
            sums[owner] += part
        return {who: net for who, net in sums.items() if net}

    # ── Steps ────────────────────────────────────────────────────────────────────────────────────
    def send(self, name: str, *values: Any) -> Mined:
        call = getattr(self.world.calls, name)(*self.record, *values)
        return self.world.send(self.world.auditor.account, call)

    @property
    def record(self) -> tuple[Any, ...]:
        return self.run.posting, self.run.sealing, self.run.claiming

    def claim(self) -> None:
        outcome, reason = self.random.choice(CLAIMS)
        words = self.world.attestations(self.run, outcome, reason) if reason >= 5 else ()
        if outcome is Outcome.INCONCLUSIVE:
            words = ()
        self.world.claim(self.run, outcome, reason, words, self.random.choice([7, 7, 7, 5, 0]))

    def pass_by(self) -> None:
        """Nobody claims."""
        self.world.net.pass_time(self.config.claim_window + 1)
        nothing = Hash32(bytes(32))
        self.run.claiming = Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, nothing, nothing)

    def open(self, silence: float = 0.15) -> None:
        """The public round, with each party silent by chance."""
        mined = self.send("challenge")
        (opened,) = (each for each in events_of(mined) if isinstance(each, ChallengeOpened))
        self.run.claiming = replace(self.run.claiming, beacon=opened.beacon)
        world, run = self.world, self.run
        silent = {k for k in range(4) if self.random.random() < silence}
        if silent == {0, 1, 2, 3}:
            return
        for place, request in enumerate(world.checked(run)):
            where = world.where(run, request)
            first = world.opening(run, 0, place, where[0])
            self.send("reveal", place, first.leaf, first.item_path)
            lengths = Checked(place, len(world.prompt), len(run.outputs[request]))
            for index, position in enumerate(where):
                shown = [
                    world.opening(run, k, place, position) for k in range(4) if k not in silent
                ]
                self.send("compare", world.spec, lengths, index, shown)

    def raw(self) -> Judged:
        """What the Adjudicator alone computes."""
        entry = artifacts.functions("Adjudicator")["verdict"]
        world, deployed = self.world, self.world.net.deployment
        record = record_hash(*self.record)
        data = entry.encode(record, world.model, self.run.job.requests, 3)
        call = {"from": deployed.contract, "to": deployed.adjudicator, "data": "0x" + data.hex()}
        answer = bytes.fromhex(str(world.net.rpc("eth_call", call, "latest"))[2:])
        outcome, _, lost, paid = (
            int.from_bytes(answer[at : at + 32], "big") for at in (0, 32, 64, 96)
        )
        gone = frozenset(k for k in range(4) if lost >> k & 1)
        unpaid = frozenset(k for k in (1, 2, 3) if not paid >> (k - 1) & 1) - gone
        return Judged(Outcome(outcome), gone, unpaid)

    def judge(self) -> tuple[Judged, Reason]:
        self.world.net.pass_time(3 * self.config.opening_window)
        raw, attested = self.raw(), Reason.NONE
        by_claim = 5 <= self.run.claiming.reason <= 11
        before = self.random.random() < 0.5
        if before:
            self.send("adjudicate")
        if not by_claim and self.random.random() < 0.3:
            attested = Reason.LENGTH
            word = Attestation(
                self.world.id_of(self.run), Outcome.REFUND, attested, self.world.bundle(self.run)
            )
            self.send("attest", word, self.world.attestations(self.run, word.outcome, attested))
        if not before:
            self.send("adjudicate")
        return raw, attested

    def ending(self, raw: Judged, attested: Reason) -> Ending:
        claiming = self.run.claiming
        unpaid = frozenset(k for k in (1, 2, 3) if not claiming.paid >> (k - 1) & 1)
        claim = Claim(claiming.outcome, claiming.reason, unpaid)
        is_claimed = claiming.claimer != ZERO_ADDRESS
        found = adjudicate(claim if is_claimed else None, raw, attested)
        forced = self.config.forced_every == 1
        return replace(found, bonded=is_claimed and not forced, forced=forced)

    def convict(self, party: int) -> None:
        """As the prover does: only the network's word of what was proven is under test here."""
        entry = artifacts.functions("VeriLLM")["convict"]
        data = entry.encode(*self.record, party, 8, self.caller)
        net, prover = self.world.net, self.world.chain(self.world.client).config().prover
        net.rpc("anvil_impersonateAccount", prover)
        net.rpc("anvil_setBalance", prover, hex(10**20))
        sent = {"from": prover, "to": net.deployment.contract, "data": "0x" + data.hex()}
        transaction = net.rpc("eth_sendTransaction", sent | {"gas": hex(2_000_000)})
        net.rpc("evm_mine")
        found = net.rpc("eth_getTransactionReceipt", transaction)
        assert isinstance(found, dict)
        assert found["status"] == "0x1"


@pytest.fixture
def world(furnished: OpenWorld) -> Iterator[OpenWorld]:
    snapshot = furnished.net.rpc("evm_snapshot")
    yield furnished
    furnished.wrong = frozenset()
    assert furnished.net.rpc("evm_revert", snapshot)


@pytest.mark.parametrize("seed", range(12))
def test_a_round_pays_what_the_mirror_says(world: OpenWorld, seed: int) -> None:
    case = Case(world, Random(seed))
    if case.random.random() < 0.8:
        case.claim()
    else:
        case.pass_by()
    case.open()
    raw, attested = case.judge()
    world.net.pass_time(case.config.dispute_window)
    case.send("settle")
    told = settle(case.terms, case.stakes, case.ending(raw, attested))
    assert case.moved() == case.told(told), (raw, attested, case.run.claiming)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("party", [0, SCHEDULER])
def test_a_conviction_pays_what_the_mirror_says(world: OpenWorld, seed: int, party: int) -> None:
    case = Case(world, Random(seed))
    case.claim()
    lost = unpaid = frozenset[int]()
    if case.random.random() < 0.5:
        case.open()
        raw, _ = case.judge()
        lost, unpaid = raw.lost, raw.unpaid
    case.convict(party)
    way = Way.CONVICTED if party == 0 else Way.AT_SCHEDULER
    outcome = Outcome.SLASH if party == 0 else Outcome.REFUND
    told = settle(case.terms, case.stakes, Ending(outcome, way, lost, unpaid))
    assert case.moved() == case.told(told)


@pytest.mark.parametrize("party", [0, 1, SCHEDULER])
def test_a_conviction_after_the_end_takes_what_the_mirror_says(
    world: OpenWorld, party: int
) -> None:
    case = Case(world, Random(party))
    world.wrong = frozenset()
    world.claim(case.run)
    if case.config.forced_every:
        case.open(silence=0)
        world.net.pass_time(3 * case.config.opening_window)
        case.send("adjudicate")
        world.net.pass_time(case.config.dispute_window)
        case.send("settle")
    else:
        world.finalize(case.run)
    case.before = case.money()
    owners = {0: case.run.inferencer.address, 1: case.run.sealing.owners[0]}
    owner = owners.get(party, world.scheduler.address)
    stake = {0: case.stakes.lock, 1: case.stakes.locks[0]}.get(party, case.stakes.bond)
    held = world.chain(world.client).account_of(owner)
    case.convict(party)
    taken = punished(case.stakes, stake, held.balance - held.locked)
    told = {
        owner: -taken.finder - taken.burnt, case.caller: taken.finder, DEAD: taken.burnt,
    }  # fmt: skip
    assert case.moved() == told
