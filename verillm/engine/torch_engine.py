"""The engine on PyTorch: any causal language model that transformers can load, on CPU or CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verillm.engine import Dtype, WeightTransform
from verillm.engine.folder import FolderEngine
from verillm.engine.generation import Limits, Spent
from verillm.engine.running import Model, States
from verillm.errors import EngineUnavailable

if TYPE_CHECKING:
    from verillm.engine.batching import BatchCache
    from verillm.engine.loading import Loaded


class TorchModel:
    """A loaded model as the runner sees it: prefill, join, keep, step, logits."""

    def __init__(self, loaded: Loaded) -> None:
        from verillm.engine.capture import Capture

        self._loaded = loaded
        self._capture = Capture(loaded.layers)

    def prefill(self, cache: BatchCache | None, tokens: Sequence[int]) -> tuple[States, BatchCache]:
        """Append tokens to a cache of one row."""
        from verillm.engine.batching import BatchCache

        cache = cache or BatchCache()
        return self._forward(cache, [list(tokens)]), cache

    def join(self, batch: BatchCache | None, newcomer: BatchCache) -> BatchCache:
        """Return the batch with one row more."""
        if batch is None:
            return newcomer
        batch.join(newcomer)
        return batch

    def keep(self, batch: BatchCache, rows: Sequence[int]) -> BatchCache | None:
        """Return the batch with these rows only."""
        if not rows:
            return None
        batch.keep(rows)
        return batch

    def step(self, batch: BatchCache, tokens: Sequence[int]) -> States:
        """Append one token to each row."""
        return self._forward(batch, [[token] for token in tokens])

    def logits(self, finals: NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return [rows, vocabulary]."""
        import torch

        with torch.inference_mode():
            states = torch.from_numpy(np.ascontiguousarray(finals).view(np.int16))
            states = states.view(torch.bfloat16).to(self._loaded.device)
            logits: NDArray[np.float32] = self._loaded.head(states).cpu().numpy()
        return logits

    def _forward(self, cache: BatchCache, tokens: list[list[int]]) -> States:
        import torch

        device, new = self._loaded.device, len(tokens[0])
        with torch.inference_mode():
            final = self._loaded.body(
                input_ids=torch.tensor(tokens, device=device),
                attention_mask=cache.mask(new, device),
                position_ids=cache.positions(new, device),
                use_cache=True,
                **{self._loaded.cache_name: cache.cache},
            ).last_hidden_state
            states = self._capture.take(final)
        return States(layers=states[:, :-1], finals=states[:, -1])


class TorchEngine(FolderEngine["BatchCache"]):
    """`Engine` over a Hugging Face folder.

    `max_batch` rows run at once, with at most `max_tokens` of prompt and output among them;
    `attention` names the kernel as transformers does (`sdpa`, `eager`), None leaves it the choice.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        dtype: Dtype = "bfloat16",
        weights: WeightTransform | None = None,
        device: str = "cpu",
        attention: str | None = None,
        max_batch: int = 16,
        max_tokens: int = 65_536,
        chunk: int = 512,
        threads: int | None = None,
    ) -> None:
        super().__init__(
            folder, Limits(rows=max_batch, tokens=max_tokens, chunk=chunk), self._load_torch
        )
        self._dtype: Dtype = dtype
        self._transform = weights
        self._device = device
        self._attention = attention
        self._threads = threads
        self._wrap: Callable[[Model[Any]], Model[Any]] | None = None

    @property
    def spent(self) -> Spent:
        """Seconds by what they were spent on, since the start."""
        return self._running().spent

    def wrap_model(self, wrap: Callable[[Model[Any]], Model[Any]]) -> None:
        """Run `wrap(model)` from the start on: the attack lab's entry below the running batch."""
        self._wrap = wrap

    def _load_torch(self) -> Model[BatchCache]:
        try:
            import torch

            from verillm.engine.loading import load
        except ImportError as error:
            raise EngineUnavailable(f"{error}: pip install 'verillm[engine]'") from error
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        loaded = load(self._folder, self._dtype, self._device, self._attention, self._transform)
        model: Model[BatchCache] = TorchModel(loaded)
        return self._wrap(model) if self._wrap else model
