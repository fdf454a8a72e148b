"""A follower without vLLM: answers each call with its name and arguments, or goes wrong in a way
that its seat or the call names.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from multiprocessing.connection import Connection

from verillm.engine.vllm.follower import die_with
from verillm.engine.vllm.ranks import END


def main() -> None:
    die_with(int(sys.argv[2]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as line:
        seat = pickle.loads(line.recv_bytes())
        line.send(("done", (seat, os.environ.get("PYTHONPATH") is not None)))
        while True:
            try:
                call = pickle.loads(line.recv_bytes())
            except EOFError:
                return
            if isinstance(call, list):
                line.send(("done", call))
                continue
            method, arguments, _ = call
            if method == END and seat != "stays":
                return
            if method == "fail":
                line.send(("failed", arguments[0]))
                time.sleep(600)
            elif method == "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            line.send(("done", (method, arguments)))


if __name__ == "__main__":
    main()
