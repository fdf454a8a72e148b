"""A small network on Anvil with synthetic commitments: real keys, signatures, draws, no model."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from eth_account import Account
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import Net
from tests.unit.verillm.builders import SPEC
from verillm.chain.anvil import dev_account
from verillm.chain.beacon import beacon
from verillm.chain.contract import Call, Chain, Mined
from verillm.chain.deployment import UNIT
from verillm.chain.events import Claimed, Posted, Sealed, events_of
from verillm.hashing import keccak
from verillm.model import ModelSpec, model_id
from verillm.records import Attestation, Claiming, Posting, Sealing
from verillm.request import Job, Quote, Request, Sampling, requests_root
from verillm.signing import Domain, job_id, sign, struct_hash, task_hash
from verillm.task import (
    Commitment,
    Inner,
    Task,
    draw_commit,
    inference_task,
    inner_hash,
    output_hash,
    outputs_root,
    task_id,
)
from verillm.types import Hash32, JobId, ModelId, Outcome, Reason

STAKE = 100 * UNIT
PRICE = 10**12
WORKERS = 5


@cache
def hot(index: int) -> LocalAccount:
    account: LocalAccount = Account.from_key(keccak(b"hot key %d" % index))
    return account


@dataclass(frozen=True)
class Operator:
    """An operator: its account, its hot key, its seat."""

    account: LocalAccount
    hot: LocalAccount
    seat: int = -1

    @property
    def address(self) -> Any:
        return self.account.address


@dataclass
class Running:
    """A job at some stage, with everything that its next call takes."""

    job: Job
    quote: Quote
    requests: tuple[Request, ...]
    secret: Hash32
    task: Task
    inner: Inner
    commitment: Hash32
    outputs: tuple[tuple[int, ...], ...]
    outputs_root: Hash32
    lock: int
    client_signature: bytes
    worker_signature: bytes
    inferencer: Operator
    posting: Posting = field(init=False)
    sealing: Sealing = field(init=False)
    claiming: Claiming = field(init=False)
    mined: list[Mined] = field(default_factory=list)


class World:
    """One model, one client, one scheduler, five workers with a seat each."""

    size: int = WORKERS
    prompt: tuple[int, ...] = (1, 2, 3)
    output: tuple[int, ...] = (5, 6, 7, 8)

    def __init__(self, net: Net, spec: ModelSpec = SPEC) -> None:
        self.net, self.spec = net, spec
        self.model: ModelId = model_id(spec)
        self.domain: Domain = net.deployment.domain
        self.client = dev_account(1)
        self.scheduler = Operator(dev_account(2), hot(2))
        self.workers = [Operator(dev_account(3 + i), hot(3 + i)) for i in range(self.size)]
        self.auditor = Operator(dev_account(3 + self.size), hot(3 + self.size))
        self._count = 0
        self._furnish()

    def chain(self, account: LocalAccount) -> Chain:
        return self.net.chain(account)

    def send(self, account: LocalAccount, call: Call) -> Mined:
        return self.chain(account).send(call)

    @property
    def calls(self) -> Any:
        return self.chain(self.client).calls

    def _furnish(self) -> None:
        calls, deployer = self.calls, dev_account(0)
        self.send(deployer, calls.register_model(self.spec))
        for operator in (self.scheduler, self.auditor, *self.workers):
            self.send(deployer, calls.mint(operator.address, STAKE))
            self.send(operator.account, calls.approve(STAKE))
            self.send(operator.account, calls.add_stake(STAKE))
            self.send(operator.account, calls.set_hot_key(operator.hot.address))
        for index, worker in enumerate(self.workers):
            self.send(worker.account, calls.join(self.model, PRICE))
            self.workers[index] = replace(worker, seat=index)
        self.send(deployer, calls.mint(self.client.address, STAKE))
        self.send(self.client, calls.approve(STAKE))
        self.send(self.client, calls.deposit(self.scheduler.address, STAKE // 2))
        self.net.pass_time(1)

    # ── A job, step by step ─────────────────────────────────────────────────────────────────────
    def draft(self, requests: int = 1, inferencer: int = 0, **job: Any) -> Running:
        """A job that everyone signed and nobody sent."""
        self._count += 1
        worker, now = self.workers[inferencer], self.chain(self.client).now()
        salt = keccak(b"salt %d" % self._count)
        asked = tuple(self.asked(salt) for _ in range(requests))
        secret = keccak(b"secret %d" % self._count)
        quote = Quote(self.scheduler.address, self.model, PRICE, draw_commit(secret), now + 300)
        fields = {
            "client": self.client.address,
            "quote": struct_hash(quote),
            "requests_root": requests_root(asked),
            "requests": requests,
            "max_fee": PRICE * (len(self.prompt) + len(self.output) + 4) * requests,
            "deadline": now + 300,
            "nonce": self._count,
        }
        signed = Job(**{**fields, **job})
        identity = job_id(self.domain, signed)
        lock = 2 * signed.max_fee
        task = inference_task(
            secret, identity, asked, worker.address, self.model, now + 300, lock, signed.max_fee
        )
        outputs = tuple(self.output for _ in asked)
        root = outputs_root([output_hash(task.task_id, output) for output in outputs])
        inner = self.inferred(task, outputs)
        commitment = Commitment(task.task_id, inner_hash(inner))
        return Running(
            job=signed,
            quote=quote,
            requests=asked,
            secret=secret,
            task=task,
            inner=inner,
            commitment=struct_hash(commitment),
            outputs=outputs,
            outputs_root=root,
            lock=lock,
            client_signature=sign(self.domain, signed, self.client),
            worker_signature=sign(self.domain, commitment, worker.hot),
            inferencer=worker,
        )

    def asked(self, salt: bytes) -> Request:
        """A request as the client signs it."""
        return Request(salt, self.prompt, len(self.output) + 4, Sampling())

    def inferred(self, task: Task, outputs: Sequence[Sequence[int]]) -> Inner:
        """What the inferencer commits to: here, to nothing that could be opened."""
        prompts, new = sum(item.length for item in task.items), sum(map(len, outputs))
        return Inner(task_hash(task), keccak(task.task_id), len(task.items), prompts, new)

    def verified(self, run: Running, k: int, member: Operator) -> Hash32:
        """What committee member k commits to: here, to nothing that could be opened."""
        return keccak(b"inner %d" % k + run.secret)

    def post_call(self, run: Running) -> Call:
        call: Call = self.calls.post(
            run.job, run.quote, run.inferencer.seat, run.commitment, run.outputs_root, run.lock,
            run.client_signature, run.worker_signature,
        )  # fmt: skip
        return call

    def post(self, requests: int = 1, **options: Any) -> Running:
        """A posted job."""
        run = self.draft(requests, **options)
        self._sent(run, self.scheduler.account, self.post_call(run))
        run.posting = _only(run, Posted).posting
        return run

    def id_of(self, run: Running) -> JobId:
        return job_id(self.domain, run.job)

    def committee(self, run: Running) -> list[Operator]:
        """Who was drawn, as the chain says; tests hold it against verillm.draw."""
        chain = self.chain(self.client)
        hash_ = beacon(chain, run.posting.posted_block)
        owners = chain.draw_of(run.posting, run.secret, hash_).owners
        by_owner = {worker.address: worker for worker in self.workers}
        return [by_owner[owner] for owner in owners]

    def committed(self, run: Running) -> tuple[list[Hash32], list[bytes]]:
        """Synthetic commitments of the committee and their signatures, in drawn order."""
        inners, signatures = [], []
        for k, member in enumerate(self.committee(run), start=1):
            inner = self.verified(run, k, member)
            commitment = Commitment(task_id(run.secret, self.id_of(run), k), inner)
            inners.append(inner)
            signatures.append(sign(self.domain, commitment, member.hot))
        return inners, signatures

    def seal(self, run: Running) -> Running:
        """Seal a posted job."""
        inners, signatures = self.committed(run)
        call = self.calls.seal(run.posting, run.secret, run.inner, inners, signatures)
        self._sent(run, self.scheduler.account, call)
        run.sealing = _only(run, Sealed).sealing
        return run

    def attestations(self, run: Running, outcome: Outcome, reason: Reason) -> list[bytes]:
        """Everyone's signature under a verdict."""
        attested = Attestation(self.id_of(run), outcome, reason, self.bundle(run))
        return [sign(self.domain, attested, each.hot) for each in self.committee_of(run)]

    def committee_of(self, run: Running) -> list[Operator]:
        by_owner = {worker.address: worker for worker in self.workers}
        return [by_owner[member.owner] for member in run.sealing.committee]

    @staticmethod
    def bundle(run: Running) -> Hash32:
        return keccak(b"bundle" + run.secret)

    def claim(
        self,
        run: Running,
        outcome: Outcome = Outcome.ACCEPT,
        reason: Reason = Reason.NONE,
        attestations: Sequence[bytes] = (),
        paid: int = 0b111,
    ) -> Running:
        """Claim a verdict on a sealed job."""
        record = (run.posting, run.sealing)
        call = self.calls.claim(*record, outcome, reason, paid, self.bundle(run), attestations)
        self._sent(run, self.scheduler.account, call)
        run.claiming = _only(run, Claimed).claiming
        return run

    def finalize(self, run: Running) -> Running:
        """Let the window pass, and settle."""
        self.net.pass_time(self.net.config.dispute_window + 1)
        call = self.calls.finalize(run.posting, run.sealing, run.claiming)
        self._sent(run, self.scheduler.account, call)
        return run

    def _sent(self, run: Running, account: LocalAccount, call: Call) -> None:
        run.mined.append(self.send(account, call))


def _only(run: Running, kind: type[Any]) -> Any:
    (event,) = (each for each in events_of(run.mined[-1]) if isinstance(each, kind))
    return event
