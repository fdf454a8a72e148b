from pathlib import Path

import numpy as np
import pytest

from tests.unit.verillm.builders import bf16
from verillm.engine.weights import write
from verillm.errors import ModelMismatch
from verillm.head import HeadRows
from verillm.statistics import to_floats
from verillm.types import Bits


@pytest.fixture
def rows() -> Bits:
    return bf16(np.random.default_rng(8).standard_normal((20_000, 16), np.float32))


def test_a_head_of_its_own_wins_over_the_embedding(tmp_path: Path, rows: Bits) -> None:
    write(
        tmp_path / "model.safetensors",
        {"lm_head.weight": rows, "model.embed_tokens.weight": rows[:5]},
    )
    found = HeadRows(tmp_path)
    assert (found.vocabulary, found.hidden) == (20_000, 16)
    assert np.array_equal(found.rows(7, 9), rows[7:9])


def test_a_tied_head_is_the_embedding_and_its_logits_are_rows_times_states(
    tmp_path: Path, rows: Bits
) -> None:
    write(tmp_path / "model.safetensors", {"model.embed_tokens.weight": rows})
    states = np.random.default_rng(9).standard_normal((3, 16), np.float32)
    logits = HeadRows(tmp_path).logits(states)
    assert logits.shape == (3, 20_000) and logits.dtype == np.float32
    assert np.allclose(logits, states @ to_floats(rows).T, atol=1e-5)


def test_a_folder_without_a_head_or_with_a_bias_is_refused(tmp_path: Path, rows: Bits) -> None:
    write(tmp_path / "model.safetensors", {"something": rows})
    with pytest.raises(ModelMismatch):
        HeadRows(tmp_path)
    write(tmp_path / "model.safetensors", {"lm_head.weight": rows, "lm_head.bias": rows[0]})
    with pytest.raises(ModelMismatch, match="bias"):
        HeadRows(tmp_path)
