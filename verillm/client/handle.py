"""A submitted job: its stream, over as many connections as it takes, and its way on chain."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpx

from verillm import api, sse
from verillm.chain.contract import Status
from verillm.chain.events import Finalized
from verillm.client.flows import Flows
from verillm.client.proofs import SentProof, is_suspect, prove
from verillm.client.receipts import ReceiptCheck, Settlement, check_history, check_tokens
from verillm.client.steps import (
    Close,
    Flow,
    Open,
    Read,
    Sleep,
    Source,
    ask,
    read_all,
    refuse,
    unreachable,
)
from verillm.client.terms import Draft, Scheduler
from verillm.errors import DeadlinePassedError, InputError, Timeout, VeriLLMError
from verillm.model import ModelSpec
from verillm.prompt import TextStream
from verillm.request import Job, Receipt, Request
from verillm.signing import verify
from verillm.stream import Progress, Token
from verillm.types import JobId

log = logging.getLogger(__name__)

STAGES: Final = {
    "posted": Status.POSTED,
    "sealed": Status.SEALED,
    "claimed": Status.CLAIMED,
    "final": Status.FINAL,
}


class Handle:
    """A submitted job: what the stream brought, and what the chain says of it."""

    def __init__(
        self, flows: Flows, draft: Draft, patience: float, run: Callable[[Flow[Any]], Any]
    ) -> None:
        self._flows, self._draft, self._run = flows, draft, run
        self._patience = patience
        self._source: Source | None = None
        self._parser = sse.Parser()
        self._events: deque[sse.ServerEvent] = deque()
        self._progress = Progress(draft.job_id, draft.submission.requests, draft.spec.vocabulary)
        self._texts = [TextStream(draft.format) for _ in draft.submission.requests]
        self._proof: SentProof | None = None

    @property
    def job_id(self) -> JobId:
        """The id under which the chain and everyone else know the job."""
        return self._draft.job_id

    @property
    def job(self) -> Job:
        """What was signed."""
        return self._draft.submission.job

    @property
    def requests(self) -> tuple[Request, ...]:
        """What was asked, salts included: keep them to prove a prompt later."""
        return self._draft.submission.requests

    @property
    def scheduler(self) -> Scheduler:
        """With whom."""
        return self._draft.scheduler

    @property
    def spec(self) -> ModelSpec:
        """The model's spec, as the chain has it."""
        return self._draft.spec

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """New tokens per request so far."""
        return self._progress.outputs

    @property
    def receipt(self) -> Receipt | None:
        """The first request's receipt, None until its output is whole."""
        first = self._progress.receipts[0]
        return None if first is None else first.receipt

    @property
    def receipts(self) -> tuple[Receipt | None, ...]:
        """Receipts by request."""
        return tuple(None if r is None else r.receipt for r in self._progress.receipts)

    @property
    def complete(self) -> bool:
        """Whether all outputs are whole."""
        return self._progress.complete

    @property
    def proof(self) -> SentProof | None:
        """What was proven of the scheduler: that it posted otherwise than it told us."""
        return self._proof

    def text(self, request: int = 0) -> str:
        """A request's output so far, as text."""
        return self._draft.format.decode(self._progress.outputs[request])

    # Streaming
    def _pull(self) -> Flow[tuple[Token, ...]]:
        """Tokens of the next event, over as many connections as it takes.

        Raises RemoteError once no event came for `patience` seconds.
        """
        quiet, deadline = 0, time.monotonic() + self._patience
        while not self._events:
            try:
                if self._source is None:
                    yield from self._connect()
                piece = yield Read(self._open_source())
                if piece is not None:
                    self._events.extend(self._parser.feed(piece))
                    continue
                error: Exception = EOFError("the stream ended early")
            except httpx.HTTPError as broken:
                error = broken
            yield from self.disconnect()
            if time.monotonic() > deadline:
                raise unreachable(self.scheduler.url, error) from error
            yield Sleep(min(2.0, 0.05 * 2**quiet))
            quiet += 1
        return self._deliver(self._progress.apply(self._events.popleft()))

    def _deliver(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        texts = [(token, self._texts[token.request].push(token.id)) for token in tokens]
        return tuple(replace(token, text=text) for token, text in texts)

    def _open_source(self) -> Source:
        if self._source is None:
            raise httpx.ReadError("not connected")
        return self._source

    def _connect(self) -> Flow[None]:
        """Submit the job, or resume its stream after the last event seen."""
        headers = {"accept": sse.MEDIA_TYPE}
        if self._progress.last_event:
            headers[sse.LAST_EVENT_ID] = str(self._progress.last_event)
        base, body = self.scheduler.url, None
        if self._progress.accepted:
            opening = Open("GET", base + api.job_path(self.job_id, "events"), None, headers)
        else:
            body = api.dumps(self._draft.submission.to_json()).encode()
            opening = Open("POST", base + api.JOBS, body, headers)
        source: Source = yield opening
        if source.response.is_error:
            answer = yield from read_all(source)
            if source.response.status_code in (502, 503, 504) and self._progress.accepted:
                raise httpx.ReadError("the scheduler is starting")
            refuse(source.response.status_code, answer)
        self._source, self._parser = source, sse.Parser()

    def disconnect(self) -> Flow[None]:
        """Leave the stream."""
        source, self._source = self._source, None
        if source is not None:
            yield Close(source)

    def _start(self) -> Flow[None]:
        try:
            while not self._progress.accepted:
                yield from self._pull()
        except BaseException:
            yield from self.disconnect()
            raise

    @property
    def _wants_tokens(self) -> bool:
        return not (self._progress.complete or self._progress.ended)

    def _rest(self, request: int) -> str:
        return self._texts[request].end()

    # The chain's word
    def _wait(self, stage: str, within: float, poll: float) -> Flow[Status]:
        if stage not in STAGES:
            raise InputError(f"stage is one of {', '.join(STAGES)}, not {stage!r}")
        chain, deadline = self._flows.chain, time.monotonic() + within
        seen = Status.NONE
        while True:
            state = yield from ask(lambda: chain.job_state(self.job_id))
            status = Status(state.status)
            if status is not seen and status.has_reached(Status.SEALED) and self._flows.proves:
                yield from self._prove_unasked()
            seen = status
            if status.has_reached(STAGES[stage]):
                return status
            if status is Status.NONE:
                now = yield from ask(chain.now)
                if now > self.job.deadline:
                    raise DeadlinePassedError(self.job.deadline)
            if time.monotonic() > deadline:
                raise Timeout(f"the job is not {stage} after {within:.0f} s")
            yield Sleep(poll)

    def _prove_unasked(self) -> Flow[None]:
        """Waiting goes on whatever comes of it."""
        try:
            yield from self._prove()
        except VeriLLMError as error:
            log.warning("not proven", extra={"job": self.job_id.hex(), "error": str(error)})

    def _prove(self) -> Flow[SentProof | None]:
        """Holds the sealed job to what was streamed; sends the proof where it differs."""
        if self._proof is not None or not self.complete:
            return self._proof
        history = yield from self._flows.history(self.job_id)
        receipts = self._progress.receipts
        if is_suspect(self._draft, self.outputs, receipts, history):
            self._proof = yield from prove(self._flows.chain, self._draft, receipts, history)
        if self._proof is not None:
            said = {"job": self.job_id.hex(), "proof": self._proof.name, "fact": self._proof.fact}
            log.warning("scheduler convicted", extra=said)
        return self._proof

    def _settlement(self) -> Flow[Settlement | None]:
        history = yield from self._flows.history(self.job_id)
        final = history.first(Finalized)
        if final is None:
            return None
        return Settlement(final.event.outcome, final.event.reason, final.transaction)

    def _verify(self, request: int) -> Flow[ReceiptCheck]:
        found = self._progress.receipts[request]
        if found is None:
            raise InputError("there is no receipt yet: the output is not whole")
        receipt, domain = found.receipt, self._flows.chain.deployment.domain
        verify(domain, receipt, found.signature, self.scheduler.hot_key)
        check_tokens(receipt, self.outputs[request])
        history = yield from self._flows.history(self.job_id)
        return check_history(receipt, self.job_id, self.outputs, history)
