"""Whether a worker takes a task: everything is checked before anything is spent."""

from dataclasses import dataclass

from eth_typing import ChecksumAddress

from verillm.api import TaskSubmission
from verillm.errors import (
    DeadlinePassedError,
    FeeTooLow,
    InputError,
    ModelMismatch,
    SignatureError,
    TokensOutOfBounds,
)
from verillm.request import check_request
from verillm.signing import Domain, verify
from verillm.task import Task
from verillm.types import ModelId
from verillm_node.errors import LockTooLarge

LONGEST_SECONDS = 7 * 86_400
"""A task that is open for longer would hold stake for too long."""


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
    scheduler_free: int
    own_free: int
    now: int


def check_task(task: Task, serving: Serving) -> None:
    """What the task alone tells: worker, model, bounds of every item. Raises `InputError`."""
    if task.worker != serving.worker:
        raise InputError(f"this task is for worker {task.worker}, not for {serving.worker}")
    if task.model_id != serving.model_id:
        raise ModelMismatch(f"this worker does not serve model 0x{task.model_id.hex()}")
    if not task.items:
        raise InputError("a task needs at least one item")
    for item in task.items:
        check_request(item.request, serving.context, serving.vocabulary)
    total = sum(item.length + item.max_new_tokens for item in task.items)
    if total > serving.max_tokens:
        raise TokensOutOfBounds(f"{total} tokens exceed the {serving.max_tokens} of one task here")


def check_standing(submission: TaskSubmission, domain: Domain, standing: Standing) -> None:
    """What the chain tells: a bonded scheduler signed, in time, and the lock fits our stake."""
    task = submission.task
    verify(domain, task, submission.signature, standing.scheduler_hot_key)
    if standing.scheduler_free < task.lock:
        raise SignatureError(
            f"scheduler {submission.scheduler} has too little free stake to bond this task"
        )
    if not standing.now < task.deadline <= standing.now + LONGEST_SECONDS:
        raise DeadlinePassedError(task.deadline)
    if standing.own_free < task.lock:
        raise LockTooLarge(task.lock, standing.own_free)


def check_fee(task: Task, price: int) -> None:
    """The fee covers every prompt token and at least one new token of each item at our price."""
    least = price * sum(item.length + 1 for item in task.items)
    if task.fee < least:
        raise FeeTooLow(task.fee, least)
