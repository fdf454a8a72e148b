"""A small model of another architecture with random weights: what calibration and the detection lab
must handle without being tuned to it.

    python -m verillm.engine.random_model FOLDER

Qwen2: biased attention projections, a head of its own, twelve layers. The tokenizer's ids are
bytes. The same seed writes the same weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from verillm.engine.tiny import TEMPLATE, byte_tokenizer
from verillm.errors import EngineUnavailable

SIZES = {
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.09,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 0,
}
HEAD_GAIN = 2.0
"""Makes the next token neither sure nor uniform."""
KEY_BIAS = 10.0
"""One channel's in every head, the slowest to turn, so that all keys share it and attention hardly
sees it. Keys of trained models peak in few channels, too, which makes a cache in 8 bits coarse; of
keys that do not, it would be nearly as exact as in bfloat16."""


def write_folder(folder: Path, seed: int = 1) -> Path:
    """Write the model; `EngineUnavailable` without transformers."""
    try:
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError as error:
        raise EngineUnavailable(f"{error}: pip install 'verillm[engine]'") from error
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, SIZES["initializer_range"])
            if name.endswith("k_proj.bias"):
                parameter.view(SIZES["num_key_value_heads"], -1)[:, -1] = KEY_BIAS
        model.lm_head.weight.mul_(HEAD_GAIN)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(), indent=1), "utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8"
    )
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the model into a folder."""
    options = argparse.ArgumentParser(prog="random_model", description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    write_folder(asked.folder, asked.seed)
    sys.stdout.write(f"{asked.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
