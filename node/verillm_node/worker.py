"""One task's life at a worker: take → run → trace on disk → commit → open once sealed.

There is one kind of task. Whether it infers or verifies is nowhere in it and nowhere here; a worker
learns its role from the chain, after it has committed.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress

from verillm.api import (
    CommitmentEvent,
    ErrorBody,
    FailedEvent,
    TaskEvent,
    TaskStatus,
    TaskSubmission,
    TokenEvent,
)
from verillm.appeal import recommitted
from verillm.codec import decode_trace, encode_trace
from verillm.engine import Engine
from verillm.errors import (
    DeadlinePassedError,
    EngineUnavailable,
    NotFound,
    ReplayError,
    VeriLLMError,
    WorkerFailed,
)
from verillm.signing import Domain, sign, task_hash
from verillm.task import Task
from verillm.trace import (
    CommittedTrace,
    Opening,
    Trace,
    commit,
    commitment_hash,
    hashed,
    open_positions,
)
from verillm.types import TaskId
from verillm_node.admission import (
    Serving,
    Standing,
    check_fee,
    check_runnable,
    check_standing,
    check_task,
)
from verillm_node.errors import NotSealedYet, Overloaded
from verillm_node.feed import Feed
from verillm_node.store import Traces
from verillm_node.tasks import TaskBook, TaskRecord, TaskState

log = logging.getLogger(__name__)

KEPT_OPEN = 8
"""Committed traces held in memory: openings of one job come in bursts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which names a worker acts."""

    operator: ChecksumAddress
    hot: LocalAccount
    domain: Domain


class Worker:
    """Runs tasks on one engine and answers for them; lives on one event loop."""

    def __init__(
        self,
        identity: Identity,
        serving: Serving,
        engine: Engine,
        book: TaskBook,
        traces: Traces,
        group: asyncio.TaskGroup,
        max_tasks: int = 64,
    ) -> None:
        self.identity, self.serving = identity, serving
        self._engine, self._book, self._traces = engine, book, traces
        self._group, self._max_tasks = group, max_tasks
        self._running: dict[TaskId, Feed[TaskEvent]] = {}
        self._patient: set[TaskId] = set()
        self._opening = threading.Lock()
        self._open: OrderedDict[TaskId, CommittedTrace] = OrderedDict()

    # ── In ───────────────────────────────────────────────────────────────────────────────────────
    def known(self, submission: TaskSubmission) -> Feed[TaskEvent] | None:
        """The stream of a task that was taken before; raises if its id was used for another task.

        Answering twice with one id would be equivocation, so the id alone decides.
        """
        record = self._book.find(submission.task.task_id)
        if record is None:
            return None
        if record.task_hash != task_hash(submission.task):
            raise ReplayError("this task id was used for another task")
        return self.stream(record)

    def inspect(self, task: Task) -> None:
        """What can be refused without asking the chain; raises a coded refusal."""
        if len(self._running) >= self._max_tasks:
            raise Overloaded("this worker has as many tasks as it can hold")
        check_task(task, self.serving)
        check_fee(task, self.serving.price)

    def take(self, submission: TaskSubmission, standing: Standing) -> Feed[TaskEvent]:
        """Writes the intent and begins to run a task; raises a coded refusal before that."""
        task = submission.task
        self.inspect(task)
        pending = self._book.pending(submission.scheduler, standing.now, standing.seal_window)
        check_standing(submission, self.identity.domain, standing, pending)
        self._book.open(submission, task_hash(task))
        return self._start(task)

    def summoned(self, submission: TaskSubmission) -> Feed[TaskEvent]:
        """The stream of a task that the chain wants answered, whatever its deadline.

        What was taken under its id before is void: nobody else can seal it any more.
        """
        task = submission.task
        self._patient.add(task.task_id)
        if task.task_id in self._running:
            return self._running[task.task_id]
        record = self._book.find(task.task_id)
        if record is not None and record.task_hash == task_hash(task):
            return self.stream(record)
        check_runnable(task, self.serving)
        self._book.reopened(submission, task_hash(task))
        return self._start(task)

    def outputs(self, task_id: TaskId) -> list[tuple[int, ...]]:
        """The new tokens of a committed task, by item; raises `NotFound`."""
        return [item.output for item in self._trace(task_id).items]

    def resume(self, now: int) -> None:
        """Goes on with what a crash interrupted: runs it again, or lets go of what is too late."""
        for record in self._book.unfinished():
            late = record.task.deadline <= now
            log.info("task_resumed", extra={"task": record.task.task_id, "late": late})
            if late:
                self._book.ended(record.task.task_id, TaskState.ABANDONED)
            else:
                self._start(record.task)

    def stream(self, record: TaskRecord) -> Feed[TaskEvent]:
        """The events of a task: live while it runs, from the store afterwards."""
        task_id = record.task.task_id
        if task_id in self._running:
            return self._running[task_id]
        if record.commitment is not None:
            return Feed([*self._tokens(task_id), record.commitment], closed=True)
        self._book.reopen(task_id)
        return self._start(record.task)

    def _tokens(self, task_id: TaskId) -> list[TaskEvent]:
        trace = self._trace(task_id)
        return [
            TokenEvent(item.item, index, token)
            for item in trace.items
            for index, token in enumerate(item.output)
        ]

    # ── Run ──────────────────────────────────────────────────────────────────────────────────────
    def _start(self, task: Task) -> Feed[TaskEvent]:
        feed: Feed[TaskEvent] = Feed()
        self._running[task.task_id] = feed
        self._group.create_task(self._run(task, feed), name=f"task {task.task_id.hex()[:8]}")
        return feed

    async def _run(self, task: Task, feed: Feed[TaskEvent]) -> None:
        began = time.monotonic()
        try:
            event = await self._outcome(task, feed)
        except VeriLLMError as error:
            event = self._failed(task, error)
        except OSError as error:  # a full disk fails this task, not the daemon
            log.exception("trace_not_stored")
            event = self._failed(task, WorkerFailed(f"cannot store the trace: {error.strerror}"))
        finally:
            self._running.pop(task.task_id, None)
        feed.append(event, last=True)
        seconds = round(time.monotonic() - began, 3)
        log.info("task_ended", extra={"task": task.task_id, "kind": event.NAME, "s": seconds})

    def _failed(self, task: Task, error: VeriLLMError) -> FailedEvent:
        self._book.ended(task.task_id, TaskState.FAILED)
        log.warning("task_failed", extra={"task": task.task_id, "error": str(error)})
        return FailedEvent(ErrorBody.of(error))

    async def _outcome(self, task: Task, feed: Feed[TaskEvent]) -> TaskEvent:
        loop = asyncio.get_running_loop()

        def on_token(item: int, index: int, token: int) -> None:
            loop.call_soon_threadsafe(feed.append, TokenEvent(item, index, token))

        future = self._engine.submit(task, on_token)
        try:
            trace = await self._finished(future, task)
        except BaseException:
            self._engine.cancel(task.task_id)
            raise
        return await asyncio.to_thread(self._commit, task, trace)

    async def _finished(self, future: Future[Trace], task: Task) -> Trace:
        waiter = asyncio.wrap_future(future)
        left = None if task.task_id in self._patient else max(task.deadline - time.time(), 0)
        done, _ = await asyncio.wait({waiter}, timeout=left)
        if not done:
            raise DeadlinePassedError(task.deadline)
        if waiter.cancelled():
            raise EngineUnavailable("the engine dropped the task")
        error = waiter.exception()
        if isinstance(error, VeriLLMError):
            raise error
        if error is not None:
            log.error("engine_failed", exc_info=error)
            raise EngineUnavailable(f"the engine failed: {type(error).__name__}") from error
        return waiter.result()

    def _commit(self, task: Task, trace: Trace) -> CommitmentEvent:
        """Order matters: the trace is on disk before anyone can hold us to the commitment."""
        committed = commit(trace, task)
        self._traces.put(task.task_id, encode_trace(trace))
        signature = sign(self.identity.domain, committed.commitment, self.identity.hot)
        event = CommitmentEvent(committed.inner, committed.leaves, signature)
        self._book.committed(task.task_id, event, commitment_hash(committed.commitment))
        return event

    async def rerun(self, task: Task) -> CommittedTrace:
        """Runs what a re-verification shows, once; the trace is on disk before it is committed to.

        Its task comes from the chain and from nobody, so no standing is asked for.
        """
        data = await asyncio.to_thread(self._traces.get, task.task_id)
        if data is None:
            trace = await self._finished(self._engine.submit(task, lambda *_: None), task)
            made = recommitted(trace, task)
            await asyncio.to_thread(self._traces.put, task.task_id, encode_trace(made.trace))
            return made
        return hashed(decode_trace(data), task.task_id)

    # ── Out ──────────────────────────────────────────────────────────────────────────────────────
    def follow(self, task_id: TaskId) -> Feed[TaskEvent]:
        """The events of a task that was taken before; raises `NotFound`."""
        return self.stream(self._record(task_id))

    def is_sealed(self, task_id: TaskId) -> bool:
        """Whether this worker has seen its commitment sealed on the chain."""
        return self._record(task_id).job_id is not None

    def metrics(self) -> dict[str, float]:
        """Figures for Prometheus."""
        counts = {
            f'verillm_tasks{{state="{state}"}}': float(many)
            for state, many in self._book.counts().items()
        }
        return counts | {"verillm_tasks_running": float(len(self._running))}

    def status(self, task_id: TaskId) -> TaskStatus:
        """Where a task stands; raises `NotFound`."""
        record = self._record(task_id)
        feed = self._running.get(task_id)
        stage = "running" if feed is not None else str(record.state)
        return TaskStatus(task_id, stage, 0 if feed is None else len(feed), record.commitment)

    def sealed(self, task_id: TaskId) -> TaskRecord:
        """A task whose commitment is sealed on the chain; raises `NotSealedYet`.

        Before that, openings would tell the role, and let others copy the states.
        """
        record = self._record(task_id)
        if record.job_id is None:
            raise NotSealedYet("this task is not sealed on the chain yet")
        return record

    def opening(
        self, own: TaskRecord, item: int, full: tuple[int, ...], final_only: tuple[int, ...]
    ) -> Opening:
        """Some positions of a sealed task's item."""
        return open_positions(self._committed(own), item, full, final_only)

    def open_everything(self, task_id: TaskId, item: int) -> Opening:
        """All positions of one item in full, for our own use."""
        committed = self._committed(self._record(task_id))
        leaf = committed.leaves[item]
        return open_positions(committed, item, range(leaf.prompt_tokens + leaf.new_tokens - 1))

    def committed(self, task_id: TaskId) -> CommittedTrace:
        """All of an own task's trace with its trees; raises `NotFound`."""
        return self._committed(self._record(task_id))

    def _committed(self, record: TaskRecord) -> CommittedTrace:
        task_id = record.task.task_id
        with self._opening:  # openings are made in threads; one of them hashes, the others wait
            if task_id not in self._open:
                self._open[task_id] = commit(self._trace(task_id), record.task)
            self._open.move_to_end(task_id)
            while len(self._open) > KEPT_OPEN:
                self._open.popitem(last=False)
            return self._open[task_id]

    def _trace(self, task_id: TaskId) -> Trace:
        data = self._traces.get(task_id)
        if data is None:
            raise NotFound("the trace of this task is no longer kept")
        return decode_trace(data)

    def _record(self, task_id: TaskId) -> TaskRecord:
        record = self._book.find(task_id)
        if record is None:
            raise NotFound("no such task here")
        return record
