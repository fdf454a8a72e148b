"""Whether a worker takes a task: everything is checked before anything is spent."""

from dataclasses import dataclass

from eth_typing import ChecksumAddress

from verillm.api import TaskSubmission
from verillm.errors import (
    DeadlinePassedError,
    FeeTooLow,
    InputError,
    ModelMismatch,
    TokensOutOfBounds,
)
from verillm.request import check_request
from verillm.settlement import bond_of
from verillm.signing import Domain, verify
from verillm.task import Task
from verillm.types import ModelId
from verillm_node.errors import LockTooLarge, SchedulerOverdrawn


@dataclass(frozen=True, slots=True)
class Serving:
    """What a worker serves, and at which price per token."""

    worker: ChecksumAddress
    model_id: ModelId
    context: int
    vocabulary: int
    max_tokens: int
    price: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the chain says of both sides of a task, in token units; `now` is chain time."""

    scheduler_hot_key: ChecksumAddress
    scheduler_stake: int
    """What is not leaving, free or bonded: a task may belong to a job whose bond is down already,
    and which of both it is a worker cannot and should not know."""
    own_free: int
    now: int
    job_window: int
    seal_window: int


@dataclass(frozen=True, slots=True)
class Pending:
    """What tasks that the chain does not show yet may still lock there, in token units."""

    own: int
    """Locks of all of them on this worker."""
    bonds: int
    """What the sender of this task would have to bond to post those that it sent."""


def check_task(task: Task, serving: Serving) -> None:
    """What the task alone tells: it can be run, and is not too long. Raises `InputError`."""
    check_runnable(task, serving)
    total = sum(item.length + item.max_new_tokens for item in task.items)
    if total > serving.max_tokens:
        raise TokensOutOfBounds(f"{total} tokens exceed the {serving.max_tokens} of one task here")


def check_runnable(task: Task, serving: Serving) -> None:
    """Worker, model, bounds of every item: all that a summons is held to. Raises `InputError`.

    How long it is in all is no reason: items run one after the other, and silence costs a lock.
    """
    if task.worker != serving.worker:
        raise InputError(f"this task is for worker {task.worker}, not for {serving.worker}")
    if task.model_id != serving.model_id:
        raise ModelMismatch(f"this worker does not serve model 0x{task.model_id.hex()}")
    if not task.items:
        raise InputError("a task needs at least one item")
    for item in task.items:
        check_request(item.request, serving.context, serving.vocabulary)


def check_standing(
    submission: TaskSubmission, domain: Domain, standing: Standing, pending: Pending
) -> None:
    """What the chain tells: a bonded scheduler signed, in time, and the lock fits our stake.

    A task holds our stake until the chain shows it, so it must be one that can get there: no later
    than a job posted now could be sealed, and no more than its sender's own stake can bond.
    """
    task = submission.task
    verify(domain, task, submission.signature, standing.scheduler_hot_key)
    latest = standing.now + standing.job_window + standing.seal_window
    if not standing.now < task.deadline <= latest:
        raise DeadlinePassedError(task.deadline)
    bonds = pending.bonds + bond_of(task.lock, task.fee)
    if bonds > standing.scheduler_stake:
        raise SchedulerOverdrawn(submission.scheduler, bonds, standing.scheduler_stake)
    free = standing.own_free - pending.own
    if free < task.lock:
        raise LockTooLarge(task.lock, free)


def check_fee(task: Task, price: int) -> None:
    """The fee covers all tokens that may come at our price: a claim pays no more than it names."""
    least = price * sum(item.length + item.max_new_tokens for item in task.items)
    if task.fee < least:
        raise FeeTooLow(task.fee, least)
