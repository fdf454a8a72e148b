"""The fast path of the margins against the sampler's reference."""

import numpy as np
import pytest

from verillm.hashing import keccak
from verillm.request import Sampling
from verillm.sampling import scores
from verillm.tokens import Noisy

SAMPLINGS = (Sampling(0), Sampling(1), Sampling(), Sampling.of(2.0), Sampling.of(0.1))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("spread", [0.0, 0.5, 8.0])
def test_best_of_any_entries_isTheReferences(sampling: Sampling, spread: float) -> None:
    random = np.random.default_rng(3)
    for position in range(20):
        logits = (random.standard_normal(3000) * spread).astype(np.float32)
        seed = keccak(b"%d" % position)
        ids = np.flatnonzero(random.random(3000) < random.random())
        ids = ids if len(ids) else np.array([7])
        reference = scores(logits, sampling, seed, position)
        noisy = Noisy(logits, sampling, seed, position)
        assert noisy.best(ids) == float(reference[ids].max())
        assert np.array_equal(noisy.at(ids), reference[ids])
