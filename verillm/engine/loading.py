"""Loading a causal language model with transformers, and finding what a trace needs in it."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from verillm.engine import Dtype, WeightTransform
from verillm.engine.config import ModelConfig, read_config
from verillm.errors import EngineUnavailable
from verillm.model import committed_layers

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
PROBE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Head:
    """LM head: bfloat16 rows as float32 [vocabulary, hidden], then what a model adds to them."""

    rows: torch.Tensor
    bias: torch.Tensor | None
    scale: float
    soft_cap: float | None

    def __call__(self, finals: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [rows, vocabulary] of bfloat16 final states [rows, hidden]."""
        logits = finals.to(torch.float32) @ self.rows.T
        if self.bias is not None:
            logits = logits + self.bias
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.soft_cap:
            logits = torch.tanh(logits / self.soft_cap) * self.soft_cap
        return logits


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run: its body (up to the final norm), committed layers, and head."""

    config: ModelConfig
    body: nn.Module
    layers: tuple[nn.Module, ...]
    head: Head
    device: torch.device
    cache_name: str


def load(
    folder: Path,
    dtype: Dtype,
    device: str,
    attention: str | None,
    transform: WeightTransform | None,
) -> Loaded:
    """Load a folder; raises `EngineUnavailable` for whatever keeps the model from serving."""
    config = read_config(folder)
    model = _load_model(folder, dtype, attention)
    if transform is not None:
        _apply(model, transform)
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise EngineUnavailable(f"device {device!r}: {error}") from error
    loaded = Loaded(
        config=config,
        body=model.base_model,
        layers=_committed(model, config),
        head=_head(model, config),
        device=torch.device(device),
        cache_name=_cache_name(model.base_model),
    )
    _probe(model, loaded)
    return loaded


def _load_model(folder: Path, dtype: Dtype, attention: str | None) -> Any:
    try:
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise EngineUnavailable(f"{error}: pip install 'verillm[engine]'") from error
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=DTYPES[dtype],
                attn_implementation=attention,
                local_files_only=True,
            ).eval()
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, SafetensorError) as error:
        raise EngineUnavailable(f"{folder} cannot be loaded: {error}") from error


def _apply(model: Any, transform: WeightTransform) -> None:
    """Pass every weight through the transform; a tied head keeps its embedding's rows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            changed = transform(name, parameter.detach().float().numpy())
            parameter.copy_(torch.from_numpy(changed))


def _cache_name(body: nn.Module) -> str:
    """Return what the body's `forward` calls its cache: renamed in transformers 5.2x."""
    names = inspect.signature(body.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def _committed(model: Any, config: ModelConfig) -> tuple[nn.Module, ...]:
    """Return the decoder layers whose outputs are committed, found as the body's one list of
    `depth` modules.
    """
    lists = [
        module
        for module in model.base_model.modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.depth
    ]
    if len(lists) != 1:
        raise EngineUnavailable(
            f"{type(model).__name__}: {len(lists)} lists of {config.depth} decoder layers"
        )
    return tuple(lists[0][layer - 1] for layer in committed_layers(config.depth))


def _head(model: Any, config: ModelConfig) -> Head:
    layer = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear) or layer.weight.shape[1] != config.hidden:
        raise EngineUnavailable(f"{type(model).__name__} has no linear head of {config.hidden}")
    settings = getattr(model.config, "text_config", model.config)
    scale = float(getattr(settings, "logit_scale", None) or 1.0)
    scale /= float(getattr(settings, "logits_scaling", None) or 1.0)
    return Head(
        # Rows are bfloat16 by definition, whatever the file holds: an auditor's rows are too.
        rows=layer.weight.detach().to(torch.bfloat16).to(torch.float32),
        bias=None if layer.bias is None else layer.bias.detach().to(torch.float32),
        scale=scale,
        soft_cap=getattr(settings, "final_logit_softcapping", None),
    )


@torch.inference_mode()
def _probe(model: Any, loaded: Loaded) -> None:
    """Hold the head rule against the model's own logits, before any stake depends on it."""
    tokens = torch.arange(1, 9, device=loaded.device)[None] % loaded.config.vocabulary
    try:
        own = model(input_ids=tokens, use_cache=False).logits[0].float()
        finals = loaded.body(input_ids=tokens, use_cache=False).last_hidden_state[0]
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise EngineUnavailable(f"{type(model).__name__} does not run: {error}") from error
    ours = loaded.head(finals.to(torch.bfloat16))
    difference = (own - ours).norm() / own.norm()
    if not bool(difference < PROBE_TOLERANCE):
        raise EngineUnavailable(
            f"{type(model).__name__}: logits are not final state times head rows "
            f"(relative difference {float(difference):.3f})"
        )
