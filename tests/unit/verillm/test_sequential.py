import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from verillm.errors import MalformedError
from verillm.sequential import ALARM, Suspicion, Table, fit, load

EDGES = (0, 10_000, 100_000)
SHARES = {"honest": (0.98, 0.015, 0.004, 0.001), "cheat": (0.90, 0.05, 0.03, 0.02)}
MARGINS = (0, 5_000, 50_000, 500_000)
"""One margin in each bin."""
TABLE = Table(
    EDGES,
    {
        "cheat": tuple(
            math.log(c / h) for c, h in zip(SHARES["cheat"], SHARES["honest"], strict=True)
        )
    },
)


def jobs(kind: str, count: int, seed: int, tokens: int = 64) -> list[list[int]]:
    random = np.random.default_rng(seed)
    drawn: list[list[int]] = random.choice(MARGINS, (count, tokens), p=SHARES[kind]).tolist()
    return drawn


def after(found: list[list[int]], table: Table = TABLE) -> Suspicion:
    suspicion = Suspicion()
    for job in found:
        suspicion = suspicion.after(job, table)
    return suspicion


@pytest.mark.parametrize(
    ("margin", "expected"), [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (10**7, 3)]
)
def test_a_margin_fallsIntoTheBinItsUpperEdgeCloses(margin: int, expected: int) -> None:
    assert TABLE.bin(margin) == expected


def test_a_cheat_isAlarming_andAnHonestWorkerIsNot() -> None:
    assert after(jobs("cheat", 12, 1)).is_alarm
    assert after(jobs("honest", 300, 2)).value < 10


def test_a_worker_thatTurnsBadLate_isFoundAsFastButForAFewTokens() -> None:
    early = _first_alarm(jobs("cheat", 100, 3))
    late = _first_alarm(jobs("honest", 200, 4) + jobs("cheat", 100, 3)) - 200
    assert early <= late <= 2 * early + 2


def test_the_suspicion_ofAnHonestWorker_hasAnExpectationOfAtMostOne() -> None:
    values = [after(jobs("honest", 8, seed, tokens=16)).value for seed in range(4000)]
    assert float(np.mean(values)) < 1.0
    assert max(values) < ALARM


def test_without_jobs_nothingIsSaid() -> None:
    assert Suspicion().value == 0.0 and not Suspicion().is_alarm


@given(st.lists(st.integers(0, 10**7), max_size=50))
def test_a_job_countsTheSame_inAnyOrderOfItsTokens(margins: list[int]) -> None:
    forward = Suspicion().after(margins, TABLE)
    backward = Suspicion().after(margins[::-1], TABLE)
    assert math.isclose(forward.value, backward.value, rel_tol=1e-9)


def test_fitting_findsTheRatiosItWasDrawnFrom_andNeverSaysMoreThanWasSeen() -> None:
    honest = [m for job in jobs("honest", 2000, 5) for m in job]
    cheat = [m for job in jobs("cheat", 2000, 6) for m in job]
    fitted = fit({"setup": honest}, {"cheat": cheat}, EDGES)
    expected = [math.log(0.9 * math.exp(ratio) + 0.1) for ratio in TABLE.ratios["cheat"]]
    assert np.allclose(fitted.ratios["cheat"], expected, atol=0.2)
    unseen = fit({"setup": [0] * 1000}, {"cheat": [500_000] * 10}, EDGES)
    assert max(unseen.ratios["cheat"]) <= math.log(1012 / 3)


def test_no_setup_isSuspected_forTheNoiseOfItsOwn() -> None:
    calm = [0] * 9_950 + [5_000] * 50
    noisy = [0] * 1_960 + [5_000] * 40
    cheat = [0] * 940 + [5_000] * 60
    both = fit({"calm": calm, "noisy": noisy}, {"cheat": cheat}, EDGES)
    pooled = fit({"all": calm + noisy}, {"cheat": cheat}, EDGES)
    # The expectation of one token's factor, for a worker in the noisy setup.
    assert expectation(both, noisy) <= 1 < expectation(pooled, noisy)


def expectation(table: Table, margins: list[int]) -> float:
    return float(np.mean([math.exp(table.scores([each])["cheat"]) for each in margins]))


def test_no_margins_cannotBeFitted() -> None:
    with pytest.raises(MalformedError):
        fit({"setup": [0]}, {"cheat": []}, EDGES)


@pytest.mark.parametrize(
    "document",
    [
        {"edges": [0, 0], "ratios": {"a": [1, 2, 3]}},
        {"edges": [0], "ratios": {"a": [1]}},
        {"edges": [0], "ratios": {"a": [1, float("inf")]}},
        {"edges": [0], "ratios": {}},
        {"edges": [0]},
        [],
    ],
    ids=str,
)
def test_a_broken_table_isRefused(document: object, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(MalformedError):
        load(path)


def test_a_table_thatWasWritten_isReadAgain(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"edges": TABLE.edges, "ratios": TABLE.ratios}), "utf-8")
    assert load(path) == TABLE


def _first_alarm(found: list[list[int]]) -> int:
    suspicion = Suspicion()
    for number, job in enumerate(found, 1):
        suspicion = suspicion.after(job, TABLE)
        if suspicion.is_alarm:
            return number
    raise AssertionError("no alarm")
