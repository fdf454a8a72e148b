"""The SDK: deposit, submit, stream, wait, verify, withdraw. Trusts the chain and its own eyes only.

`Client` and `AsyncClient` are one implementation: each operation is a generator of steps (ask the
chain, talk HTTP, sleep) that one of two small drivers carries out.
"""

import asyncio
import hashlib
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

import httpx
import platformdirs
from eth_account.signers.local import LocalAccount

from verillm import api, sse
from verillm.chain.contract import Chain, DepositState, Mined, Status
from verillm.chain.deployment import Deployment
from verillm.chain.events import Finalized, JobHistory, job_history
from verillm.chain.rpc import Provider
from verillm.errors import (
    ConfigError,
    DeadlinePassedError,
    DepositTooSmall,
    EvidenceError,
    FeeTooLow,
    InputError,
    MalformedError,
    ModelMismatch,
    QuoteExpiredError,
    RemoteError,
    Timeout,
    UnknownModel,
    WrongChain,
)
from verillm.model import ModelSpec, model_id as id_of
from verillm.prompt import Message, PromptFormat, TextStream
from verillm.request import (
    MAX_REQUESTS,
    Job,
    Receipt,
    Request,
    Sampling,
    check_request,
    requests_root,
)
from verillm.signing import job_id as job_id_of, sign, struct_hash, verify
from verillm.stream import Progress, Token
from verillm.task import output_hash, outputs_root, task_id
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, Outcome, Reason

T = TypeVar("T")
MAX_FILE: Final = 64 << 20
QUOTE_MARGIN: Final = 5
"""Seconds that a quote must still be good for."""
UNREACHABLE: Final = "check the scheduler's address, and that it runs"


# ── Steps: all that touches the world ────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Ask:
    """A blocking question to the chain or the disk."""

    question: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class _Open:
    """An HTTP exchange whose answer is read in pieces; answered by a `_Source`."""

    method: str
    url: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Source:
    """An answer that is being read."""

    response: httpx.Response
    pieces: Any


@dataclass(frozen=True, slots=True)
class _Read:
    """The next piece, None at the end."""

    source: _Source


@dataclass(frozen=True, slots=True)
class _Close:
    source: _Source


Step = _Ask | _Sleep | _Open | _Read | _Close
Flow = Generator[Step, Any, T]


def _ask(question: Callable[[], T]) -> Flow[T]:
    answer: T = yield _Ask(question)
    return answer


def _fetch(method: str, url: str, body: bytes | None = None) -> Flow[bytes]:
    """A whole answer of bounded size; raises RemoteError for a refusal."""
    try:
        source: _Source = yield _Open(method, url, body)
        answer = yield from _read_all(source)
    except httpx.HTTPError as error:
        raise _unreachable(url, error) from error
    if source.response.is_error:
        _refuse(source.response.status_code, answer)
    return answer


def _read_all(source: _Source) -> Flow[bytes]:
    answer = bytearray()
    try:
        while (piece := (yield _Read(source))) is not None:
            answer += piece
            if len(answer) > MAX_FILE:
                raise MalformedError("answer", f"over {MAX_FILE} bytes")
    finally:
        yield _Close(source)
    return bytes(answer)


def _refuse(status: int, answer: bytes) -> NoReturn:
    try:
        body = api.ErrorBody.from_json(api.loads(answer))
    except MalformedError as error:
        raise RemoteError(f"http_{status}", f"HTTP {status}", UNREACHABLE) from error
    raise RemoteError(body.code, body.message, body.remedy)


def _unreachable(url: str, error: Exception) -> RemoteError:
    said = str(error) or type(error).__name__
    return RemoteError("scheduler_unreachable", f"{url}: {said}", UNREACHABLE)


# ── What callers hand in and get ─────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a job: exactly one of prompt, messages and tokens; the rest by their names."""

    prompt: str | None = None
    messages: Sequence[Message] | None = None
    tokens: Sequence[int] | None = None
    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def sampling(self) -> Sampling:
        """In ppm; raises SamplingError."""
        return Sampling.of(self.temperature, self.top_k, self.top_p, self.min_p)

    def encode(self, format_: PromptFormat | None) -> tuple[int, ...]:
        """Its tokens."""
        if self.tokens is not None:
            return tuple(self.tokens)
        if format_ is None:
            raise InputError("give exactly one of prompt, messages and tokens")
        if self.messages is not None:
            return format_.encode_chat(self.messages)
        return format_.encode(self.prompt or "")

    def check(self) -> None:
        """Everything that can be wrong before any model is known."""
        given = sum(part is not None for part in (self.prompt, self.messages, self.tokens))
        if given != 1:
            raise InputError("give exactly one of prompt, messages and tokens")
        self.sampling  # noqa: B018 - raises
        if type(self.max_new_tokens) is not int or not 0 < self.max_new_tokens < 1 << 32:
            raise InputError(f"max_new_tokens {self.max_new_tokens!r} is not a count of tokens")


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a job ended on chain."""

    outcome: Outcome
    reason: Reason
    transaction: Hash32


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """A receipt that holds: signed, and over the very tokens that were streamed.

    And how far the chain bears it out yet: `posted`, the posting holds all outputs; `sealed`, the
    task id is proven.
    """

    receipt: Receipt
    posted: bool
    sealed: bool


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler that showed its models: where it listens, who it is, which key signs for it."""

    url: str
    address: ChecksumAddress
    hot_key: ChecksumAddress
    offers: tuple[api.ModelOffer, ...]

    def offer(self, model: ModelId | str | None) -> api.ModelOffer:
        """The offer of a model by id or name, or of the only one; raises UnknownModel."""
        wanted = _model_id(model) if isinstance(model, str) else model
        found = [
            offer
            for offer in self.offers
            if model is None or offer.model_id == wanted or offer.spec.name == model
        ]
        if len(found) != 1:
            names = ", ".join(offer.spec.name for offer in self.offers) or "none"
            asked = api.to_hex(model) if isinstance(model, bytes) else model
            raise UnknownModel(f"{asked or '(none named)'}; this scheduler has: {names}")
        return found[0]


def _model_id(text: str) -> ModelId | None:
    is_id = len(text) == 66 and text.startswith("0x")
    return ModelId(api.parse_hash(text, "model")) if is_id else None


# ── The operations, as flows ─────────────────────────────────────────────────────────────────────
class _Flows:
    """Everything that a client does, for either driver."""

    def __init__(
        self, chain: Chain, account: LocalAccount, scheduler: str | None, cache: Path | None
    ) -> None:
        self.chain, self.account, self.default = chain, account, scheduler
        self._cache = cache or _cache_folder()
        self._formats: dict[ModelId, PromptFormat] = {}

    # Money
    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Flow[Mined]:
        if amount <= 0:
            raise InputError("the amount is not positive")
        owner = self.account.address
        held = yield from _ask(lambda: self.chain.token_balance(owner))
        if held < amount:
            raise DepositTooSmall(held, amount)
        allowed = yield from _ask(lambda: self.chain.allowance(owner))
        if allowed < amount:
            yield from self._send(self.chain.calls.approve(amount))
        mined = yield from self._send(self.chain.calls.deposit(scheduler, amount))
        return mined

    def unlock(self, scheduler: ChecksumAddress, amount: int | None) -> Flow[DepositState]:
        state = yield from self.deposit_state(scheduler)
        wanted = state.amount if amount is None else amount
        if not 0 < wanted <= state.amount:
            raise DepositTooSmall(state.amount, wanted)
        yield from self._send(self.chain.calls.request_unlock(scheduler, wanted))
        after = yield from self.deposit_state(scheduler)
        return after

    def withdraw(self, scheduler: ChecksumAddress) -> Flow[Mined]:
        mined = yield from self._send(self.chain.calls.withdraw_deposit(scheduler))
        return mined

    def deposit_state(self, scheduler: ChecksumAddress) -> Flow[DepositState]:
        return (yield from _ask(lambda: self.chain.deposit_of(self.account.address, scheduler)))

    def token_balance(self) -> Flow[int]:
        return (yield from _ask(lambda: self.chain.token_balance(self.account.address)))

    def _send(self, call: Any) -> Flow[Mined]:
        return (yield from _ask(lambda: self.chain.send(call)))

    # Scheduler and model
    def scheduler(self, url: str | None) -> Flow[Scheduler]:
        """Who listens at `url`; raises WrongChain or ConfigError if it serves another contract."""
        url = (url or self.default or "").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ConfigError("no scheduler: give its http(s) address")
        answer = yield from _fetch("GET", url + api.INFO)
        info = api.Info.from_json(api.loads(answer))
        deployment = self.chain.deployment
        if info.chain_id != deployment.chain_id:
            raise WrongChain(deployment.chain_id, info.chain_id)
        if info.contract != deployment.contract:
            raise ConfigError(f"the scheduler serves the contract {info.contract}")
        # Who signs for it is the chain's word, not its own.
        account = yield from _ask(lambda: self.chain.account_of(info.operator))
        answer = yield from _fetch("GET", url + api.MODELS)
        models = api.Models.from_json(api.loads(answer)).models
        return Scheduler(url, info.operator, account.hot_key, models)

    def model(self, offer: api.ModelOffer) -> Flow[ModelSpec]:
        """The offered model's spec as the chain has it; raises UnknownModel, ModelMismatch."""
        if id_of(offer.spec) != offer.model_id:
            raise ModelMismatch(f"{offer.spec.name} is offered under another model's id")
        return (yield from _ask(lambda: self.chain.model(offer.model_id)))

    def format(self, url: str, model: ModelId, spec: ModelSpec) -> Flow[PromptFormat]:
        """Tokenizer and template, from the cache or the scheduler, checked by their hashes."""
        if model not in self._formats:
            tokenizer = yield from self._file(spec.tokenizer_hash, url + api.tokenizer_path(model))
            template = yield from self._file(spec.template_hash, url + api.template_path(model))
            self._formats[model] = PromptFormat.of(spec, tokenizer, template)
        return self._formats[model]

    def _file(self, digest: Hash32, url: str) -> Flow[bytes]:
        path = self._cache / digest.hex()
        found = yield from _ask(lambda: _read_cached(path, digest))
        if found is None:
            found = yield from _fetch("GET", url)
            if hashlib.sha256(found).digest() != digest:
                raise ModelMismatch(f"{url} does not serve what the model's id names")
            content = found
            yield from _ask(lambda: _write_cached(path, content))
        return found

    # A job
    def submit(self, prompts: Sequence[Prompt], terms: "_Terms") -> Flow["_Draft"]:
        """Everything up to the signature; raises whatever is wrong before money can move."""
        if not 1 <= len(prompts) <= MAX_REQUESTS:
            raise InputError(f"a job has 1 to {MAX_REQUESTS} requests, not {len(prompts)}")
        for prompt in prompts:
            prompt.check()
        scheduler = yield from self.scheduler(terms.scheduler)
        offer = scheduler.offer(terms.model)
        spec = yield from self.model(offer)
        format_ = yield from self.format(scheduler.url, offer.model_id, spec)
        requests = tuple(_request(prompt, format_) for prompt in prompts)
        for request in requests:
            check_request(request, spec.context, spec.vocabulary)
        signed = yield from self._quote(scheduler, offer.model_id, terms)
        max_fee = yield from self._fee(scheduler, signed.quote.unit_price, requests, terms)
        deadline = yield from self._deadline(terms)
        job = Job(
            client=self.account.address,
            quote=struct_hash(signed.quote),
            requests_root=requests_root(requests),
            requests=len(requests),
            max_fee=max_fee,
            deadline=deadline,
            nonce=secrets.randbits(256),
        )
        domain = self.chain.deployment.domain
        submission = api.JobSubmission(signed, job, sign(domain, job, self.account), requests)
        return _Draft(scheduler, submission, job_id_of(domain, job), spec, format_)

    def _quote(
        self, scheduler: Scheduler, model: ModelId, terms: "_Terms"
    ) -> Flow[api.SignedQuote]:
        body = api.dumps(api.QuoteRequest(model).to_json()).encode()
        answer = yield from _fetch("POST", scheduler.url + api.QUOTES, body)
        signed = api.SignedQuote.from_json(api.loads(answer))
        quote = signed.quote
        verify(self.chain.deployment.domain, quote, signed.signature, scheduler.hot_key)
        if quote.scheduler != scheduler.address or quote.model_id != model:
            raise MalformedError("quote", "for another scheduler or model than was asked")
        if quote.expiry < time.time() + QUOTE_MARGIN:
            raise QuoteExpiredError(quote.expiry)
        if terms.max_unit_price is not None and quote.unit_price > terms.max_unit_price:
            raise FeeTooLow(terms.max_unit_price, quote.unit_price)
        return signed

    def _fee(
        self, scheduler: Scheduler, unit_price: int, requests: Sequence[Request], terms: "_Terms"
    ) -> Flow[int]:
        tokens = sum(len(request.tokens) + request.max_new_tokens for request in requests)
        required = unit_price * tokens
        max_fee = required if terms.max_fee is None else terms.max_fee
        if max_fee < required or not 0 < max_fee < 1 << 96:
            raise FeeTooLow(max_fee, required)
        deposit = yield from self.deposit_state(scheduler.address)
        if deposit.amount < max_fee:
            raise DepositTooSmall(deposit.amount, max_fee)
        return max_fee

    def _deadline(self, terms: "_Terms") -> Flow[int]:
        config = yield from _ask(self.chain.config)
        now = yield from _ask(self.chain.now)
        # An idle chain's newest block may be old, and its next one will be of now.
        now = max(now, int(time.time()))
        window = config.job_window * 3 // 4 if terms.deadline_in is None else terms.deadline_in
        if not 0 < window <= config.job_window:
            raise InputError(f"deadline_in is 1 to {config.job_window} seconds here")
        return now + window

    def history(self, job_id: JobId) -> Flow[JobHistory]:
        return (yield from _ask(lambda: job_history(self.chain, job_id)))


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a submission may cost, and with whom."""

    scheduler: str | None
    model: ModelId | str | None
    max_fee: int | None
    max_unit_price: int | None
    deadline_in: int | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A signed job that is not sent yet."""

    scheduler: Scheduler
    submission: api.JobSubmission
    job_id: JobId
    spec: ModelSpec
    format: PromptFormat


def _request(prompt: Prompt, format_: PromptFormat) -> Request:
    tokens = prompt.encode(format_)
    salt = secrets.token_bytes(32)
    return Request(salt, tokens, prompt.max_new_tokens, prompt.sampling)


def _cache_folder() -> Path:
    home = os.environ.get("VERILLM_HOME")
    return (Path(home) if home else platformdirs.user_cache_path("verillm")) / "tokenizers"


def _read_cached(path: Path, digest: Hash32) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).digest() == digest else None


def _write_cached(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:  # a cache is a convenience; the content was checked
        partial.unlink(missing_ok=True)


# ── A submitted job ──────────────────────────────────────────────────────────────────────────────
STAGES: Final = {
    "posted": Status.POSTED,
    "sealed": Status.SEALED,
    "claimed": Status.CLAIMED,
    "final": Status.FINAL,
}


class _Job:
    """A submitted job: what the stream brought, and what the chain says of it."""

    def __init__(
        self, flows: _Flows, draft: _Draft, patience: float, run: Callable[[Flow[Any]], Any]
    ) -> None:
        self._flows, self._draft, self._run = flows, draft, run
        self._patience = patience
        self._source: _Source | None = None
        self._parser = sse.Parser()
        self._events: deque[sse.ServerEvent] = deque()
        self._progress = Progress(draft.job_id, draft.submission.requests, draft.spec.vocabulary)
        self._texts = [TextStream(draft.format) for _ in draft.submission.requests]

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
                piece = yield _Read(self._open_source())
                if piece is not None:
                    self._events.extend(self._parser.feed(piece))
                    continue
                error: Exception = EOFError("the stream ended early")
            except httpx.HTTPError as broken:
                error = broken
            yield from self.disconnect()
            if time.monotonic() > deadline:
                raise _unreachable(self.scheduler.url, error) from error
            yield _Sleep(min(2.0, 0.05 * 2**quiet))
            quiet += 1
        return self._deliver(self._progress.apply(self._events.popleft()))

    def _deliver(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        texts = [(token, self._texts[token.request].push(token.id)) for token in tokens]
        return tuple(replace(token, text=text) for token, text in texts)

    def _open_source(self) -> _Source:
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
            opening = _Open("GET", base + api.job_path(self.job_id, "events"), None, headers)
        else:
            body = api.dumps(self._draft.submission.to_json()).encode()
            opening = _Open("POST", base + api.JOBS, body, headers)
        source: _Source = yield opening
        if source.response.is_error:
            answer = yield from _read_all(source)
            if source.response.status_code in (502, 503, 504) and self._progress.accepted:
                raise httpx.ReadError("the scheduler is starting")
            _refuse(source.response.status_code, answer)
        self._source, self._parser = source, sse.Parser()

    def disconnect(self) -> Flow[None]:
        source, self._source = self._source, None
        if source is not None:
            yield _Close(source)

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
        while True:
            state = yield from _ask(lambda: chain.job_state(self.job_id))
            if state.status >= STAGES[stage]:
                return Status(state.status)
            if state.status is Status.NONE:
                now = yield from _ask(chain.now)
                if now > self.job.deadline:
                    raise DeadlinePassedError(self.job.deadline)
            if time.monotonic() > deadline:
                raise Timeout(f"the job is not {stage} after {within:.0f} s")
            yield _Sleep(poll)

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
        if receipt.output_hash != output_hash(receipt.task_id, self.outputs[request]):
            raise EvidenceError(Reason.OUTPUT_MISMATCH, "the receipt is not of these tokens")
        history = yield from self._flows.history(self.job_id)
        if history.posted is None:
            return ReceiptCheck(receipt, posted=False, sealed=False)
        root = outputs_root([output_hash(receipt.task_id, output) for output in self.outputs])
        if history.posted.event.posting.outputs_root != root:
            raise EvidenceError(Reason.OUTPUT_MISMATCH, "the posting holds other outputs")
        if history.sealed is None:
            return ReceiptCheck(receipt, posted=True, sealed=False)
        secret = history.sealed.event.sealing.secret
        if task_id(secret, self.job_id, 0) != receipt.task_id:
            raise EvidenceError(Reason.OUTPUT_MISMATCH, "the receipt names another task")
        return ReceiptCheck(receipt, posted=True, sealed=True)


class JobHandle(_Job):
    """A submitted job, for blocking callers. Iterating gives text; a broken stream is resumed.

    Errors while streaming: RemoteError (the job failed, or the scheduler is gone), WorkerFailed
    (another worker took over and disagrees with what was delivered: iterate again for the rest).
    """

    def tokens(self) -> Iterator[Token]:
        """New tokens of all requests as they come, each once; ends when all outputs are whole."""
        while self._wants_tokens:
            yield from self._run(self._pull())
        self.close()

    def __iter__(self) -> Iterator[str]:
        if len(self.requests) != 1:
            raise InputError("a job of several requests: use tokens()")
        for token in self.tokens():
            if token.text:
                yield token.text
        if rest := self._rest(0):
            yield rest

    def read(self) -> str:
        """Wait for all outputs; returns the first one's text."""
        for _ in self.tokens():
            pass
        return self.text()

    def wait(self, stage: str = "final", *, within: float = 600.0, poll: float = 0.2) -> Status:
        """Wait until the chain has the job `posted`, `sealed`, `claimed` or `final`.

        Raises Timeout, and DeadlinePassedError for a job that can no longer be posted: it costs
        nothing.
        """
        return Status(self._run(self._wait(stage, within, poll)))

    def outcome(self) -> Settlement | None:
        """How the job ended on chain, None while it has not."""
        found: Settlement | None = self._run(self._settlement())
        return found

    def verify_receipt(self, request: int = 0) -> ReceiptCheck:
        """Check a receipt against the tokens seen and, as far as it goes, the chain.

        Raises SignatureError, EvidenceError.
        """
        checked: ReceiptCheck = self._run(self._verify(request))
        return checked

    def close(self) -> None:
        """Leave the stream; the job goes on, and `tokens` would resume it."""
        self._run(self.disconnect())


class AsyncJobHandle(_Job):
    """A submitted job, for coroutines: JobHandle with `await` and `async for`."""

    async def tokens(self) -> AsyncIterator[Token]:
        """New tokens of all requests as they come, each once; ends when all outputs are whole."""
        while self._wants_tokens:
            for token in await self._run(self._pull()):
                yield token
        await self.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        if len(self.requests) != 1:
            raise InputError("a job of several requests: use tokens()")
        async for token in self.tokens():
            if token.text:
                yield token.text
        if rest := self._rest(0):
            yield rest

    async def read(self) -> str:
        """Wait for all outputs; returns the first one's text."""
        async for _ in self.tokens():
            pass
        return self.text()

    async def wait(
        self, stage: str = "final", *, within: float = 600.0, poll: float = 0.2
    ) -> Status:
        """As JobHandle.wait."""
        return Status(await self._run(self._wait(stage, within, poll)))

    async def outcome(self) -> Settlement | None:
        """How the job ended on chain, None while it has not."""
        found: Settlement | None = await self._run(self._settlement())
        return found

    async def verify_receipt(self, request: int = 0) -> ReceiptCheck:
        """As JobHandle.verify_receipt."""
        checked: ReceiptCheck = await self._run(self._verify(request))
        return checked

    async def close(self) -> None:
        """Leave the stream; the job goes on, and `tokens` would resume it."""
        await self._run(self.disconnect())


# ── The two clients ──────────────────────────────────────────────────────────────────────────────
_TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)


class _Base:
    """What both clients are made of."""

    def __init__(
        self,
        rpc: Provider,
        deployment: Deployment | Path,
        account: LocalAccount,
        *,
        scheduler: str | None = None,
        cache: Path | None = None,
        patience: float = 120.0,
    ) -> None:
        if isinstance(deployment, Path):
            deployment = Deployment.load(deployment)
        self.chain = Chain(rpc, deployment, account)
        self.account = account
        self._flows = _Flows(self.chain, account, scheduler, cache)
        self._patience = patience


def _prompts(
    prompt: str | None,
    messages: Sequence[Message] | None,
    tokens: Sequence[int] | None,
    requests: Sequence[Prompt] | None,
    options: Mapping[str, Any],
) -> tuple[Prompt, ...]:
    if requests is None:
        return (Prompt(prompt, messages, tokens, **options),)
    if not (prompt is None and messages is None and tokens is None and not options):
        raise InputError("with requests, give prompts and sampling in each Prompt")
    return tuple(requests)


class Client(_Base):
    """The SDK for blocking callers.

    Parameters
    ----------
    rpc : address of an Ethereum RPC server, or a provider of web3's.
    deployment : the deployment, or the path of its addresses file.
    account : who pays and signs.
    scheduler : address of the scheduler's API, unless each `submit` names one.
    cache : folder for tokenizers; they are checked whenever they are read.
    patience : seconds without any event after which a stream is given up.
    """

    def __init__(self, *args: Any, transport: httpx.BaseTransport | None = None, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._http = httpx.Client(timeout=_TIMEOUT, transport=transport, trust_env=False)

    def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as done:
                value: T = done.value
                return value
            answer = error = None
            try:
                answer = self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised

    def _do(self, step: Step) -> Any:
        match step:
            case _Ask(question):
                return question()
            case _Sleep(seconds):
                return time.sleep(seconds)
            case _Open(method, url, body, headers):
                request = self._http.build_request(method, url, content=body, headers=headers)
                response = self._http.send(request, stream=True)
                return _Source(response, response.iter_bytes())
            case _Read(source):
                return next(source.pieces, None)
            case _Close(source):
                return source.response.close()

    def submit(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        requests: Sequence[Prompt] | None = None,
        model: ModelId | str | None = None,
        scheduler: str | None = None,
        max_fee: int | None = None,
        max_unit_price: int | None = None,
        deadline_in: int | None = None,
        **options: Any,
    ) -> JobHandle:
        """Ask for one completion, or with `requests` for many in one job; returns once accepted.

        Parameters
        ----------
        model : id (0x…) or name; may be left out if the scheduler has only one. An id is the
            pin: weights, tokenizer and thresholds are what it hashes.
        max_fee : most that the job may cost; by default what the quote makes of all its tokens.
        options : fields of Prompt (max_new_tokens, temperature, top_p, top_k, min_p).

        Raises
        ------
        InputError and below it SamplingError, PromptTooLong, TokensOutOfBounds, FeeTooLow,
        DepositTooSmall, QuoteExpiredError; UnknownModel, ModelMismatch; SignatureError;
        ChainError; RemoteError. All before anything is signed, but for the scheduler's refusal.
        """
        prompts = _prompts(prompt, messages, tokens, requests, options)
        terms = _Terms(scheduler, model, max_fee, max_unit_price, deadline_in)
        draft = self._run(self._flows.submit(prompts, terms))
        handle = JobHandle(self._flows, draft, self._patience, self._run)
        self._run(handle._start())
        return handle

    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Mined:
        """Put tokens at a scheduler's disposal for jobs that this account signs."""
        return self._run(self._flows.deposit(scheduler, amount))

    def unlock(self, scheduler: ChecksumAddress, amount: int | None = None) -> DepositState:
        """Ask for a deposit back, all of it by default; `available_at` says from when."""
        return self._run(self._flows.unlock(scheduler, amount))

    def withdraw(self, scheduler: ChecksumAddress) -> Mined:
        """Take what was unlocked; raises TransactionFailed(NotYetAvailable) before its time."""
        return self._run(self._flows.withdraw(scheduler))

    def deposit_of(self, scheduler: ChecksumAddress) -> DepositState:
        """This account's deposit at a scheduler."""
        return self._run(self._flows.deposit_state(scheduler))

    def balance(self) -> int:
        """Tokens that the account holds itself."""
        return self._run(self._flows.token_balance())

    def schedulers_offer(self, scheduler: str | None = None) -> Scheduler:
        """Who a scheduler is and what it sells."""
        return self._run(self._flows.scheduler(scheduler))

    def history(self, job_id: JobId) -> JobHistory:
        """All that the chain says of a job."""
        return self._run(self._flows.history(job_id))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        self.chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_Base):
    """The SDK for coroutines: as Client; questions to the chain run in threads."""

    def __init__(
        self, *args: Any, transport: httpx.AsyncBaseTransport | None = None, **kw: Any
    ) -> None:
        super().__init__(*args, **kw)
        self._http = httpx.AsyncClient(timeout=_TIMEOUT, transport=transport, trust_env=False)

    async def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as done:
                value: T = done.value
                return value
            answer = error = None
            try:
                answer = await self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised

    async def _do(self, step: Step) -> Any:
        match step:
            case _Ask(question):
                return await asyncio.to_thread(question)
            case _Sleep(seconds):
                return await asyncio.sleep(seconds)
            case _Open(method, url, body, headers):
                request = self._http.build_request(method, url, content=body, headers=headers)
                response = await self._http.send(request, stream=True)
                return _Source(response, response.aiter_bytes())
            case _Read(source):
                return await anext(source.pieces, None)
            case _Close(source):
                return await source.response.aclose()

    async def submit(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        requests: Sequence[Prompt] | None = None,
        model: ModelId | str | None = None,
        scheduler: str | None = None,
        max_fee: int | None = None,
        max_unit_price: int | None = None,
        deadline_in: int | None = None,
        **options: Any,
    ) -> AsyncJobHandle:
        """As Client.submit."""
        prompts = _prompts(prompt, messages, tokens, requests, options)
        terms = _Terms(scheduler, model, max_fee, max_unit_price, deadline_in)
        draft = await self._run(self._flows.submit(prompts, terms))
        handle = AsyncJobHandle(self._flows, draft, self._patience, self._run)
        await self._run(handle._start())
        return handle

    async def deposit(self, scheduler: ChecksumAddress, amount: int) -> Mined:
        """As Client.deposit."""
        return await self._run(self._flows.deposit(scheduler, amount))

    async def unlock(self, scheduler: ChecksumAddress, amount: int | None = None) -> DepositState:
        """As Client.unlock."""
        return await self._run(self._flows.unlock(scheduler, amount))

    async def withdraw(self, scheduler: ChecksumAddress) -> Mined:
        """As Client.withdraw."""
        return await self._run(self._flows.withdraw(scheduler))

    async def deposit_of(self, scheduler: ChecksumAddress) -> DepositState:
        """As Client.deposit_of."""
        return await self._run(self._flows.deposit_state(scheduler))

    async def balance(self) -> int:
        """As Client.balance."""
        return await self._run(self._flows.token_balance())

    async def schedulers_offer(self, scheduler: str | None = None) -> Scheduler:
        """As Client.schedulers_offer."""
        return await self._run(self._flows.scheduler(scheduler))

    async def history(self, job_id: JobId) -> JobHistory:
        """As Client.history."""
        return await self._run(self._flows.history(job_id))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        self.chain.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
