"""The key-value cache of a running batch.

Rows are aligned at their last token, padding is on the left: a row's newest token always has the
batch's last column, so that one step appends one column. Positions are passed explicitly and a
two-dimensional mask hides the padding, which every causal model of transformers understands; a
sliding window counts columns, and within a row columns and positions differ by a constant.

Columns grow in place with room to spare, because appending by concatenation copies the whole cache
at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

SPARE = 128


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One layer's keys and values [rows, heads, columns, size], inside larger buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns and return all of them."""
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._grow(key_states, value_states, begin, end + SPARE)
        assert self._buffers is not None  # noqa: S101 - `_grow` has made them
        keys, values = self._buffers
        keys[:, :, begin:end] = key_states
        values[:, :, begin:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, begin: int, columns: int) -> None:
        buffers = tuple(
            new.new_empty((*new.shape[:2], columns, new.shape[-1])) for new in (keys, values)
        )
        if begin:
            buffers[0][:, :, :begin] = self.keys
            buffers[1][:, :, :begin] = self.values
        self._buffers = (buffers[0], buffers[1])
        self.is_initialized = True

    def replace(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Hold these columns instead."""
        self.keys, self.values = keys, values
        self.is_initialized = True
        self._buffers = None


class BatchCache:
    """The cache of all layers, with each row's number of padding columns."""

    def __init__(self) -> None:
        self.cache = Cache(layer_class_to_replicate=GrowingLayer)
        self.padding: list[int] = [0]

    @property
    def columns(self) -> int:
        """Columns in use."""
        return int(self.cache.get_seq_length())

    @property
    def layers(self) -> list[GrowingLayer]:
        """Layers that hold something (those that share another's cache hold nothing)."""
        return [layer for layer in self.cache.layers if layer.is_initialized]

    def mask(self, new: int, device: torch.device) -> torch.Tensor | None:
        """Return [rows, columns + new], 0 over padding; None if there is none to hide."""
        if not any(self.padding):
            return None
        columns = torch.arange(self.columns + new, device=device)
        padding = torch.tensor(self.padding, device=device)
        return (columns[None] >= padding[:, None]).long()

    def positions(self, new: int, device: torch.device) -> torch.Tensor:
        """Return [rows, new]: the positions of the next `new` columns."""
        columns = torch.arange(self.columns, self.columns + new, device=device)
        return columns[None] - torch.tensor(self.padding, device=device)[:, None]

    def join(self, newcomer: BatchCache) -> None:
        """Append the newcomer's row, padding whoever is shorter."""
        mine, theirs = self.columns, newcomer.columns
        columns = max(mine, theirs)
        for layer, new in zip(self.layers, newcomer.layers, strict=True):
            layer.replace(
                _stack(layer.keys, new.keys, columns), _stack(layer.values, new.values, columns)
            )
        self.padding = [padding + columns - mine for padding in self.padding]
        self.padding += [padding + columns - theirs for padding in newcomer.padding]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, and drop the columns that are padding in all of them."""
        common = min(self.padding[row] for row in rows)
        self.padding = [self.padding[row] - common for row in rows]
        for layer in self.layers:
            index = torch.tensor(rows, device=layer.keys.device)
            layer.replace(
                layer.keys[:, :, common:].index_select(0, index),
                layer.values[:, :, common:].index_select(0, index),
            )


def _stack(batch: torch.Tensor, new: torch.Tensor, columns: int) -> torch.Tensor:
    """Return both in one tensor of `columns` columns, zeros on the left of the shorter."""
    rows, heads, _, size = batch.shape
    both = batch.new_zeros((rows + new.shape[0], heads, columns, size))
    both[:rows, :, columns - batch.shape[2] :] = batch
    both[rows:, :, columns - new.shape[2] :] = new
    return both
