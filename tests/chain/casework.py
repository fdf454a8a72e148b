"""Jobs that can be driven to any end: signed, committed to real traces, opened one by one.

Nothing here knows a chain: what was posted and sealed comes from the events that both sides agreed
on, and who was drawn from the reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from eth_account import Account
from eth_account.signers.local import LocalAccount

from tests.reference import Network
from tests.unit.verillm.builders import SPEC, bf16, noisy
from verillm.chain.calls import Checked, Opening
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.codec import CHUNK, bundle_chunks, bundle_hash
from verillm.draw import checked_requests, draw, is_forced, position_seed, positions
from verillm.hashing import keccak
from verillm.model import ModelSpec, model_id
from verillm.records import Attestation, Claiming, Posting, Sealing, record_hash
from verillm.request import Job, Quote, Request, Sampling, requests_root
from verillm.settlement import least_lock
from verillm.signing import job_id, sign, struct_hash, task_hash
from verillm.task import (
    Task,
    draw_commit,
    inference_task,
    output_hash,
    outputs_root,
    verification_task,
)
from verillm.trace import CommittedTrace, Trace, TraceItem, commit, open_positions, state_bytes
from verillm.types import Bits, ChecksumAddress, Hash32, JobId, ModelId, Outcome, Reason

PRICE: Final = 7
"""Small, so that every division leaves a rest."""
PROMPT: Final = (1, 2, 3)
SMALL: Final[ModelSpec] = replace(SPEC, seat_stake=10_000, positions=4)
NAN: Final = 0x7FC0


@cache
def key(name: str) -> LocalAccount:
    """A key that exists for tests only."""
    account: LocalAccount = Account.from_key(keccak(name.encode()))
    return account


@dataclass(frozen=True)
class Plan:
    """What a job looks like. By party: `wrong` states, states that are no numbers, other texts.

    `overdue`: the inferencer's task had its time long ago, so that it can be claimed at once.
    `alike`: all who are wrong run one other model.
    """

    requests: int = 1
    output: tuple[int, ...] = (5, 6, 7, 8, 9)
    wrong: frozenset[int] = frozenset()
    nan: frozenset[int] = frozenset()
    other: frozenset[int] = frozenset()
    overdue: bool = False
    alike: bool = False


@dataclass
class Case:
    """One job with all that its next call takes; parties are 0 the inferencer, 1..m members.

    worth : the fee that its tasks name, whatever its client signed.
    """

    plan: Plan
    number: int
    client: LocalAccount
    scheduler: LocalAccount
    job: Job
    quote: Quote
    requests: tuple[Request, ...]
    secret: Hash32
    worker: LocalAccount
    seat: int
    lock: int
    worth: int
    runs: list[CommittedTrace]
    outputs_root: Hash32
    made: dict[tuple[int, int], tuple[Task, CommittedTrace]]
    posting: Posting | None = None
    sealing: Sealing | None = None
    claiming: Claiming | None = None

    @property
    def commitment(self) -> Hash32:
        """What `post` names the inferencer's run by."""
        return struct_hash(self.runs[0].commitment)

    @property
    def bundle(self) -> Hash32:
        """What a claim names its evidence by."""
        return bundle_hash(self.evidence)

    @property
    def evidence(self) -> bytes:
        """What can be demanded of a claim: of one chunk, or of two."""
        return bytes(CHUNK if self.plan.requests > 2 else 0) + self.secret


class Casework:
    """Drafts jobs for one model, as the reference stands."""

    def __init__(self, reference: Network, spec: ModelSpec = SMALL) -> None:
        self.reference, self.spec = reference, spec
        self.domain = reference.domain
        self.model: ModelId = model_id(spec)
        self.count = 0

    # ── Before the seal ─────────────────────────────────────────────────────────────────────────
    def draft(
        self,
        plan: Plan,
        client: LocalAccount,
        scheduler: LocalAccount,
        worker: LocalAccount,
        seat: int,
        unit_price: int = PRICE,
        **changes: Any,
    ) -> Case:
        """A job that is ready to be posted; `changes` to what its client signs."""
        self.count += 1
        number, now = self.count, self.reference.now
        salt, secret = keccak(b"salt %d" % number), keccak(b"secret %d" % number)
        requests = tuple(
            Request(salt, PROMPT, len(plan.output) + 4, Sampling()) for _ in range(plan.requests)
        )
        quote = Quote(scheduler.address, self.model, unit_price, draw_commit(secret), now + 300)
        tokens = len(PROMPT) + len(plan.output) + 4
        worth = PRICE * tokens * plan.requests
        job = Job(
            client=client.address,
            quote=struct_hash(quote),
            requests_root=requests_root(requests),
            requests=plan.requests,
            max_fee=worth,
            deadline=now + 300,
            nonce=number,
        )
        job = replace(job, **changes)
        lock = least_lock(job.max_fee, self.reference.config.kappa_bps)
        identity = job_id(self.domain, job)
        due = now - self.reference.config.seal_window if plan.overdue else now + 300
        task = inference_task(
            secret, identity, requests, worker.address, self.model, due, lock, worth
        )
        outputs = (plan.output,) * plan.requests
        root = outputs_root([output_hash(task.task_id, output) for output in outputs])
        run = self.run(plan, 0, task, outputs)
        return Case(
            plan, number, client, scheduler, job, quote, requests, secret, worker, seat, lock,
            worth, [run], root, {(0, 0): (task, run)},
        )  # fmt: skip

    def id_of(self, case: Case) -> JobId:
        """The job's id."""
        return job_id(self.domain, case.job)

    def post(self, case: Case, signer: LocalAccount | None = None) -> list[Any]:
        """The arguments of `post`."""
        signatures = (
            sign(self.domain, case.job, case.client),
            sign(self.domain, case.runs[0].commitment, signer or case.worker),
        )
        values = [case.job, case.quote, case.seat, case.commitment, case.outputs_root, case.lock]
        return [*values, *signatures]

    def members(self, case: Case) -> list[tuple[ChecksumAddress, int]]:
        """Who has to commit beside the inferencer, and the number of its task."""
        panel = self.reference.state.panels.get(self.id_of(case))
        if panel is not None:
            return [(place.owner, place.number) for place in panel.places]
        posting = posted(case)
        drawn = self.reference.drawn_seats(posting, self._seed(case))
        return [(owner, k) for k, (_, owner) in enumerate(drawn, start=1)]

    def seal(self, case: Case, keys: Mapping[ChecksumAddress, LocalAccount]) -> list[Any]:
        """The arguments of `seal`: the drawn committee runs its tasks and signs."""
        members = self.members(case)
        case.runs[1:] = [self.member(case, party)[1] for party in range(1, len(members) + 1)]
        signatures = [
            sign(self.domain, run.commitment, keys[owner])
            for run, (owner, _) in zip(case.runs[1:], members, strict=True)
        ]
        inners = [run.commitment.inner for run in case.runs[1:]]
        return [posted(case), case.secret, case.runs[0].inner, inners, signatures]

    def member(self, case: Case, party: int) -> tuple[Task, CommittedTrace]:
        """What the member in a place was given, and what it made of it; 0 is the inferencer."""
        if party == 0:
            return case.made[0, 0]
        owner, number = self.members(case)[party - 1]
        if (party, number) not in case.made:
            case.made[party, number] = self._member(case, party, number, owner)
        return case.made[party, number]

    def _seed(self, case: Case) -> Hash32:
        posting = posted(case)
        beacon = self.reference.hashes[posting.posted_block]
        return draw(case.secret, posting.commitment, beacon)

    def _member(
        self, case: Case, party: int, number: int, owner: ChecksumAddress
    ) -> tuple[Task, CommittedTrace]:
        plan, count = case.plan, min(case.job.requests, len(case.requests))
        shown = checked_requests(self._seed(case), count, self.spec.checked_requests)
        # Who was handed another text commits to it: one of another length, or with another token.
        wrong = (*plan.output, 90) if party % 2 else (*plan.output[:-2], 90, 91)
        output = wrong if party in plan.other else plan.output
        task = verification_task(
            case.secret,
            self.id_of(case),
            number,
            [(q, case.requests[q]) for q in shown],
            [output] * len(shown),
            owner,
            self.model,
            case.job.deadline,
            case.lock,
            case.worth,
            [2] * len(shown),
        )
        return task, self.run(plan, party, task, [(1, 1)] * len(shown))

    def run(
        self, plan: Plan, party: int, task: Task, outputs: Sequence[Sequence[int]]
    ) -> CommittedTrace:
        """What a party makes of a task."""
        items = []
        for number, (item, output) in enumerate(zip(task.items, outputs, strict=True)):
            tokens = (*item.tokens, *output)
            slices, finals = self.states(plan, item.seed, len(tokens) - 1, party)
            items.append(TraceItem(number, item.length, tokens, slices, finals))
        return commit(Trace(task_hash(task), tuple(items)), task)

    def states(self, plan: Plan, seed: bytes, count: int, party: int) -> tuple[Bits, Bits]:
        """What a party's model gives for some positions of an item."""
        number = int.from_bytes(seed[:4], "big")
        model = party if party in plan.wrong else 99
        rng = np.random.default_rng([number, 98 if plan.alike and model != 99 else model])
        shape = self.spec.shape
        rows = rng.standard_normal((64, shape.layers, shape.slice_dims), np.float32)[:count]
        finals = rng.standard_normal((64, shape.hidden), np.float32)[:count]
        shown = noisy(bf16(rows), number + party), noisy(bf16(finals), number + 10 + party)
        if party in plan.nan:
            shown[1][:, 0] = NAN
        return shown

    # ── After the seal ──────────────────────────────────────────────────────────────────────────
    def attestations(
        self, case: Case, outcome: Outcome, reason: Reason, signers: Sequence[LocalAccount | None]
    ) -> list[bytes]:
        """One entry a member, empty where nobody signs."""
        said = self.attestation(case, outcome, reason)
        return [b"" if who is None else sign(self.domain, said, who) for who in signers]

    def attestation(self, case: Case, outcome: Outcome, reason: Reason) -> Attestation:
        """A verdict for the committee to sign."""
        return Attestation(self.id_of(case), outcome, reason, case.bundle)

    def record(self, case: Case) -> tuple[Posting, Sealing, Claiming]:
        """What callers of the public round bring; what nobody claimed is empty."""
        empty = Claiming(
            ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, Hash32(bytes(32)), self._beacon(case)
        )
        return posted(case), sealed(case), case.claiming or empty

    def _beacon(self, case: Case) -> Hash32:
        return self.reference.hashes[sealed(case).sealed_block]

    def checked(self, case: Case) -> tuple[int, ...]:
        """The checked requests in drawn order."""
        sealing = sealed(case)
        seed = draw(case.secret, posted(case).commitment, sealing.beacon)
        return checked_requests(seed, case.job.requests, self.spec.checked_requests)

    def forced(self, case: Case) -> bool:
        """Whether the draw demands a public round."""
        seed = draw(case.secret, posted(case).commitment, sealed(case).beacon)
        return is_forced(seed, self.reference.config.forced_every)

    def lengths(self, case: Case, place: int) -> Checked:
        """The place with the lengths that `reveal` fixes."""
        return Checked(place, len(PROMPT), len(case.plan.output))

    def where(self, case: Case, place: int) -> tuple[int, ...]:
        """The challenged positions of a checked request, in drawn order."""
        posting, sealing, claiming = self.record(case)
        seed = position_seed(record_hash(posting, sealing), claiming.beacon)
        lengths = (len(PROMPT), len(case.plan.output))
        return positions(seed, self.checked(case)[place], *lengths, self.spec.positions)

    def reveal(self, case: Case, place: int) -> list[Any]:
        """The arguments of `reveal`."""
        item = self.checked(case)[place]
        run = case.runs[0]
        return [*self.record(case), place, run.leaves[item], run.items.proof(item)]

    def serve_bundle(self, case: Case, index: int) -> list[Any]:
        """The arguments of `serve_bundle`."""
        chunks = bundle_chunks(case.evidence)
        return [*self.record(case), index, chunks[index], [keccak(chunk) for chunk in chunks]]

    def serve(self, case: Case, place: int, index: int, party: int) -> list[Any]:
        """The arguments of `serve`."""
        values = [*self.record(case), self.spec, self.lengths(case, place), index]
        return [*values, self.opening(case, party, place, index)]

    def compare(self, case: Case, place: int, index: int, parties: Sequence[int]) -> list[Any]:
        """The arguments of `compare`."""
        values = [*self.record(case), self.spec, self.lengths(case, place), index]
        return [*values, [self.opening(case, party, place, index) for party in parties]]

    def opening(self, case: Case, party: int, place: int, index: int) -> Opening:
        """One party's evidence at one position; of a shorter text, at the last that it has."""
        item = place if party else self.checked(case)[place]
        run = case.runs[party]
        last = len(run.trace.items[item].tokens) - 2
        position = min(self.where(case, place)[index], last)
        opened = open_positions(run, item, [position], ())
        (entry,) = opened.entries
        assert entry.slices is not None
        return Opening(
            party, opened.inner, opened.leaf, opened.item_path, position, entry.token, entry.next,
            state_bytes(entry.slices), state_bytes(entry.final), entry.path,
        )  # fmt: skip


def posted(case: Case) -> Posting:
    """What its `post` fixed."""
    assert case.posting is not None
    return case.posting


def sealed(case: Case) -> Sealing:
    """What its `seal` fixed."""
    assert case.sealing is not None
    return case.sealing
