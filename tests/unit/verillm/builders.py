"""One whole job in memory: real keys, hashes, trees and signatures over states drawn at random.

Tokens follow from the states by the real sampler over a small random head; verifiers' states are
the inferencer's with the noise of another machine. Tests deviate in one place by `Plan`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from eth_account import Account
from eth_utils.address import to_checksum_address

from verillm.draw import checked_requests, draw, position_seed, positions
from verillm.evidence import Bundle, CheckedOutput, PartyEvidence
from verillm.head import HeadArray
from verillm.model import CheckProfile, LayerProfile, ModelSpec, model_id
from verillm.records import Member, Posting, Sealing, record_hash
from verillm.request import (
    Job,
    Quote,
    Request,
    Sampling,
    requests_root,
    requests_tree,
)
from verillm.sampling import select
from verillm.signing import Domain, job_id, sign, struct_hash, task_hash
from verillm.statistics import to_floats
from verillm.task import (
    Item,
    Task,
    draw_commit,
    inference_task,
    inner_hash,
    outputs_tree,
    verification_task,
)
from verillm.trace import CommittedTrace, Trace, TraceItem, commit, open_positions
from verillm.types import Bits, Floats, Hash32, JobId, ModelId

DOMAIN = Domain(31337, to_checksum_address("0x" + "5f" * 20))
VOCABULARY, HIDDEN, LAYERS, SLICE_DIMS = 96, 32, 2, 16
END = 0
PROFILE = CheckProfile(
    mean_refund=1_600_000,
    mean_slash=2_400_000,
    over_refund=2,
    over_slash=4,
    margin_mean=5_000,
    margin_max_refund=250_000,
    margin_max_slash=400_000,
    mass_epsilon=10_000,
    logit_tau=500_000,
    min_positions=4,
    many_positions=0,
    mean_refund_many=0,
    mean_slash_many=0,
    layers=(LayerProfile(-6, (15_000,) * 3, (60_000,) * 3),) * (LAYERS + 1),
)
SPEC = ModelSpec(
    name="synthetic",
    parent=ModelId(Hash32(bytes(32))),
    weights_root=Hash32(b"w" * 32),
    head_root=Hash32(b"h" * 32),
    tokenizer_hash=Hash32(b"t" * 32),
    template_hash=Hash32(b"c" * 32),
    dtype=1,
    vocabulary=VOCABULARY,
    hidden=HIDDEN,
    context=256,
    depth=16,
    committed_layers=(8, 16),
    slice_dims=SLICE_DIMS,
    end_tokens=(END,),
    head_scale=1,
    token_proof=True,
    seat_stake=10**18,
    committee=3,
    checked_requests=2,
    positions=8,
    profile=PROFILE,
)
SCHEDULER, CLIENT = (Account.from_key(name.encode() * 32) for name in "sc")
SECRET = Hash32(b"r" * 32)
POST_BEACON, SEAL_BEACON = Hash32(b"p" * 32), Hash32(b"q" * 32)


def bf16(values: Floats) -> Bits:
    """float32 cut to bf16 bits."""
    return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def head() -> HeadArray:
    """Rows large enough that the model is neither sure nor clueless."""
    rng = np.random.default_rng(7)
    return HeadArray(to_floats(bf16(rng.standard_normal((VOCABULARY, HIDDEN), np.float32) * 0.4)))


def true_states(seed: bytes, count: int) -> tuple[Bits, Bits]:
    """What the true model computes at each position, however long its run is."""
    rows = [_row(seed, position) for position in range(count)]
    return np.stack([slices for slices, _ in rows]), np.stack([final for _, final in rows])


def noisy(bits: Bits, key: int) -> Bits:
    """Another machine's rounding: the last bit of a value in three."""
    rng = np.random.default_rng(key)
    changed: Bits = bits ^ (rng.integers(0, 3, bits.shape) == 0).astype(np.uint16)
    return changed


@dataclass
class Plan:
    """What a job looks like, and where it deviates from honesty."""

    requests: int = 3
    prompt: int = 6
    most: int = 10
    sampling: Sampling = field(default_factory=Sampling)
    spec: ModelSpec = SPEC
    run: Callable[[int, TraceItem], TraceItem] = lambda party, item: item
    """Change one party's run before it commits."""
    task: Callable[[int, Task], Task] = lambda party, task: task
    """Change one party's task before it runs."""
    finish: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda output: output
    """Change the inferencer's output."""
    silent: frozenset[int] = frozenset()


@dataclass
class World:
    """A sealed job with all that anyone can know of it."""

    plan: Plan
    posting: Posting
    sealing: Sealing
    bundle: Bundle
    job_id: JobId
    committed: list[CommittedTrace]

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        return self.plan.spec


def make_requests(plan: Plan) -> list[Request]:
    """Salted prompts."""
    rng = np.random.default_rng(11)
    return [
        Request(
            bytes([65 + number]) * 32,
            tuple(rng.integers(1, VOCABULARY, plan.prompt + number).tolist()),
            plan.most,
            plan.sampling,
        )
        for number in range(plan.requests)
    ]


def infer(item: Item, plan: Plan) -> tuple[int, ...]:
    """The output that the true model's states choose."""
    rows, output = head(), list[int]()
    _, finals = true_states(item.seed, len(item.tokens) + item.max_new_tokens)
    for position in range(len(item.tokens) - 1, len(finals) - 1):
        logits = rows.logits(to_floats(finals[position : position + 1]))[0]
        output.append(select(logits, item.sampling, item.seed, position))
        if output[-1] in plan.spec.end_tokens:
            break
    return plan.finish(tuple(output))


def make_world(plan: Plan | None = None) -> World:
    """Run, post, draw, verify, seal and open one job."""
    plan = plan or Plan()
    requests = make_requests(plan)
    quote = Quote(SCHEDULER.address, model_id(plan.spec), 10**9, draw_commit(SECRET), 2_000_000_000)
    job = Job(
        CLIENT.address,
        struct_hash(quote),
        requests_root(requests),
        plan.requests,
        10**15,
        2_000_000_000,
        1,
    )
    identity = job_id(DOMAIN, job)
    worker = [Account.from_key(bytes([party + 1]) * 32) for party in range(plan.spec.committee + 1)]
    first = plan.task(
        0,
        inference_task(
            SECRET,
            identity,
            requests,
            worker[0].address,
            model_id(plan.spec),
            2_000_000_000,
            10**16,
            10**15,
        ),
    )
    outputs = [infer(item, plan) for item in first.items]
    inferred = _run(0, first, outputs, plan)
    hashes = [leaf.output_hash for leaf in inferred.leaves]
    posting = Posting(
        job,
        quote,
        0,
        worker[0].address,
        struct_hash(inferred.commitment),
        outputs_tree(hashes).root,
        10**16,
        2 * 10**16,
        8,
        1,
        1,
    )
    drawn = draw(SECRET, posting.commitment, POST_BEACON)
    checked = checked_requests(drawn, plan.requests, plan.spec.checked_requests)
    committed, tasks = [inferred], [first]
    for party in range(1, plan.spec.committee + 1):
        given = plan.task(
            party,
            verification_task(
                SECRET,
                identity,
                party,
                [(q, requests[q]) for q in checked],
                [outputs[q] for q in checked],
                worker[party].address,
                model_id(plan.spec),
                2_000_000_000,
                10**16,
                10**15,
                [2] * len(checked),
            ),
        )
        tasks.append(given)
        committed.append(_run(party, given, [(1, 1)] * len(given.items), plan))
    members = tuple(
        Member(seat, each.address, inner_hash(trace.inner), 10**16)
        for seat, (each, trace) in enumerate(zip(worker[1:], committed[1:], strict=True))
    )
    sealing = Sealing(SECRET, POST_BEACON, inferred.inner, 10**12, 2, members)
    stream = position_seed(record_hash(posting, sealing), SEAL_BEACON)
    parties = []
    for party, (trace, given) in enumerate(zip(committed, tasks, strict=True)):
        openings = {}
        for at, q in enumerate(checked):
            prompt, new = len(requests[q].tokens), len(outputs[q])
            where = positions(stream, q, prompt, new, plan.spec.positions)
            item = at if party else q
            if party in plan.silent or item >= len(trace.leaves):
                continue
            last = len(trace.trace.items[item].tokens) - 1
            full = [position for position in where if position < last]
            generated = [p for p in range(prompt - 1, prompt + new - 1) if p < last]
            openings[at] = open_positions(trace, item, full, generated if party else ())
        parties.append(
            PartyEvidence(
                party,
                given,
                sign(DOMAIN, given, SCHEDULER),
                sign(DOMAIN, trace.commitment, worker[party]),
                openings,
            )
        )
    shown = tuple(
        CheckedOutput(
            q,
            requests[q],
            requests_tree(requests).proof(q),
            outputs[q],
            outputs_tree(hashes).proof(q),
        )
        for q in checked
    )
    bundle = Bundle(job, quote, sign(DOMAIN, job, CLIENT), shown, tuple(parties))
    return World(plan, posting, sealing, bundle, identity, committed)


def reseed(world: World, **changes: object) -> World:
    """The world with another bundle."""
    return replace(world, bundle=replace(world.bundle, **changes))  # type: ignore[arg-type]


def _run(party: int, given: Task, outputs: list[tuple[int, ...]], plan: Plan) -> CommittedTrace:
    items = []
    for number, (item, output) in enumerate(zip(given.items, outputs, strict=True)):
        tokens = item.tokens + output
        slices, finals = true_states(item.seed, len(tokens) - 1)
        honest = TraceItem(
            number,
            len(item.tokens),
            tokens,
            noisy(slices, 100 * party + number),
            # The sampler's input is the committed state itself, so the inferencer adds no noise.
            noisy(finals, 1000 + 100 * party + number) if party else finals,
        )
        items.append(plan.run(party, honest))
    return commit(Trace(task_hash(given), tuple(items)), given)


def _row(seed: bytes, position: int) -> tuple[Bits, Bits]:
    rng = np.random.default_rng([position, *seed[:8]])
    slices = rng.standard_normal((LAYERS, SLICE_DIMS), np.float32)
    return bf16(slices), bf16(rng.standard_normal(HIDDEN, np.float32) * 2)
