"""The running batch: one thread that feeds a model, and tasks that join and leave between steps.

A task's items are *generations*. Each is prefilled alone, in chunks, and then joins the batch; a
step appends one token to each row; who has finished leaves. Between two steps the thread looks for
new tasks, cancelled ones and the end. Of all states only what a trace keeps (the seed-chosen
dimensions and the final state) is copied out, so memory per position is fixed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verillm.engine.generation import Generation, Limits, Spent
from verillm.engine.inbox import Inbox
from verillm.model import Shape

log = logging.getLogger(__name__)

Cache = TypeVar("Cache")


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


class Runner(Inbox[Generation], Generic[Cache]):
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
        super().__init__(Generation, "verillm-engine", vocabulary, context, limits)
        self._model = model
        self._shape = shape
        self._end_tokens = frozenset(end_tokens)
        self._limits = limits
        self._prefilling: Generation | None = None
        self._prefill_cache: Cache | None = None
        self._rows: list[Generation] = []
        self._batch: Cache | None = None
        self.spent = Spent()
        self._thread.start()

    def _run(self) -> None:
        while self._wait_for_work():
            self._drop_over()
            self._admit()
            if self._prefilling is not None:
                self._prefill_chunk(self._prefilling)
            if self._rows:
                self._step()
        self._fail_open()

    def _is_busy(self) -> bool:
        return bool(self._prefilling or self._rows)

    def _drop_over(self) -> None:
        """Let go of every generation whose task is over."""
        self._drop_waiting()
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
