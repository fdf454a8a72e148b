"""Taking committed layers' outputs out of a forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


class Capture:
    """Hooks on the committed layers that keep the last pass's outputs as bfloat16."""

    def __init__(self, layers: tuple[nn.Module, ...]) -> None:
        self._outputs: list[torch.Tensor | None] = [None] * len(layers)
        for ordinal, layer in enumerate(layers):
            layer.register_forward_hook(self._hook(ordinal))

    def take(self, final: torch.Tensor) -> NDArray[np.uint16]:
        """Return the bits [rows, layers + 1, hidden] of a pass, its final state last.

        The pass has one row of many positions or many rows of one: both are flattened to rows.
        """
        outputs = [output for output in self._outputs if output is not None]
        self._outputs = [None] * len(self._outputs)
        states = torch.stack([*outputs, final.to(torch.bfloat16)], dim=2).flatten(0, 1)
        return bits(states)

    def _hook(self, ordinal: int) -> Any:
        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            self._outputs[ordinal] = state.to(torch.bfloat16)

        return keep


def bits(states: torch.Tensor) -> NDArray[np.uint16]:
    """Return a bfloat16 tensor's bits in main memory."""
    whole: NDArray[np.uint16] = states.contiguous().view(torch.int16).cpu().numpy().view(np.uint16)
    return whole
