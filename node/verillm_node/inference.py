"""The first step of a job: pick a worker, stream its tokens to the client, keep its commitment.

A worker that dies, stalls or refuses costs the client nothing: the same task, under the same seed,
goes to another one. Honest workers agree on the text almost always, so the client usually hears no
more than a pause; where they differ, a `restart` event tells it to begin again at token 0.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from random import SystemRandom

from eth_typing import ChecksumAddress

from verillm.api import CommitmentEvent, FailedEvent, ReceiptEvent, TaskSubmission, TokenEvent
from verillm.chain.contract import Call
from verillm.errors import (
    ChainUnreachable,
    DeadlinePassedError,
    DepositTooSmall,
    NodeError,
    NoWorkers,
    QuoteExpiredError,
    ReplayError,
    SignatureError,
    VeriLLMError,
    WorkerFailed,
)
from verillm.request import Receipt
from verillm.settlement import least_lock
from verillm.signing import sign
from verillm.task import Commitment, Task, inference_task, inner_hash, output_hash, outputs_root
from verillm.trace import commitment_hash
from verillm.types import Hash32, ModelId
from verillm_node.context import Context
from verillm_node.disguise import blurred, most_lock, on_grid
from verillm_node.errors import ContractWallet
from verillm_node.flow import Attempt, Flow
from verillm_node.jobs import Party
from verillm_node.link import check_commitment
from verillm_node.registry import Member
from verillm_node.threads import blocking, until

log = logging.getLogger(__name__)

SHUNNED_SECONDS = 30.0
"""How long a worker that failed is asked last."""


SPREAD = 4
"""A worker with so many jobs more than another is never preferred to it by lot."""
_LOTS = SystemRandom()
_CLIENTS_FAULT = (DepositTooSmall, ReplayError, QuoteExpiredError, DeadlinePassedError)


class Hopeless(NodeError):
    """No worker could serve this job: the fault is the client's, or time is over."""

    def __init__(self, error: VeriLLMError) -> None:
        super().__init__(str(error))
        self.error = error


class Rota:
    """Who gets the next job: `fair`, whoever has the fewest running here, then waited longest.

    Else by lot among those with few running: in a fair order a worker that sees on the chain whom
    the last jobs went to knows when its own turn cannot have come, so that it must be verifying.
    """

    def __init__(self, fair: bool = False) -> None:
        self._fair = fair
        self._running: Counter[ChecksumAddress] = Counter()
        self._turn: dict[ChecksumAddress, int] = {}
        self._failed: dict[ChecksumAddress, float] = {}
        self._turns = 0

    def order(self, members: Sequence[Member], lock: int) -> list[Member]:
        """The members that can lock enough, best first."""
        now = time.monotonic()

        def rank(member: Member) -> tuple[bool, float, float]:
            owner = member.owner
            failed = now - self._failed.get(owner, -SHUNNED_SECONDS) < SHUNNED_SECONDS
            if self._fair:
                return failed, self._running[owner], self._turn.get(owner, 0)
            return failed, self._running[owner] + SPREAD * _LOTS.random(), 0

        return sorted((member for member in members if member.free >= lock), key=rank)

    def begin(self, owner: ChecksumAddress) -> None:
        """A job goes to `owner`."""
        self._turns += 1
        self._turn[owner] = self._turns
        self._running[owner] += 1

    def end(self, owner: ChecksumAddress, failed: bool) -> None:
        """It came back, or did not."""
        self._running[owner] -= 1
        if failed:
            self._failed[owner] = time.monotonic()


async def infer(context: Context, rota: Rota, flow: Flow) -> None:
    """Asks workers until one has committed; raises `NoWorkers` when all of them failed."""
    quote = flow.submission.quote.quote
    lock = most_lock(flow.submission.job.max_fee, context.terms.kappa_bps)
    for member in rota.order(await able(context, quote.model_id, quote.unit_price), lock):
        rota.begin(member.owner)
        failed = True
        try:
            await _ask(context, flow, member)
            failed = False
        except (ChainUnreachable, Hopeless):
            failed = False
            raise
        except VeriLLMError as error:
            extra = {"job": flow.job_id, "worker": member.owner, "error": str(error)}
            log.warning("worker_failed", extra=extra)
        finally:
            rota.end(member.owner, failed)
        if not failed:
            return
    raise NoWorkers("no worker could serve this job")


async def able(context: Context, model_id: ModelId, unit_price: int) -> list[Member]:
    """Workers that serve a model at a price."""
    members = await blocking(context.registry.members, model_id)
    return [member for member in members if member.price <= unit_price]


async def _ask(context: Context, flow: Flow, member: Member) -> None:
    party = _party(context, flow, member)
    await blocking(_note, context, flow, party)
    log.info("task_sent", extra={"job": flow.job_id, "worker": member.owner, "k": 0})
    commitment = await _stream(context, flow, member, party.submission)
    task = party.submission.task
    check_commitment(context.identity.domain, task, member.keys, commitment)
    _check_outputs(task, commitment, flow.outputs)
    call = post_call(context, flow, party, commitment)
    await _rehearse(context, flow, call)
    await blocking(context.book.set_commitment, flow.job_id, 0, commitment)


def _note(context: Context, flow: Flow, party: Party) -> None:
    """Writes who is asked, and when: how long a task has left is to tell no role."""
    with context.book.transaction():
        context.book.set_party(flow.job_id, party)
        context.book.set_fact(flow.job_id, "asked", int(time.time()).to_bytes(8, "big"))


def posted_slack(context: Context, flow: Flow) -> int:
    """Seconds that the inferencer of a job had from its task's arrival to the last deadline."""
    at = context.book.fact(flow.job_id, "asked")
    latest = flow.submission.job.deadline + context.terms.seal_window
    return latest - (int(time.time()) if at is None else int.from_bytes(at, "big"))


async def _rehearse(context: Context, flow: Flow, call: Call) -> None:
    """A post that would revert is this worker's failure, as long as no receipt is out.

    Unless the client is at fault: then no other worker may serve it for nothing.
    """
    try:
        await context.check_client(flow.submission)
    except (ContractWallet, SignatureError) as error:
        raise Hopeless(error) from error
    try:
        await blocking(context.chain.simulate, call)
    except _CLIENTS_FAULT as error:
        raise Hopeless(error) from error


def _party(context: Context, flow: Flow, member: Member) -> Party:
    job, quote = flow.submission.job, flow.submission.quote.quote
    fee = blurred(job.max_fee, flow.secret, 0)
    task = inference_task(
        flow.secret,
        flow.job_id,
        flow.submission.requests,
        member.owner,
        quote.model_id,
        on_grid(job.deadline + context.terms.seal_window),
        least_lock(fee, context.terms.kappa_bps),
        fee,
    )
    return Party(0, member.seat, member.owner, signed(context, task), None)


def signed(context: Context, task: Task) -> TaskSubmission:
    """A task as it goes to its worker."""
    identity = context.identity
    return TaskSubmission(task, identity.operator, sign(identity.domain, task, identity.hot))


async def _stream(
    context: Context, flow: Flow, member: Member, submission: TaskSubmission
) -> CommitmentEvent:
    asked = flow.submission
    spec = context.offer(asked.quote.quote.model_id).spec
    attempt = Attempt(flow.text, asked.requests, spec)
    deadline = min(asked.job.deadline, asked.quote.quote.expiry)
    async with until(deadline, "the worker's stream"):
        async for events in context.link.run(member.endpoint, submission):
            said = []
            for event in events:
                if isinstance(event, FailedEvent):
                    raise WorkerFailed(f"{event.error.code}: {event.error.message}")
                if isinstance(event, TokenEvent):
                    said += attempt.add(event)
                    continue
                await flow.emit(*said, *attempt.end())
                return event
            await flow.emit(*said)
    raise WorkerFailed("the worker's stream ended without a commitment")


def _check_outputs(
    task: Task, commitment: CommitmentEvent, outputs: Sequence[Sequence[int]]
) -> None:
    for leaf, tokens in zip(commitment.leaves, outputs, strict=True):
        if leaf.new_tokens != len(tokens) or leaf.output_hash != output_hash(task.task_id, tokens):
            raise WorkerFailed("the worker committed to other tokens than it streamed")


def commitment_of(party: Party, event: CommitmentEvent) -> Commitment:
    """What a party signed."""
    return Commitment(party.submission.task.task_id, inner_hash(event.inner))


def output_hashes(commitment: CommitmentEvent) -> list[Hash32]:
    """The outputs that an inferencer committed to, in the job's order."""
    return [leaf.output_hash for leaf in commitment.leaves]


def post_call(context: Context, flow: Flow, party: Party, commitment: CommitmentEvent) -> Call:
    """The call that posts a job."""
    submission = flow.submission
    return context.chain.calls.post(
        submission.job,
        submission.quote.quote,
        party.seat,
        commitment_hash(commitment_of(party, commitment)),
        outputs_root(output_hashes(commitment)),
        least_lock(submission.job.max_fee, context.terms.kappa_bps),
        submission.signature,
        commitment.signature,
    )


async def give_receipts(context: Context, flow: Flow, commitment: CommitmentEvent) -> None:
    """Signs each request's output to the client, once."""
    if flow.receipted:
        return
    identity = context.identity
    task_id = (await blocking(context.book.parties, flow.job_id))[0].submission.task.task_id
    events = []
    for request, digest in enumerate(output_hashes(commitment)):
        receipt = Receipt(flow.job_id, task_id, request, digest)
        events.append(ReceiptEvent(receipt, sign(identity.domain, receipt, identity.hot)))
    await flow.emit(*events)
