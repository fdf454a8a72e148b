"""The thread that steps vLLM, and what it knows of each request.

A task's items become requests. Before each forward pass vLLM decides which rows belong to which
request and at which position they begin; `forward` is told, checks every row's token against the
request's own, and passes the states on to a second thread that keeps them. `choose` then gives the
rows that end their request's tokens a next one.

A preempted request is computed again from its first position. Its states are already kept, and
its tokens were chosen from them: what is computed again is not kept again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from verillm.engine.generation import Generation, Limits, RunningTask, Spent
from verillm.engine.inbox import Inbox
from verillm.engine.vllm.choosing import Choice, choose_batch
from verillm.engine.vllm.head import Head
from verillm.engine.vllm.keeper import Keeper
from verillm.engine.vllm.rows import Room
from verillm.errors import EngineOutOfMemory, EngineUnavailable, VeriLLMError
from verillm.model import Shape
from verillm.task import Item
from verillm.trace import TraceItem
from verillm.types import Bits, Floats, Ints

log = logging.getLogger(__name__)

ROOM_SECONDS = 10.0
POLL_SECONDS = 0.05
STUCK_SECONDS = 10.0
"""A thread that was told of its device's loss has so long to notice itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Consecutive rows of a forward pass: whose they are, and the position of the first."""

    request: str
    position: int
    tokens: Ints


class Listener(Protocol):
    """What a forward pass tells, from the thread that steps."""

    def forward(self, spans: Sequence[Span], states: Callable[[], Bits]) -> None:
        """Take the pass's rows in order; `states` waits for uint16 [layers + 1, rows, hidden]."""
        ...

    def choose(self, finals: Bits, logits: Floats) -> list[int]:
        """Return a token for the last row of each span of the same pass; logits are rounded to
        bfloat16.
        """
        ...

    def lost(self, error: VeriLLMError) -> None:
        """Hear, from any thread, that nothing more will come, also of a pass that never ends."""
        ...


class Serving(Protocol):
    """A loaded model in vLLM."""

    @property
    def head(self) -> Head:
        """Exact logits of what is served."""
        ...

    @property
    def slack(self) -> float:
        """What `measure_slack` found of the logits that `Listener.choose` gets."""
        ...

    def add(self, tokens: Sequence[int], most: int, ends: Sequence[int]) -> str:
        """Queue a request; return the name under which `Span` speaks of it."""
        ...

    def abort(self, requests: Sequence[str]) -> None:
        """Forget requests."""
        ...

    def step(self) -> list[str]:
        """Run one forward pass; return the requests that it ended."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


class KeptGeneration(Generation):
    """A generation whose states are in a `Room`, and are not copied out of it."""

    def open(self, shape: Shape, room: Room) -> None:
        """Make room for its states."""
        self.begin(shape, room.take)

    def trace(self) -> TraceItem:
        """Return what the item commits to."""
        return TraceItem(
            item=self.index,
            prompt_tokens=len(self.item.tokens),
            tokens=tuple(self.tokens),
            slices=self._slices[: self.position],
            finals=self._finals[: self.position],
        )


@dataclass(slots=True, eq=False)
class Request:
    """A generation inside vLLM: how many positions were passed on, and what broke it."""

    generation: KeptGeneration
    seen: int = 0
    error: Exception | None = None

    @property
    def is_lost(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.error is not None or self.generation.running.is_over


class Driver(Inbox[KeptGeneration]):
    """Owns the running batch; submits from any thread, steps in its own."""

    def __init__(
        self,
        load: Callable[[Listener], Serving],
        shape: Shape,
        *,
        vocabulary: int,
        context: int,
        end_tokens: Sequence[int],
        limits: Limits,
        room: Room,
    ) -> None:
        super().__init__(KeptGeneration, "verillm-engine", vocabulary, context, limits)
        self._load = load
        self._shape, self._end_tokens = shape, tuple(end_tokens)
        self._limits, self._room = limits, room
        self._requests: dict[str, Request] = {}
        self._spans: list[Request | None] = []
        self._ready: list[bool] = []
        self._full_since: float | None = None
        self.spent = Spent()
        self.keeper = Keeper()
        self._started: Future[None] = Future()
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        try:
            serving = self._load(self)
        except BaseException as error:  # noqa: BLE001 - `start` raises it where it was called
            self.keeper.close()
            self._end_start(error)
            return
        self._serving = serving
        self._end_start(None)
        while self._wait_for_work():
            self._drop_lost(serving)
            self._admit(serving)
            if self._requests:
                self._step(serving)
        self.keeper.close()
        self._fail_open()
        serving.close()

    def _end_start(self, error: BaseException | None) -> None:
        with self._changed:
            if self._started.done():
                return
            if error is None:
                self._started.set_result(None)
            else:
                self._started.set_exception(error)

    def _join(self) -> None:
        """Wait for the thread; not for ever if it waits itself for a device that is gone."""
        while self._broken is None and self._thread.is_alive():
            self._thread.join(POLL_SECONDS)
        self._thread.join(STUCK_SECONDS)

    def _is_busy(self) -> bool:
        return bool(self._requests)

    def _drop_lost(self, serving: Serving) -> None:
        """Let go of every request whose task is over, or that broke."""
        self._drop_waiting()
        lost = [name for name, request in self._requests.items() if request.is_lost]
        for name in lost:
            self._end(self._requests.pop(name))
        if lost:
            serving.abort(lost)

    def _admit(self, serving: Serving) -> None:
        """Hand waiting generations to vLLM, as many as the batch has rows and their states room."""
        while len(self._requests) < self._limits.rows:
            with self._changed:
                if not self._waiting:
                    return
                if self._must_wait(self._waiting[0]):
                    return
                generation = self._waiting.popleft()
            try:
                generation.open(self._shape, self._room)
                item = generation.item
                name = serving.add(item.tokens, item.max_new_tokens, self._end_tokens)
            except Exception as error:  # noqa: BLE001 - it becomes the future's exception
                generation.running.fail(_typed(error))
                continue
            self._requests[name] = Request(generation)

    def _must_wait(self, generation: KeptGeneration) -> bool:
        """Whether there is no room for a generation's states; waits a little if nothing runs.

        Room comes back when a trace was committed. If none does for a while, what holds it waits
        itself, and the generation fails.
        """
        positions = generation.reserved - 1
        slices = 2 * positions * self._shape.layers * self._shape.slice_dims
        if self._room.fits(slices, 2 * positions * self._shape.hidden):
            self._full_since = None
            return False
        if self._requests:
            return True
        now = time.monotonic()
        self._full_since = now if self._full_since is None else self._full_since
        if now - self._full_since > ROOM_SECONDS:
            return False
        self._changed.wait(POLL_SECONDS)
        return True

    def _step(self, serving: Serving) -> None:
        began = time.perf_counter()
        self._spans, self._ready = [], []
        try:
            ended = serving.step()
        except Exception as error:
            log.exception("step_failed")
            self._fail_all(serving, _typed(error))
            return
        self.spent.model += time.perf_counter() - began
        self.spent.steps += 1
        self.spent.rows += len(self._spans)
        for name in ended:
            request = self._requests.pop(name, None)
            if request is not None:
                self._end(request)

    def _end(self, request: Request) -> None:
        """Give a request's task its trace, or what broke it, once its last states are kept."""
        running, generation = request.generation.running, request.generation
        if request.error is not None:
            running.fail(request.error)
        elif not running.is_over:
            self.keeper.put(lambda: _finish(running, generation))

    def _fail_all(self, serving: Serving, error: VeriLLMError) -> None:
        """Fail what runs; serve on if vLLM lets go of it, else refuse everything from now on."""
        names = list(self._requests)
        for name in names:
            self._requests.pop(name).generation.running.fail(error)
        try:
            serving.abort(names)
        except Exception:
            log.exception("engine_broken")
            self._refuse(EngineUnavailable(f"vLLM does not recover from: {error}"))

    def _refuse(self, error: VeriLLMError) -> None:
        """Fail everything, and whatever is submitted from now on, with the first such error."""
        with self._changed:
            self._broken = self._broken or error
            for running in self._tasks.values():
                running.fail(self._broken)
            self._waiting.clear()

    def lost(self, error: VeriLLMError) -> None:
        """Refuse everything; the thread may be inside a step that never ends."""
        log.error("devices_lost", extra={"error": str(error)})
        self._refuse(error)
        self._end_start(error)

    # Called by the hooks, inside a step.

    def forward(self, spans: Sequence[Span], states: Callable[[], Bits]) -> None:
        """Pass each request's new states on to the keeper."""
        fresh: list[tuple[KeptGeneration, int, int]] = []
        row = 0
        for span in spans:
            request = self._requests.get(span.request)
            end = row + len(span.tokens)
            is_ready = False
            if request is not None and request.error is None:
                is_ready = self._check(request, span)
                skipped = request.seen - span.position
                if request.error is None and skipped < len(span.tokens):
                    fresh.append((request.generation, row + skipped, end))
                    request.seen = span.position + len(span.tokens)
            self._spans.append(request)
            self._ready.append(is_ready)
            row = end
        self.keeper.put(lambda: _keep(fresh, states))

    def _check(self, request: Request, span: Span) -> bool:
        """Whether the span ends the request's tokens; marks a request whose rows are not its own.

        Positions that are missing were served from a cache or lost; either way a trace with a
        hole would be committed to.
        """
        tokens = request.generation.tokens
        end = span.position + len(span.tokens)
        if span.position > request.seen:
            request.error = EngineUnavailable(
                f"no states at positions {request.seen} to {span.position - 1}; "
                "is prefix caching on?"
            )
        elif list(span.tokens) != tokens[span.position : end]:
            request.error = EngineUnavailable(
                f"rows at position {span.position} hold other tokens than the request's"
            )
        return request.error is None and end == len(tokens)

    def choose(self, finals: Bits, logits: Floats) -> list[int]:
        """Choose for the rows that end their request's tokens, and announce; 0 for the others."""
        began = time.perf_counter()
        rows = [row for row, is_ready in enumerate(self._ready) if is_ready]
        requests = [request for row in rows if (request := self._spans[row]) is not None]
        choices = [_choice(request.generation) for request in requests]
        own = [logits[row] for row in rows]
        found = choose_batch(self._serving.head, finals[rows], own, choices, self._serving.slack)
        self.spent.choosing += time.perf_counter() - began
        tokens = [0] * len(self._spans)
        for row, request, token in zip(rows, requests, found, strict=True):
            if isinstance(token, int):
                tokens[row] = token
                self._announce(request, token)
            else:
                request.error = token
        return tokens

    def _announce(self, request: Request, token: int) -> None:
        generation = request.generation
        generation.tokens.append(token)
        if generation.running.is_over:
            return
        try:
            generation.running.on_token(generation.index, generation.new_tokens - 1, token)
        except Exception as error:  # noqa: BLE001 - it becomes the future's exception
            request.error = error


def _choice(generation: KeptGeneration) -> Choice:
    item: Item = generation.item
    return Choice(item.sampling, item.seed, len(generation.tokens) - 1)


def _keep(fresh: list[tuple[KeptGeneration, int, int]], states: Callable[[], Bits]) -> None:
    try:
        found = states()
        for generation, first, end in fresh:
            generation.record(found[:-1, first:end].swapaxes(0, 1), found[-1, first:end])
    except Exception as error:  # noqa: BLE001 - it becomes the futures' exception, not a trace
        for generation, _, _ in fresh:
            generation.running.fail(_typed(error))


def _finish(running: RunningTask, generation: KeptGeneration) -> None:
    if not running.is_over:
        running.finish(generation)


def _typed(error: Exception) -> VeriLLMError:
    """Return what a caller is told of an error inside vLLM."""
    if isinstance(error, VeriLLMError):
        return error
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return EngineOutOfMemory(f"vLLM ran out of memory: {error}")
    return EngineUnavailable(f"vLLM failed: {error!r}")
