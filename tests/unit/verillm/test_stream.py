"""Exactly-once delivery, whatever repeats, breaks or starts again."""

import pytest

from verillm import api
from verillm.errors import MalformedError, RemoteError, WorkerFailed
from verillm.request import Receipt, Request, Sampling
from verillm.stream import Progress, Token
from verillm.task import output_hash
from verillm.types import Hash32, JobId, TaskId

JOB, TASK = JobId(Hash32(b"j" * 32)), TaskId(Hash32(b"t" * 32))
REQUESTS = tuple(Request(bytes(32), (1, 2), 4, Sampling()) for _ in range(2))


def progress() -> Progress:
    return Progress(JOB, REQUESTS, vocabulary=100)


def feed(to: Progress, *events: api.JobEvent, first: int | None = None) -> list[Token]:
    start = to.last_event + 1 if first is None else first
    numbered = (api.encode_event(start + at, event) for at, event in enumerate(events))
    return [token for event in numbered for token in to.apply(event)]


def token(item: int, index: int, value: int) -> api.TokenEvent:
    return api.TokenEvent(item, index, value)


def receipt(request: int, tokens: list[int], job: JobId = JOB) -> api.ReceiptEvent:
    return api.ReceiptEvent(Receipt(job, TASK, request, output_hash(TASK, tokens)), bytes(65))


def test_tokens_of_interleaved_requests_are_delivered_in_order() -> None:
    at = progress()
    got = feed(at, api.AcceptedEvent(JOB), token(0, 0, 5), token(1, 0, 6), token(0, 1, 7))
    assert got == [Token(0, 0, 5), Token(1, 0, 6), Token(0, 1, 7)]
    assert at.outputs == ((5, 7), (6,)) and at.accepted and not at.complete


def test_events_seen_before_are_dropped() -> None:
    at = progress()
    feed(at, token(0, 0, 5), token(0, 1, 6))
    assert feed(at, token(0, 0, 5), token(0, 1, 6), token(0, 2, 7), first=1) == [Token(0, 2, 7)]


def test_a_missing_event_is_noticed() -> None:
    at = progress()
    feed(at, token(0, 0, 5))
    with pytest.raises(MalformedError, match=r"event\.id"):
        feed(at, token(0, 1, 6), first=3)


def test_another_worker_that_says_the_same_goes_unnoticed() -> None:
    at = progress()
    feed(at, token(0, 0, 5), token(0, 1, 6))
    again = feed(at, api.RestartEvent(1, "worker died"), *[token(0, i, 5 + i) for i in range(3)])
    assert again == [Token(0, 2, 7)]
    assert at.outputs[0] == (5, 6, 7)


def test_another_worker_that_differs_is_told_and_its_output_counts() -> None:
    at = progress()
    feed(at, token(0, 0, 5), token(0, 1, 6))
    with pytest.raises(WorkerFailed, match="token 1 of request 0"):
        feed(at, api.RestartEvent(1, "worker died"), token(0, 0, 5), token(0, 1, 9))
    assert feed(at, token(0, 2, 8)) == [Token(0, 2, 8)]
    assert at.outputs[0] == (5, 9, 8)


def test_complete_once_each_request_has_a_receipt_over_its_tokens() -> None:
    at = progress()
    feed(at, token(0, 0, 5), receipt(0, [5]), token(1, 0, 6))
    assert not at.complete
    feed(at, receipt(1, [6]))
    assert at.complete


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([token(2, 0, 5)], id="no such request"),
        pytest.param([token(0, 1, 5)], id="a token skipped"),
        pytest.param([token(0, 0, 5), token(0, 0, 5)], id="a token twice"),
        pytest.param([token(0, 0, 100)], id="not in the vocabulary"),
        pytest.param([token(0, i, 1) for i in range(5)], id="more than was asked"),
        pytest.param([token(0, 0, 5), receipt(0, [5]), token(0, 1, 6)], id="after the receipt"),
        pytest.param([token(0, 0, 5), receipt(0, [6])], id="receipt over other tokens"),
        pytest.param([receipt(0, [])], id="receipt over nothing"),
        pytest.param(
            [token(0, 0, 5), receipt(0, [5], JobId(Hash32(bytes(32))))], id="another job's receipt"
        ),
        pytest.param([api.AcceptedEvent(JobId(Hash32(bytes(32))))], id="another job accepted"),
        pytest.param([api.RestartEvent(i, "") for i in range(65)], id="restarts without end"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(events: list[api.JobEvent]) -> None:
    with pytest.raises(MalformedError):
        feed(progress(), *events)


def test_a_failed_job_raises_the_schedulers_own_error() -> None:
    at, error = progress(), api.ErrorBody("no_workers", "none can", "wait")
    with pytest.raises(RemoteError) as failed:
        feed(at, api.FailedEvent(error))
    assert failed.value.to_dict() == {"code": "no_workers", "message": "none can", "remedy": "wait"}
    assert at.ended


def test_stages_are_kept_and_final_ends_the_stream() -> None:
    at = progress()
    feed(
        at,
        api.StageEvent("posted", Hash32(bytes(32)), 3),
        api.StageEvent("final", Hash32(bytes(32)), 9, 1, 0),
    )
    assert [stage.stage for stage in at.stages] == ["posted", "final"] and at.ended
