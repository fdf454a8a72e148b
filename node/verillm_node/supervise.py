"""A devnet's processes: started, watched, started again when they die, stopped together.

A child follows our end of its standard input, so that it ends with us however we end; it has its
own process group, so that Ctrl-C in a terminal reaches us first and we stop it in order.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verillm.chain.anvil import Anvil
from verillm.errors import VeriLLMError

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 12.0
FIRST_BACKOFF: Final = 0.5
LONGEST_BACKOFF: Final = 8.0
HEALTHY_SECONDS: Final = 30.0
WATCH_SECONDS: Final = 0.2


@dataclass(slots=True)
class Child:
    """One process, over all its starts."""

    name: str
    command: Sequence[str]
    log: Path
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    backoff: float = FIRST_BACKOFF
    started_at: float = 0.0
    restart_at: float | None = field(default=None)

    def start(self) -> None:
        """Starts it; what it says goes behind what it said before."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=self.environment,
                process_group=0,
            )
        self.starts += 1
        self.started_at, self.restart_at = time.monotonic(), None

    def signal(self, number: int) -> None:
        """Signals its whole group."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def reap(self) -> None:
        """Waits for its end; harder after a while."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Supervisor:
    """Keeps the children and Anvil alive until `stop`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.children: dict[str, Child] = {}
        self._anvil: Anvil | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._say = say
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def keep(self, anvil: Anvil) -> None:
        """Watches over Anvil too, and has it end with us even if we are killed."""
        self._anvil = anvil
        words = [sys.executable, "-m", "verillm_node.guard"]
        self._guard = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, process_group=0)
        self._tell_guard(anvil.pid)

    def _tell_guard(self, process: int | None) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(f"{process or 0}\n")
                self._guard.stdin.flush()

    def start(self, child: Child) -> None:
        """Starts a child and watches over it."""
        with self._lock:
            child.start()
            self.children[child.name] = child
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Ends every process, the chain last; safe to repeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for child in self.children.values():
                child.signal(signal.SIGTERM)
            for child in self.children.values():
                child.reap()
            self.children.clear()
            if self._anvil is not None:
                self._anvil.stop()
                self._anvil = None
            self._end_guard()

    def _end_guard(self) -> None:
        self._tell_guard(0)
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
            self._guard.wait(STOP_SECONDS)
            self._guard = None

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            with self._lock:
                self._revive_anvil()
                for child in self.children.values():
                    self._revive(child)

    def _revive_anvil(self) -> None:
        if self._anvil is None or self._anvil.is_running:
            return
        self._say("Anvil died; starting it again from its state")
        self._anvil.kill()
        try:
            self._anvil.start()
            self._tell_guard(self._anvil.pid)
        except VeriLLMError as error:
            self._say(f"Anvil does not start: {error}")

    def _revive(self, child: Child) -> None:
        if child.process is None or child.process.poll() is None:
            return
        now = time.monotonic()
        if child.restart_at is None:
            if now - child.started_at > HEALTHY_SECONDS:
                child.backoff = FIRST_BACKOFF
            child.restart_at = now + child.backoff
            child.backoff = min(2 * child.backoff, LONGEST_BACKOFF)
            code = child.process.returncode
            self._say(f"{child.name} died ({code}); starting it again, log: {child.log}")
        elif now >= child.restart_at:
            if child.process.stdin is not None:
                child.process.stdin.close()
            child.start()
