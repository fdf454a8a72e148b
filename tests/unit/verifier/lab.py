"""Whole jobs on paper: tiny engines run them, keys sign them, and a chain of events tells them.

Everything is what the real parties make; only the chain's blocks are written by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from verillm.chain import events
from verillm.chain.contract import JobState, Status
from verillm.chain.deployment import Config
from verillm.chain.events import At, JobHistory
from verillm.codec import bundle_hash, encode_bundle
from verillm.draw import checked_requests, draw, draw_seats, position_seed, positions
from verillm.engine import Engine, EngineTransform, open_engine
from verillm.engine.describe import Terms, describe
from verillm.evidence import Bundle, CheckedOutput, PartyEvidence
from verillm.hashing import keccak
from verillm.model import CheckProfile, LayerProfile, ModelSpec, model_id
from verillm.records import Claiming, Member, Posting, Sealing, record_hash
from verillm.request import Job, Quote, Request, Sampling, requests_tree
from verillm.settlement import bond_of
from verillm.signing import Domain, job_id, sign, struct_hash
from verillm.task import (
    Task,
    draw_commit,
    inference_task,
    inner_hash,
    outputs_tree,
    verification_task,
)
from verillm.trace import CommittedTrace, commit, commitment_hash, open_positions
from verillm.types import ChecksumAddress, Hash32, ModelId, Outcome, Reason
from verillm_verifier.facts import Facts
from verillm_verifier.registry import Registry

DOMAIN = Domain(31337, to_checksum_address("0x" + "c0" * 20))
PRICE = 10**12
MAX_FEE = 10**15
KEY_GRACE = 1000
CONFIG = Config.devnet()
SECRET = keccak(b"the job's secret")
POST, SEAL, CLAIM, END = 10, 20, 30, 40
"""Blocks; a block's timestamp is a hundred times its number."""


def account(name: str) -> LocalAccount:
    """The key of a person in these stories."""
    made: LocalAccount = Account.from_key(keccak(name.encode()))
    return made


CLIENT, SCHEDULER, HOT = account("client"), account("scheduler"), account("scheduler's hot key")
WORKERS = tuple(account(f"worker {number}") for number in range(5))


def profile(layers: int) -> CheckProfile:
    """Thresholds that honest tiny engines keep by far, and that a coarse cheat breaks."""
    layer = LayerProfile(scale=-10, med=(10_000,) * 3, cap=(60_000,) * 3)
    return CheckProfile(
        mean_refund=1_500_000,
        mean_slash=2_400_000,
        over_refund=0,
        over_slash=2,
        margin_mean=5_000,
        margin_max_refund=250_000,
        margin_max_slash=400_000,
        mass_epsilon=10_000,
        logit_tau=50_000,
        min_positions=4,
        many_positions=0,
        mean_refund_many=0,
        mean_slash_many=0,
        layers=(layer,) * (layers + 1),
    )


def spec_of(folder: Path, **terms: Any) -> ModelSpec:
    """The tiny model as it would be registered."""
    fixed = Terms(**{"committee": 3, "checked_requests": 2, "positions": 8} | terms)
    return describe(folder, profile(2), name="tiny", terms=fixed)


class Engines:
    """Tiny engines by how they cheat, started once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[EngineTransform | None, Engine] = {}

    def engine(self, cheat: EngineTransform | None = None) -> Engine:
        """The running engine of an honest worker, or of a cheat."""
        if cheat not in self._running:
            engine = open_engine(self.folder, kind="tiny", transform=cheat)
            engine.start()
            self._running[cheat] = engine
        return self._running[cheat]

    def run(self, task: Task, cheat: EngineTransform | None = None) -> CommittedTrace:
        """A task's committed trace."""
        running = self.engine(cheat).submit(task, lambda *_: None)
        return commit(running.result(timeout=60), task)

    def close(self) -> None:
        """Stop them all."""
        for engine in self._running.values():
            engine.close()


WARM = Sampling(temperature=800_000)


@dataclass(frozen=True, slots=True)
class Story:
    """What is asked and who cheats how, by party; 0 the inferencer."""

    prompts: tuple[tuple[int, ...], ...] = ((10, 20, 30, 40, 50, 60), (70, 80, 90))
    new_tokens: int = 8
    sampling: Sampling = WARM
    cheats: Mapping[int, EngineTransform] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A job that was played, with all that its parties know."""

    spec: ModelSpec
    requests: tuple[Request, ...]
    posting: Posting
    sealing: Sealing
    checked: tuple[int, ...]
    bundle: Bundle
    registry: Registry

    @property
    def raw(self) -> bytes:
        """The bundle as it travels."""
        return encode_bundle(self.bundle)

    def facts(
        self,
        outcome: Outcome = Outcome.ACCEPT,
        reason: Reason = Reason.NONE,
        bundle: bytes | None = None,
        until: int = END,
        paid: int = 0b111,
    ) -> Facts:
        """The chain's word, with a claim of this outcome; `until` cuts the story short."""
        named = bundle_hash(self.raw if bundle is None else bundle)
        claiming = Claiming(HOT.address, outcome, reason, paid, named, block_hash(SEAL))
        job = job_id(DOMAIN, self.posting.job)
        told: list[tuple[int, Any]] = [
            (POST, events.Posted(job, SCHEDULER.address, CLIENT.address, self.posting)),
            (SEAL, events.Sealed(job, self.sealing)),
            (CLAIM, events.Claimed(job, claiming)),
            (END, events.Finalized(job, outcome, reason)),
        ]
        history = JobHistory(
            job, tuple(at(event, block) for block, event in told if block <= until)
        )
        record = {
            POST: record_hash(self.posting),
            SEAL: record_hash(self.posting, self.sealing),
        }.get(until, record_hash(self.posting, self.sealing, claiming))
        status = {POST: Status.POSTED, SEAL: Status.SEALED, CLAIM: Status.CLAIMED}
        final = until == END
        return Facts(
            domain=DOMAIN,
            history=history,
            state=JobState(status.get(until, Status.FINAL), 0, record),
            spec=self.spec,
            registry=self.registry,
            config=CONFIG,
            beacons={POST: block_hash(POST), SEAL: block_hash(SEAL)},
            ender=SCHEDULER.address if final else None,
            client_has_code=False,
        )


def block_hash(number: int) -> Hash32:
    """The hash of a block of this chain."""
    return keccak(b"block %d" % number)


def at(event: Any, block: int) -> At[Any]:
    """An event in a block."""
    return At(event, keccak(b"transaction %d" % block), block, block_hash(block), 100 * block, 0)


class Ground(Protocol):
    """Where a job is settled: on paper here, on a real chain in `tests/chain`."""

    domain: Domain

    def prepare(self, model: ModelId) -> Registry:
        """Who holds which seat, who signs for whom."""
        ...

    def now(self) -> int:
        """The chain's time."""
        ...

    def post(
        self, job: Job, quote: Quote, run: CommittedTrace, outputs_root: Hash32, lock: int
    ) -> tuple[Posting, Hash32]:
        """Worker 0's commitment, posted; what the chain fixed, and the hash of the block."""
        ...

    def seal(
        self, posting: Posting, runs: Sequence[CommittedTrace], drawn: Sequence[tuple[int, str]]
    ) -> tuple[Sealing, Hash32]:
        """All commitments, sealed; what the chain fixed, and the hash of the block."""
        ...


class Paper:
    """Blocks written by hand."""

    domain = DOMAIN

    def prepare(self, model: ModelId) -> Registry:
        """Five workers joined, one seat each, and the scheduler named its hot key."""
        joined = [
            at(events.SeatJoined(model, number, worker.address, PRICE), 1)
            for number, worker in enumerate(WORKERS)
        ]
        named = [
            at(events.HotKeySet(SCHEDULER.address, HOT.address), 1),
            at(events.EndpointSet(SCHEDULER.address, "http://127.0.0.1:1"), 1),
        ]
        return Registry.of([*joined, *named], KEY_GRACE)

    def now(self) -> int:
        return 100 * POST

    def post(
        self, job: Job, quote: Quote, run: CommittedTrace, outputs_root: Hash32, lock: int
    ) -> tuple[Posting, Hash32]:
        posting = Posting(
            job, quote, 0, WORKERS[0].address, commitment_hash(run.commitment), outputs_root,
            lock, bond_of(lock, job.max_fee), len(WORKERS), 100 * POST, POST,
        )  # fmt: skip
        return posting, block_hash(POST)

    def seal(
        self, posting: Posting, runs: Sequence[CommittedTrace], drawn: Sequence[tuple[int, str]]
    ) -> tuple[Sealing, Hash32]:
        inner = runs[0].inner
        committee = tuple(
            Member(slot, _address(owner), inner_hash(each.inner), posting.lock)
            for (slot, owner), each in zip(drawn, runs[1:], strict=True)
        )
        fee = min(posting.job.max_fee, PRICE * (inner.prompt_tokens + inner.new_tokens))
        sealing = Sealing(SECRET, block_hash(POST), inner, fee, SEAL, committee)
        return sealing, block_hash(SEAL)


def play(
    engines: Engines, spec: ModelSpec, story: Story | None = None, ground: Ground | None = None
) -> Played:
    """A whole job up to its bundle: inferred by worker 0, verified by whom the block draws."""
    story, ground = story or Story(), ground or Paper()
    model, domain = model_id(spec), ground.domain
    registry = ground.prepare(model)
    requests = tuple(
        Request(keccak(b"salt %d" % n), prompt, story.new_tokens, story.sampling)
        for n, prompt in enumerate(story.prompts)
    )
    late = ground.now() + 500
    quote = Quote(SCHEDULER.address, model, PRICE, draw_commit(SECRET), late)
    tree = requests_tree(requests)
    job = Job(CLIENT.address, struct_hash(quote), tree.root, len(requests), MAX_FEE, late, 7)
    identity, lock = job_id(domain, job), 2 * MAX_FEE
    terms = (model, late, lock, MAX_FEE)

    given = inference_task(SECRET, identity, requests, WORKERS[0].address, *terms)
    run = engines.run(given, story.cheats.get(0))
    outputs = [item.output for item in run.trace.items]
    outs = outputs_tree([leaf.output_hash for leaf in run.leaves])
    posting, post_beacon = ground.post(job, quote, run, outs.root, lock)

    seed = draw(SECRET, posting.commitment, post_beacon)
    drawn = draw_seats(
        seed,
        posting.slots,
        lambda slot: registry.owner_at(model, slot, posting.posted_at),
        posting.worker,
        spec.committee,
    )
    checked = checked_requests(seed, len(requests), spec.checked_requests)
    tasks, runs = [given], [run]
    for k, (_, owner) in enumerate(drawn, 1):
        asked = verification_task(
            SECRET, identity, k, [(n, requests[n]) for n in checked],
            [outputs[n] for n in checked], _address(owner), *terms,
            new_tokens=[2 + k] * len(checked),
        )  # fmt: skip
        tasks.append(asked)
        runs.append(engines.run(asked, story.cheats.get(k)))

    sealing, seal_beacon = ground.seal(posting, runs, drawn)
    stream = position_seed(record_hash(posting, sealing), seal_beacon)
    shown = [
        CheckedOutput(n, requests[n], tree.proof(n), tuple(outputs[n]), outs.proof(n))
        for n in checked
    ]
    parties = [
        _party(k, task, each, shown, stream, spec, domain)
        for k, (task, each) in enumerate(zip(tasks, runs, strict=True))
    ]
    bundle = Bundle(job, quote, sign(domain, job, CLIENT), tuple(shown), tuple(parties))
    return Played(spec, requests, posting, sealing, checked, bundle, registry)


def _party(
    k: int,
    task: Task,
    run: CommittedTrace,
    shown: Sequence[CheckedOutput],
    stream: Hash32,
    spec: ModelSpec,
    domain: Domain,
) -> PartyEvidence:
    openings = {}
    for place, each in enumerate(shown):
        prompt, new = len(each.request.tokens), len(each.output)
        where = positions(stream, each.index, prompt, new, spec.positions)
        generated = range(prompt - 1, prompt + new - 1)
        item = each.index if k == 0 else place
        openings[place] = open_positions(run, item, where, generated)
    worker = worker_of(task.worker)
    return PartyEvidence(
        k, task, sign(domain, task, HOT), sign(domain, run.commitment, worker), openings
    )


def worker_of(address: str) -> LocalAccount:
    """The key of a worker."""
    return next(each for each in WORKERS if each.address == address)


def _address(owner: str) -> ChecksumAddress:
    return to_checksum_address(owner)
