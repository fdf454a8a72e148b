"""Cheats in the key-value cache: rounded to 8 bits, one position forgotten, a window, a hidden
prompt in front. Each wraps the model under an otherwise honest engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verillm.engine import Engine, EngineMaker, EngineTransform
from verillm.engine.running import Model, States
from verillm.errors import EngineUnavailable

if TYPE_CHECKING:
    from verillm.engine.batching import BatchCache

SINKS = 4
"""First positions that a windowed cache keeps, since attention leans on them."""
WINDOW = 32
HIDDEN = tuple(range(16, 32))
"""Tokens of the hidden prompt where no better one is given."""

NewCache = Callable[[], "BatchCache"]


class Altered:
    """A model whose caches are of another kind, with what its subclasses change."""

    def __init__(self, model: Model[Any], new_cache: NewCache | None = None) -> None:
        self._model = model
        self._new_cache = new_cache

    def prefill(self, cache: Any, tokens: Sequence[int]) -> tuple[States, Any]:
        """Append tokens to a cache of one row."""
        if cache is None and self._new_cache is not None:
            cache = self._new_cache()
        return self._model.prefill(cache, tokens)

    def join(self, batch: Any, newcomer: Any) -> Any:
        """Return the batch with one row more."""
        return self._model.join(batch, newcomer)

    def keep(self, batch: Any, rows: Sequence[int]) -> Any:
        """Return the batch with these rows only."""
        return self._model.keep(batch, rows)

    def step(self, batch: Any, tokens: Sequence[int]) -> States:
        """Append one token to each row."""
        return self._model.step(batch, tokens)

    def logits(self, finals: NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return [rows, vocabulary]."""
        return self._model.logits(finals)


class Forgetful(Altered):
    """Drops columns of a row's cache once its prompt has been read."""

    def __init__(self, model: Model[Any], forget: Callable[[int], range]) -> None:
        super().__init__(model, _evictable)
        self._forget = forget

    def join(self, batch: Any, newcomer: Any) -> Any:
        """Return the batch with one row more, which has forgotten."""
        newcomer.evict(self._forget(newcomer.columns))
        return super().join(batch, newcomer)


class Whispered(Altered):
    """Reads a hidden prompt before the given one, and shows no state of it."""

    def __init__(self, model: Model[Any], hidden: Sequence[int]) -> None:
        super().__init__(model)
        self._hidden = hidden

    def prefill(self, cache: Any, tokens: Sequence[int]) -> tuple[States, Any]:
        """Append tokens to a cache that begins with the hidden ones."""
        if cache is None:
            _, cache = super().prefill(None, self._hidden)
        return super().prefill(cache, tokens)


def cache8(make: EngineMaker) -> Engine:
    """Keep keys and values in 8 bits, one scale per head and position."""
    return _wrapped(make, lambda model: Altered(model, _rounding))


def forgot_one(make: EngineMaker) -> Engine:
    """Answer as if one token in the middle of the prompt had never been read."""
    return _wrapped(make, lambda model: Forgetful(model, _middle))


def windowed(make: EngineMaker) -> Engine:
    """Answer from the prompt's first 4 and last 32 positions only."""
    return _wrapped(
        make, lambda model: Forgetful(model, lambda columns: range(SINKS, columns - WINDOW))
    )


def whispered_with(hidden: Sequence[int]) -> EngineTransform:
    """Return the attack that reads these tokens before the given prompt."""
    return lambda make: _wrapped(make, lambda model: Whispered(model, hidden))


whispered = whispered_with(HIDDEN)


def round8(values: Any) -> Any:
    """Return a tensor [..., size] rounded to 8 bits with one scale per row."""
    wide = values.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127
    return ((wide / scale).round() * scale).to(values.dtype)


def _middle(columns: int) -> range:
    return range(columns // 2, columns // 2 + 1)


def _wrapped(make: EngineMaker, wrap: Callable[[Model[Any]], Model[Any]]) -> Engine:
    engine = make(None)
    alter = getattr(engine, "wrap_model", None)
    if alter is None:
        raise EngineUnavailable(f"{type(engine).__name__} has no cache that could be altered")
    alter(wrap)
    return engine


def _rounding() -> BatchCache:
    from verillm.engine.batching import BatchCache, GrowingLayer

    class RoundingLayer(GrowingLayer):
        """Rounds what it is given before anyone attends to it."""

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
            """Append rounded columns and return all of them."""
            return super().update(round8(key_states), round8(value_states))

    cache = BatchCache()
    cache.cache = type(cache.cache)(layer_class_to_replicate=RoundingLayer)
    return cache


def _evictable() -> BatchCache:
    from verillm.engine.batching import BatchCache

    class EvictableCache(BatchCache):
        """Remembers how many columns each row has lost, so that positions stay true."""

        def __init__(self) -> None:
            super().__init__()
            self.evicted = [0]

        def evict(self, columns: range) -> None:
            """Drop columns of the only row."""
            kept = [column for column in range(self.columns) if column not in columns]
            self.evicted = [self.columns - len(kept)]
            for layer in self.layers:
                layer.replace(layer.keys[:, :, kept], layer.values[:, :, kept])

        def positions(self, new: int, device: Any) -> Any:
            """Return [rows, new]: the true positions of the next columns."""
            counted = super().positions(new, device)
            return counted + counted.new_tensor(self.evicted)[:, None]

        def join(self, newcomer: Any) -> None:
            """Append the newcomer's row."""
            super().join(newcomer)
            self.evicted += newcomer.evicted

        def keep(self, rows: Sequence[int]) -> None:
            """Keep these rows."""
            super().keep(rows)
            self.evicted = [self.evicted[row] for row in rows]

    return EvictableCache()
