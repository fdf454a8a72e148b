"""The TOPLOC package itself, on the runs of `bench/anchors.py`, which takes its rows from here.

    python bench/toploc_package.py    says whether it is installed; times it on random states

Optional, and not in any extra: its wheel does not load with this torch, so it is built for it:

    pip install wheel setuptools ninja
    pip install --no-binary toploc --no-build-isolation --no-deps toploc==0.1.6
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from verillm.types import Bits

CHUNK, LARGEST = 32, 128
MISMATCHES, MEAN, MEDIAN = 38, 10, 8
"""What the package's authors reject at, in any 32 tokens: unequal exponents, mantissa distances."""
HOW = (
    "The package is not installed; to build it for this torch: pip install wheel setuptools ninja; "
    "pip install --no-binary toploc --no-build-isolation --no-deps toploc==0.1.6"
)


def installed() -> str | None:
    """Return the package's version, None where it is missing."""
    try:
        return version("toploc")
    except PackageNotFoundError:
        return None


def tensor(finals: Bits) -> Any:
    """Return final states as the package wants them: bf16 [tokens, hidden]."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(finals).view(np.int16)).view(torch.bfloat16)


def build(finals: Bits) -> list[bytes]:
    """Return the proofs of an output's states, one per 32 tokens."""
    from toploc import build_proofs_bytes

    rows = list(tensor(finals))
    found: list[bytes] = build_proofs_bytes(rows, CHUNK, LARGEST, skip_prefill=True)
    return found


def verify(finals: Bits, proofs: list[bytes]) -> list[tuple[int, float, float]]:
    """Return (unequal exponents, mean, median mantissa distance) of each 32 tokens."""
    from toploc import verify_proofs_bytes

    found = verify_proofs_bytes(tensor(finals), proofs, CHUNK, LARGEST, skip_prefill=True)
    return [(each.exp_mismatches, each.mant_err_mean, each.mant_err_median) for each in found]


def score(mine: Bits, theirs: Bits) -> float:
    """Return one number per job: mantissa distance, 128 where exponents differ, over all chunks."""
    found = verify(theirs, build(mine))
    shares = [
        (unequal * 128 + min(mean, 128.0) * (LARGEST - unequal)) / LARGEST
        for unequal, mean, _ in found
    ]
    return float(np.mean(shares))


def rejects(mine: Bits, theirs: Bits) -> bool:
    """Return whether the package's own limits reject any 32 tokens."""
    return any(
        unequal > MISMATCHES or mean > MEAN or median > MEDIAN
        for unequal, mean, median in verify(theirs, build(mine))
    )


def microseconds(work: Callable[[], object], tokens: int) -> float:
    """Best of five, per token."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / tokens


def main() -> int:
    """Print size and times on random states of the default model's width."""
    if installed() is None:
        print(HOW)
        return 0
    noise = np.random.default_rng(0).standard_normal((256, 576)).astype(np.float32)
    states = (noise.view(np.uint32) >> 16).astype(np.uint16)
    proofs = build(states)
    size = sum(map(len, proofs)) / len(states)
    made = microseconds(lambda: build(states), len(states))
    checked = microseconds(lambda: verify(states, proofs), len(states))
    print(f"toploc {installed()}, 256 tokens of 576: {size:.2f} bytes a token, ", end="")
    print(f"build {made:.1f} µs, verify {checked:.1f} µs a token")
    return 0


if __name__ == "__main__":
    sys.exit(main())
