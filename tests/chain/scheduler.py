"""A scheduler as a client sees it: real signatures, a scripted stream, faults on request.

A double of the far side's wire only; the real scheduler is exercised end to end in tests/e2e.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx

from tests.chain.world import World
from verillm import api, sse
from verillm.errors import VeriLLMError
from verillm.hashing import keccak
from verillm.request import Quote, Receipt
from verillm.signing import job_id, sign
from verillm.task import draw_commit, output_hash, task_id
from verillm.types import JobId

SECRET = keccak(b"scripted secret")


class Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that breaks off after `cut` bytes."""

    def __init__(self, body: bytes, cut: int | None) -> None:
        self._body, self._cut = body, cut

    def __iter__(self) -> Iterator[bytes]:
        yield self._body[: self._cut]
        if self._cut is not None:
            raise httpx.ReadError("connection reset")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


@dataclass
class Scripted:
    """Serves one model of a world; tests change what it says before it says it."""

    world: World
    tokenizer: bytes
    template: bytes
    output: tuple[int, ...] = (70, 71, 72)
    cuts: list[int | None] = field(default_factory=list)
    events: list[api.JobEvent] = field(default_factory=list)
    unit_price: int = 10**12
    expiry_in: int = 300
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    submission: api.JobSubmission | None = None
    refusal: VeriLLMError | None = None
    bundle: bytes | None = None

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    @property
    def job_id(self) -> JobId:
        assert self.submission is not None
        return job_id(self.world.domain, self.submission.job)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.paths.append(f"{request.method} {path}")
        if self.refusal is not None and path == api.JOBS:
            body = api.ErrorBody.of(self.refusal)
            return httpx.Response(api.status_of(body.code), json=body.to_json())
        if path == api.JOBS:
            self.submission = api.JobSubmission.from_json(api.loads(request.read()))
        if path == api.JOBS or path.endswith("/events"):
            return self._stream(int(request.headers.get(sse.LAST_EVENT_ID, 0)))
        if path.endswith("/bundle"):
            found = 404 if self.bundle is None else 200
            return httpx.Response(found, content=self.bundle or b"")
        return httpx.Response(200, content=self._body(path))

    def _body(self, path: str) -> bytes:
        world = self.world
        if path.endswith("/tokenizer"):
            return self.tokenizer
        if path.endswith("/template"):
            return self.template
        if path == api.INFO:
            at = world.net.deployment
            body: api.Info | api.Models | api.SignedQuote = api.Info(
                "scheduler", world.scheduler.address, world.scheduler.hot.address, at.chain_id,
                at.contract, "0", (world.model,),
            )  # fmt: skip
        elif path == api.MODELS:
            body = api.Models((api.ModelOffer(world.model, self.unit_price, world.spec),))
        else:
            body = self.quote()
        return api.dumps(body.to_json()).encode()

    def quote(self) -> api.SignedQuote:
        world, now = self.world, self.world.chain(self.world.client).now()
        quote = Quote(
            world.scheduler.address,
            world.model,
            self.unit_price,
            draw_commit(SECRET),
            now + self.expiry_in,
        )
        return api.SignedQuote(quote, sign(world.domain, quote, world.scheduler.hot))

    def script(self) -> list[api.JobEvent]:
        """accepted, the tokens of every request, their receipts."""
        assert self.submission is not None
        found: list[api.JobEvent] = [api.AcceptedEvent(self.job_id), *self.events]
        for item in range(len(self.submission.requests)):
            found += [api.TokenEvent(item, at, token) for at, token in enumerate(self.output)]
            found.append(self.receipt(item))
        return found

    def receipt(self, item: int) -> api.ReceiptEvent:
        task = task_id(SECRET, self.job_id, 0)
        receipt = Receipt(self.job_id, task, item, output_hash(task, self.output))
        return api.ReceiptEvent(receipt, sign(self.world.domain, receipt, self.world.scheduler.hot))

    def _stream(self, after: int) -> httpx.Response:
        numbered = enumerate(self.script(), start=1)
        wire = [api.encode_event(at, event).encode() for at, event in numbered if at > after]
        cut = self.cuts.pop(0) if self.cuts else None
        return httpx.Response(200, stream=Cut(sse.KEEP_ALIVE + b"".join(wire), cut))
