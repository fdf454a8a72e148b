"""Model folders of a given shape with random weights: speed depends on the shape alone.

    python bench/shapes.py SHAPE FOLDER

Tokens of such a model mean nothing, and how far its honest states differ says nothing about a
trained model of that shape; whoever prints a figure of one says so.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama's sizes."""

    hidden: int
    inner: int
    layers: int
    heads: int
    shared: int
    vocabulary: int
    head_size: int
    is_tied: bool = False

    @property
    def matrix_weights(self) -> int:
        """Weights that every token is multiplied with, but for the head."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.shared)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def head_weights(self) -> int:
        """Weights that every chosen token is multiplied with."""
        return self.vocabulary * self.hidden

    @property
    def cache_values(self) -> int:
        """Keys and values of one position."""
        return 2 * self.layers * self.shared * self.head_size


SHAPES = {
    "tiny": Shape(128, 256, 9, 4, 2, 1024, 32),
    "135M": Shape(576, 1536, 30, 9, 3, 49_152, 64, is_tied=True),
    "0.5B": Shape(896, 4864, 24, 14, 2, 151_936, 64, is_tied=True),
    "1.5B": Shape(1536, 8960, 28, 12, 2, 151_936, 128, is_tied=True),
    "8B": Shape(4096, 14_336, 32, 32, 8, 128_256, 128),
    "70B": Shape(8192, 28_672, 80, 64, 8, 128_256, 128),
}


def write(shape: Shape, folder: Path) -> Path:
    """Write a folder that transformers and vLLM load; on the GPU if there is one."""
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    shards: dict[str, str] = {}

    def save(name: str, sizes: dict[str, tuple[int, ...]]) -> None:
        values = {key: _random(size, device).cpu() for key, size in sizes.items()}
        save_file(values, folder / name, metadata={"format": "pt"})
        shards.update(dict.fromkeys(values, name))

    ends = {
        "model.embed_tokens.weight": (shape.vocabulary, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    if not shape.is_tied:
        ends["lm_head.weight"] = (shape.vocabulary, shape.hidden)
    save("ends.safetensors", ends)
    for layer in range(shape.layers):
        save(f"layer{layer:03}.safetensors", _layer(shape, f"model.layers.{layer}."))
    index = {"metadata": {}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=1))
    return folder


def _random(size: tuple[int, ...], device: str) -> Any:
    import torch

    if len(size) == 1:
        return torch.ones(size, dtype=torch.bfloat16, device=device)
    return torch.randn(size, dtype=torch.bfloat16, device=device) * size[-1] ** -0.5


def _layer(shape: Shape, prefix: str) -> dict[str, tuple[int, ...]]:
    wide, narrow = shape.heads * shape.head_size, shape.shared * shape.head_size
    return {
        prefix + "input_layernorm.weight": (shape.hidden,),
        prefix + "post_attention_layernorm.weight": (shape.hidden,),
        prefix + "self_attn.q_proj.weight": (wide, shape.hidden),
        prefix + "self_attn.k_proj.weight": (narrow, shape.hidden),
        prefix + "self_attn.v_proj.weight": (narrow, shape.hidden),
        prefix + "self_attn.o_proj.weight": (shape.hidden, wide),
        prefix + "mlp.gate_proj.weight": (shape.inner, shape.hidden),
        prefix + "mlp.up_proj.weight": (shape.inner, shape.hidden),
        prefix + "mlp.down_proj.weight": (shape.hidden, shape.inner),
    }


def _config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.shared,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": shape.is_tied,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


if __name__ == "__main__":
    print(write(SHAPES[sys.argv[1]], Path(sys.argv[2])))
