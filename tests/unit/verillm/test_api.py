"""Bodies and events: what is written is read back, anything else is refused by the field's name."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account

from tests.unit.verillm.builders import SPEC
from verillm import api
from verillm.errors import EngineOutOfMemory, MalformedError, NoWorkers
from verillm.model import model_id
from verillm.request import Job, Quote, Receipt, Request, Sampling
from verillm.sse import ServerEvent
from verillm.task import Inner, Item, ItemLeaf, Task
from verillm.types import Hash32, JobId, ModelId, TaskId

A, B = Account.create().address, Account.create().address
H = Hash32(bytes(range(32)))
SAMPLING = Sampling(800_000, 40, 950_000, 10_000)
REQUEST = Request(H, (1, 2, 3), 16, SAMPLING)
QUOTE = Quote(A, ModelId(H), 2**95, H, 2**39)
JOB = Job(B, H, H, 2, 2**90, 2**35, 2**255)
ITEM = Item(H, (4, 5), 8, SAMPLING, H)
TASK = Task(TaskId(H), A, ModelId(H), (ITEM, ITEM), 2**35, 2**80, 7)
INNER = Inner(H, H, 2, 2**60, 9)
LEAF = ItemLeaf(0, 3, 4, H, H)
SIGNATURE = bytes(range(65))
ERROR = api.ErrorBody("no_workers", "none", "wait")
COMMITTED = api.CommitmentEvent(INNER, (LEAF, LEAF), SIGNATURE)

BODIES: list[Any] = [
    api.Info("scheduler", A, B, 31337, A, "0.1.0", (ModelId(H),)),
    api.Models((api.ModelOffer(model_id(SPEC), 10**12, SPEC),)),
    api.QuoteRequest(ModelId(H)),
    api.SignedQuote(QUOTE, SIGNATURE),
    api.JobSubmission(api.SignedQuote(QUOTE, SIGNATURE), JOB, SIGNATURE, (REQUEST, REQUEST)),
    api.JobStatus(JobId(H), "posted", 12),
    api.JobStatus(JobId(H), "failed", 12, ERROR),
    api.TaskSubmission(TASK, B, SIGNATURE),
    api.TaskStatus(TaskId(H), "running", 3),
    api.TaskStatus(TaskId(H), "committed", 9, COMMITTED),
    api.SignedAttestation(A, JobId(H), 3, 6, H, SIGNATURE),
    ERROR,
]
JOB_EVENTS: list[Any] = [
    api.AcceptedEvent(JobId(H)),
    api.TokenEvent(1, 2, 3),
    api.RestartEvent(1, "worker died"),
    api.ReceiptEvent(Receipt(JobId(H), TaskId(H), 1, H), SIGNATURE),
    api.StageEvent("final", H, 77, 1, 0),
    api.FailedEvent(ERROR),
]
TASK_EVENTS: list[Any] = [api.TokenEvent(0, 0, 3), COMMITTED, api.FailedEvent(ERROR)]


WRONG: tuple[Any, ...] = (-1000, 1.5, True, "x" * 70_000, {"a": 1}, [[]])


def name(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize("body", BODIES, ids=name)
def test_a_body_reads_back_as_written(body: Any) -> None:
    assert type(body).from_json(api.loads(api.dumps(body.to_json()))) == body


@pytest.mark.parametrize("event", JOB_EVENTS, ids=name)
def test_an_event_of_a_job_reads_back_as_written(event: Any) -> None:
    assert api.parse_job_event(api.encode_event(7, event)) == event


@pytest.mark.parametrize("event", TASK_EVENTS, ids=name)
def test_an_event_of_a_task_reads_back_as_written(event: Any) -> None:
    assert api.parse_task_event(api.encode_event(7, event)) == event


def fields(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all leaves and objects of a JSON value."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return [path]
    return [path] * bool(path) + [each for key, v in parts for each in fields(v, (*path, key))]


def changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    copy = json.loads(json.dumps(value))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return copy


@pytest.mark.parametrize("body", BODIES, ids=name)
def test_each_field_is_needed_and_none_may_be_added_or_of_another_type(body: Any) -> None:
    good = json.loads(api.dumps(body.to_json()))

    def put(wrong: Any) -> Callable[[Any, Any], None]:
        return lambda parent, key: parent.__setitem__(key, wrong)

    for path in fields(good):
        changes = [put(wrong) for wrong in WRONG]
        if isinstance(path[-1], str):
            changes += [lambda parent, key: parent.pop(key)]
            changes += [lambda parent, key: parent.__setitem__("unknown", 1)]
        for change in changes:
            bad = changed(good, path, change)
            if bad == good or (_is_bool(good, path) and bad != good and _flips(bad, path)):
                continue
            with pytest.raises(MalformedError):
                type(body).from_json(bad)
                pytest.fail(f"{path} took {bad}", pytrace=False)


def _is_bool(value: Any, path: tuple[Any, ...]) -> bool:
    for key in path:
        value = value[key]
    return isinstance(value, bool)


def _flips(value: Any, path: tuple[Any, ...]) -> bool:
    try:
        return _is_bool(value, path)
    except (KeyError, IndexError, TypeError):
        return False


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"modelId":"0x00"} trailing',
    ],
    ids=["doubled key", "NaN", "infinite", "cut", "not UTF-8", "deep", "trailing"],
)
def test_what_is_not_plain_json_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        api.loads(raw)


def test_a_body_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm.api.fields.MAX_BODY_BYTES", 10)
    with pytest.raises(MalformedError, match="longer"):
        api.loads(b'"0123456789"')


@pytest.mark.parametrize("text", ["1,", ",", "a", "1,-2", "\u0661", "123456789", "1, 2"])
def test_positions_are_plain_numbers(text: str) -> None:
    with pytest.raises(MalformedError):
        api.parse_positions(text, "full")


def test_positions_read_back_as_the_query_says() -> None:
    query = api.opening_query(3, (1, 5), ())
    assert api.parse_positions(query["full"], "full") == (1, 5)
    assert api.parse_positions(query["final"], "final") == ()


def test_unknown_events_are_refused() -> None:
    with pytest.raises(MalformedError, match="no event"):
        api.parse_job_event(ServerEvent(1, "commitment", "{}"))
    with pytest.raises(MalformedError, match="no event"):
        api.parse_task_event(ServerEvent(1, "posted", "{}"))


def test_an_expected_error_says_the_same_over_http() -> None:
    error = NoWorkers("nobody serves this")
    body = api.ErrorBody.from_json(api.ErrorBody.of(error).to_json())
    assert body.fields() == error.to_dict() and api.status_of(body.code) == 503


def test_a_server_that_is_out_of_memory_does_not_blame_the_sender() -> None:
    assert api.status_of(api.ErrorBody.of(EngineOutOfMemory("no room")).code) == 503


def test_contract_wallets_may_sign_at_length() -> None:
    submission = replace(BODIES[4], signature=bytes(500))
    assert api.JobSubmission.from_json(submission.to_json()) == submission
