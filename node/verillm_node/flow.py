"""One job as a scheduler runs it: what was submitted, its secret, and the stream to its client.

Every event is in the store before a client can see it, under the number it will always have: after
a crash, or a broken connection, the stream goes on exactly where it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from verillm.api import (
    AcceptedEvent,
    JobEvent,
    JobSubmission,
    ReceiptEvent,
    RestartEvent,
    StageEvent,
    TokenEvent,
)
from verillm.errors import WorkerFailed
from verillm.model import ModelSpec
from verillm.request import Request
from verillm.types import Hash32, JobId
from verillm_node.feed import Feed
from verillm_node.jobs import JobBook
from verillm_node.threads import blocking


@dataclass(slots=True)
class Text:
    """What a client has of each request's output so far; a pure fold over the events."""

    tokens: list[list[int]]
    restarts: int = 0

    @classmethod
    def of(cls, requests: int, events: Iterable[JobEvent]) -> "Text":
        """The text after some events."""
        text = cls([[] for _ in range(requests)])
        for event in events:
            text.apply(event)
        return text

    def apply(self, event: JobEvent) -> None:
        """Takes one more event."""
        if isinstance(event, TokenEvent):
            self.tokens[event.item].append(event.token)
        elif isinstance(event, RestartEvent):
            self.restarts = event.attempt
            self.tokens = [[] for _ in self.tokens]


@dataclass(slots=True)
class Attempt:
    """One worker's answer, held against what the client asked for and what it already has.

    What no verifier could take must never be posted: such a job cannot be sealed, and its
    scheduler would pay the worker for that.
    """

    told: Text
    requests: Sequence[Request]
    spec: ModelSpec
    tokens: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = [[] for _ in self.told.tokens]

    def add(self, event: TokenEvent) -> list[JobEvent]:
        """What the client needs to hear after one more token: nothing, the token, or a restart."""
        if not event.item < len(self.tokens) or event.index != len(self.tokens[event.item]):
            raise WorkerFailed("the worker's tokens are out of order")
        own = self.tokens[event.item]
        if event.token >= self.spec.vocabulary:
            raise WorkerFailed(f"the worker's token {event.token} is not in the vocabulary")
        if self._has_ended(event.item):
            raise WorkerFailed("the worker's output goes on after it has ended")
        own.append(event.token)
        known = self.told.tokens[event.item]
        if event.index == len(known):
            return self._tell([event])
        return [] if known[event.index] == event.token else self._restart()

    def end(self) -> list[JobEvent]:
        """What is left to say once this answer is complete: if it is shorter, all is told again."""
        if not all(self._has_ended(item) for item in range(len(self.tokens))):
            raise WorkerFailed("the worker's output is cut short")
        return self._restart() if self.tokens != self.told.tokens else []

    def _has_ended(self, item: int) -> bool:
        own = self.tokens[item]
        full = len(own) >= self.requests[item].max_new_tokens
        return full or bool(own and own[-1] in self.spec.end_tokens)

    def _restart(self) -> list[JobEvent]:
        again = [
            TokenEvent(item, index, token)
            for item, tokens in enumerate(self.tokens)
            for index, token in enumerate(tokens)
        ]
        reason = "another worker took over, and its text differs"
        return self._tell([RestartEvent(self.told.restarts + 1, reason), *again])

    def _tell(self, events: Sequence[JobEvent]) -> list[JobEvent]:
        for event in events:
            self.told.apply(event)
        return list(events)


class Flow:
    """A job that is open here."""

    def __init__(self, job_id: JobId, submission: JobSubmission, secret: Hash32, book: JobBook):
        self.job_id, self.submission, self.secret = job_id, submission, secret
        self._book = book
        events = book.events(job_id)
        self.feed: Feed[JobEvent] = Feed(events)
        self.text = Text.of(len(submission.requests), events)
        self.stages = {event.stage for event in events if isinstance(event, StageEvent)}
        self.accepted = any(isinstance(event, AcceptedEvent) for event in events)
        self.receipted = any(isinstance(event, ReceiptEvent) for event in events)
        self.claimed = book.claimed(job_id)

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """New tokens of every request: as the client has them, or as a worker claimed them."""
        if self.claimed is not None:
            return self.claimed.outputs
        return tuple(tuple(tokens) for tokens in self.text.tokens)

    async def emit(self, *events: JobEvent, last: bool = False) -> None:
        """Stores events, then shows them."""
        if not events:
            return
        await blocking(self._book.add_events, self.job_id, len(self.feed), events)
        for event in events:
            self.feed.append(event, last=last and event is events[-1])
            if isinstance(event, StageEvent):
                self.stages.add(event.stage)
            elif isinstance(event, ReceiptEvent):
                self.receipted = True
