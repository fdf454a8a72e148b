"""What every engine over a model folder has in common: the folder's facts and one running batch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Generic

from verillm.engine import OnToken
from verillm.engine.config import ModelConfig, read_config
from verillm.engine.generation import Limits
from verillm.engine.running import Cache, Model, Runner
from verillm.errors import EngineUnavailable
from verillm.model import Shape
from verillm.task import Task
from verillm.trace import Trace
from verillm.types import TaskId


class FolderFacts:
    """What an engine says of its model, read from the folder when it is first asked."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    @cached_property
    def _config(self) -> ModelConfig:
        return read_config(self._folder)

    @property
    def spec_shape(self) -> Shape:
        """Shape of every trace."""
        return self._config.shape

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self._config.vocabulary

    @property
    def context(self) -> int:
        """Most tokens of prompt and output together."""
        return self._config.context

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Ids that end an item."""
        return self._config.end_tokens


class FolderEngine(FolderFacts, Generic[Cache]):
    """`Engine` over a model folder, but for what runs in it: `load` gives the model at the start.

    `load` raises `EngineUnavailable` if that cannot be.
    """

    def __init__(
        self, folder: str | Path, limits: Limits, load: Callable[[], Model[Cache]]
    ) -> None:
        super().__init__(folder)
        self._limits = limits
        self._load = load
        self._runner: Runner[Cache] | None = None

    def start(self) -> None:
        """Load the model and start the thread."""
        if self._runner is None:
            self._runner = Runner(
                self._load(),
                self.spec_shape,
                vocabulary=self.vocabulary,
                context=self.context,
                end_tokens=self.end_tokens,
                limits=self._limits,
            )

    def close(self) -> None:
        """Stop the thread."""
        if self._runner is not None:
            self._runner.close()

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Queue a task."""
        return self._running().submit(task, on_token)

    def cancel(self, task_id: TaskId) -> None:
        """Drop a task."""
        if self._runner is not None:
            self._runner.cancel(task_id)

    def _running(self) -> Runner[Cache]:
        if self._runner is None:
            raise EngineUnavailable("the engine has not been started")
        return self._runner
