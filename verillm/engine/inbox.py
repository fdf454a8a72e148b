"""Tasks from any thread, for the one thread that owns a model.

What a subclass's thread runs is its own; here is what all of them share: a task is checked and
queued as generations, can be cancelled, and fails when the engine closes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from verillm.engine import OnToken
from verillm.engine.generation import Generation, Limits, RunningTask
from verillm.errors import EngineUnavailable, InputError, VeriLLMError
from verillm.request import check_request
from verillm.task import Item, Task
from verillm.trace import Trace
from verillm.types import TaskId

G = TypeVar("G", bound=Generation)


class Inbox(ABC, Generic[G]):
    """The waiting generations, which `make` makes of items; starting the thread is the subclass's.

    `_changed` guards all that other threads touch.
    """

    def __init__(
        self,
        make: Callable[[RunningTask, int, Item], G],
        name: str,
        vocabulary: int,
        context: int,
        limits: Limits,
    ) -> None:
        self._make = make
        self._vocabulary = vocabulary
        self._longest = min(context, limits.tokens)
        self._changed = threading.Condition()
        self._tasks: dict[TaskId, RunningTask] = {}
        self._waiting: deque[G] = deque()
        self._closing = False
        self._broken: VeriLLMError | None = None
        """Why nothing is taken any more, though nobody closed."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Check and queue a task."""
        for item in task.items:
            check_request(item.request, self._longest, self._vocabulary)
        if not task.items:
            raise InputError("the task has no items")
        running = RunningTask(task, on_token)
        waiting = [self._make(running, index, item) for index, item in enumerate(task.items)]
        with self._changed:
            if self._closing or self._broken:
                raise self._broken or EngineUnavailable("the engine is closed")
            if task.task_id in self._tasks and not self._tasks[task.task_id].is_over:
                raise InputError("the task is running already")
            self._tasks[task.task_id] = running
            self._waiting.extend(waiting)
            self._changed.notify()
        return running.future

    def cancel(self, task_id: TaskId) -> None:
        """Cancel a task's future; what runs of it leaves before the next step."""
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
            self._join()

    def _join(self) -> None:
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Do the work, until `_wait_for_work` says that there will be none."""

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether something runs, beside what waits."""

    def _wait_for_work(self) -> bool:
        """Return whether there is any; False once the engine closes."""
        with self._changed:
            for task_id in [key for key, running in self._tasks.items() if running.is_over]:
                del self._tasks[task_id]
            while not (self._closing or self._waiting or self._is_busy()):
                self._changed.wait()
            return not self._closing

    def _drop_waiting(self) -> None:
        """Let go of what waits for nobody."""
        with self._changed:
            self._waiting = deque(g for g in self._waiting if not g.running.is_over)

    def _fail_open(self) -> None:
        """Fail what the end of the engine leaves undone."""
        for running in list(self._tasks.values()):
            running.fail(EngineUnavailable("the engine was closed while the task ran"))
