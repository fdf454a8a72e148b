"""What a scheduler makes of a worker that breaks off, lies, or talks without end."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import httpx
import pytest
from eth_account import Account

from verillm import api
from verillm.api import CommitmentEvent, ErrorBody, TokenEvent
from verillm.errors import MalformedError, Timeout, VeriLLMError, WorkerFailed
from verillm.hashing import sha
from verillm.signing import sign
from verillm.task import Commitment, ItemLeaf, inner_hash, items_tree
from verillm.types import Hash32, JobId, TaskId
from verillm_node import link as link_module
from verillm_node.link import Link, Refused, check_commitment

from .conftest import Bench, OpenBench

Handler = Callable[[httpx.Request], httpx.Response]


def _link(handler: Handler) -> Link:
    return Link(1.0, httpx.MockTransport(handler))


async def _events(link: Link, bench: Bench) -> list[object]:
    submission = bench.signed(bench.task())
    return [event async for events in link.run("http://worker", submission) for event in events]


def _stream(*events: TokenEvent) -> bytes:
    return b"".join(api.encode_event(n, event).encode() for n, event in enumerate(events, 1))


async def test_tokens_come_as_they_are_sent(open_bench: OpenBench) -> None:
    body = _stream(TokenEvent(0, 0, 7), TokenEvent(0, 1, 8))
    async with open_bench() as bench:
        link = _link(lambda _: httpx.Response(200, content=body))
        assert await _events(link, bench) == [TokenEvent(0, 0, 7), TokenEvent(0, 1, 8)]


async def test_a_refusal_keeps_its_code(open_bench: OpenBench) -> None:
    refusal = ErrorBody("lock_too_large", "too much", "later").to_json()
    async with open_bench() as bench:
        link = _link(lambda _: httpx.Response(400, json=refusal))
        with pytest.raises(Refused) as caught:
            await _events(link, bench)
    assert caught.value.refusal == "lock_too_large"
    assert isinstance(caught.value, WorkerFailed)


@pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
async def test_an_answer_that_is_no_stream_is_a_failed_worker(
    open_bench: OpenBench, status: int
) -> None:
    async with open_bench() as bench:
        link = _link(lambda _: httpx.Response(status, content=b"<html>", headers={"location": "/"}))
        with pytest.raises(WorkerFailed):
            await _events(link, bench)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ConnectError("refused"), WorkerFailed),
        (httpx.RemoteProtocolError("closed"), WorkerFailed),
        (httpx.ReadTimeout("quiet"), Timeout),
    ],
)
async def test_a_broken_connection_is_an_error_of_ours(
    open_bench: OpenBench, raised: Exception, expected: type[VeriLLMError]
) -> None:
    def handler(_request: httpx.Request) -> httpx.Response:
        raise raised

    async with open_bench() as bench:
        with pytest.raises(expected):
            await _events(_link(handler), bench)


@pytest.mark.parametrize(
    "body",
    [
        b"id: x\n\n",
        b"id: 1\nevent: token\ndata: {}\n\n",
        b"id: 1\nevent: gift\ndata: {}\n\n",
        b"id: 1\nevent: token\ndata: NaN\n\n",
        b"\xff\xfe\n\n",
        b"data: " + b"x" * (5 << 20),
    ],
)
async def test_a_stream_that_is_none_of_ours_is_malformed(
    open_bench: OpenBench, body: bytes
) -> None:
    async with open_bench() as bench:
        with pytest.raises(MalformedError):
            await _events(_link(lambda _: httpx.Response(200, content=body)), bench)


async def test_an_endless_opening_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_OPENING_BYTES", 1000)
    link = _link(lambda _: httpx.Response(200, content=b"x" * 1001))
    with pytest.raises(MalformedError, match="longer than 1000"):
        await link.opening("http://worker", TaskId(Hash32(bytes(32))), 0, [1], [])
    with pytest.raises(MalformedError, match="longer than 1000"):
        await link.bundle("http://worker", JobId(Hash32(bytes(32))))


class Trickle(httpx.AsyncByteStream):
    """An answer whose next byte never comes too late, and whose last one never comes."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"x"


async def test_an_answer_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "WHOLE_SECONDS", 0.05)
    link = _link(lambda _: httpx.Response(200, stream=Trickle()))
    with pytest.raises(Timeout):
        await link.bundle("http://worker", JobId(Hash32(bytes(32))))


# ── Commitments ──────────────────────────────────────────────────────────────────────────────────
def _leaf(event: CommitmentEvent, **changes: object) -> CommitmentEvent:
    leaf: ItemLeaf = replace(event.leaves[0], **changes)  # type: ignore[arg-type]
    return replace(event, leaves=(leaf,))


def _rooted(event: CommitmentEvent) -> CommitmentEvent:
    leaves = event.leaves
    inner = replace(
        event.inner,
        items_root=items_tree(leaves).root,
        prompt_tokens=sum(leaf.prompt_tokens for leaf in leaves),
        new_tokens=sum(leaf.new_tokens for leaf in leaves),
    )
    return replace(event, inner=inner)


def _lies() -> Iterator[tuple[str, Callable[[CommitmentEvent], CommitmentEvent]]]:
    yield "task", lambda e: replace(e, inner=replace(e.inner, task_hash=sha(b"other")))
    yield "items", lambda e: replace(e, leaves=e.leaves * 2)
    yield "items", lambda e: replace(e, leaves=())
    yield "order", lambda e: _rooted(_leaf(e, item=1))
    yield "prompt", lambda e: _rooted(_leaf(e, prompt_tokens=1))
    yield "root", lambda e: _leaf(e, trace_root=sha(b"other"))
    yield "length", lambda e: _rooted(_leaf(e, new_tokens=0))
    yield "length", lambda e: _rooted(_leaf(e, new_tokens=99))
    yield "promptTokens", lambda e: replace(e, inner=replace(e.inner, prompt_tokens=0))
    yield "newTokens", lambda e: replace(e, inner=replace(e.inner, new_tokens=99))


@pytest.mark.parametrize(("fact", "lie"), list(_lies()))
async def test_a_commitment_that_does_not_fit_its_task_is_refused(
    open_bench: OpenBench, fact: str, lie: Callable[[CommitmentEvent], CommitmentEvent]
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        feed = bench.worker.take(bench.signed(task), bench.desk.standing_now)
        events = [entry[1] async for entry in feed.follow() if entry is not None]
        good = events[-1]
        assert isinstance(good, CommitmentEvent)
        hot = bench.worker.identity.hot
        check_commitment(bench.domain, task, [hot.address], good)
        false = lie(good)
        signature = sign(bench.domain, Commitment(task.task_id, inner_hash(false.inner)), hot)
        with pytest.raises(WorkerFailed, match=f"does not fit its task: {fact}"):
            check_commitment(bench.domain, task, [hot.address], replace(false, signature=signature))
        with pytest.raises(WorkerFailed, match="does not fit its task: signature"):
            stranger = Account.from_key(b"x" * 32).address
            check_commitment(bench.domain, task, [stranger], good)


@pytest.mark.parametrize(
    "endpoint", ["http://xn--a.com", "http://127.0.0.1:1/\udc00", "http://[", "", "unix:///x"]
)
async def test_an_endpoint_that_is_no_address_is_a_failed_worker(
    open_bench: OpenBench, endpoint: str
) -> None:
    # Anything else would end the scheduler's daemon, and any seat's owner names its endpoint.
    async with open_bench() as bench:
        link = Link(1.0)
        with pytest.raises(WorkerFailed):
            await link.opening(endpoint, bench.task().task_id, 0, (1,), ())
        await link.close()


async def test_a_compressed_answer_is_never_unpacked(open_bench: OpenBench) -> None:
    packed, headers = gzip.compress(bytes(1 << 20)), {"content-encoding": "gzip"}
    async with open_bench() as bench:
        link = _link(lambda _: httpx.Response(200, content=packed, headers=headers))
        with pytest.raises(WorkerFailed, match="compressed"):
            await link.opening("http://worker", bench.task().task_id, 0, (1,), ())
