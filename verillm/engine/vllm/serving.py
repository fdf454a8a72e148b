"""vLLM itself: loading a model, one step.

The model hands out its committed layers the way it does for an EAGLE-3 drafter: named layers'
residual streams beside the final norm's output, a part of the model's own code, hence also there
when it is compiled. `verillm.engine.vllm.hooks` sit around it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from verillm.engine import Dtype, WeightTransform
from verillm.engine.bits import to_bits
from verillm.engine.config import ModelConfig, read_config
from verillm.engine.vllm import noise
from verillm.engine.vllm.driver import Listener
from verillm.engine.vllm.head import LEAST_SHARE, HeadRows, measure_slack
from verillm.engine.vllm.hooks import Hooks
from verillm.engine.vllm.requirements import check_attention, check_devices, check_installed
from verillm.engine.weights import tensors
from verillm.errors import (
    AttentionUnsupported,
    EngineMissing,
    EngineOutOfMemory,
    EngineUnavailable,
    ModelNotTraceable,
    VeriLLMError,
)
from verillm.model import committed_layers

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the hooks are in this process, so vLLM is too
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "0",  # its lines go where the daemon's go
    "HF_HUB_OFFLINE": "1",
}
PROBE_TOKENS = 16
BLOCK = 128
"""Tokens of the largest cache block that a backend takes by itself."""
LIBRARY = "llvmlite.binding.ffi"
HEAD_NAMES = ("lm_head.weight", "model.embed_tokens.weight")
_numbers = itertools.count()
_alone = threading.Lock()
"""vLLM keeps its device groups in globals: a second model's end would take the first one's away."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to load: `compiled` runs torch.compile and, on GPUs, CUDA graphs; `cache_blocks` makes
    the key-value cache smaller than `tokens` and `rows` ask for; `devices` share each layer.
    """

    dtype: Dtype
    rows: int
    tokens: int
    chunk: int
    attention: str | None = None
    compiled: bool = False
    weights: WeightTransform | None = None
    cache_blocks: int | None = None
    devices: int = 1


def load(folder: Path, options: Options, listener: Listener) -> VllmServing:
    """Load a folder into vLLM; raises `EngineUnavailable`, or what below it says more."""
    check_installed()
    check_attention(options.attention)
    check_devices(options.devices)
    config = read_config(folder)
    if not config.has_plain_head:
        raise ModelNotTraceable(f"{folder.name}: logits are more than final state times head rows")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    noise.prepare()
    if not _alone.acquire(blocking=False):
        raise EngineUnavailable("another model runs on vLLM in this process")
    try:
        return _open(folder, config, options, listener)
    except BaseException:
        _alone.release()
        raise


def _open(folder: Path, config: ModelConfig, options: Options, listener: Listener) -> VllmServing:
    with _explained(folder):
        engine = _start(folder, config, options)
    runner = engine.model_executor.driver_worker.worker.model_runner
    head = _head(folder, options.weights, runner.device)
    serving = VllmServing(engine, runner, head, listener)
    try:
        serving.check(options.attention)
    except BaseException:
        serving.shut()
        raise
    return serving


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Raise what vLLM says at start as one of ours; what it only warns of is not for operators."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except VeriLLMError:
        raise
    except ImportError as error:
        raise EngineMissing(f"vLLM does not import: {error}") from error
    except MemoryError as error:
        raise EngineOutOfMemory(f"{folder.name} does not fit: {error}") from error
    except Exception as error:
        text = str(error)
        if "memory" in text.lower() or "KV cache" in text:
            raise EngineOutOfMemory(f"{folder.name} does not fit: {text}") from error
        if "attention" in text.lower() and "backend" in text.lower():
            raise AttentionUnsupported(text) from error
        raise EngineUnavailable(f"vLLM cannot serve {folder.name}: {text}") from error


def _start(folder: Path, config: ModelConfig, options: Options) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": options.dtype,
        "max_model_len": min(config.context, options.tokens),
        "max_num_seqs": options.rows,
        "max_num_batched_tokens": max(options.chunk, options.rows),
        "kv_cache_memory_bytes": _cache_bytes(folder, options),
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "enforce_eager": not options.compiled,
        "distributed_executor_backend": "uni",
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "load_format": _register_loader(config, options.weights),
    }
    if options.cache_blocks is not None:
        arguments["num_gpu_blocks_override"] = options.cache_blocks
    if options.attention is not None:
        arguments["attention_backend"] = options.attention
    if options.compiled:  # a full graph replays without the model's Python, and so without hooks
        arguments["compilation_config"] = {"cudagraph_mode": "PIECEWISE"}
    with _library_out_of_sight():
        return LLMEngine.from_engine_args(EngineArgs(**arguments))


@contextlib.contextmanager
def _library_out_of_sight() -> Iterator[None]:
    """Hide numba's compiler library where vLLM's start looks.

    On CPUs the start reads all attributes of all modules, and breaks at that library's handle: it
    answers to any name, `__dict__` too.
    """
    hidden = sys.modules.pop(LIBRARY, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[LIBRARY] = hidden


def _cache_bytes(folder: Path, options: Options) -> int:
    """Return the size of a key-value cache of so many tokens, in whole blocks for every row."""
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(folder, local_files_only=True)
    text = whole.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    width = 2 if options.dtype == "bfloat16" else 4
    tokens = -(-options.tokens // BLOCK) * BLOCK + BLOCK * (options.rows + 1)
    return int(2 * text.num_hidden_layers * heads * size * width * tokens)


def _register_loader(config: ModelConfig, weights: WeightTransform | None) -> str:
    """Register a loader that passes weights through a transform and opens the model's layers."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    name = f"verillm-{next(_numbers)}"

    class Loader(DefaultModelLoader):  # type: ignore[misc]  # vLLM is untyped here
        def __init__(self, load_config: Any) -> None:
            super().__init__(replace(load_config, load_format="safetensors"))

        def get_all_weights(self, *arguments: Any, **more: Any) -> Iterator[tuple[str, Any]]:
            for key, value in super().get_all_weights(*arguments, **more):
                yield key, _transformed(key, value, weights)

        def load_model(self, *arguments: Any, **more: Any) -> Any:
            model = super().load_model(*arguments, **more)
            _show_layers(model, committed_layers(config.depth))
            return model

    register_model_loader(name)(Loader)
    return name


def _transformed(name: str, value: Any, weights: WeightTransform | None) -> Any:
    import torch

    if weights is None:
        return value
    return torch.from_numpy(weights(name, value.float().numpy())).to(value.dtype)


def _show_layers(model: Any, layers: tuple[int, ...]) -> None:
    """Have the model keep its committed layers' outputs of each pass in `model.verillm_layers`."""
    from vllm.model_executor.models.interfaces import supports_eagle3

    name = type(model).__name__
    if not supports_eagle3(model):
        raise ModelNotTraceable(f"vLLM's {name} does not hand out its layers' outputs")
    model.set_aux_hidden_state_layers(layers)
    forward = model.forward

    def shown(*arguments: Any, **more: Any) -> Any:
        output = forward(*arguments, **more)
        if not isinstance(output, tuple) or len(output[1]) != len(layers):
            raise ModelNotTraceable(f"vLLM's {name} showed other layers than {layers}")
        final, model.verillm_layers = output
        return final

    model.forward = shown


def _head(folder: Path, weights: WeightTransform | None, device: Any) -> HeadRows:
    """Return the head's rows from the folder: the auditor's rows, unless a cheat changes them."""
    import torch

    found = {tensor.name: tensor for tensor in tensors(folder)}
    tensor = next((found[name] for name in HEAD_NAMES if name in found), None)
    if tensor is None:
        raise ModelNotTraceable(f"{folder.name} has none of {', '.join(HEAD_NAMES)}")
    if weights is None and tensor.dtype == "BF16":
        rows = np.array(tensor.memory().view(np.uint16).reshape(tensor.shape))
    else:
        floats = tensor.floats()
        rows = to_bits(weights(tensor.name, floats) if weights else floats)
    return HeadRows(torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16).to(device))


class VllmServing:
    """`Serving` over vLLM's engine, in this process and on one device."""

    def __init__(self, engine: Any, runner: Any, head: HeadRows, listener: Listener) -> None:
        self._engine = engine
        self._runner = runner
        self.head = head
        self.slack = LEAST_SHARE
        self._hooks = Hooks(runner, listener)

    def add(self, tokens: Sequence[int], most: int, ends: Sequence[int]) -> str:
        """Queue a request."""
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input

        parameters = SamplingParams(
            temperature=0.0,  # vLLM's sampler never runs
            max_tokens=most,
            ignore_eos=True,
            stop_token_ids=list(ends),
            detokenize=False,
        )
        name = f"r{next(_numbers)}"
        return str(self._engine.add_request(name, tokens_input(list(tokens)), parameters))

    def abort(self, requests: Sequence[str]) -> None:
        """Forget requests, and a pass that broke off between its forward and its sampling."""
        self._runner.execute_model_state = None
        self._engine.abort_request(list(requests), internal=True)

    def step(self) -> list[str]:
        """Run one forward pass over whatever vLLM schedules."""
        self._hooks.last = []
        self._engine.step()
        known = self._engine.output_processor.request_states
        return [name for name in self._hooks.last if name not in known]

    def check(self, attention: str | None) -> None:
        """Raise unless what vLLM set up is what was asked for, and its logits are the model's."""
        config = self._engine.vllm_config
        if config.cache_config.enable_prefix_caching:
            raise EngineUnavailable("prefix caching is on: cached positions have no states")
        used = {group.backend.get_name() for groups in self._runner.attn_groups for group in groups}
        for name in used:
            check_attention(name)
        if attention is not None and used != {attention}:
            raise AttentionUnsupported(f"vLLM uses {', '.join(sorted(used))}, not {attention}")
        self._probe()

    def _probe(self) -> None:
        """Hold the model's logits of random states against the head's rows."""
        random = np.random.default_rng(1)
        hidden = self._engine.model_config.get_hidden_size()
        finals = to_bits(random.standard_normal((PROBE_TOKENS, hidden)).astype(np.float32))
        self.slack = measure_slack(self.head, finals, self._hooks.logits_of(finals))

    def close(self) -> None:
        """Free the model, and let another one load."""
        self.shut()
        _alone.release()

    def shut(self) -> None:
        """Free the model."""
        self._engine.engine_core.shutdown()
