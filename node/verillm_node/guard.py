"""Ends Anvil if the devnet that started it is killed: it cannot follow a pipe by itself.

Reads one process id a line from standard input; when the input ends, the last one named is killed.
0 names none. `python -m verillm_node.guard`
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Waits for the end of standard input."""
    # Ctrl-C is for our parent: it stops Anvil in order and then tells us so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = 0
    for line in sys.stdin:
        process = int(line)
    if process:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
