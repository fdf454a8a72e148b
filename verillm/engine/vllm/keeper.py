"""The thread beside the one that steps: it keeps what passes leave."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class Keeper:
    """The thread that keeps states, off the path of the next forward pass."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.spent = 0.0
        self._thread = threading.Thread(target=self._run, name="verillm-keeper", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        """Queue something; it runs after all that was queued before."""
        self._work.put(work)

    def close(self) -> None:
        """Finish what is queued."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            began = time.perf_counter()
            work()
            self.spent += time.perf_counter() - began
