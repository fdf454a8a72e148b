"""The fast sampler is the reference: same token for every logits, parameters, seed and position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from verillm.engine.sampler import G_MAX, choose
from verillm.errors import NonFiniteLogits
from verillm.hashing import sha
from verillm.request import Sampling
from verillm.sampling import gumbel, select

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0, 1, 10_000, 700_000, 1_000_000, 2_000_000]),
    top_k=st.sampled_from([0, 0, 1, 5, 40]),
    top_p=st.sampled_from([1, 500_000, 900_000, 1_000_000, 1_000_000]),
    min_p=st.sampled_from([0, 0, 50_000, 1_000_000]),
)


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 2, 31, 32, 33, 1000, 5000]),
    spread=st.sampled_from([0.0, 0.01, 1.0, 4.0, 1000.0]),
    position=st.integers(0, 2**20),
    sampling=samplings,
)
def test_choose_is_select(
    seed: int, size: int, spread: float, position: int, sampling: Sampling
) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * spread).astype(np.float32)
    logits[random.integers(size)] = logits[random.integers(size)]
    key = sha(seed.to_bytes(4, "big"))
    assert choose(logits, sampling, key, position) == select(logits, sampling, key, position)


def test_choose_is_select_over_a_real_vocabulary() -> None:
    random = np.random.default_rng(5)
    for position in range(40):
        logits = (random.standard_normal(49_152) * 3 + random.gumbel(size=49_152)).astype("f4")
        key = sha(position.to_bytes(4, "big"))
        assert choose(logits, Sampling(), key, position) == select(
            logits, Sampling(), key, position
        )


def test_no_word_exceeds_the_bound() -> None:
    assert gumbel(np.arange(2**32 - 2**20, 2**32, dtype=np.uint32)).max() == G_MAX
    assert np.all(np.diff(gumbel(np.arange(0, 2**32, 2**12, dtype=np.uint32))) >= 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_choose_nothing(value: float) -> None:
    logits = np.zeros(64, np.float32)
    logits[3] = value
    with pytest.raises(NonFiniteLogits):
        choose(logits, Sampling(), sha(b""), 0)
