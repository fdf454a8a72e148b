"""The other side of a worker's API: send a task, follow its stream, fetch openings.

What comes back is bounded, parsed strictly, and checked against what was asked.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import httpx
from eth_typing import ChecksumAddress

from verillm import api, sse
from verillm.api import CommitmentEvent, ErrorBody, SignedAttestation, TaskEvent, TaskSubmission
from verillm.errors import MalformedError, SignatureError, Timeout, WorkerFailed
from verillm.signing import Domain, task_hash, verify
from verillm.task import Commitment, Task, inner_hash, items_tree
from verillm.types import JobId, TaskId

MAX_OPENING_BYTES: Final = 64 << 20
MAX_ANSWER_BYTES: Final = 1 << 20
SHORT_SECONDS: Final = 20.0
WHOLE_SECONDS: Final = 60.0
"""For all of an answer: who trickles it must not keep us from what else is due."""


class Refused(WorkerFailed):
    """A worker's coded refusal, passed on with its own code in the message."""

    def __init__(self, body: ErrorBody) -> None:
        super().__init__(f"the worker refused: {body.code}: {body.message}", refusal=body.code)
        self.refusal = body.code


class Link:
    """HTTP to workers over one pool; `stall` seconds without a byte count as dead."""

    def __init__(self, stall: float, transport: httpx.AsyncBaseTransport | None = None) -> None:
        timeout = httpx.Timeout(SHORT_SECONDS, read=stall)
        self._http = httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            transport=transport,
            headers={"accept-encoding": "identity"},
        )

    async def close(self) -> None:
        """Closes the pool."""
        await self._http.aclose()

    async def run(
        self, endpoint: str, submission: TaskSubmission
    ) -> AsyncIterator[list[TaskEvent]]:
        """Sends a task and yields its events as they arrive, several at a time, until the last.

        Sending it again is harmless: a worker answers a task that it knows by the same stream.
        """
        body = api.dumps(submission.to_json()).encode()
        headers = {"content-type": "application/json"}
        parser = sse.Parser()
        async with self._answer("POST", endpoint + api.TASKS, content=body, headers=headers) as got:
            async for piece in got.aiter_bytes():
                events = [api.parse_task_event(event) for event in parser.feed(piece)]
                if events:
                    yield events

    async def opening(
        self,
        endpoint: str,
        task_id: TaskId,
        item: int,
        full: Sequence[int],
        final_only: Sequence[int],
    ) -> bytes:
        """The bytes of one opening."""
        url = endpoint + api.task_path(task_id, "opening")
        query = api.opening_query(item, full, final_only)
        async with self._answer("GET", url, params=query) as got:
            return await _bounded(got, MAX_OPENING_BYTES)

    async def attest(self, endpoint: str, job_id: JobId, bundle: bytes) -> SignedAttestation:
        """A worker's word on a bundle."""
        url = endpoint + api.job_path(job_id, "attest")
        async with self._answer("POST", url, content=bundle) as got:
            return SignedAttestation.from_json(api.loads(await _bounded(got, MAX_ANSWER_BYTES)))

    async def bundle(self, endpoint: str, job_id: JobId) -> bytes:
        """A job's bundle from its scheduler."""
        async with self._answer("GET", endpoint + api.job_path(job_id, "bundle")) as got:
            return await _bounded(got, MAX_OPENING_BYTES)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(
                method, url, content=content, headers=headers, params=params
            ) as got:
                if "content-encoding" in got.headers:  # a few packed bytes can be any number
                    raise WorkerFailed(f"{url}: a compressed answer was not asked for")
                if got.status_code != 200:
                    raise Refused(_refusal(await _bounded(got, MAX_ANSWER_BYTES)))
                yield got
        except httpx.TimeoutException as error:
            raise Timeout(f"no answer from {url} in time") from error
        # UnicodeError: of a host name or path that cannot be written, which httpx lets through.
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise WorkerFailed(f"{url}: {str(error) or type(error).__name__}") from error


async def _bounded(response: httpx.Response, cap: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(WHOLE_SECONDS):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > cap:
                    raise MalformedError("answer", f"longer than {cap} bytes")
    except TimeoutError as error:
        raise Timeout(f"{response.url}: not all of an answer in time") from error
    return bytes(body)


def _refusal(body: bytes) -> ErrorBody:
    try:
        return ErrorBody.from_json(api.loads(body))
    except MalformedError:
        return ErrorBody("worker_failed", "an answer without a code", WorkerFailed.remedy)


def check_commitment(
    domain: Domain, task: Task, hot_keys: Sequence[ChecksumAddress], event: CommitmentEvent
) -> None:
    """Holds a commitment to its task and its worker's key; raises `WorkerFailed`.

    What is not checked here would be found by `seal`, too late to ask another worker.
    """
    inner, leaves = event.inner, event.leaves
    facts = {
        "task": inner.task_hash == task_hash(task),
        "items": inner.items == len(leaves) == len(task.items),
        "order": [leaf.item for leaf in leaves] == list(range(len(leaves))),
    }
    _demand(facts)
    lengths = zip(leaves, task.items, strict=True)
    facts = {
        "prompt": all(leaf.prompt_tokens == item.length for leaf, item in lengths),
        "root": inner.items_root == items_tree(leaves).root,
        "promptTokens": inner.prompt_tokens == sum(leaf.prompt_tokens for leaf in leaves),
        "newTokens": inner.new_tokens == sum(leaf.new_tokens for leaf in leaves),
        "length": all(
            1 <= leaf.new_tokens <= item.max_new_tokens
            for leaf, item in zip(leaves, task.items, strict=True)
        ),
    }
    _demand(facts)
    commitment = Commitment(task.task_id, inner_hash(inner))
    _demand({"signature": any(_signed(domain, commitment, event, key) for key in hot_keys)})


def _signed(
    domain: Domain, commitment: Commitment, event: CommitmentEvent, key: ChecksumAddress
) -> bool:
    try:
        verify(domain, commitment, event.signature, key)
    except SignatureError:
        return False
    return True


def _demand(facts: dict[str, bool]) -> None:
    for name, holds in facts.items():
        if not holds:
            raise WorkerFailed(f"the commitment does not fit its task: {name}")
