"""A process that holds one rank of a model: it runs what the driver's process is told to run.

    python -m verillm.engine.vllm.follower LINE PARENT

LINE is the file descriptor of the line to the driver, PARENT its process id. Stopping is the
driver's to say: signals to a whole group of processes are ignored, and whoever loses its parent is
killed by the kernel, wherever it waits.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias

from verillm.engine.vllm.ranks import END
from verillm.errors import VeriLLMError

if TYPE_CHECKING:
    from verillm.engine.vllm.seat import Seat

PR_SET_PDEATHSIG = 1
UNANSWERED = ("execute_model", "sample_tokens")
"""What each pass calls: whether it went well shows in the exchanges."""
LOGITS = "verillm-logits"
"""Takes part in the logits of committed final states."""

Run: TypeAlias = Callable[[str, Any, Any], Any]


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def serve(line: Connection) -> None:
    """Take the seat that is offered, then run calls until there are no more."""
    from verillm.engine.vllm.loading import register_loader
    from verillm.engine.vllm.seat import take

    seat: Seat = pickle.loads(line.recv_bytes())
    os.environ.update(seat.environment)
    register_loader(seat.loader, seat.layers, seat.weights)
    worker = take(seat)
    run = _methods(seat, worker, line)
    line.send(("done", None))
    while True:
        method, arguments, more = pickle.loads(line.recv_bytes())
        if method == END:
            worker.shutdown()
            return
        result = run(method, arguments, more)
        if method not in UNANSWERED:
            line.send(("done", result))


def _methods(seat: Seat, worker: Any, line: Connection) -> Run:
    """Return what runs a method by its name, around our head and sampler where they are here."""
    from vllm.v1.serial_utils import run_method

    from verillm.engine.vllm.hooks import CommittedHead, sampler

    if not seat.has_head:
        return partial(run_method, worker)
    runner = worker.worker.model_runner
    head = CommittedHead(runner)
    runner.sampler = sampler(lambda _: pickle.loads(line.recv_bytes()), runner.device)

    def run(method: str, arguments: Any, more: Any) -> Any:
        if method == LOGITS:
            head.logits_of(*arguments)
            return None
        return run_method(worker, method, arguments, more)

    return run


def main() -> None:
    """Serve until the driver ends."""
    line, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the driver's process says the same once
    with Connection(line) as connection:
        try:
            serve(connection)
        except EOFError:
            sys.exit(1)
        except Exception as error:  # noqa: BLE001 - the driver raises it
            traceback.print_exc()
            connection.send(("failed", error if isinstance(error, VeriLLMError) else repr(error)))
            sys.exit(1)


if __name__ == "__main__":
    main()
