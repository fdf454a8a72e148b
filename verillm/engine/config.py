"""What a model folder says of itself, read without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verillm.errors import EngineUnavailable
from verillm.model import Shape, committed_layers, slice_dims_of


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a model; `end_tokens` ascending."""

    vocabulary: int
    hidden: int
    depth: int
    context: int
    end_tokens: tuple[int, ...]
    is_head_tied: bool
    has_plain_head: bool

    @property
    def shape(self) -> Shape:
        """Shape of every trace of the model."""
        return Shape(
            layers=len(committed_layers(self.depth)),
            slice_dims=slice_dims_of(self.hidden),
            hidden=self.hidden,
        )


def read_config(folder: Path) -> ModelConfig:
    """Read a folder's sizes; raises `EngineUnavailable` if they are missing or unusable."""
    try:
        whole = json.loads((folder / "config.json").read_text("utf-8"))
        text = whole.get("text_config", whole)
        config = ModelConfig(
            vocabulary=int(text["vocab_size"]),
            hidden=_first(text, "hidden_size", "n_embd"),
            depth=_first(text, "num_hidden_layers", "n_layer"),
            context=_first(text, "max_position_embeddings", "n_positions"),
            end_tokens=_end_tokens(folder, text),
            is_head_tied=bool(whole.get("tie_word_embeddings", text.get("tie_word_embeddings"))),
            has_plain_head=not _head_changes(text),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineUnavailable(f"{folder} is not a model folder: {error!r}") from error
    if config.hidden % 16:
        raise EngineUnavailable(f"hidden size {config.hidden} is not a multiple of 16")
    return config


def _first(config: dict[str, Any], *names: str) -> int:
    """Return the first of the names that the configuration has; older models have their own."""
    for name in names:
        if name in config:
            return int(config[name])
    raise KeyError(names[0])


def _head_changes(config: dict[str, Any]) -> bool:
    """Whether logits are more than final state times head rows: soft-capped or scaled."""
    return bool(
        config.get("final_logit_softcapping")
        or config.get("logit_scale", 1.0) != 1.0
        or config.get("logits_scaling", 1.0) != 1.0
    )


def _end_tokens(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """Collect end tokens of the configuration, the generation defaults and the tokenizer."""
    found = _ids(config.get("eos_token_id"))
    generation = folder / "generation_config.json"
    if generation.is_file():
        found |= _ids(json.loads(generation.read_text("utf-8")).get("eos_token_id"))
    settings, tokenizer = folder / "tokenizer_config.json", folder / "tokenizer.json"
    if settings.is_file() and tokenizer.is_file():
        name = json.loads(settings.read_text("utf-8")).get("eos_token")
        content = name.get("content") if isinstance(name, dict) else name
        added = json.loads(tokenizer.read_text("utf-8")).get("added_tokens", [])
        found |= {entry["id"] for entry in added if entry["content"] == content}
    return tuple(sorted(found))


def _ids(value: object) -> set[int]:
    if isinstance(value, int):
        return {value}
    return {int(entry) for entry in value} if isinstance(value, list) else set()
