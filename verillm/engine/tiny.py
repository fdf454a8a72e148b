"""A tiny Llama in numpy: the same interface as the real engine, without torch.

`write_folder` makes a model folder of a few hundred kilobytes with random weights, a byte-level
tokenizer and a chat template; transformers can load it too. `TinyEngine` runs it and is
deterministic: a row's result does not depend on who else is in the batch. Its two dtypes differ
like honest machines do: `bfloat16` rounds the residual stream after every layer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verillm.engine import Dtype, WeightTransform
from verillm.engine.bits import from_bits, rounded, to_bits
from verillm.engine.describe import describe, shipped_profile
from verillm.engine.folder import FolderEngine
from verillm.engine.generation import Limits
from verillm.engine.running import States
from verillm.engine.weights import tensors, write
from verillm.errors import EngineUnavailable
from verillm.model import ModelSpec, committed_layers

Floats = NDArray[np.float32]

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_folder(folder: Path, seed: int = 1) -> Path:
    """Write the tiny model; the same seed writes the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.safetensors", _random_weights(seed))
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG, indent=2) + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(), indent=1), "utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8"
    )
    return folder


def tiny_spec(folder: Path) -> ModelSpec:
    """Return the spec of a folder that `write_folder` made, under its shipped calibration."""
    calibrated = shipped_profile("tiny")
    return describe(folder, calibrated.profile, name="tiny", terms=calibrated.terms)


def _random_weights(seed: int) -> dict[str, NDArray[np.uint16]]:
    """Return weights whose states vary with the prompt and whose next token is neither sure nor
    uniform (about 4 bits at temperature 1).
    """
    random = np.random.Generator(np.random.PCG64(seed))
    size, inner = TINY_CONFIG["hidden_size"], TINY_CONFIG["intermediate_size"]
    heads = TINY_CONFIG["num_attention_heads"] * TINY_CONFIG["head_dim"]
    shared = TINY_CONFIG["num_key_value_heads"] * TINY_CONFIG["head_dim"]

    def matrix(rows: int, columns: int, gain: float = 1.0) -> NDArray[np.uint16]:
        values = (random.random((rows, columns)) * 2 - 1) * gain * np.sqrt(3 / columns)
        return to_bits(values.astype(np.float32))

    ones = to_bits(np.ones(size, np.float32))
    weights = {
        "model.embed_tokens.weight": matrix(TINY_CONFIG["vocab_size"], size, 2.5),
        "model.norm.weight": ones,
    }
    for layer in range(TINY_CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": ones,
            prefix + "self_attn.q_proj.weight": matrix(heads, size, 1.5),
            prefix + "self_attn.k_proj.weight": matrix(shared, size, 1.5),
            prefix + "self_attn.v_proj.weight": matrix(shared, size),
            prefix + "self_attn.o_proj.weight": matrix(size, heads, 0.5),
            prefix + "post_attention_layernorm.weight": ones,
            prefix + "mlp.gate_proj.weight": matrix(inner, size),
            prefix + "mlp.up_proj.weight": matrix(inner, size),
            prefix + "mlp.down_proj.weight": matrix(size, inner, 0.5),
        }
    return weights


def byte_tokenizer() -> dict[str, Any]:
    """Return a tokenizer whose ids are byte values (GPT-2's printable stand-ins for bytes)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {names[byte]: byte for byte in range(256)},
            "merges": [],
        },
    }


@dataclass(slots=True)
class RowCache:
    """Keys and values [layers, 2, positions, heads, head size] of one row, and how many count."""

    values: Floats
    length: int


class TinyModel:
    """The Llama architecture in float32, one row at a time."""

    def __init__(self, folder: Path, dtype: Dtype, weights: WeightTransform | None) -> None:
        self._config = json.loads((folder / "config.json").read_text("utf-8"))
        self._rounds = dtype == "bfloat16"
        self._weights: dict[str, Floats] = {}
        for tensor in tensors(folder):
            value = tensor.floats()
            self._weights[tensor.name] = weights(tensor.name, value) if weights else value
        embedding = self._weights["model.embed_tokens.weight"]
        self._head = rounded(self._weights.get("lm_head.weight", embedding))
        self._committed = [
            layer - 1 for layer in committed_layers(self._config["num_hidden_layers"])
        ]
        self._rotation = self._rotations()

    def prefill(
        self, cache: list[RowCache] | None, tokens: Sequence[int]
    ) -> tuple[States, list[RowCache]]:
        """Append tokens to one row."""
        row = cache[0] if cache else self._empty_row()
        return self._forward(row, tokens), [row]

    def join(self, batch: list[RowCache] | None, newcomer: list[RowCache]) -> list[RowCache]:
        """Return the batch with one row more."""
        return [*(batch or []), *newcomer]

    def keep(self, batch: list[RowCache], rows: Sequence[int]) -> list[RowCache] | None:
        """Return the batch with these rows only."""
        return [batch[row] for row in rows] or None

    def step(self, batch: list[RowCache], tokens: Sequence[int]) -> States:
        """Append one token to each row."""
        rows = [self._forward(cache, [token]) for cache, token in zip(batch, tokens, strict=True)]
        return States(
            layers=np.concatenate([row.layers for row in rows]),
            finals=np.concatenate([row.finals for row in rows]),
        )

    def logits(self, finals: NDArray[np.uint16]) -> Floats:
        """Return [rows, vocabulary]."""
        return np.stack([self._head @ state for state in from_bits(finals)])

    def _empty_row(self) -> RowCache:
        config = self._config
        heads, size = config["num_key_value_heads"], config["head_dim"]
        positions, layers = config["max_position_embeddings"], config["num_hidden_layers"]
        return RowCache(np.empty((layers, 2, positions, heads, size), np.float32), 0)

    def _rotations(self) -> tuple[Floats, Floats]:
        size, positions = self._config["head_dim"], self._config["max_position_embeddings"]
        frequencies = self._config["rope_theta"] ** (-np.arange(0, size, 2) / size)
        angles = np.arange(positions)[:, None] * np.concatenate([frequencies, frequencies])
        return (
            np.cos(angles).astype(np.float32)[:, None],
            np.sin(angles).astype(np.float32)[:, None],
        )

    def _forward(self, cache: RowCache, tokens: Sequence[int]) -> States:
        stream = self._weights["model.embed_tokens.weight"][list(tokens)]
        kept = []
        for layer in range(self._config["num_hidden_layers"]):
            stream = self._layer(layer, stream, cache)
            if layer in self._committed:
                kept.append(to_bits(stream))
        cache.length += len(tokens)
        final = self._norm(stream, "model.norm.weight")
        return States(layers=np.stack(kept, axis=1), finals=to_bits(final))

    def _layer(self, layer: int, stream: Floats, cache: RowCache) -> Floats:
        prefix = f"model.layers.{layer}."
        normed = self._norm(stream, prefix + "input_layernorm.weight")
        stream = stream + self._attend(layer, normed, cache)
        normed = self._norm(stream, prefix + "post_attention_layernorm.weight")
        gate = normed @ self._weights[prefix + "mlp.gate_proj.weight"].T
        up = normed @ self._weights[prefix + "mlp.up_proj.weight"].T
        inner = gate / (1 + np.exp(-gate)) * up
        stream = stream + inner @ self._weights[prefix + "mlp.down_proj.weight"].T
        return rounded(stream) if self._rounds else stream

    def _attend(self, layer: int, normed: Floats, cache: RowCache) -> Floats:
        """Return the attention's output for rows at positions `cache.length…`."""
        prefix = f"model.layers.{layer}.self_attn."
        size = self._config["head_dim"]
        begin, end = cache.length, cache.length + len(normed)

        def heads(name: str) -> Floats:
            projected = normed @ self._weights[f"{prefix}{name}_proj.weight"].T
            return projected.reshape(len(normed), -1, size)

        query = self._rotate(heads("q"), begin)
        cache.values[layer, 0, begin:end] = self._rotate(heads("k"), begin)
        cache.values[layer, 1, begin:end] = heads("v")
        shared = query.shape[1] // cache.values.shape[3]
        keys, values = (cache.values[layer, part, :end].repeat(shared, axis=1) for part in (0, 1))
        scores = np.einsum("qhd,khd->hqk", query, keys) * np.float32(size**-0.5)
        future = np.arange(end)[None, :] > np.arange(begin, end)[:, None]
        scores[:, future] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, values).reshape(len(normed), -1)
        return np.asarray(mixed @ self._weights[prefix + "o_proj.weight"].T, np.float32)

    def _rotate(self, values: Floats, begin: int) -> Floats:
        cosine, sine = (part[begin : begin + len(values)] for part in self._rotation)
        half = values.shape[-1] // 2
        turned = np.concatenate([-values[..., half:], values[..., :half]], axis=-1)
        return np.asarray(values * cosine + turned * sine, np.float32)

    def _norm(self, stream: Floats, name: str) -> Floats:
        mean = np.mean(stream * stream, axis=-1, keepdims=True)
        scale = np.float32(1) / np.sqrt(mean + np.float32(self._config["rms_norm_eps"]))
        return np.asarray(stream * scale * self._weights[name], np.float32)


class TinyEngine(FolderEngine[list[RowCache]]):
    """`Engine` over a folder that `write_folder` made; see the module for what it is for."""

    def __init__(
        self,
        folder: str | Path,
        *,
        dtype: Dtype = "bfloat16",
        weights: WeightTransform | None = None,
        max_batch: int = 16,
        max_tokens: int = 16_384,
    ) -> None:
        limits = Limits(rows=max_batch, tokens=max_tokens, chunk=64)
        super().__init__(folder, limits, partial(_load, Path(folder), dtype, weights))


def _load(folder: Path, dtype: Dtype, weights: WeightTransform | None) -> TinyModel:
    try:
        return TinyModel(folder, dtype, weights)
    except (OSError, KeyError, ValueError) as error:
        raise EngineUnavailable(f"{folder} is no tiny model: {error!r}") from error
