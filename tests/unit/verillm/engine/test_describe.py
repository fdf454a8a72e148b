"""A model's identity: what changes it, what does not, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from verillm.engine.bits import from_bits, to_bits
from verillm.engine.config import read_config
from verillm.engine.describe import (
    PROFILES,
    check_folder,
    compute_roots,
    read_profile,
    shipped_profile,
)
from verillm.engine.tiny import tiny_spec, write_folder
from verillm.engine.weights import tensors, write
from verillm.errors import EngineUnavailable, MalformedError, ModelMismatch, UnknownModel
from verillm.merkle import Tree
from verillm.model import check_profile, check_spec

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_the_same_seed_writes_the_same_model(folder: Path, tmp_path: Path) -> None:
    assert compute_roots(write_folder(tmp_path)) == compute_roots(folder)
    assert compute_roots(write_folder(tmp_path / "two", 2)).weights != compute_roots(folder).weights


def test_a_folder_matches_its_own_spec(folder: Path) -> None:
    spec = tiny_spec(folder)
    check_spec(spec)
    check_folder(folder, spec)


def flip_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def change_text(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(" ")

    return change


def change_end(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (flip_weight, "weights root"),
        (change_text("tokenizer.json"), "tokenizer"),
        (change_text("chat_template.jinja"), "template"),
        (change_end, "end tokens"),
    ],
)
def test_any_change_is_a_mismatch(
    folder: Path, copy: Path, change: Callable[[Path], None], fact: str
) -> None:
    change(copy)
    with pytest.raises(ModelMismatch, match=fact):
        check_folder(copy, tiny_spec(folder))


def test_the_head_root_is_over_rows(folder: Path) -> None:
    [head] = [each for each in tensors(folder) if each.name == "model.embed_tokens.weight"]
    rows = head.memory().view("<u2").reshape(head.shape).astype(">u2")
    leaves = [
        sha256(b"\x00\x11" + row.to_bytes(4, "big") + rows[row].tobytes()).digest()
        for row in range(len(rows))
    ]
    assert compute_roots(folder).head == Tree(leaves).root.hex()  # type: ignore[arg-type]


def test_an_untied_head_is_the_one_that_counts(copy: Path, folder: Path) -> None:
    values = {
        each.name: each.memory().view(np.uint16).reshape(each.shape).copy()
        for each in tensors(copy)
    }
    values["lm_head.weight"] = values["model.embed_tokens.weight"] ^ np.uint16(1)
    write(copy / "model.safetensors", values)
    assert compute_roots(copy).head != compute_roots(folder).head


def test_what_is_remembered_is_not_used_for_a_changed_file(copy: Path) -> None:
    before = compute_roots(copy)
    assert compute_roots(copy) == before
    flip_weight(copy)
    assert compute_roots(copy).weights != before.weights


def test_safetensors_are_read_as_the_library_reads_them(folder: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    loaded = library.load_file(folder / "model.safetensors")
    assert {each.name for each in tensors(folder)} == set(loaded)
    for each in tensors(folder):
        assert np.array_equal(each.floats(), loaded[each.name].float().numpy())


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"{}x", b"\x01" * 30])
def test_broken_safetensors_are_refused(copy: Path, data: bytes) -> None:
    (copy / "model.safetensors").write_bytes(data)
    with pytest.raises(EngineUnavailable):
        compute_roots(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_missing_file_is_a_clear_error(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(EngineUnavailable, match="copy"):
        read_config(copy)
        compute_roots(copy)


def test_a_head_that_does_more_has_no_token_proof(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"final_logit_softcapping": 30.0}))
    assert not tiny_spec(copy).token_proof


def test_shipped_profiles_are_sound() -> None:
    for name, layers, positions in (("tiny", 2, 32), (MODEL, 3, 64), (f"{MODEL}-mixed", 3, 64)):
        calibrated = shipped_profile(name)
        check_profile(calibrated.profile, layers)
        assert calibrated.terms.positions == positions
        assert calibrated.profile.many_positions in (0, positions)
        assert calibrated.terms.committee == 3
    with pytest.raises(UnknownModel):
        shipped_profile("no such model")


def test_the_profile_of_a_mixed_network_saw_both_engines_and_is_the_wider() -> None:
    """The one for torch alone is the default: its certificate and its figures are of it. Counts of
    positions do not compare, since each has caps of its own: what they must let pass, both do
    (`tests/unit/verifier/test_calibrate_tail.py`).
    """
    alone, mixed = shipped_profile(MODEL).profile, shipped_profile(f"{MODEL}-mixed").profile
    assert mixed.mean_refund > alone.mean_refund and mixed.mean_slash > alone.mean_slash
    assert mixed.margin_max_refund >= alone.margin_max_refund
    assert mixed.margin_max_slash >= alone.margin_max_slash
    runs = json.loads((PROFILES / f"{MODEL}-mixed.json").read_text())["calibration"]["states"]
    assert {"vllm bf16 batched against bf16", "bf16 batched against vllm bf16"} <= {
        line["group"] for line in runs
    }


def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    for text in ("", "[]", "{}", '{"terms": {}, "profile": {}}'):
        path.write_text(text)
        with pytest.raises(MalformedError):
            read_profile(path)


def test_bits_round_to_nearest_even_and_back() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    values = np.concatenate(
        [
            random.standard_normal(10_000).astype("f4"),
            np.array([0, -0.0, 1e-40, 3e38, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8], "f4"),
        ]
    )
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert np.array_equal(to_bits(values), expected.view(torch.int16).numpy().view(np.uint16))
    assert np.array_equal(from_bits(to_bits(values)), expected.float().numpy())
    assert np.isnan(from_bits(to_bits(np.array([np.nan], "f4")))).all()


def test_a_spec_of_other_sizes_is_a_mismatch(folder: Path) -> None:
    with pytest.raises(ModelMismatch, match="context"):
        check_folder(folder, replace(tiny_spec(folder), context=1024))
