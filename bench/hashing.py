"""SHA-256 against Keccak-256 on what a trace hashes in bulk: which one should carry it?

python bench/hashing.py
"""

import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from eth_hash.auto import keccak

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

SIZES = {"node (65 B)": 65, "slices (1.5 KB)": 3 * 256 * 2, "final state (1.1 KB)": 576 * 2,
         "final, width 4096 (8 KB)": 8192, "bulk (1 MB)": 1 << 20}  # fmt: skip
SECONDS = 0.3


def microseconds(digest: Callable[[bytes], bytes], data: bytes) -> float:
    """Return the time of one digest: the best of five rounds."""
    count = max(1, int(SECONDS / 5 / _once(digest, data)))
    return min(_timed(digest, data, count) for _ in range(5)) / count * 1e6


def _once(digest: Callable[[bytes], bytes], data: bytes) -> float:
    return max(1e-7, min(_timed(digest, data, 1) for _ in range(3)))


def _timed(digest: Callable[[bytes], bytes], data: bytes, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        digest(data)
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    print(machine_line("pycryptodome"))
    print(f"{'':26}{'sha256 µs':>12}{'keccak µs':>12}{'ratio':>8}")
    for name, size in SIZES.items():
        data = bytes(range(256)) * (size // 256 + 1)
        fast = microseconds(lambda part: sha256(part).digest(), data[:size])
        slow = microseconds(keccak, data[:size])
        print(f"{name:26}{fast:12.2f}{slow:12.2f}{slow / fast:8.1f}")


if __name__ == "__main__":
    main()
