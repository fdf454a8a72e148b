"""The running batch: one thread that feeds a model, and tasks that join and leave between steps.

A task's items are *generations*. Each is prefilled alone, in chunks, and then joins the batch; a
step appends one token to each row; who has finished leaves. Between two steps the thread looks for
new tasks, cancelled ones and the end. Of all states only what a trace keeps (the seed-chosen
dimensions and the final state) is copied out, so memory per position is fixed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from verillm.engine import OnToken
from verillm.engine.sampler import choose
from verillm.errors import EngineUnavailable, InputError
from verillm.model import Shape
from verillm.request import check_request
from verillm.sampling import slice_dimensions
from verillm.signing import task_hash
from verillm.task import Item, Task
from verillm.trace import Trace, TraceItem
from verillm.types import TaskId

log = logging.getLogger(__name__)

Cache = TypeVar("Cache")

Take: TypeAlias = Callable[[tuple[int, ...]], NDArray[np.uint16]]
"""Makes an array of a shape, not initialised: where kept states go."""


def in_memory(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Keep states in main memory."""
    return np.empty(shape, np.uint16)


@dataclass(frozen=True, slots=True)
class States:
    """What a forward pass shows of its rows: bfloat16 bits of committed layers and final norm.

    `layers` is [rows, L, H], `finals` [rows, H]; a row is a position (prefill) or a sequence
    (step).
    """

    layers: NDArray[np.uint16]
    finals: NDArray[np.uint16]


class Model(Protocol[Cache]):
    """One model and its key-value caches; a batch is a cache with several rows."""

    def prefill(self, cache: Cache | None, tokens: Sequence[int]) -> tuple[States, Cache]:
        """Append tokens to a cache of one row."""
        ...

    def join(self, batch: Cache | None, newcomer: Cache) -> Cache:
        """Return the batch with one row more, the last."""
        ...

    def keep(self, batch: Cache, rows: Sequence[int]) -> Cache | None:
        """Return the batch with these rows only, in this order; None if there are none."""
        ...

    def step(self, batch: Cache, tokens: Sequence[int]) -> States:
        """Append one token to each row of the batch, in place."""
        ...

    def logits(self, finals: NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return [rows, vocabulary]: committed final states times head rows, in float32."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch: rows, tokens of all rows' caches, and tokens of one prefill pass."""

    rows: int = 16
    tokens: int = 65_536
    chunk: int = 512


class Generation:
    """One item on its way: its tokens so far and the kept part of every state."""

    def __init__(self, running: RunningTask, index: int, item: Item) -> None:
        self.running = running
        self.index = index
        self.item = item
        self.tokens = list(item.tokens)
        self.reserved = len(item.tokens) + item.max_new_tokens
        self.position = 0

    def begin(self, shape: Shape, take: Take = in_memory) -> None:
        """Make room for its states; not before its turn, since a task may have 4096 items."""
        item, positions = self.item, self.reserved - 1
        self._dimensions = np.stack(
            [
                slice_dimensions(item.seed, ordinal, shape.hidden, shape.slice_dims)
                for ordinal in range(shape.layers)
            ]
        ).astype(np.intp)
        self._ordinals = np.arange(shape.layers)[:, None]
        self._slices = take((positions, shape.layers, shape.slice_dims))
        self._finals = take((positions, shape.hidden))

    def record(self, layers: NDArray[np.uint16], finals: NDArray[np.uint16]) -> None:
        """Keep the states [rows, L, H] and [rows, H] of the next positions."""
        end = self.position + len(finals)
        self._slices[self.position : end] = layers[:, self._ordinals, self._dimensions]
        self._finals[self.position : end] = finals
        self.position = end

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Append and return the token that the last recorded state chooses."""
        token = choose(logits, self.item.sampling, self.item.seed, self.position - 1)
        self.tokens.append(token)
        return token

    @property
    def new_tokens(self) -> int:
        """Number of tokens generated so far."""
        return len(self.tokens) - len(self.item.tokens)

    def trace(self) -> TraceItem:
        """Return what the item commits to."""
        return TraceItem(
            item=self.index,
            prompt_tokens=len(self.item.tokens),
            tokens=tuple(self.tokens),
            slices=self._slices[: self.position].copy(),
            finals=self._finals[: self.position].copy(),
        )


class RunningTask:
    """A submitted task, the future of its trace, and its items that are done."""

    def __init__(self, task: Task, on_token: OnToken) -> None:
        self.task = task
        self.hash = task_hash(task)
        self.on_token = on_token
        self.future: Future[Trace] = Future()
        self.done: dict[int, TraceItem] = {}

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more: cancelled, failed or finished."""
        return self.future.done()

    def fail(self, error: BaseException) -> None:
        """Give the future its exception, unless it was cancelled."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def finish(self, generation: Generation) -> None:
        """Take an item's trace; with the last item the future gets the task's."""
        self.done[generation.index] = generation.trace()
        if len(self.done) == len(self.task.items) and self.future.set_running_or_notify_cancel():
            items = tuple(self.done[index] for index in range(len(self.task.items)))
            self.future.set_result(Trace(task_hash=self.hash, items=items))


@dataclass(slots=True)
class Spent:
    """Seconds that the thread spent, by what it did; the benchmarks read them."""

    model: float = 0.0
    choosing: float = 0.0
    keeping: float = 0.0
    steps: int = 0
    rows: int = field(default=0)


class Runner(Generic[Cache]):
    """The thread that owns a model and its running batch."""

    def __init__(
        self,
        model: Model[Cache],
        shape: Shape,
        *,
        vocabulary: int,
        context: int,
        end_tokens: Sequence[int],
        limits: Limits,
    ) -> None:
        self._model = model
        self._shape = shape
        self._vocabulary = vocabulary
        self._context = context
        self._end_tokens = frozenset(end_tokens)
        self._limits = limits
        self._changed = threading.Condition()
        self._tasks: dict[TaskId, RunningTask] = {}
        self._waiting: deque[Generation] = deque()
        self._closing = False
        self._prefilling: Generation | None = None
        self._prefill_cache: Cache | None = None
        self._rows: list[Generation] = []
        self._batch: Cache | None = None
        self.spent = Spent()
        self._thread = threading.Thread(target=self._run, name="verillm-engine", daemon=True)
        self._thread.start()

    # From any thread.

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Check and queue a task."""
        longest = min(self._context, self._limits.tokens)
        for item in task.items:
            check_request(item.request, longest, self._vocabulary)
        if not task.items:
            raise InputError("the task has no items")
        running = RunningTask(task, on_token)
        generations = [Generation(running, index, item) for index, item in enumerate(task.items)]
        with self._changed:
            if self._closing:
                raise EngineUnavailable("the engine is closed")
            if task.task_id in self._tasks and not self._tasks[task.task_id].is_over:
                raise InputError("the task is running already")
            self._tasks[task.task_id] = running
            self._waiting.extend(generations)
            self._changed.notify()
        return running.future

    def cancel(self, task_id: TaskId) -> None:
        """Cancel a task's future; its rows leave at the next step."""
        with self._changed:
            running = self._tasks.get(task_id)
            self._changed.notify()
        if running is not None:
            running.future.cancel()

    def close(self) -> None:
        """Stop the thread; open tasks fail with `EngineUnavailable`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # In the engine's thread.

    def _run(self) -> None:
        while self._wait_for_work():
            self._drop_over()
            self._admit()
            if self._prefilling is not None:
                self._prefill_chunk(self._prefilling)
            if self._rows:
                self._step()
        for running in list(self._tasks.values()):
            running.fail(EngineUnavailable("the engine was closed while the task ran"))

    def _wait_for_work(self) -> bool:
        with self._changed:
            for task_id in [key for key, running in self._tasks.items() if running.is_over]:
                del self._tasks[task_id]
            while not (self._closing or self._waiting or self._prefilling or self._rows):
                self._changed.wait()
            return not self._closing

    def _drop_over(self) -> None:
        """Let go of every generation whose task is over."""
        with self._changed:
            self._waiting = deque(g for g in self._waiting if not g.running.is_over)
        if self._prefilling is not None and self._prefilling.running.is_over:
            self._prefilling = self._prefill_cache = None
        self._keep([g for g in self._rows if not g.running.is_over])

    def _keep(self, staying: list[Generation]) -> None:
        if len(staying) == len(self._rows) or self._batch is None:
            return
        rows = [row for row, generation in enumerate(self._rows) if generation in staying]
        self._batch = self._model.keep(self._batch, rows)
        self._rows = staying

    def _admit(self) -> None:
        """Take the next waiting generation, if the batch has room for it."""
        with self._changed:
            if self._prefilling is not None or not self._waiting:
                return
            reserved = sum(generation.reserved for generation in self._rows)
            is_full = (
                len(self._rows) >= self._limits.rows
                or reserved + self._waiting[0].reserved > self._limits.tokens
            )
            if not (self._rows and is_full):
                self._prefilling = self._waiting.popleft()
                self._prefilling.begin(self._shape)

    def _prefill_chunk(self, generation: Generation) -> None:
        """Run the next chunk of the newcomer's prompt; after the last one it joins the batch."""
        prompt = generation.item.tokens
        chunk = prompt[generation.position : generation.position + self._limits.chunk]
        began = time.perf_counter()
        try:
            states, self._prefill_cache = self._model.prefill(self._prefill_cache, chunk)
        except Exception as error:  # noqa: BLE001 - it becomes the future's exception, not a trace
            self._fail(generation, error)
            self._prefilling = self._prefill_cache = None
            return
        self._took_model(began)
        self._record(generation, states.layers, states.finals)
        if generation.position < len(prompt):
            return
        cache, self._prefilling, self._prefill_cache = self._prefill_cache, None, None
        if self._extend(generation, self._logits(states.finals[-1:])[0]):
            self._batch = self._model.join(self._batch, cache)
            self._rows.append(generation)

    def _step(self) -> None:
        """Append one token to every row."""
        if self._batch is None:
            return
        began = time.perf_counter()
        try:
            states = self._model.step(self._batch, [g.tokens[-1] for g in self._rows])
            logits = self._model.logits(states.finals)
        except Exception as error:  # noqa: BLE001 - it becomes the futures' exception, not a trace
            for generation in self._rows:
                self._fail(generation, error)
            self._rows, self._batch = [], None
            return
        self._took_model(began)
        self.spent.steps += 1
        self.spent.rows += len(self._rows)
        staying = []
        for row, generation in enumerate(self._rows):
            self._record(generation, states.layers[row : row + 1], states.finals[row : row + 1])
            if self._extend(generation, logits[row]):
                staying.append(generation)
        self._keep(staying)

    def _extend(self, generation: Generation, logits: NDArray[np.float32]) -> bool:
        """Choose and announce the next token; False if the item ends or fails by it."""
        began = time.perf_counter()
        try:
            token = generation.choose(logits)
            self.spent.choosing += time.perf_counter() - began
            if not generation.running.is_over:
                generation.running.on_token(generation.index, generation.new_tokens - 1, token)
        except Exception as error:  # noqa: BLE001 - it becomes the future's exception, not a trace
            self._fail(generation, error)
            return False
        if token in self._end_tokens or generation.new_tokens == generation.item.max_new_tokens:
            if not generation.running.is_over:
                generation.running.finish(generation)
            return False
        return True

    def _logits(self, finals: NDArray[np.uint16]) -> NDArray[np.float32]:
        began = time.perf_counter()
        logits = self._model.logits(finals)
        self._took_model(began)
        return logits

    def _record(
        self, generation: Generation, layers: NDArray[np.uint16], finals: NDArray[np.uint16]
    ) -> None:
        began = time.perf_counter()
        generation.record(layers, finals)
        self.spent.keeping += time.perf_counter() - began

    def _took_model(self, began: float) -> None:
        self.spent.model += time.perf_counter() - began

    def _fail(self, generation: Generation, error: Exception) -> None:
        log.warning("task failed", extra={"error": repr(error), "item": generation.index})
        generation.running.fail(error)
