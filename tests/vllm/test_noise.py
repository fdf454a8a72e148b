"""The compiled words, where numba is."""

from __future__ import annotations

import numpy as np
import pytest

from verillm.engine.vllm import noise
from verillm.types import Hash32

SEED = Hash32(bytes(range(1, 33)))


@pytest.mark.parametrize("position", [0, 7, 2**32 - 1])
@pytest.mark.parametrize("vocabulary", [1, 255, 49_153])
@pytest.mark.parametrize("least", [0, 2**31, 2**32 - 2**20, 2**32 - 1])
def test_compiled_words_are_those_drawn_plainly(
    position: int, vocabulary: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    logits = random.standard_normal(vocabulary).astype(np.float32)
    some = np.sort(random.integers(0, vocabulary, 40))

    def all_words() -> list[np.ndarray]:
        above = noise.words_above(SEED, position, logits, -0.5, np.uint32(least))
        return [*above, noise.words_at(SEED, position, some)]

    assert noise._kernels() is not None
    compiled = all_words()
    monkeypatch.setattr(noise, "_kernels", lambda: None)
    for fast, plain in zip(compiled, all_words(), strict=True):
        assert np.array_equal(fast, plain)


def test_a_logit_at_the_bound_is_found() -> None:
    logits = np.linspace(-1, 1, 301, dtype=np.float32)
    ids, _ = noise.words_above(SEED, 3, logits, float(logits[200]), np.uint32(0))
    assert ids.tolist() == list(range(200, 301))
