"""`Engine` over a Hugging Face folder, on vLLM."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path

from verillm.engine import Dtype, OnToken, WeightTransform
from verillm.engine.folder import FolderFacts
from verillm.engine.generation import Limits, Spent
from verillm.engine.vllm.driver import Driver
from verillm.engine.vllm.ranks import Layout
from verillm.engine.vllm.rows import GIB, Room
from verillm.engine.vllm.serving import Options, load
from verillm.errors import EngineUnavailable
from verillm.task import Task
from verillm.trace import Trace
from verillm.types import TaskId


class VllmEngine(FolderFacts):
    """`Engine` on vLLM; see `verillm.engine.vllm` for what stands where.

    `max_batch` requests run at once, over a key-value cache of `max_tokens`; a pass takes at most
    `chunk` tokens. `devices` share each layer, in `stages` that follow one another, with a process
    for each beside this one. `attention` names vLLM's backend, None leaves it the choice. Captured
    states of running tasks take `states_memory` bytes, then up to `states_disk` in `states_folder`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        dtype: Dtype = "bfloat16",
        weights: WeightTransform | None = None,
        attention: str | None = None,
        compiled: bool = False,
        devices: int = 1,
        stages: int = 1,
        max_batch: int = 16,
        max_tokens: int = 65_536,
        chunk: int = 512,
        states_memory: int = 4 * GIB,
        states_disk: int = 64 * GIB,
        states_folder: Path | None = None,
    ) -> None:
        super().__init__(folder)
        self._limits = Limits(rows=max_batch, tokens=max_tokens, chunk=chunk)
        layout = Layout(devices, stages)
        self._options = Options(
            dtype, max_batch, max_tokens, chunk, attention, compiled, weights, layout=layout
        )
        self._room = Room(states_memory, states_disk, states_folder)
        self._driver: Driver | None = None

    @property
    def spent(self) -> Spent:
        """Seconds by what they were spent on, since the start."""
        driver = self._running()
        driver.spent.keeping = driver.keeper.spent
        return driver.spent

    def start(self) -> None:
        """Load the model into vLLM and start the threads."""
        if self._driver is None:
            self._driver = Driver(
                partial(load, self._folder, self._options),
                self.spec_shape,
                vocabulary=self.vocabulary,
                context=self.context,
                end_tokens=self.end_tokens,
                limits=self._limits,
                room=self._room,
            )

    def close(self) -> None:
        """Stop the threads."""
        if self._driver is not None:
            self._driver.close()

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Queue a task."""
        return self._running().submit(task, on_token)

    def cancel(self, task_id: TaskId) -> None:
        """Drop a task."""
        if self._driver is not None:
            self._driver.cancel(task_id)

    def _running(self) -> Driver:
        if self._driver is None:
            raise EngineUnavailable("the engine has not been started")
        return self._driver
