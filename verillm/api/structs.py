"""Requests, items and tasks in JSON, and the structs that are signed."""

from collections.abc import Callable
from typing import TypeVar

from verillm import schema
from verillm.api.fields import Fields, parse_tokens, to_hex
from verillm.api.limits import MAX_REQUESTS
from verillm.request import Request, Sampling
from verillm.task import Item, Task
from verillm.types import ModelId, TaskId

T = TypeVar("T")


def bound(kind: type[T]) -> Callable[[object, str], T]:
    """Parser of a struct that `schema` binds; what it says is the caller's to check."""
    return lambda value, path: schema.from_json(kind, value, path)


def request_to_json(request: Request) -> dict[str, object]:
    """A request with salt and tokens: for the scheduler and the workers that serve it only."""
    return {
        "salt": to_hex(request.salt),
        "tokens": list(request.tokens),
        "maxNewTokens": request.max_new_tokens,
        "sampling": schema.to_json(request.sampling),
    }


def request_from_json(value: object, path: str = "request") -> Request:
    """A request; `check_request` judges its bounds."""
    fields = Fields(value, path)
    request = Request(
        salt=fields.hash("salt"),
        tokens=fields.take("tokens", parse_tokens),
        max_new_tokens=fields.number("maxNewTokens"),
        sampling=fields.take("sampling", bound(Sampling)),
    )
    fields.end()
    return request


def item_to_json(item: Item) -> dict[str, object]:
    """One item of a task, with tokens."""
    return request_to_json(item.request) | {"seed": to_hex(item.seed)}


def item_from_json(value: object, path: str = "item") -> Item:
    """One item of a task."""
    fields = Fields(value, path)
    item = Item(
        salt=fields.hash("salt"),
        tokens=fields.take("tokens", parse_tokens),
        max_new_tokens=fields.number("maxNewTokens"),
        sampling=fields.take("sampling", bound(Sampling)),
        seed=fields.hash("seed"),
    )
    fields.end()
    return item


def task_to_json(task: Task) -> dict[str, object]:
    """A task with its tokens; what is signed holds their roots."""
    return {
        "taskId": to_hex(task.task_id),
        "worker": task.worker,
        "modelId": to_hex(task.model_id),
        "items": [item_to_json(item) for item in task.items],
        "deadline": task.deadline,
        "lock": str(task.lock),
        "fee": str(task.fee),
    }


def task_from_json(value: object, path: str = "task") -> Task:
    """A task whose signature is not yet checked."""
    fields = Fields(value, path)
    task = Task(
        task_id=TaskId(fields.hash("taskId")),
        worker=fields.address("worker"),
        model_id=ModelId(fields.hash("modelId")),
        items=fields.many("items", item_from_json, MAX_REQUESTS),
        deadline=fields.number("deadline", 40),
        lock=fields.amount("lock"),
        fee=fields.amount("fee"),
    )
    fields.end()
    return task
