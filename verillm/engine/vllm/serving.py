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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from verillm.engine import Dtype, WeightTransform
from verillm.engine.bits import to_bits
from verillm.engine.config import ModelConfig, read_config
from verillm.engine.vllm import noise
from verillm.engine.vllm.driver import Listener
from verillm.engine.vllm.executor import make_executor
from verillm.engine.vllm.follower import LOGITS
from verillm.engine.vllm.head import LEAST_SHARE, HeadRows, measure_slack
from verillm.engine.vllm.hooks import Hooks
from verillm.engine.vllm.loading import loader_name, register_loader
from verillm.engine.vllm.ranks import Layout, Ranks
from verillm.engine.vllm.requirements import (
    check_attention,
    check_devices,
    check_installed,
    check_split,
)
from verillm.engine.vllm.seat import Seat
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
    the key-value cache smaller than `tokens` and `rows` ask for; `layout` says how many devices
    share each layer, in how many stages.
    """

    dtype: Dtype
    rows: int
    tokens: int
    chunk: int
    attention: str | None = None
    compiled: bool = False
    weights: WeightTransform | None = None
    cache_blocks: int | None = None
    layout: Layout = field(default_factory=Layout)


def load(folder: Path, options: Options, listener: Listener) -> VllmServing:
    """Load a folder into vLLM; raises `EngineUnavailable`, or what below it says more."""
    check_installed()
    check_attention(options.attention)
    config = read_config(folder)
    if not config.has_plain_head:
        raise ModelNotTraceable(f"{folder.name}: logits are more than final state times head rows")
    check_devices(options.layout)
    check_split(folder, options.layout)
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
    ranks = None
    if options.layout.world > 1:
        _share_cores(options.layout)
        ranks = Ranks(options.layout, listener.lost)
    try:
        with _explained(folder):
            engine = _start(folder, config, options, ranks)
    except BaseException:
        if ranks is not None:
            ranks.abandon()
            _forget_groups()
        raise
    if ranks is not None:
        warnings.filterwarnings("ignore", r"`torch\.distributed\.", FutureWarning)
    runner = engine.model_executor.driver_worker.worker.model_runner
    head = _head(folder, options.weights, runner.device)
    serving = VllmServing(engine, runner, head, listener, ranks)
    try:
        serving.check(options.attention)
    except BaseException:
        serving.shut()
        raise
    return serving


def _share_cores(layout: Layout) -> None:
    """Give each rank its share of the processor's cores, unless the operator did."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        share = max(1, len(os.sched_getaffinity(0)) // layout.world)
        os.environ["OMP_NUM_THREADS"] = str(share)
        torch.set_num_threads(share)


def _forget_groups() -> None:
    """Let go of device groups that a start left behind: the next one's may be others."""
    if "vllm.distributed.parallel_state" in sys.modules:
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


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


def _start(folder: Path, config: ModelConfig, options: Options, ranks: Ranks | None) -> Any:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    loader, layers = loader_name(), committed_layers(config.depth)
    register_loader(loader, layers, options.weights)
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
        "load_format": loader,
    }
    if options.cache_blocks is not None:
        arguments["num_gpu_blocks_override"] = options.cache_blocks
    if options.attention is not None:
        arguments["attention_backend"] = options.attention
    if options.compiled:  # a full graph replays without the model's Python, and so without hooks
        arguments["compilation_config"] = {"cudagraph_mode": "PIECEWISE"}
    if ranks is not None:
        seat = partial(
            Seat, layout=ranks.layout, loader=loader, layers=layers, weights=options.weights
        )
        arguments |= {
            "tensor_parallel_size": ranks.layout.devices,
            "pipeline_parallel_size": ranks.layout.stages,
            "distributed_executor_backend": make_executor(ranks, seat),
        }
    with _library_out_of_sight():
        engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    core = engine.engine_core.engine_core
    core.step_fn, core.batch_queue = core.step, None  # one pass at a time, also over stages
    return engine


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
    """Return the size of a device's key-value cache of so many tokens, in whole blocks a row."""
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(folder, local_files_only=True)
    text = whole.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    width = 2 if options.dtype == "bfloat16" else 4
    tokens = -(-options.tokens // BLOCK) * BLOCK + BLOCK * (options.rows + 1)
    layers = -(-text.num_hidden_layers // options.layout.stages)
    return int(2 * layers * -(-heads // options.layout.devices) * size * width * tokens)


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
    """`Serving` over vLLM's engine in this process; `ranks` hold what is on other devices."""

    def __init__(
        self, engine: Any, runner: Any, head: HeadRows, listener: Listener, ranks: Ranks | None
    ) -> None:
        self._engine = engine
        self._runner = runner
        self._ranks = ranks
        self.head = head
        self.slack = LEAST_SHARE
        self._hooks = Hooks(runner, listener, None if ranks is None else ranks.share)

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
        """Forget requests, and a pass that broke off between its forward and its sampling.

        Over several devices a pass that broke off leaves them apart: there is no going on.
        """
        if self._ranks is not None:
            self._ranks.check()
        self._runner.execute_model_state = None
        self._engine.abort_request(list(requests), internal=True)

    def step(self) -> list[str]:
        """Run one forward pass over whatever vLLM schedules."""
        self._hooks.last = []
        with contextlib.nullcontext() if self._ranks is None else self._ranks.step():
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
        if self._ranks is not None:
            self._ranks.call_beside(LOGITS, finals)
        self.slack = measure_slack(self.head, finals, self._hooks.head.logits_of(finals))
        if self._ranks is not None:
            self._ranks.gather(self._ranks.layout.beside)

    def close(self) -> None:
        """Free the model, and let another one load."""
        self.shut()
        _alone.release()

    def shut(self) -> None:
        """Free the model."""
        if self._ranks is not None:
            self._ranks.release()
        self._engine.engine_core.shutdown()
        if self._ranks is not None:
            self._ranks.close()
