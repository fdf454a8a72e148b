"""The compiled search for contenders, where numba is, against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from verillm.engine.vllm import noise
from verillm.engine.vllm.noise import Bounds, contenders
from verillm.sampling import gumbel, words
from verillm.types import Floats, Hash32

SEED = Hash32(bytes(range(1, 33)))
FREE = (-np.inf, -np.inf)


def logits_of(vocabulary: int, spread: float) -> Floats:
    random = np.random.default_rng(vocabulary)
    return (spread * random.standard_normal(vocabulary)).astype(np.float32)


@pytest.mark.parametrize("position", [0, 7, 2**32 - 1])
@pytest.mark.parametrize("vocabulary", [1, 255, 256, 257, 49_153])
@pytest.mark.parametrize("temperature", [1e-6, 0.05, 1.0, 2.0])
@pytest.mark.parametrize("spread", [0.0, 0.3, 4.0, 50.0])
@pytest.mark.parametrize("kept", [FREE, (0.5, -0.5), (np.inf, 0.0)])
def test_the_compiled_search_finds_who_is_found_plainly_and_few_more(
    position: int,
    vocabulary: int,
    temperature: float,
    spread: float,
    kept: tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = logits_of(vocabulary, spread)
    surely, perhaps = (min(bound, float(logits.max())) for bound in kept)
    bounds = Bounds(temperature, 0.01, surely, perhaps)
    assert noise._search() is not None
    ids, found = contenders(SEED, position, logits, bounds)
    monkeypatch.setattr(noise, "_search", lambda: None)
    plain, drawn = contenders(SEED, position, logits, bounds)
    where = np.searchsorted(ids, plain)
    assert np.array_equal(ids[where], plain)
    assert np.array_equal(found[where], drawn)
    assert np.all(np.diff(ids) > 0)
    assert len(ids) <= 4 * len(plain) + 40


@pytest.mark.parametrize(("behind", "expected"), [(1.99, [0, 1]), (2.1, [0])])
def test_power_a_score_is_found_as_far_behind_as_the_margins_make_up_for(
    behind: float, expected: list[int]
) -> None:
    """Two entries, and either logit may be off by one."""
    first, second = gumbel(words(SEED, 3, np.arange(2)))
    logits = np.array([0.0, first - second - behind], np.float32)
    assert contenders(SEED, 3, logits, Bounds(1.0, 1.0, *FREE))[0].tolist() == expected
