"""What travels over HTTP between client, scheduler and worker: paths, JSON bodies, stream events.

Client to scheduler:
    GET  /v1/info                    Info
    GET  /v1/models                  Models
    GET  /v1/models/{id}/tokenizer   bytes of tokenizer.json, sha256 = the spec's tokenizerHash
    GET  /v1/models/{id}/template    bytes of the chat template, sha256 = the spec's templateHash
    POST /v1/quotes                  QuoteRequest → SignedQuote
    POST /v1/jobs                    JobSubmission → stream: accepted, token, restart, receipt,
                                     posted, sealed, claimed, final, error
    GET  /v1/jobs/{id}               JobStatus
    GET  /v1/jobs/{id}/events        the same stream after Last-Event-ID
    GET  /v1/jobs/{id}/bundle        bundle bytes (VLB1)
Scheduler, verifier or auditor to worker:
    GET  /v1/info                    Info
    POST /v1/tasks                   TaskSubmission → stream: token, commitment, error
    GET  /v1/tasks/{id}              TaskStatus
    GET  /v1/tasks/{id}/events       the same stream after Last-Event-ID
    GET  /v1/tasks/{id}/opening?item=0&full=1,2&final=3   opening bytes (VLO1), once sealed on chain
    POST /v1/jobs/{id}/attest        bundle bytes → SignedAttestation
Both: GET /healthz, GET /metrics.

A POST of a job or task that is already known is answered by its stream from the first event (or
after Last-Event-ID), so a client may send it again after a broken connection and pays once.
A refusal is 4xx or 5xx with ErrorBody; a failure after the stream began is its `error` event.

JSON: hashes and bytes are lower-case 0x hex; integers of more than 53 bits are decimal strings,
since JavaScript cannot count them, and all others are numbers. Parsers are strict: unknown,
missing or doubled keys, wrong types and numbers out of range raise MalformedError, which names the
field.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, Self, TypeVar

from eth_typing import ChecksumAddress
from eth_utils.address import is_address, to_checksum_address

from verillm import schema
from verillm.errors import MalformedError, VeriLLMError
from verillm.model import ModelSpec, spec_from_json, spec_to_json
from verillm.request import Job, Quote, Receipt, Request, Sampling
from verillm.sse import ServerEvent
from verillm.task import Inner, Item, ItemLeaf, Task
from verillm.types import Hash32, JobId, ModelId, TaskId

VERSION: Final = "v1"
MAX_BODY_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 32
MAX_REQUESTS: Final = 4096
MAX_TOKENS: Final = 1 << 20
SIGNATURE_BYTES: Final = 65
MAX_TEXT: Final = 65_536

T = TypeVar("T")


# ── Paths ────────────────────────────────────────────────────────────────────────────────────────
INFO: Final = "/v1/info"
MODELS: Final = "/v1/models"
QUOTES: Final = "/v1/quotes"
JOBS: Final = "/v1/jobs"
TASKS: Final = "/v1/tasks"


def tokenizer_path(model_id: ModelId) -> str:
    """Where a scheduler serves a model's tokenizer.json."""
    return f"{MODELS}/{to_hex(model_id)}/tokenizer"


def template_path(model_id: ModelId) -> str:
    """Where a scheduler serves a model's chat template."""
    return f"{MODELS}/{to_hex(model_id)}/template"


def job_path(job_id: JobId, part: str = "") -> str:
    """A job at its scheduler (`events`, `bundle`) or worker (`attest`)."""
    return f"{JOBS}/{to_hex(job_id)}" + (f"/{part}" if part else "")


def task_path(task_id: TaskId, part: str = "") -> str:
    """A task at its worker (`events`, `opening`)."""
    return f"{TASKS}/{to_hex(task_id)}" + (f"/{part}" if part else "")


def opening_query(item: int, full: Iterable[int], final: Iterable[int]) -> dict[str, str]:
    """Query of an opening: positions with slices and final state, those with the final only."""
    return {
        "item": str(item),
        "full": ",".join(map(str, full)),
        "final": ",".join(map(str, final)),
    }


def parse_positions(text: str, field: str) -> tuple[int, ...]:
    """Positions of an opening's query; empty text is none."""
    parts = text.split(",") if text else []
    if len(parts) > MAX_TOKENS or not all(
        p.isascii() and p.isdigit() and len(p) <= 8 for p in parts
    ):
        raise MalformedError(field, "not a list of positions like 1,5,9")
    return tuple(map(int, parts))


# ── JSON in and out, strictly ────────────────────────────────────────────────────────────────────
Json = Mapping[str, object]


def _no_constant(name: str) -> NoReturn:
    raise MalformedError("body", f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedError("body", "a key stands twice in one object")
    return found


_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def _check_depth(text: str, field: str) -> None:
    """Before parsing: under a raised recursion limit, deep nesting would overflow the C stack."""
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        if (first := found[0][0]) in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedError(field, f"nested deeper than {MAX_DEPTH}")
        elif first != '"':
            depth -= 1


def loads(raw: bytes | str, field: str = "body") -> object:
    """JSON of bounded size and depth without NaN or doubled keys; raises MalformedError."""
    if len(raw) > MAX_BODY_BYTES:
        raise MalformedError(field, f"longer than {MAX_BODY_BYTES} bytes")
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        _check_depth(text, field)
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except ValueError as error:
        raise MalformedError(field, "not JSON") from error


def dumps(value: Json) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def to_hex(value: bytes) -> str:
    """Lower-case 0x hex."""
    return "0x" + value.hex()


def parse_hex(text: object, field: str, size: int | None = None, cap: int = 4096) -> bytes:
    """Bytes from 0x hex of exactly `size` bytes, or of at most `cap`."""
    if not isinstance(text, str) or not text.startswith("0x"):
        raise MalformedError(field, "not 0x hex")
    if len(text) > 2 + 2 * (cap if size is None else size):
        raise MalformedError(field, "too long")
    try:
        value = bytes.fromhex(text[2:])
    except ValueError as error:
        raise MalformedError(field, "not 0x hex") from error
    if 2 * len(value) != len(text) - 2 or (size is not None and len(value) != size):
        raise MalformedError(field, f"not {size} bytes")
    return value


def parse_hash(text: object, field: str = "hash") -> Hash32:
    """32 bytes from 0x hex, such as an id in a path."""
    return Hash32(parse_hex(text, field, 32))


class Fields:
    """Reads one JSON object field by field; `end` rejects whatever nobody asked for."""

    __slots__ = ("_left", "_where")

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedError(where, "not an object")
        self._left: dict[str, object] = dict(value)
        self._where = where

    def take(self, key: str, parse: Callable[[object, str], T]) -> T:
        """The value of `key` through `parse(value, path of the field)`."""
        path = f"{self._where}.{key}"
        if key not in self._left:
            raise MalformedError(path, "missing")
        return parse(self._left.pop(key), path)

    def optional(self, key: str, parse: Callable[[object, str], T]) -> T | None:
        """Like `take`; null is None."""
        return self.take(key, lambda value, path: None if value is None else parse(value, path))

    def number(self, key: str, bits: int = 32) -> int:
        """An unsigned integer below 2^bits, sent as a number."""
        return self.take(key, lambda value, path: _bounded(value, path, bits))

    def amount(self, key: str, bits: int = 96) -> int:
        """An unsigned integer below 2^bits, sent as a decimal string."""
        return self.take(key, lambda value, path: _bounded(_decimal(value, path), path, bits))

    def text(self, key: str, cap: int = MAX_TEXT) -> str:
        """A string of at most `cap` characters."""
        return self.take(key, lambda value, path: _text(value, path, cap))

    def hash(self, key: str) -> Hash32:
        """32 bytes."""
        return self.take(key, parse_hash)

    def address(self, key: str) -> ChecksumAddress:
        """An account's address."""
        return self.take(key, parse_address)

    def signature(self, key: str) -> bytes:
        """A worker's or scheduler's signature: 65 bytes, whose form `signing.recover` checks."""
        return self.take(key, lambda value, path: parse_hex(value, path, SIGNATURE_BYTES))

    def many(self, key: str, parse: Callable[[object, str], T], cap: int) -> tuple[T, ...]:
        """A list of at most `cap` values."""
        return self.take(key, lambda value, path: _list(value, path, parse, cap))

    def end(self) -> None:
        """Raises unless every field of the object was read."""
        if self._left:
            raise MalformedError(f"{self._where}.{min(self._left)}", "unknown field")


def _bounded(value: object, path: str, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise MalformedError(path, f"not an unsigned integer of {bits} bits")
    return value


def _decimal(value: object, path: str) -> int:
    if not (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 78):
        raise MalformedError(path, "not a decimal string")
    return int(value)


def _text(value: object, path: str, cap: int) -> str:
    if not isinstance(value, str) or len(value) > cap:
        raise MalformedError(path, f"not a string of at most {cap} characters")
    return value


def parse_address(value: object, path: str) -> ChecksumAddress:
    """An account's address."""
    if not isinstance(value, str) or not value.startswith("0x") or not is_address(value):
        raise MalformedError(path, "not an address")
    return to_checksum_address(value)


def _list(value: object, path: str, parse: Callable[[object, str], T], cap: int) -> tuple[T, ...]:
    if not isinstance(value, list) or len(value) > cap:
        raise MalformedError(path, f"not a list of at most {cap}")
    return tuple(parse(entry, f"{path}[{index}]") for index, entry in enumerate(value))


def parse_tokens(value: object, path: str) -> tuple[int, ...]:
    """Token ids, each below 2^32."""
    if not isinstance(value, list) or len(value) > MAX_TOKENS:
        raise MalformedError(path, f"not a list of at most {MAX_TOKENS} tokens")
    if not all(type(token) is int and 0 <= token < 1 << 32 for token in value):
        raise MalformedError(path, "holds what is not a token id")
    return tuple(value)


# ── Signed objects and their parts ───────────────────────────────────────────────────────────────
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


# ── Bodies ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Info:
    """Who answers: its role here, its operator and hot key, and the contract it serves."""

    role: str
    operator: ChecksumAddress
    hot_key: ChecksumAddress
    chain_id: int
    contract: ChecksumAddress
    version: str
    models: tuple[ModelId, ...]

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "role": self.role,
            "operator": self.operator,
            "hotKey": self.hot_key,
            "chainId": self.chain_id,
            "contract": self.contract,
            "version": self.version,
            "models": [to_hex(model) for model in self.models],
        }

    @classmethod
    def from_json(cls, value: object, path: str = "info") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        info = cls(
            role=fields.text("role", 32),
            operator=fields.address("operator"),
            hot_key=fields.address("hotKey"),
            chain_id=fields.number("chainId", 64),
            contract=fields.address("contract"),
            version=fields.text("version", 32),
            models=tuple(ModelId(model) for model in fields.many("models", parse_hash, 1024)),
        )
        fields.end()
        return info


def _spec(value: object, path: str) -> ModelSpec:
    if not isinstance(value, dict):
        raise MalformedError(path, "not an object")
    return spec_from_json(value)


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model that a scheduler sells and what it asks per token now; the id is the spec's hash."""

    model_id: ModelId
    unit_price: int
    spec: ModelSpec

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "modelId": to_hex(self.model_id),
            "unitPrice": str(self.unit_price),
            "spec": spec_to_json(self.spec),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "model") -> Self:
        """Parse the body; whether the id is the spec's hash is the caller's to check."""
        fields = Fields(value, path)
        offer = cls(
            model_id=ModelId(fields.hash("modelId")),
            unit_price=fields.amount("unitPrice"),
            spec=fields.take("spec", _spec),
        )
        fields.end()
        return offer


@dataclass(frozen=True, slots=True)
class Models:
    """All models that a scheduler sells."""

    models: tuple[ModelOffer, ...]

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {"models": [offer.to_json() for offer in self.models]}

    @classmethod
    def from_json(cls, value: object, path: str = "models") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        models = cls(fields.many("models", ModelOffer.from_json, 1024))
        fields.end()
        return models


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """Asks for a price; the quote names no client, so it needs no signature."""

    model_id: ModelId

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {"modelId": to_hex(self.model_id)}

    @classmethod
    def from_json(cls, value: object, path: str = "quoteRequest") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        request = cls(ModelId(fields.hash("modelId")))
        fields.end()
        return request


@dataclass(frozen=True, slots=True)
class SignedQuote:
    """A quote and the signature of the scheduler's hot key."""

    quote: Quote
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {"quote": schema.to_json(self.quote), "signature": to_hex(self.signature)}

    @classmethod
    def from_json(cls, value: object, path: str = "signedQuote") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        signed = cls(fields.take("quote", bound(Quote)), fields.signature("signature"))
        fields.end()
        return signed


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """A signed job with the quote it rests on and its requests in full."""

    quote: SignedQuote
    job: Job
    signature: bytes  # of a contract wallet it may be longer than 65 bytes (ERC-1271)
    requests: tuple[Request, ...]

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "quote": self.quote.to_json(),
            "job": schema.to_json(self.job),
            "signature": to_hex(self.signature),
            "requests": [request_to_json(request) for request in self.requests],
        }

    @classmethod
    def from_json(cls, value: object, path: str = "submission") -> Self:
        """Parse the body; roots, bounds and signatures are the caller's to check."""
        fields = Fields(value, path)
        submission = cls(
            quote=fields.take("quote", SignedQuote.from_json),
            job=fields.take("job", bound(Job)),
            signature=fields.take("signature", parse_hex),
            requests=fields.many("requests", request_from_json, MAX_REQUESTS),
        )
        fields.end()
        return submission


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a scheduler believes a job stands; the chain has the last word.

    `stage`: accepted, running, posted, sealed, claimed, challenged, final or failed. `events` is
    the id of the last event so far.
    """

    job_id: JobId
    stage: str
    events: int
    error: "ErrorBody | None" = None

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "jobId": to_hex(self.job_id),
            "stage": self.stage,
            "events": self.events,
            "error": None if self.error is None else self.error.fields(),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "status") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        status = cls(
            job_id=JobId(fields.hash("jobId")),
            stage=fields.text("stage", 32),
            events=fields.number("events"),
            error=fields.optional("error", ErrorBody.from_fields),
        )
        fields.end()
        return status


@dataclass(frozen=True, slots=True)
class TaskSubmission:
    """A signed task; it says nothing of the worker's role in the job."""

    task: Task
    scheduler: ChecksumAddress  # operator; its hot key signed
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "task": task_to_json(self.task),
            "scheduler": self.scheduler,
            "signature": to_hex(self.signature),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "submission") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        submission = cls(
            task=fields.take("task", task_from_json),
            scheduler=fields.address("scheduler"),
            signature=fields.signature("signature"),
        )
        fields.end()
        return submission


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task stands at its worker: queued, running, committed or failed."""

    task_id: TaskId
    stage: str
    events: int
    commitment: "CommitmentEvent | None" = None
    error: "ErrorBody | None" = None

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "taskId": to_hex(self.task_id),
            "stage": self.stage,
            "events": self.events,
            "commitment": None if self.commitment is None else self.commitment.to_json(),
            "error": None if self.error is None else self.error.fields(),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "status") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        status = cls(
            task_id=TaskId(fields.hash("taskId")),
            stage=fields.text("stage", 32),
            events=fields.number("events"),
            commitment=fields.optional("commitment", CommitmentEvent.from_json),
            error=fields.optional("error", ErrorBody.from_fields),
        )
        fields.end()
        return status


@dataclass(frozen=True, slots=True)
class SignedAttestation:
    """A committee member's signed word on a job's verdict."""

    worker: ChecksumAddress  # operator; its hot key signed
    job_id: JobId
    outcome: int
    reason: int
    bundle: Hash32
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """The body."""
        return {
            "worker": self.worker,
            "jobId": to_hex(self.job_id),
            "outcome": self.outcome,
            "reason": self.reason,
            "bundle": to_hex(self.bundle),
            "signature": to_hex(self.signature),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "attestation") -> Self:
        """Parse the body."""
        fields = Fields(value, path)
        attestation = cls(
            worker=fields.address("worker"),
            job_id=JobId(fields.hash("jobId")),
            outcome=fields.number("outcome", 8),
            reason=fields.number("reason", 8),
            bundle=fields.hash("bundle"),
            signature=fields.signature("signature"),
        )
        fields.end()
        return attestation


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """A refusal: a stable code, what happened, what to do."""

    code: str
    message: str
    remedy: str

    @classmethod
    def of(cls, error: VeriLLMError) -> Self:
        """What an expected error says of itself."""
        return cls(error.code, str(error), error.remedy)

    def fields(self) -> dict[str, object]:
        """Its three fields, as they stand inside other bodies."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}

    def to_json(self) -> dict[str, object]:
        """The body of a refusal."""
        return {"error": self.fields()}

    @classmethod
    def from_fields(cls, value: object, path: str = "error") -> Self:
        """Parse the three fields."""
        fields = Fields(value, path)
        body = cls(fields.text("code", 64), fields.text("message"), fields.text("remedy"))
        fields.end()
        return body

    @classmethod
    def from_json(cls, value: object, path: str = "body") -> Self:
        """Parse the body of a refusal."""
        fields = Fields(value, path)
        body = fields.take("error", cls.from_fields)
        fields.end()
        return body


# ── Stream events ────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class AcceptedEvent:
    """The scheduler took the job; first event of a job's stream."""

    NAME = "accepted"
    job_id: JobId

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {"jobId": to_hex(self.job_id)}

    @classmethod
    def from_json(cls, value: object, path: str = "accepted") -> Self:
        """Parse the event's data."""
        fields = Fields(value, path)
        event = cls(JobId(fields.hash("jobId")))
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """New token `index` (from 0) of one request (of a job) or item (of a task)."""

    NAME = "token"
    item: int
    index: int
    token: int

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {"item": self.item, "index": self.index, "token": self.token}

    @classmethod
    def from_json(cls, value: object, path: str = "token") -> Self:
        """Parse the event's data."""
        fields = Fields(value, path)
        event = cls(fields.number("item"), fields.number("index"), fields.number("token"))
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class RestartEvent:
    """Another worker took over: all tokens before are void, each request starts again at 0."""

    NAME = "restart"
    attempt: int
    reason: str

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {"attempt": self.attempt, "reason": self.reason}

    @classmethod
    def from_json(cls, value: object, path: str = "restart") -> Self:
        """Parse the event's data."""
        fields = Fields(value, path)
        event = cls(fields.number("attempt"), fields.text("reason", 256))
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class ReceiptEvent:
    """The scheduler's signed word on one request's output, once its last token is out."""

    NAME = "receipt"
    receipt: Receipt
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {"receipt": schema.to_json(self.receipt), "signature": to_hex(self.signature)}

    @classmethod
    def from_json(cls, value: object, path: str = "receipt") -> Self:
        """Parse the event's data."""
        fields = Fields(value, path)
        event = cls(fields.take("receipt", bound(Receipt)), fields.signature("signature"))
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A hint that the job entered a stage on chain, the event's name; the chain is asked."""

    NAMES = ("posted", "sealed", "claimed", "challenged", "final")
    stage: str
    transaction: Hash32
    block: int
    outcome: int = 0
    reason: int = 0

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {
            "transaction": to_hex(self.transaction),
            "block": self.block,
            "outcome": self.outcome,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, stage: str, value: object) -> Self:
        """Parse the event's data under its name."""
        fields = Fields(value, stage)
        event = cls(
            stage=stage,
            transaction=fields.hash("transaction"),
            block=fields.number("block", 64),
            outcome=fields.number("outcome", 8),
            reason=fields.number("reason", 8),
        )
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class CommitmentEvent:
    """A worker's commitment with the leaves it was built from; last event of a task's stream."""

    NAME = "commitment"
    inner: Inner
    leaves: tuple[ItemLeaf, ...]
    signature: bytes

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return {
            "inner": schema.to_json(self.inner),
            "leaves": [schema.to_json(leaf) for leaf in self.leaves],
            "signature": to_hex(self.signature),
        }

    @classmethod
    def from_json(cls, value: object, path: str = "commitment") -> Self:
        """Parse the event's data; roots and signature are the caller's to check."""
        fields = Fields(value, path)
        event = cls(
            inner=fields.take("inner", bound(Inner)),
            leaves=fields.many("leaves", bound(ItemLeaf), MAX_REQUESTS),
            signature=fields.signature("signature"),
        )
        fields.end()
        return event


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The job or task failed; last event of its stream."""

    NAME = "error"
    error: ErrorBody

    def to_json(self) -> dict[str, object]:
        """The event's data."""
        return self.error.fields()

    @classmethod
    def from_json(cls, value: object, path: str = "error") -> Self:
        """Parse the event's data."""
        return cls(ErrorBody.from_fields(value, path))


JobEvent = AcceptedEvent | TokenEvent | RestartEvent | ReceiptEvent | StageEvent | FailedEvent
TaskEvent = TokenEvent | CommitmentEvent | FailedEvent

_JOB_EVENTS: Final[Mapping[str, Callable[[object], JobEvent]]] = {
    AcceptedEvent.NAME: AcceptedEvent.from_json,
    TokenEvent.NAME: TokenEvent.from_json,
    RestartEvent.NAME: RestartEvent.from_json,
    ReceiptEvent.NAME: ReceiptEvent.from_json,
    FailedEvent.NAME: FailedEvent.from_json,
}
_TASK_EVENTS: Final[Mapping[str, Callable[[object], TaskEvent]]] = {
    TokenEvent.NAME: TokenEvent.from_json,
    CommitmentEvent.NAME: CommitmentEvent.from_json,
    FailedEvent.NAME: FailedEvent.from_json,
}


def encode_event(event_id: int, event: JobEvent | TaskEvent) -> ServerEvent:
    """An event as it travels, `event_id` counting from 1 within its stream."""
    name = event.stage if isinstance(event, StageEvent) else event.NAME
    return ServerEvent(event_id, name, dumps(event.to_json()))


def parse_job_event(event: ServerEvent) -> JobEvent:
    """An event of a job's stream; raises MalformedError."""
    data = loads(event.data, event.name)
    if event.name in StageEvent.NAMES:
        return StageEvent.from_json(event.name, data)
    if event.name not in _JOB_EVENTS:
        raise MalformedError("event", f"a job's stream has no event {event.name[:32]!r}")
    return _JOB_EVENTS[event.name](data)


def parse_task_event(event: ServerEvent) -> TaskEvent:
    """An event of a task's stream; raises MalformedError."""
    if event.name not in _TASK_EVENTS:
        raise MalformedError("event", f"a task's stream has no event {event.name[:32]!r}")
    return _TASK_EVENTS[event.name](loads(event.data, event.name))


# ── Status codes ─────────────────────────────────────────────────────────────────────────────────
_STATUS_OF_CODE: Final[Mapping[str, int]] = {
    "bad_signature": 403,
    "replay": 409,
    "deposit_too_small": 402,
    "fee_too_low": 402,
    "quote_expired": 410,
    "deadline_passed": 410,
    "unknown_model": 404,
    "model_mismatch": 409,
    "not_found": 404,
    "not_sealed_yet": 409,
    "engine_unavailable": 503,
    "no_workers": 503,
    "worker_failed": 502,
    "timeout": 504,
    "chain_unreachable": 503,
    "wrong_chain": 503,
}


def status_of(code: str, default: int = 400) -> int:
    """HTTP status that carries an error's code; 400 is the sender's mistake."""
    return _STATUS_OF_CODE.get(code, default)
