"""Engines that deviate from an honest one in a single place: the task that they really run, or the
trace that they show.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from verillm.engine import Engine, OnToken
from verillm.model import Shape
from verillm.signing import task_hash
from verillm.task import Item, Task
from verillm.trace import Trace, TraceItem
from verillm.types import TaskId

ChangeTask = Callable[[Task], Task]
ChangeTrace = Callable[[Trace], Trace]
Tokens = tuple[int, ...]
Stage = Callable[[Item, Tokens, Tokens], Item | None]
"""(given item, prompt and tokens so far, end tokens) → what to run next, None for nothing."""


class Deviant:
    """Runs `task(given)` and shows `trace(result)`, under the given task's hash."""

    def __init__(
        self,
        engine: Engine,
        *,
        task: ChangeTask = lambda given: given,
        trace: ChangeTrace = lambda result: result,
    ) -> None:
        self._engine = engine
        self._task = task
        self._trace = trace

    @property
    def spec_shape(self) -> Shape:
        """As the honest engine's."""
        return self._engine.spec_shape

    @property
    def vocabulary(self) -> int:
        """As the honest engine's."""
        return self._engine.vocabulary

    @property
    def context(self) -> int:
        """As the honest engine's."""
        return self._engine.context

    @property
    def end_tokens(self) -> Tokens:
        """As the honest engine's."""
        return self._engine.end_tokens

    def start(self) -> None:
        """Start the engine underneath."""
        self._engine.start()

    def close(self) -> None:
        """Close the engine underneath."""
        self._engine.close()

    def cancel(self, task_id: TaskId) -> None:
        """Cancel in the engine underneath."""
        self._engine.cancel(task_id)

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Run the changed task, then change its trace."""
        shown: Future[Trace] = Future()
        running = self._engine.submit(self._task(task), on_token)
        then(running, shown, lambda trace: settle(shown, relabelled(task, self._trace(trace))))
        return shown


@dataclass(slots=True)
class Play:
    """A task on its way through the stages: each item's latest trace."""

    task: Task
    on_token: OnToken
    shown: Future[Trace]
    parts: list[TraceItem | None]

    def tokens(self, number: int) -> Tokens:
        """Return an item's prompt and tokens so far."""
        part = self.parts[number]
        return part.tokens if part else self.task.items[number].tokens

    def announce(self, number: int, index: int, token: int) -> None:
        """Pass on a token that nobody has seen at its place."""
        if len(self.task.items[number].tokens) + index >= len(self.tokens(number)):
            self.on_token(number, index, token)

    def take(self, number: int, part: TraceItem) -> None:
        """Keep an item's new states; what was announced before stays."""
        before = self.tokens(number)
        kept = before + part.tokens[len(before) :] if self.parts[number] else part.tokens
        self.parts[number] = replace(part, tokens=kept)


class Staged(Deviant):
    """Runs stages one after the other, each on its engine, each made from what the last one gave.

    A stage may go on from an item's tokens, or replay them for other states.
    """

    def __init__(self, *stages: tuple[Engine, Stage]) -> None:
        super().__init__(stages[0][0])
        self._stages = stages
        self._engines = list({id(engine): engine for engine, _ in stages}.values())

    def start(self) -> None:
        """Start every engine."""
        for engine in self._engines:
            engine.start()

    def close(self) -> None:
        """Close every engine."""
        for engine in self._engines:
            engine.close()

    def cancel(self, task_id: TaskId) -> None:
        """Cancel whatever stage runs."""
        for engine in self._engines:
            engine.cancel(task_id)

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Run all stages; a token is announced when its place is first filled."""
        play = Play(task, on_token, Future(), [None] * len(task.items))
        self._run(play, 0)
        return play.shown

    def _run(self, play: Play, stage: int) -> None:
        if stage == len(self._stages):
            parts = tuple(part for part in play.parts if part is not None)
            settle(play.shown, relabelled(play.task, Trace(task_hash(play.task), parts)))
            return
        engine, plan = self._stages[stage]
        planned = [
            (number, planned)
            for number, item in enumerate(play.task.items)
            if (planned := plan(item, play.tokens(number), engine.end_tokens)) is not None
        ]
        if not planned:
            self._run(play, stage + 1)
            return

        def announce(place: int, index: int, token: int) -> None:
            number, item = planned[place]
            done = len(item.tokens) - len(play.task.items[number].tokens)
            play.announce(number, done + index, token)

        def proceed(trace: Trace) -> None:
            for (number, _), part in zip(planned, trace.items, strict=True):
                play.take(number, part)
            self._run(play, stage + 1)

        changed = replace(play.task, items=tuple(item for _, item in planned))
        then(engine.submit(changed, announce), play.shown, proceed)


def then(running: Future[Trace], shown: Future[Trace], proceed: Callable[[Trace], None]) -> None:
    """Go on with a result; an error or a cancellation reaches who waits for `shown`."""

    def finished(future: Future[Trace]) -> None:
        if future.cancelled() or shown.cancelled():
            shown.cancel()
            return
        try:
            proceed(future.result())
        except Exception as error:  # noqa: BLE001 - it becomes the future's exception, not a trace
            if shown.set_running_or_notify_cancel():
                shown.set_exception(error)

    running.add_done_callback(finished)


def settle(shown: Future[Trace], trace: Trace) -> None:
    """Give the future its trace, unless it was cancelled."""
    if shown.set_running_or_notify_cancel():
        shown.set_result(trace)


def relabelled(task: Task, trace: Trace) -> Trace:
    """Return the trace as one of `task`: its hash, its prompts, its items' numbers."""
    items = tuple(
        replace(
            part,
            item=number,
            prompt_tokens=len(item.tokens),
            tokens=item.tokens + part.tokens[len(item.tokens) :],
        )
        for number, (item, part) in enumerate(zip(task.items, trace.items, strict=True))
    )
    return replace(trace, task_hash=task_hash(task), items=items)
