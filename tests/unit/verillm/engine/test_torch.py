"""The torch engine over small random models of several architectures, against plain forwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.unit.verillm.engine.conftest import MakeTask  # noqa: E402 - only where torch is there
from verillm.engine.bits import from_bits, to_bits  # noqa: E402
from verillm.engine.config import read_config  # noqa: E402
from verillm.engine.describe import has_token_proof  # noqa: E402
from verillm.engine.tiny import TinyEngine  # noqa: E402
from verillm.engine.torch_engine import TorchEngine  # noqa: E402
from verillm.errors import EngineUnavailable  # noqa: E402
from verillm.task import Task  # noqa: E402
from verillm.trace import Trace  # noqa: E402

WAIT = 120
SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 9,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def gpt2() -> Any:
    return transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=9, n_head=4, n_positions=256, bos_token_id=1,
        eos_token_id=0,
    )  # fmt: skip


MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen2 (biased attention)": lambda: transformers.Qwen2Config(**SIZES),
    "mistral (sliding window)": lambda: transformers.MistralConfig(**SIZES, sliding_window=8),
    "gemma2 (soft-capped, mixed windows)": lambda: transformers.Gemma2Config(
        **SIZES, sliding_window=8, final_logit_softcapping=5.0
    ),
    "gemma3 (mixed windows)": lambda: transformers.Gemma3TextConfig(**SIZES, sliding_window=8),
    "granite (scaled logits)": lambda: transformers.GraniteConfig(**SIZES, logits_scaling=4.0),
    "phi (head with bias)": lambda: transformers.PhiConfig(
        **{name: size for name, size in SIZES.items() if name != "head_dim"}
    ),
    "gpt2 (learned positions)": gpt2,
}
NO_PROOF = ("gemma2", "granite", "phi")


@pytest.fixture(params=list(MODELS), scope="module")
def named(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[request.param]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # weights that say something, on bfloat16's grid
            parameter.copy_((parameter * 3 + 0.01 * torch.randn_like(parameter)).bfloat16())
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return request.param, folder, model


def run_all(folder: Path, tasks: list[Task], **options: Any) -> list[Trace]:
    engine = TorchEngine(folder, dtype="float32", **options)
    engine.start()
    futures = [engine.submit(task, lambda _item, _index, _token: None) for task in tasks]
    traces = [future.result(WAIT) for future in futures]
    engine.close()
    return traces


def test_every_state_and_token_is_that_of_a_plain_forward(named: Any, make_task: MakeTask) -> None:
    name, folder, model = named
    tasks = [
        make_task("a first prompt", "two", new=9, name="a"),
        make_task("a third prompt, and quite a long one", new=25, name="b"),
        make_task("fourth", "fifth prompt", new=17, name="c", top_p=0.9),
    ]
    layer = read_config(folder).shape.layers
    for task, trace in zip(tasks, run_all(folder, tasks, max_batch=3, chunk=7), strict=True):
        for item, given in zip(trace.items, task.items, strict=True):
            with torch.inference_mode():
                plain = model(torch.tensor([item.tokens[:-1]]), output_hidden_states=True)
            expected = plain.hidden_states[-1][0].numpy()
            finals = from_bits(item.finals)
            assert np.abs(finals - expected).max() <= 0.02 * np.abs(expected).max(), name
            eighth = to_bits(plain.hidden_states[8][0].numpy())
            assert layer == 1
            assert (item.slices[:, 0] == eighth).mean() > 0.98
            assert item.tokens[: len(given.tokens)] == given.tokens


def test_a_crowd_gives_the_tokens_of_running_alone(folder: Path, make_task: MakeTask) -> None:
    tasks = [make_task(f"prompt {n}" * (n + 1), new=4 + 5 * n, name=str(n)) for n in range(5)]
    crowd = run_all(folder, tasks, max_batch=3)
    alone = run_all(folder, tasks, max_batch=1)
    for one, other in zip(alone, crowd, strict=True):
        assert one.items[0].tokens == other.items[0].tokens


def test_only_a_plain_head_has_a_token_proof(named: Any) -> None:
    name, folder, _ = named
    expected = not name.startswith(NO_PROOF)
    assert has_token_proof(folder, read_config(folder)) == expected


def test_numpy_and_torch_agree_on_the_tiny_model(folder: Path, make_task: MakeTask) -> None:
    tasks = [make_task(f"prompt {n}", "another", new=20 + n, name=str(n)) for n in range(3)]
    numpy_engine = TinyEngine(folder, dtype="float32")
    numpy_engine.start()
    for task, trace in zip(tasks, run_all(folder, tasks, max_batch=4), strict=True):
        mine = numpy_engine.submit(task, lambda *_: None).result(WAIT)
        assert [item.tokens for item in mine.items] == [item.tokens for item in trace.items]
    numpy_engine.close()


def test_bfloat16_serves_too(folder: Path, make_task: MakeTask) -> None:
    engine = TorchEngine(folder)
    engine.start()
    trace = engine.submit(make_task("x", new=8), lambda *_: None).result(WAIT)
    assert trace.items[0].new_tokens == 8
    engine.close()


def test_a_weight_transform_changes_what_is_served(folder: Path, make_task: MakeTask) -> None:
    def halve(name: str, weight: Any) -> Any:
        return weight * np.float32(0.5) if "mlp" in name else weight

    task = make_task("x", new=4)
    [honest] = run_all(folder, [task])
    [changed] = run_all(folder, [task], weights=halve)
    assert not np.array_equal(honest.items[0].slices, changed.items[0].slices)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_that_does_not_load_is_refused_before_it_serves(
    folder: Path, tmp_path: Path, name: str
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(b"" if file.name == name else file.read_bytes())
    with pytest.raises(EngineUnavailable):
        TorchEngine(tmp_path).start()


def test_an_unknown_device_is_refused_before_it_serves(folder: Path) -> None:
    with pytest.raises(EngineUnavailable, match="device"):
        TorchEngine(folder, device="cuda:99").start()


def test_a_model_that_is_not_causal_is_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "no such type"}))
    with pytest.raises(EngineUnavailable):
        TorchEngine(tmp_path).start()


def test_an_engine_out_of_memory_fails_the_batch_and_serves_on(
    folder: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TorchEngine(folder)
    engine.start()
    model = engine._running()._model
    step = model.step
    monkeypatch.setattr(model, "step", _broken)
    broken = engine.submit(make_task("x", new=8, name="x"), lambda *_: None)
    with pytest.raises(RuntimeError, match="out of memory"):
        broken.result(WAIT)
    monkeypatch.setattr(model, "step", step)
    task = replace(make_task("y", new=8, name="y"))
    assert engine.submit(task, lambda *_: None).result(WAIT).items[0].new_tokens == 8
    engine.close()


def _broken(*_: Any) -> Any:
    raise RuntimeError("out of memory")
