"""The compiled words, where numba is."""

from __future__ import annotations

import numpy as np
import pytest

from verillm.engine.vllm import noise
from verillm.types import Hash32


@pytest.mark.parametrize("position", [0, 7, 2**32 - 1])
def test_compiled_words_are_those_drawn_plainly(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Hash32(bytes(range(1, 33)))
    compiled = noise._fill()
    assert compiled is not noise.fill_plainly
    fast = noise.draw_all(seed, position, 49_153)
    monkeypatch.setattr(noise, "_fill", lambda: noise.fill_plainly)
    assert np.array_equal(fast, noise.draw_all(seed, position, 49_153))
