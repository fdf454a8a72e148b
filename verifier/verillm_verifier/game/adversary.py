"""Three learners guess roles; what counts is how much better than chance, on jobs never seen.

Roles are guessed at even odds: advantage = (true positives + true negatives) / 2 - 1/2, as shares,
between 0 (chance) and 1/2 (certainty). Folds are split by job, and so is the bootstrap of the
interval. The learner that did best is the adversary, which errs to its favour.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from verillm.errors import InputError
from verillm_verifier.game.features import Matrix

Flags = NDArray[np.bool_]
FOLDS: Final = 5
RESAMPLES: Final = 1000
LEAST_JOBS: Final = 20


@dataclass(frozen=True, slots=True)
class Guess:
    """How well roles were guessed: advantage over chance with its 95 % interval."""

    advantage: float
    low: float
    high: float
    auc: float
    learner: str
    tasks: int
    jobs: int


def learners(seed: int) -> Mapping[str, Any]:
    """Return fresh learners; each weighs both roles alike."""
    return {
        "boosted trees": HistGradientBoostingClassifier(
            max_iter=80, learning_rate=0.1, class_weight="balanced", random_state=seed
        ),
        "random trees": ExtraTreesClassifier(
            120, min_samples_leaf=3, class_weight="balanced", random_state=seed, n_jobs=1
        ),
        "logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression(C=0.3, class_weight="balanced", max_iter=2000)
        ),
    }


def guess(features: Matrix, verifies: Flags, jobs: Sequence[str], seed: int = 1) -> Guess:
    """Return the best learner's guesses of held-out jobs; InputError for too few jobs."""
    groups = np.unique(np.asarray(jobs), return_inverse=True)[1]
    if groups.max(initial=0) + 1 < LEAST_JOBS or verifies.all() or not verifies.any():
        raise InputError(f"roles are guessed from {LEAST_JOBS} jobs or more, with both roles")
    found = [
        _judged(name, _held_out(name, features, verifies, groups, seed), verifies, groups, seed)
        for name in learners(seed)
    ]
    return max(found, key=lambda each: each.advantage)


def _held_out(
    name: str, features: Matrix, verifies: Flags, groups: NDArray[np.intp], seed: int
) -> NDArray[np.float64]:
    said = np.zeros(len(verifies))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(features, verifies, groups):
        learner = learners(seed)[name]
        with warnings.catch_warnings():  # a feature that is constant in one fold says nothing
            warnings.simplefilter("ignore")
            learner.fit(features[train], verifies[train])
        said[test] = learner.predict_proba(features[test])[:, 1]
    return said


def _judged(
    name: str, said: NDArray[np.float64], verifies: Flags, groups: NDArray[np.intp], seed: int
) -> Guess:
    right = (said > 0.5) == verifies
    many = int(groups.max()) + 1
    # Right guesses and tasks of each job by role: a resample of jobs is a weighted sum of these.
    counts = np.stack(
        [
            np.bincount(groups, weights, many)
            for weights in (right & verifies, verifies, right & ~verifies, ~verifies)
        ]
    ).astype(float)
    random = np.random.default_rng(seed)
    draws = random.multinomial(many, np.full(many, 1 / many), RESAMPLES)
    spread = np.sort([_advantage(counts @ draw) for draw in draws])
    low, high = spread[int(0.025 * RESAMPLES)], spread[int(0.975 * RESAMPLES)]
    auc = float(roc_auc_score(verifies, said))
    advantage = float(_advantage(counts.sum(axis=1)))
    return Guess(advantage, float(low), float(high), auc, name, len(verifies), many)


def _advantage(counts: NDArray[np.float64]) -> float:
    hits, verifying, passes, inferring = counts
    return float(hits / max(verifying, 1) + passes / max(inferring, 1)) / 2 - 0.5
