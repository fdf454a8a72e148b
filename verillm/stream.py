"""What a job's stream has brought so far: each token once, whatever broke in between. Pure.

The scheduler counts events; a client that resumes after the last one it saw misses none, and what
it sees twice it drops. Tokens are also counted per request: a scheduler cannot skip or change one.
"""

from dataclasses import dataclass

from verillm import api
from verillm.errors import MalformedError, RemoteError, WorkerFailed
from verillm.request import Request
from verillm.sse import ServerEvent
from verillm.task import output_hash
from verillm.types import JobId

MAX_RESTARTS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """New token `index` of request `request`; `text` is what it completes, often empty."""

    request: int
    index: int
    id: int
    text: str = ""


class Progress:
    """Tokens, receipts and stages of one job, by the events of its stream."""

    def __init__(self, job_id: JobId, requests: tuple[Request, ...], vocabulary: int) -> None:
        self.job_id = job_id
        self.last_event = 0
        self.accepted = self.ended = False
        self.restarts = 0
        self.stages: list[api.StageEvent] = []
        self._requests, self._vocabulary = requests, vocabulary
        self._outputs: list[list[int]] = [[] for _ in requests]
        self._delivered: list[list[int]] = [[] for _ in requests]
        self._receipts: list[api.ReceiptEvent | None] = [None] * len(requests)

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """New tokens per request, of the worker that is at it now."""
        return tuple(map(tuple, self._outputs))

    @property
    def receipts(self) -> tuple[api.ReceiptEvent | None, ...]:
        """The scheduler's receipt per request, None until its output is whole."""
        return tuple(self._receipts)

    @property
    def complete(self) -> bool:
        """Whether every request has its receipt, so that no token is to come."""
        return all(receipt is not None for receipt in self._receipts)

    def apply(self, event: ServerEvent) -> tuple[Token, ...]:
        """Take one event; returns the tokens to deliver. Raises what the stream must not be.

        RemoteError if the job failed; WorkerFailed if another worker took over and said something
        else than was delivered already: `outputs` then is the new worker's.
        """
        if event.id <= self.last_event:
            return ()
        if event.id != self.last_event + 1:
            raise MalformedError("event.id", f"{event.id} after {self.last_event}")
        parsed = api.parse_job_event(event)
        self.last_event = event.id
        return self._take(parsed)

    def _take(self, event: api.JobEvent) -> tuple[Token, ...]:
        match event:
            case api.TokenEvent():
                return self._token(event)
            case api.AcceptedEvent():
                self._accept(event)
            case api.RestartEvent():
                self._restart()
            case api.ReceiptEvent():
                self._receipt(event)
            case api.StageEvent():
                self.stages.append(event)
                self.ended = event.stage == "final"
            case api.FailedEvent():
                self.ended = True
                raise RemoteError(event.error.code, event.error.message, event.error.remedy)
        return ()

    def _accept(self, event: api.AcceptedEvent) -> None:
        if event.job_id != self.job_id:
            raise MalformedError("accepted.jobId", "another job's")
        self.accepted = True

    def _restart(self) -> None:
        self.restarts += 1
        if self.restarts > MAX_RESTARTS:
            raise MalformedError("restart", "more often than any scheduler has workers")
        self._outputs = [[] for _ in self._requests]
        self._receipts = [None] * len(self._requests)

    def _token(self, event: api.TokenEvent) -> tuple[Token, ...]:
        if event.item >= len(self._requests):
            raise MalformedError("token.item", "no such request")
        output, delivered = self._outputs[event.item], self._delivered[event.item]
        if event.index != len(output):
            raise MalformedError("token.index", f"{event.index} after {len(output)} tokens")
        if event.index >= self._requests[event.item].max_new_tokens:
            raise MalformedError("token.index", "more tokens than the job allows")
        if event.token >= self._vocabulary or self._receipts[event.item] is not None:
            raise MalformedError("token.token", "not in the vocabulary, or after the receipt")
        output.append(event.token)
        if event.index < len(delivered):
            if delivered[event.index] != event.token:
                raise WorkerFailed(
                    f"the worker that took over differs at token {event.index} of request "
                    f"{event.item}; its output is what counts"
                )
            return ()
        delivered.append(event.token)
        return (Token(event.item, event.index, event.token),)

    def _receipt(self, event: api.ReceiptEvent) -> None:
        receipt = event.receipt
        if receipt.job_id != self.job_id or receipt.request >= len(self._requests):
            raise MalformedError("receipt", "another job's")
        tokens = self._outputs[receipt.request]
        if not tokens or output_hash(receipt.task_id, tokens) != receipt.output_hash:
            raise MalformedError("receipt.outputHash", "not of the tokens that were streamed")
        self._receipts[receipt.request] = event
