"""`python -m tests.fuzz --minutes 60`: break evidence for so much processor time, from any seed.

Says what it did every such minute; at the first promise that does not hold it writes the bytes that
broke it and exits with 1. The same seed breaks the same evidence.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.hostile import BREAKS, ROWS, broken, check, subjects

EVERY = 60.0
TRACE_ONE_IN = 50


def main() -> int:
    """Run until the time is over."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=5.0, help="of processor time")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--failure", type=Path, default=Path("hostile-evidence.bin"))
    asked = options.parse_args()
    choose, counts, slowest = Random(asked.seed), Counter[str](), 0.0
    whole = subjects()
    began = told = time.process_time()
    while time.process_time() - began < 60 * asked.minutes:
        subject = choose.choice(whole)
        breaks = [
            (choose.choice(BREAKS), choose.getrandbits(32)) for _ in range(choose.randint(1, 4))
        ]
        raw = broken(subject.raw, breaks)
        try:
            found = check(subject, raw, ROWS, choose.randrange(TRACE_ONE_IN) == 0)
        except Exception as error:
            asked.failure.write_bytes(raw)
            names = [break_.__name__ for break_, _ in breaks]
            sys.stdout.write(f"{error!r} after {names}; the bytes are in {asked.failure}\n")
            raise
        verdict = found.verdict
        counts[f"{verdict.outcome.name} {verdict.reason.name}" if verdict else "refused"] += 1
        slowest = max(slowest, found.seconds)
        if time.process_time() - told > EVERY:
            told = time.process_time()
            _tell(counts, slowest, told - began)
    _tell(counts, slowest, time.process_time() - began)
    return 0


def _tell(counts: Counter[str], slowest: float, seconds: float) -> None:
    parts = ", ".join(f"{name.lower()} {count}" for name, count in counts.most_common())
    done = f"{seconds / 60:.1f} min, {sum(counts.values())} bundles, slowest {slowest:.2f} s"
    sys.stdout.write(f"{done}: {parts}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
