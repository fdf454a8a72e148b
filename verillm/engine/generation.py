"""What runs: a task's items on their way to traces.

Of all states only what a trace keeps (the seed-chosen dimensions and the final state) is copied
out, so memory per position is fixed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from verillm.engine import OnToken
from verillm.engine.sampler import choose
from verillm.model import Shape
from verillm.sampling import slice_dimensions
from verillm.signing import task_hash
from verillm.task import Item, Task
from verillm.trace import Trace, TraceItem

Take: TypeAlias = Callable[[tuple[int, ...]], NDArray[np.uint16]]
"""Makes an array of a shape, not initialised: where kept states go."""


def in_memory(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Keep states in main memory."""
    return np.empty(shape, np.uint16)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a batch: rows, tokens of all rows' caches, and tokens of one prefill pass."""

    rows: int = 16
    tokens: int = 65_536
    chunk: int = 512


@dataclass(slots=True)
class Spent:
    """Seconds that the thread spent, by what it did; the benchmarks read them."""

    model: float = 0.0
    choosing: float = 0.0
    keeping: float = 0.0
    steps: int = 0
    rows: int = field(default=0)


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
        self._ending = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more: cancelled, failed or finished."""
        return self.future.done()

    def fail(self, error: BaseException) -> None:
        """Give the future its exception, unless it was cancelled."""
        with self._ending:
            if not self.future.done() and self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)

    def finish(self, generation: Generation) -> None:
        """Take an item's trace; with the last item the future gets the task's."""
        self.done[generation.index] = generation.trace()
        if len(self.done) < len(self.task.items):
            return
        items = tuple(self.done[index] for index in range(len(self.task.items)))
        with self._ending:
            if not self.future.done() and self.future.set_running_or_notify_cancel():
                self.future.set_result(Trace(task_hash=self.hash, items=items))
