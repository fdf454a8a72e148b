"""Gas of every call off the happy path, as a real chain charges it: EIP-7623's floor included.

Each flow runs on a private Anvil, at the default model's width (576), with a committee of three and
its larger one of seven; what is not wide is measured with a prompt of 8192 tokens or an output of
2048, as the name says. `bench/gas.py` prints it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from eth_account.signers.local import LocalAccount

from tests.chain.appeals import AppealWorld, Second
from tests.chain.conftest import Net
from tests.chain.rounds import widened
from tests.chain.test_summons import (
    UNCLAIMED,
    UNSEALED,
    answer,
    claim,
    signed_places,
    summon,
    work,
)
from tests.chain.world import Running, World
from tests.unit.verillm.builders import SPEC, VOCABULARY, bf16
from verillm.chain.contract import Call, Checked, Mined
from verillm.chain.events import Posted, events_of
from verillm.codec import CHUNK, bundle_hash
from verillm.draw import position_seed, positions
from verillm.engine.describe import HEAD_SCALE_ONE
from verillm.hashing import keccak, tokens_bytes
from verillm.model import ModelSpec
from verillm.proofs.find import Proof
from verillm.proofs.rivals import ProvenHead
from verillm.proofs.shown import Entry, Given, HashedTask, Made, Witness
from verillm.records import Attestation, record_hash
from verillm.request import Receipt
from verillm.signing import sign
from verillm.statistics import to_floats
from verillm.task import output_hash, verification_task
from verillm.trace import Opening, open_positions, state_bytes
from verillm.types import Bits, Floats, Hash32, Outcome, Reason
from verillm_node.reverify import TOGETHER, pairs_of

Used = dict[str, list[int]]
LONG = tuple(1 + i % (VOCABULARY - 1) for i in range(8192))
MANY = tuple(1 + i % (VOCABULARY - 1) for i in range(2048))
WIDE = replace(widened(SPEC, hidden=576, slice_dims=256, depth=30), context=16_384, positions=8)
CHUNK_OF_BUNDLE = np.random.default_rng(1).bytes(CHUNK)
DRAWN_AGAIN = 7


class Rows:
    """Random head rows of the default model's width, over the small vocabulary of the worlds."""

    vocabulary = VOCABULARY

    def __init__(self) -> None:
        made = np.random.default_rng(7).standard_normal((VOCABULARY, WIDE.hidden), np.float32)
        self._bits = bf16(0.4 * made)

    def rows(self, first: int, last: int) -> Bits:
        """uint16 [last - first, hidden]."""
        return self._bits[first:last]

    def logits(self, finals: Floats) -> Floats:
        """float32 [n, hidden] to float32 [n, vocabulary]."""
        return finals @ to_floats(self._bits).T


class Measured:
    """Writes down the gas of whatever it sends, under the call's name and a note."""

    used: Used
    note: str = ""

    def send(self, account: LocalAccount, call: Call) -> Mined:
        """As the world that this is mixed into."""
        mined: Mined = super().send(account, call)  # type: ignore[misc]
        name = call.name + (f", {self.note}" if self.note else "")
        self.used.setdefault(name, []).append(mined.gas_used)
        return mined


class Plain(Measured, World):
    """Commitments that nobody opens; eight owners, so that a larger committee can be drawn."""

    size = DRAWN_AGAIN + 1

    @staticmethod
    def bundle(run: Running) -> Hash32:
        """A bundle of one chunk of the largest size."""
        return bundle_hash(CHUNK_OF_BUNDLE)


class Wide(Measured, AppealWorld):
    """Commitments that everybody opens."""

    size = DRAWN_AGAIN + 1


@contextmanager
def undone(net: Net) -> Iterator[None]:
    """What happens inside never happened."""
    snapshot = net.rpc("evm_snapshot")
    yield
    assert net.rpc("evm_revert", snapshot)


# ── Before the seal ──────────────────────────────────────────────────────────────────────────────
def unsealed(world: Plain) -> None:
    """Nobody seals."""
    run = world.post()
    world.net.pass_time(world.net.config.seal_window + 1)
    world.send(world.auditor.account, world.calls.refund(run.posting))


def silent(world: Plain) -> None:
    """A member keeps silent, another answers, the next one takes the place."""
    world.prompt, world.note = LONG, "8192 prompt tokens"
    run = world.post()
    summon(world, run, 0)
    heard = summon(world, run, 1)
    answer(world, run, 1, heard)
    world.net.pass_time(8192 // 50 + 60 + world.net.config.opening_window)
    world.send(world.auditor.account, world.calls.replace(run.posting, 0))
    inners, signatures = signed_places(world, run)
    call = world.calls.seal_summoned(run.posting, run.inner, inners, signatures)
    world.send(world.auditor.account, call)


def dismissed(world: Plain) -> None:
    """One answers, one does not, and nobody seals."""
    run = world.post()
    answer(world, run, 1, summon(world, run, 1))
    summon(world, run, 0)
    config = world.net.config
    world.net.pass_time(4 * config.opening_window + 2 * config.seal_window)
    world.send(world.auditor.account, world.calls.dismiss(run.posting))


def unposted(world: Plain) -> None:
    """A worker claims the fee of a task that its scheduler did not post, and collects it."""
    world.output, world.note = MANY, "2048 new tokens"
    run = world.draft()
    found = work(world, run.task, run.outputs)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    claim(world, found, run.inferencer)
    with undone(world.net):
        world.send(
            world.scheduler.account, world.calls.post_claimed(run.job, run.quote, found.digest)
        )
    world.net.pass_time(world.net.config.unbonding)
    world.send(world.auditor.account, world.calls.collect_task(found.digest))


def contested(world: Plain) -> None:
    """A worker claims the fee of a task whose job was posted."""
    run = world.draft()
    found = work(world, run.task, run.outputs)
    run.inner, run.commitment = found.commitment.inner, found.digest
    run.worker_signature = found.commitment.signature
    posting = _posted(world, run)
    world.net.pass_time(300 + world.net.config.seal_window + 1)
    claim(world, found, run.inferencer)
    call = world.calls.contest_task(found.digest, posting, UNSEALED, UNCLAIMED)
    world.send(world.auditor.account, call)


def _posted(world: Plain, run: Running) -> Any:
    mined = world.send(world.scheduler.account, world.post_call(run))
    (event,) = (each for each in events_of(mined) if isinstance(each, Posted))
    return event.posting


# ── A claim and its bundle ───────────────────────────────────────────────────────────────────────
def demanded(world: Plain) -> None:
    """A bundle is demanded and served; then of another job demanded and not served."""
    for served in (True, False):
        run = world.claim(world.seal(world.post()))
        record = (run.posting, run.sealing, run.claiming)
        world.send(world.auditor.account, world.calls.demand(*record))
        if served:
            hashes = [keccak(CHUNK_OF_BUNDLE)]
            world.note = "64 KiB"
            call = world.calls.serve_bundle(*record, 0, CHUNK_OF_BUNDLE, hashes)
            world.send(world.auditor.account, call)
            world.note = ""
            continue
        world.net.pass_time(world.net.config.opening_window + 1)
        world.send(world.auditor.account, world.calls.void_claim(*record))


def attested(world: Plain) -> None:
    """A false acceptance meets the committee's word: in the challenge, or brought later."""
    for later in (False, True):
        run = world.claim(world.seal(world.post()))
        record = (run.posting, run.sealing, run.claiming)
        said = Attestation(world.id_of(run), Outcome.SLASH, Reason.MARGIN_MAX, world.bundle(run))
        signatures = [sign(world.domain, said, each.hot) for each in world.committee_of(run)]
        word = (said.outcome, said.reason, said.bundle, signatures)
        if not later:
            world.note = "attested"
            world.send(world.auditor.account, world.calls.challenge(*record, *word))
            world.note = ""
            continue
        world.send(world.auditor.account, world.calls.challenge(*record))
        world.send(world.auditor.account, world.calls.attest(*record, said, signatures))


def kept(world: Plain) -> None:
    """A block's hash is kept for a draw."""
    run = world.post()
    world.send(world.auditor.account, world.calls.keep(run.posting.posted_block))


# ── The public rounds ────────────────────────────────────────────────────────────────────────────
def challenged(world: Wide) -> None:
    """A whole public round, then one opening by itself."""
    world.challenge(world.claim(world.seal(world.post(1))))
    run = world.claim(world.seal(world.post(1)))
    record = (run.posting, run.sealing, run.claiming)
    world.send(world.auditor.account, world.calls.challenge(*record))
    where = world.where(run, 0)
    first = world.opening(run, 0, 0, where[0])
    call = world.calls.reveal(*record, 0, first.leaf, first.item_path)
    world.send(world.auditor.account, call)
    checked = Checked(0, len(world.prompt), len(run.outputs[0]))
    call = world.calls.serve(*record, world.spec, checked, 0, first)
    world.send(world.auditor.account, call)


def reverified(world: Wide) -> None:
    """A claim goes to seven new members, two requests, contents in two calls, four to a compare."""
    run = world.claim(world.seal(world.post(2)))
    record, auditor = world.record(run), world.auditor.account
    contents = world.contents(run)
    world.send(auditor, world.calls.reverify(*record, contents[:1]))
    world.send(auditor, world.calls.supply(*record, contents[1:]))
    world.net.pass_time(1)
    made = world.recommit(run, world.convene(run))
    world.net.pass_time(1)
    second = world.start(run, made)
    compare_all(world, run, second)
    job = world.id_of(run)
    member = world.operator(second.sealing.committee[0].owner)
    world.send(member.account, world.calls.reject_tokens(job, 0, Reason.MARGIN_MAX))
    world.conclude(run)


def uncommitted(world: Wide) -> None:
    """A new member does not commit."""
    run = world.claim(world.seal(world.post(1)))
    world.reverify(run)
    world.net.pass_time(1)
    convened = world.convene(run)
    world.recommit(run, replace(convened, committee=convened.committee[:-1]))
    world.net.pass_time(3 * world.net.config.opening_window)
    world.send(world.auditor.account, world.calls.close_commits(world.id_of(run)))


def compare_all(world: Wide, run: Running, second: Second) -> None:
    """Every pair that counts, at most four parties a call, as workers' nodes do it."""
    record = (run.posting, second.sealing, second.claiming)
    seed = position_seed(record_hash(run.posting, second.sealing), second.claiming.beacon)
    wanted, parties = pairs_of(DRAWN_AGAIN, len(second.runs)), range(len(second.runs))
    groups = [tuple(parties[at : at + TOGETHER]) for at in parties[::TOGETHER]]
    for place, request in enumerate(world.checked(run)):
        lengths = (len(world.prompt), len(run.outputs[request]))
        where = positions(seed, request, *lengths, world.spec.positions)
        first = world._shown(run, second, 0, place, where[0])
        call = world.calls.reveal(*record, place, first.leaf, first.item_path)
        world.send(world.auditor.account, call)
        for index, position in enumerate(where):
            for one, other in combinations(groups, 2):
                together = sorted((*one, *other))
                if not wanted & set(combinations(together, 2)):
                    continue
                shown = [world._shown(run, second, party, place, position) for party in together]
                checked = Checked(place, *lengths)
                call = world.calls.compare(*record, world.spec, checked, index, shown)
                world.send(world.auditor.account, call)


# ── Proofs ───────────────────────────────────────────────────────────────────────────────────────
def proven(world: Wide, rows: ProvenHead) -> None:
    """A rival beats a token by the inferencer's own state; by two members'; a false receipt."""
    run = world.claim(world.seal(world.post(1)))
    record = (run.posting, run.sealing, run.claiming)
    traces = world.runs[run.task.task_id]
    position = len(world.prompt) - 1
    token = run.outputs[0][0]
    item = run.task.items[0]
    own = open_positions(traces[0], 0, [position], ())
    rival = rows.best(own.entries[0].final, item, position, token, world.spec.profile.logit_tau)
    assert rival is not None
    given = Given(own.inner, HashedTask.of(run.task), 0, item)
    state, shown = state_bytes(own.entries[0].final), rows.rival(token, rival)
    values = (world.spec, given, Made.of(own), Entry.of(own.entries[0]), state, shown)
    with undone(world.net):
        _prove(world, record, Proof("marginOwn", 0, Reason.MARGIN_MAX, "", values))
    witnesses = tuple(_witness(world, run, k, position) for k in (1, 2))
    tokens = tokens_bytes(world.prompt + run.outputs[0])
    word = (world.spec, given, Made.of(own), tokens, witnesses, shown)
    with undone(world.net):
        _prove(world, record, Proof("marginCommittee", None, Reason.MARGIN_MAX, "", word))
    receipt = Receipt(world.id_of(run), run.task.task_id, 0, keccak(b"another output"))
    signature = sign(world.domain, receipt, world.scheduler.hot)
    posted = output_hash(run.task.task_id, run.outputs[0])
    false = (receipt, signature, posted, ())
    _prove(world, record, Proof("receiptDiffers", 255, Reason.RECEIPT_DIFFERS, "", false))


def _witness(world: Wide, run: Running, k: int, position: int) -> Witness:
    member = world.committee_of(run)[k - 1]
    checked = world.checked(run)
    task = verification_task(
        run.secret, world.id_of(run), k, [(q, run.requests[q]) for q in checked],
        [run.outputs[q] for q in checked], member.address, world.model, run.job.deadline,
        run.lock, 0, [2] * len(checked),
    )  # fmt: skip
    opened: Opening = open_positions(world.runs[run.task.task_id][k], 0, [position], ())
    given = Given(opened.inner, HashedTask.of(task), 0, task.items[0])
    return Witness.of(k, given, opened, opened.entries[0])


def _prove(world: Wide, record: Any, proof: Proof) -> None:
    world.send(world.auditor.account, world.calls.prove(*record, proof))


FLOWS: tuple[tuple[type[Plain] | type[Wide], Callable[[Any], None]], ...] = (
    (Plain, unsealed),
    (Plain, silent),
    (Plain, dismissed),
    (Plain, unposted),
    (Plain, contested),
    (Plain, demanded),
    (Plain, attested),
    (Plain, kept),
    (Wide, challenged),
    (Wide, reverified),
    (Wide, uncommitted),
)


def measure(net: Net) -> Used:
    """Gas of each call by name, every flow on a chain that knows of no other."""
    used: Used = {}
    rows = ProvenHead(Rows())  # type: ignore[arg-type]
    spec: ModelSpec = replace(WIDE, head_root=rows.tree.root, head_scale=HEAD_SCALE_ONE)
    for kind in (Plain, Wide):
        with undone(net):
            kind.used = {}  # what furnishes the world is not measured
            world = kind(net, spec)
            world.used = used
            if isinstance(world, Wide):
                world.output = tuple(range(5, 15))
            for own, flow in FLOWS:
                if own is kind:
                    with undone(net):
                        flow(world)
                    world.note, world.prompt = "", World.prompt
                    world.output = tuple(range(5, 15)) if kind is Wide else World.output
            if isinstance(world, Wide):
                with undone(net):
                    proven(world, rows)
    return used
