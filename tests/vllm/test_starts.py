"""Engines of their own: one at a time, as a process can hold no second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.vllm.conftest import WAIT, MakeTask, check_rule, endless, far_apart, run_all, serving
from verillm.engine.bits import from_bits
from verillm.engine.torch_engine import TorchEngine
from verillm.engine.vllm import serving as vllm_serving
from verillm.engine.vllm.driver import Span
from verillm.engine.vllm.engine import VllmEngine
from verillm.errors import (
    AttentionUnsupported,
    EngineOutOfMemory,
    EngineUnavailable,
    ModelNotTraceable,
)
from verillm.task import Task
from verillm_verifier.replay import Run, prefill


def test_bf16_tokens_follow_from_the_committed_states(qwen: Path, tasks: list[Task]) -> None:
    with serving(VllmEngine(qwen, max_batch=4, max_tokens=2048, chunk=32)) as engine:
        found = run_all(engine, *tasks)
        assert check_rule(qwen, tasks, found) > 100
        prompts = [
            (task.items[0], trace.items[0]) for task, trace in zip(tasks, found, strict=True)
        ]
        checked = prefill(engine, [Run(item.tokens, given.seed) for given, item in prompts])
    for (_, item), again in zip(prompts, checked.items, strict=True):
        decoded, prefilled = from_bits(item.finals), from_bits(again.finals)
        apart = np.linalg.norm(decoded - prefilled, axis=-1) / np.linalg.norm(decoded, axis=-1)
        assert apart.max() < 0.1  # decode and prefill of one machine: bf16 noise, far from a shift


@pytest.mark.timeout(900)
def test_a_compiled_model_gives_the_torch_engines_traces(qwen: Path, tasks: list[Task]) -> None:
    """Chunked prefill, batches, every kind of sampling; the layers come out of compiled code."""
    with serving(TorchEngine(qwen, dtype="float32")) as torch_engine:
        expected = run_all(endless(torch_engine), *tasks)
    compiled = VllmEngine(
        qwen, dtype="float32", compiled=True, max_batch=4, max_tokens=2048, chunk=32
    )
    with serving(compiled) as engine:
        found = run_all(endless(engine), *tasks)
    assert check_rule(qwen, tasks, found) > 100
    for one, other in zip(expected, found, strict=True):
        assert [item.tokens for item in one.items] == [item.tokens for item in other.items]
        assert far_apart(one, other) < 0.002


def test_a_preempted_request_gives_the_trace_that_it_gives_undisturbed(
    qwen: Path, make_task: MakeTask, passes: list[Sequence[Span]]
) -> None:
    prompt = "so long a prompt that its answer needs another block of the cache: " * 4
    tasks = [make_task(f"{n} {prompt}"[:250], new=20, name=str(n)) for n in range(4)]
    with serving(TorchEngine(qwen, dtype="float32")) as torch_engine:
        calm = run_all(endless(torch_engine), *tasks)
    scarce = VllmEngine(qwen, dtype="float32", max_batch=4, max_tokens=512, chunk=32)
    scarce._options = replace(scarce._options, cache_blocks=6)  # five to use; two requests need six
    with serving(scarce) as engine:
        rough = run_all(endless(engine), *tasks)
    begun = [span.request for spans in passes for span in spans if span.position == 0]
    assert len(begun) > len(set(begun)) == 4  # something was computed from its start again
    for one, other in zip(calm, rough, strict=True):
        assert one.items[0].tokens == other.items[0].tokens
        assert far_apart(one, other) < 0.002


def test_a_weight_transform_changes_what_is_served(qwen: Path, make_task: MakeTask) -> None:
    def halve(name: str, weight: Any) -> Any:
        return weight * np.float32(0.5) if "mlp.down" in name else weight

    task = make_task("x", new=4, temperature=0.0)
    changed = VllmEngine(qwen, dtype="float32", weights=halve, max_batch=2, max_tokens=512)
    with serving(changed) as engine:
        [cheat] = run_all(engine, task)
    with serving(TorchEngine(qwen, dtype="float32", weights=halve)) as engine:
        [same] = run_all(engine, task)
    with serving(TorchEngine(qwen, dtype="float32")) as engine:
        [honest] = run_all(engine, task)
    assert far_apart(cheat, same) < 0.002
    assert not np.array_equal(honest.items[0].slices, cheat.items[0].slices)


def test_prefix_caching_is_refused(qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.engine.arg_utils as arg_utils

    honest = arg_utils.EngineArgs.__post_init__

    def caching(arguments: Any) -> None:
        arguments.enable_prefix_caching = True
        honest(arguments)

    monkeypatch.setattr(arg_utils.EngineArgs, "__post_init__", caching)
    with pytest.raises(EngineUnavailable, match="cached positions have no states"):
        VllmEngine(qwen, max_batch=2, max_tokens=512).start()


def test_a_cached_prefix_fails_the_task_that_hits_it(
    qwen: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm.engine.arg_utils as arg_utils

    honest = arg_utils.EngineArgs.__post_init__

    def caching(arguments: Any) -> None:
        arguments.enable_prefix_caching = True
        honest(arguments)

    monkeypatch.setattr(arg_utils.EngineArgs, "__post_init__", caching)
    monkeypatch.setattr(vllm_serving.VllmServing, "check", lambda *_: None)
    prompt = "the same long prompt twice, longer than a block of 128 tokens " * 4
    with serving(VllmEngine(qwen, max_batch=2, max_tokens=1024)) as engine:
        run_all(engine, make_task(prompt, new=4, name="first"))
        again = engine.submit(make_task(prompt, new=4, name="second"), lambda *_: None)
        assert isinstance(error := again.exception(WAIT), EngineUnavailable)
    assert "prefix caching" in str(error)


def test_an_attention_backend_that_vllm_does_not_use_is_refused(qwen: Path) -> None:
    with pytest.raises(AttentionUnsupported, match="CPU_ATTN"):
        VllmEngine(qwen, attention="FLASH_ATTN", max_batch=2, max_tokens=512).start()


def test_a_cache_beyond_this_machines_memory_is_refused(qwen: Path) -> None:
    with pytest.raises(EngineOutOfMemory):
        VllmEngine(qwen, max_batch=2, max_tokens=10**9).start()


def test_a_model_that_hands_out_no_layers_is_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=9, n_head=2, n_positions=256, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelNotTraceable, match="GPT2"):
        VllmEngine(tmp_path, max_batch=2, max_tokens=256).start()


def test_a_model_whose_head_soft_caps_is_refused(qwen: Path, tmp_path: Path) -> None:
    config = json.loads((qwen / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"final_logit_softcapping": 30.0}))
    with pytest.raises(ModelNotTraceable):
        VllmEngine(tmp_path).start()


def test_a_second_engine_in_a_process_is_refused_and_the_first_serves_on(
    qwen: Path, make_task: MakeTask
) -> None:
    with serving(VllmEngine(qwen, max_batch=2, max_tokens=512)) as engine:
        with pytest.raises(EngineUnavailable, match="another model"):
            VllmEngine(qwen, max_batch=2, max_tokens=512).start()
        [trace] = run_all(endless(engine), make_task("x", new=4))
        assert trace.items[0].new_tokens == 4
