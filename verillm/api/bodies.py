"""Bodies of questions and answers."""

from dataclasses import dataclass
from typing import Self

from eth_typing import ChecksumAddress

from verillm import schema
from verillm.api.events import CommitmentEvent
from verillm.api.fields import Fields, parse_hash, parse_hex, to_hex
from verillm.api.limits import MAX_REQUESTS
from verillm.api.refusal import ErrorBody
from verillm.api.structs import (
    bound,
    request_from_json,
    request_to_json,
    task_from_json,
    task_to_json,
)
from verillm.errors import MalformedError
from verillm.model import ModelSpec, spec_from_json, spec_to_json
from verillm.request import Job, Quote, Request
from verillm.task import Task
from verillm.types import Hash32, JobId, ModelId, TaskId


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
    error: ErrorBody | None = None

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
    commitment: CommitmentEvent | None = None
    error: ErrorBody | None = None

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
