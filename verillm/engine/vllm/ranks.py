"""The processes that hold the other parts of a model, and what becomes of one that fails.

A model over several devices is one process a device, each a *rank*: `devices` ranks share every
layer, `stages` such groups follow one another. One rank stays in this process, the first of the
last stage: there final states, logits and choosing are. The others follow it: what it is told to
run they are told as well, in the same order, and they meet it in the model's own exchanges.

A rank that ends, fails or stays silent leaves the others waiting inside an exchange, where no error
can reach them. So a thread of its own watches: it kills what is left, which frees the waiting, and
says so at once. Nothing is served after that.
"""

from __future__ import annotations

import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from verillm.errors import DeviceLost, EngineOutOfMemory, VeriLLMError

COMMAND = (sys.executable, "-m", "verillm.engine.vllm.follower")
STEP_SECONDS = 300.0
"""A pass that takes longer hangs; vLLM's own executor waits as long."""
CLOSE_SECONDS = 10.0
LOOK_SECONDS = 0.5
END = "verillm-end"
"""Asks a follower to free its part and end."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rank is what; ranks count through the devices of a stage, stage by stage."""

    devices: int = 1
    stages: int = 1

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.devices * self.stages

    @property
    def driver(self) -> int:
        """The rank of this process."""
        return self.world - self.devices

    @property
    def followers(self) -> tuple[int, ...]:
        """All other ranks."""
        return tuple(rank for rank in range(self.world) if rank != self.driver)

    @property
    def beside(self) -> tuple[int, ...]:
        """Followers that hold parts of the head, and so take part in logits."""
        return tuple(range(self.driver + 1, self.world))


@dataclass(frozen=True, slots=True, eq=False)
class Follower:
    """A started process, and this end of the line to it."""

    process: subprocess.Popen[bytes]
    line: Connection


class Ranks:
    """The followers of one model. All but `lost` is called from the thread that started them:
    they do not outlive it.
    """

    def __init__(
        self,
        layout: Layout,
        lost: Callable[[VeriLLMError], None],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.layout = layout
        self._lost = lost
        self._failure: VeriLLMError | None = None
        self._closing = False
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._due: float | None = None
        self._replies: dict[int, queue.SimpleQueue[Any]] = {
            rank: queue.SimpleQueue() for rank in layout.followers
        }
        self._followers: dict[int, Follower] = {}
        for rank in layout.followers:
            self._followers[rank] = _start(command)
        self._watcher = threading.Thread(target=self._watch, name="verillm-ranks", daemon=True)
        self._watcher.start()

    @property
    def processes(self) -> dict[int, int]:
        """The process id of each follower."""
        return {rank: follower.process.pid for rank, follower in self._followers.items()}

    def check(self) -> None:
        """Raise what the ranks failed of, if they did."""
        if self._failure is not None:
            raise self._failure

    def seat(self, rank: int, payload: bytes) -> None:
        """Give a follower what it begins with."""
        self._write([rank], payload)

    def call(self, method: str, *arguments: Any, **more: Any) -> None:
        """Have every follower run a method."""
        self._write(self.layout.followers, pickle.dumps((method, arguments, more)))

    def call_beside(self, method: str, *arguments: Any) -> None:
        """Have the followers that hold parts of the head run a method."""
        self._write(self.layout.beside, pickle.dumps((method, arguments, {})))

    def share(self, tokens: Sequence[int]) -> None:
        """Tell what was chosen to those who wait for it in their sampler's place."""
        self._write(self.layout.beside, pickle.dumps(list(tokens)))

    def gather(self, ranks: Sequence[int] | None = None) -> dict[int, Any]:
        """Return the next answer of each follower, or of these."""
        found = {}
        for rank in self.layout.followers if ranks is None else ranks:
            found[rank] = self._replies[rank].get()
            self.check()
        return found

    @contextmanager
    def step(self) -> Iterator[None]:
        """Hold a pass to its time; whatever breaks it ends the ranks, whose states now differ."""
        self.check()
        self._due = time.monotonic() + STEP_SECONDS
        try:
            yield
        except Exception as error:
            # The watcher may know better than the exchange that broke, if a moment later.
            self._over.wait(2 * LOOK_SECONDS)
            raise self.fail(f"a pass broke off: {error!r}") from error
        finally:
            self._due = None

    def fail(self, reason: str | VeriLLMError) -> VeriLLMError:
        """End all ranks; return the first reason."""
        with self._guard:
            is_first = self._failure is None
            if self._failure is None:
                self._failure = _typed(reason)
            failure = self._failure
        if is_first:
            self._kill()
            self._lost(failure)
            self._over.set()
            for replies in self._replies.values():
                replies.put(None)
        return failure

    def abandon(self) -> None:
        """End all ranks after a start that failed."""
        self._closing = True
        self._kill()
        self.close()

    def release(self) -> None:
        """Ask the followers to free their parts and end."""
        self._closing = True
        if self._failure is None:
            try:
                self.call(END)
            except VeriLLMError:
                return

    def close(self) -> None:
        """Wait until no follower is left; kill those that stay."""
        self._closing = True
        until = time.monotonic() + (CLOSE_SECONDS if self._failure is None else 0)
        for follower in self._followers.values():
            try:
                follower.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                follower.process.kill()
                follower.process.wait()
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        for follower in self._followers.values():
            follower.line.close()

    def _kill(self) -> None:
        for follower in self._followers.values():
            follower.process.kill()

    def _write(self, ranks: Sequence[int], payload: bytes) -> None:
        for rank in ranks:
            self.check()
            try:
                self._followers[rank].line.send_bytes(payload)
            except OSError as error:
                self._over.wait(2 * LOOK_SECONDS)
                raise self.fail(f"rank {rank} takes nothing: {error}") from error

    def _watch(self) -> None:
        lines = {follower.line: rank for rank, follower in self._followers.items()}
        while lines and self._failure is None:
            ready = wait(list(lines), LOOK_SECONDS)
            for line in [line for line in lines if line in ready]:
                if not self._read(line, lines[line]):
                    del lines[line]
            due = self._due
            if due is not None and time.monotonic() > due and not self._closing:
                self.fail(f"a pass took over {STEP_SECONDS:g} seconds")

    def _read(self, line: Connection, rank: int) -> bool:
        """Take one answer; whether more can come."""
        try:
            kind, value = line.recv()
        except (EOFError, OSError):
            if not self._closing:
                self.fail(f"the process of rank {rank} ended{self._status(rank)}")
            return False
        if kind == "failed":
            self.fail(value if isinstance(value, VeriLLMError) else f"rank {rank} failed: {value}")
            return False
        self._replies[rank].put(value)
        return True

    def _status(self, rank: int) -> str:
        try:
            return f" with {self._followers[rank].process.wait(LOOK_SECONDS)}"
        except subprocess.TimeoutExpired:
            return ""


def _start(command: Sequence[str]) -> Follower:
    mine, others = socket.socketpair()
    with others:
        process = subprocess.Popen(
            [*command, str(others.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else None,
            pass_fds=[others.fileno()],
        )
    return Follower(process, Connection(mine.detach()))


def _typed(reason: str | VeriLLMError) -> VeriLLMError:
    if isinstance(reason, VeriLLMError):
        return reason
    if "memory" in reason.lower():
        return EngineOutOfMemory(reason)
    return DeviceLost(reason)
