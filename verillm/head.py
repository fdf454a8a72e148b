"""The rows of a model's language-model head, read from its folder without torch."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verillm.engine.weights import Tensor, tensors
from verillm.errors import ModelMismatch
from verillm.statistics import to_floats
from verillm.types import Bits, Floats

_NAMES = ("lm_head.weight", "model.embed_tokens.weight")
"""A head of its own, or the embedding that a tied head shares."""
_BLOCK = 8192
"""Rows that are float32 at once."""


class HeadRows:
    """bf16 head rows on disk, mapped; converted block by block.

    Raises ModelMismatch for a head whose logits are not just rows times states.
    """

    def __init__(self, folder: Path) -> None:
        found = {tensor.name: tensor for tensor in tensors(folder)}
        if "lm_head.bias" in found:
            raise ModelMismatch("a head with a bias has no token proof")
        self._rows = _bits(_head(found))

    @property
    def vocabulary(self) -> int:
        """Rows."""
        return int(self._rows.shape[0])

    @property
    def hidden(self) -> int:
        """Values of one row."""
        return int(self._rows.shape[1])

    def rows(self, first: int, last: int) -> Bits:
        """Rows as bf16 bits uint16 [last - first, hidden]."""
        return self._rows[first:last]

    def logits(self, finals: Floats) -> Floats:
        """float32 [n, hidden] → float32 [n, vocabulary]."""
        blocks = [
            finals @ to_floats(self._rows[start : start + _BLOCK]).T
            for start in range(0, self.vocabulary, _BLOCK)
        ]
        return np.concatenate(blocks, axis=-1)


class HeadArray:
    """Head rows in memory: float32 [vocabulary, hidden]."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows

    @property
    def vocabulary(self) -> int:
        """Rows."""
        return int(self.rows.shape[0])

    def logits(self, finals: Floats) -> Floats:
        """float32 [n, hidden] → float32 [n, vocabulary]."""
        product: Floats = finals @ self.rows.T
        return product


def _head(found: dict[str, Tensor]) -> Tensor:
    for name in _NAMES:
        if name in found:
            return found[name]
    raise ModelMismatch(f"no tensor {' or '.join(_NAMES)}")


def _bits(tensor: Tensor) -> Bits:
    if tensor.dtype != "BF16" or len(tensor.shape) != 2:
        raise ModelMismatch(f"{tensor.name} is {tensor.dtype}, not bf16 rows")
    raw: NDArray[np.uint8] = tensor.memory()
    rows: Bits = raw.view(np.dtype("<u2")).reshape(tensor.shape)
    return rows
