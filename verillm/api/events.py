"""Events of a job's and of a task's stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from verillm import schema
from verillm.api.fields import Fields, dumps, loads, to_hex
from verillm.api.limits import MAX_REQUESTS
from verillm.api.refusal import ErrorBody
from verillm.api.structs import bound
from verillm.errors import MalformedError
from verillm.request import Receipt
from verillm.sse import ServerEvent
from verillm.task import Inner, ItemLeaf
from verillm.types import Hash32, JobId


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

    NAMES = ("posted", "sealed", "claimed", "challenged", "judged", "final")
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
