"""Running a model: a task goes in, a trace comes out.

`Engine` is the seam. Behind it stand `torch_engine.TorchEngine` (any causal language model that
transformers can load), `vllm.engine.VllmEngine` (serving on vLLM) and `tiny.TinyEngine` (numpy
only, for tests). Nothing here knows whether a task infers or verifies, and importing this package
imports no torch.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from verillm.errors import ConfigError

if TYPE_CHECKING:
    from verillm.model import Shape
    from verillm.task import Task
    from verillm.trace import Trace
    from verillm.types import TaskId

OnToken: TypeAlias = Callable[[int, int, int], None]
"""Called from the engine's thread with (item, index among the new tokens, token)."""

WeightTransform: TypeAlias = Callable[[str, NDArray[np.float32]], NDArray[np.float32]]
"""Changes one named weight while a model loads; float32, same shape out as in."""

Dtype: TypeAlias = Literal["bfloat16", "float32"]
Kind: TypeAlias = Literal["torch", "vllm", "tiny"]


class Engine(Protocol):
    """Runs tasks of one model, several in one batch that they join and leave between two steps."""

    @property
    def spec_shape(self) -> Shape:
        """Committed layers, slice dimensions and hidden size of every trace."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of token ids; a prompt's ids are below it."""
        ...

    @property
    def context(self) -> int:
        """Most tokens of prompt and output together."""
        ...

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Ids that end an item, ascending; the end token is the item's last new token."""
        ...

    def start(self) -> None:
        """Load the model and begin to serve; raises `EngineUnavailable` if that cannot be."""
        ...

    def close(self) -> None:
        """Stop serving. What has not finished fails with `EngineUnavailable`; safe to repeat."""
        ...

    def submit(self, task: Task, on_token: OnToken) -> Future[Trace]:
        """Queue a task, from any thread.

        Raises what is wrong with the task (`PromptTooLong`, `TokensOutOfBounds`, …) at once; an
        error while it runs is the future's exception and no other task's.
        """
        ...

    def cancel(self, task_id: TaskId) -> None:
        """Drop a task: its future is cancelled, its place is free at the next step."""
        ...


EngineMaker: TypeAlias = Callable[[WeightTransform | None], Engine]
"""Makes an engine whose weights go through the transform; None leaves them as they are."""

EngineTransform: TypeAlias = Callable[[EngineMaker], Engine]
"""Decides what a worker really runs: the attack lab's entry into an otherwise honest worker."""


def cache_home() -> Path:
    """Folder of prepared models and what was computed about them (`VERILLM_HOME` overrides)."""
    configured = os.environ.get("VERILLM_HOME")
    return Path(configured) if configured else Path.home() / ".cache" / "verillm"


def load_transform(reference: str) -> EngineTransform:
    """Return the `EngineTransform` that a configuration names as `module:attribute`."""
    module, _, attribute = reference.partition(":")
    try:
        return cast(EngineTransform, getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"no engine transform {reference!r}: {error}") from error


def open_engine(
    folder: str | Path,
    *,
    kind: Kind = "torch",
    dtype: Dtype = "bfloat16",
    transform: EngineTransform | None = None,
    **options: Any,
) -> Engine:
    """Return the engine of a model folder, not yet started; `options` are the engine's own."""

    def make(weights: WeightTransform | None) -> Engine:
        if kind == "tiny":
            from verillm.engine.tiny import TinyEngine

            return TinyEngine(folder, dtype=dtype, weights=weights, **options)
        if kind == "vllm":
            from verillm.engine.vllm.engine import VllmEngine

            return VllmEngine(folder, dtype=dtype, weights=weights, **options)
        from verillm.engine.torch_engine import TorchEngine

        return TorchEngine(folder, dtype=dtype, weights=weights, **options)

    return transform(make) if transform else make(None)
