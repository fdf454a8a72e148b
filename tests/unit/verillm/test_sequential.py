import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from verillm.errors import MalformedError
from verillm.sequential import ALARM, Suspicion, Table, curve, fit, load

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


SCORES = st.lists(
    st.fixed_dictionaries({"one": st.floats(-3, 3), "other": st.floats(-3, 3)}),
    min_size=1,
    max_size=8,
)


@given(SCORES)
def test_the_suspicion_isTheMean_overCheats_ofProductsStartedAnewAtEveryJob(
    found: list[dict[str, float]],
) -> None:
    suspicion = Suspicion()
    for at, scores in enumerate(found):
        suspicion = suspicion.updated(scores, at)
    expected = [
        math.exp(math.fsum(job[name] for job in found[start:])) / ((start + 1) * (start + 2))
        for name in ("one", "other")
        for start in range(len(found))
    ]
    assert suspicion.value == pytest.approx(math.fsum(expected) / 2)
    assert (suspicion.jobs, suspicion.tokens) == (len(found), sum(range(len(found))))


def test_an_alarm_isAHundredThousandToOne_andBeyondCountingIsOneToo() -> None:
    assert not Suspicion(1, 1, {"cheat": math.log(ALARM) - 1e-9}).is_alarm
    assert Suspicion(1, 1, {"cheat": math.log(ALARM) + 1e-9}).is_alarm
    assert Suspicion(1, 1, {"cheat": 1e6}).is_alarm
    assert Suspicion(1, 1, {"cheat": -math.inf}).value == 0.0


def test_a_job_isScored_byItsLeadsBins() -> None:
    first, second, third, fourth = TABLE.ratios["cheat"]
    scores = TABLE.scores([-5, 0, 10_000, 10_001, 10**9])
    assert scores == {"cheat": pytest.approx(2 * first + second + third + fourth)}
    after_one = Suspicion().after([0, 1, 2], TABLE)
    assert (after_one.jobs, after_one.tokens) == (1, 3)


@given(st.lists(st.integers(0, 10**7), max_size=50))
def test_a_job_countsTheSame_inAnyOrderOfItsTokens(margins: list[int]) -> None:
    forward = Suspicion().after(margins, TABLE)
    backward = Suspicion().after(margins[::-1], TABLE)
    assert math.isclose(forward.value, backward.value, rel_tol=1e-9)


CLOSENESS = (10_000, 100_000, 1_000_000)


def leads(losses: dict[int, float], count: int, seed: int) -> list[int]:
    """As many leads at each distance, of which a share is lost."""
    random = np.random.default_rng(seed)
    signs = {at: random.random(count) < share for at, share in losses.items()}
    return [(-at if lost else at) for at, all_lost in signs.items() for lost in all_lost.tolist()]


def test_fitting_comparesWhoWinsNearTies_givenHowNearTheyAre() -> None:
    honest = leads({5_000: 0.5, 50_000: 0.1, 500_000: 0.01, 5_000_000: 0.01}, 200_000, 5)
    cheat = leads({5_000: 0.5, 50_000: 0.3, 500_000: 0.04, 5_000_000: 0.5}, 200_000, 6)
    fitted = fit(honest, {"cheat": cheat}, CLOSENESS).ratios["cheat"]
    beyond, far, near, nothing, *won, last = fitted
    assert far == pytest.approx(math.log((0.9 * 0.04 + 0.001) / 0.01), abs=0.2)
    assert near == pytest.approx(math.log((0.9 * 0.3 + 0.01) / 0.1), abs=0.08)
    assert beyond == nothing == last == 0.0
    assert won == pytest.approx([math.log(0.72 / 0.9), math.log(0.963 / 0.99)], abs=0.02)


def test_a_text_withMoreNearTies_isNoEvidence() -> None:
    honest = leads({50_000: 0.1, 500_000: 0.01}, 20_000, 5)
    cheat = leads({50_000: 0.3, 500_000: 0.04}, 20_000, 6)
    table = fit(honest, {"cheat": cheat}, CLOSENESS)
    for losses in ({50_000: 0.1}, {500_000: 0.01}, {50_000: 0.1, 500_000: 0.01}):
        factors = [math.exp(table.scores([lead])["cheat"]) for lead in leads(losses, 40_000, 7)]
        assert float(np.mean(factors)) < 1.005


def test_fitting_neverSaysMoreThanWasSeen() -> None:
    nothing = fit([500_000] * 1000, {"cheat": [-500_000] * 10}, CLOSENESS).ratios["cheat"]
    assert max(nothing) <= math.log(1001 / 0.5)
    calmer = fit(leads({50_000: 0.3}, 1000, 1), {"cheat": [50_000] * 1000}, CLOSENESS)
    assert set(calmer.ratios["cheat"]) == {0.0}


def test_a_curveThroughTwoBins_isRaisedAndMixed_asByHand() -> None:
    """Two bins have two losses and a curve two numbers: it goes through them."""
    near, far = 20_000, 200_000
    honest = [-near] * 400 + [near] * 3_600 + [-far] * 40 + [far] * 3_960
    cheat = [-near] * 900 + [near] * 2_100 + [-far] * 150 + [far] * 2_850
    ignored = [-9_999, -10_000, 10_000, 1_000_001, -1_000_001] * 1_000

    def raised(lost: int, count: int) -> float:
        share = lost / count
        errors = 2 / math.sqrt(count * share * (1 - share))
        return 1 / (1 + math.exp(-math.log(share / (1 - share)) - errors))

    low = (raised(400, 4_000), raised(40, 4_000))
    high = (0.9 * 0.3 + 0.1 * low[0], 0.9 * 0.05 + 0.1 * low[1])
    lose = [math.log(more / less) for more, less in zip(high, low, strict=True)]
    win = [math.log((1 - more) / (1 - less)) for more, less in zip(high, low, strict=True)]
    table = fit(honest + ignored, {"cheat": cheat + ignored}, CLOSENESS)
    assert table.edges == (-1_000_000, -100_000, -10_000, 10_000, 100_000, 1_000_000)
    expected = (0.0, lose[1], lose[0], 0.0, win[0], win[1], 0.0)
    assert table.ratios["cheat"] == pytest.approx(expected, rel=0.01)


WIDE = (10_000, 100_000, 1_000_000, 10_000_000)
X = [math.log(math.sqrt(a * b) / 100_000) for a, b in pairwise(WIDE)]
FEW: dict[str, Sequence[tuple[int, int]]] = {
    "some": ((3, 10), (1, 10), (0, 5)),
    "next to nothing": ((1, 2), (0, 1), (0, 0)),
    "nothing": ((0, 0), (0, 0), (0, 0)),
    "one, far off": ((0, 1), (0, 0), (1, 4)),
    "many": ((900, 3_000), (150, 3_000), (4, 3_000)),
}


def logit(share: float) -> float:
    return math.log(share / (1 - share))


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_curve_isTheLikeliestOne_underAWidePrior_inScalars(
    losses: Sequence[tuple[int, int]],
) -> None:
    """Its two numbers are off the prior's by what the tokens say over the prior's strength."""
    shares = curve(losses, WIDE).tolist()
    slope = (logit(shares[1]) - logit(shares[0])) / (X[1] - X[0])
    start = logit(shares[0]) - slope * X[0]
    assert logit(shares[2]) == pytest.approx(start + slope * X[2])
    more = [lost - count * share for (lost, count), share in zip(losses, shares, strict=True)]
    assert 0.01 * (start + 2.5) == pytest.approx(math.fsum(more), abs=1e-6)
    told = math.fsum(each * x for each, x in zip(more, X, strict=True))
    assert 0.5 * (slope + 2.0) == pytest.approx(told, abs=1e-6)


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_curve_isRaised_byStandardErrorsOfItsLine_inScalars(
    losses: Sequence[tuple[int, int]],
) -> None:
    plain = curve(losses, WIDE).tolist()
    weights = [count * p * (1 - p) for (_, count), p in zip(losses, plain, strict=True)]
    one, cross, square = (
        math.fsum(weight * x**power for weight, x in zip(weights, X, strict=True))
        for power in (0, 1, 2)
    )
    one, square = one + 0.01, square + 0.5
    raised = curve(losses, WIDE, raised=0.25).tolist()
    for share, higher, x in zip(plain, raised, X, strict=True):
        error = math.sqrt((square - 2 * cross * x + one * x**2) / (one * square - cross**2))
        expected = 1 / (1 + math.exp(-logit(share) - 0.25 * error))
        assert higher == pytest.approx(min(0.5, expected), rel=1e-6)


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_table_countsEachLead_andComparesTheCheatsCurve_withTheHonestOneRaised(
    losses: Sequence[tuple[int, int]],
) -> None:
    quiet, ignored = [(1, 40), (0, 30), (0, 20)], [3, -3, 10**8, -(10**8)]

    def leads(found: Sequence[tuple[int, int]]) -> list[int]:
        told = zip(found, WIDE[1:], strict=True)
        return ignored + [
            at for (lost, count), far in told for at in [-far] * lost + [far] * (count - lost)
        ]

    base = curve(quiet, WIDE, raised=2.0)
    shares = np.maximum(base, 0.9 * curve(losses, WIDE) + 0.1 * base)
    lose, won = np.log(shares / base).tolist(), np.log((1 - shares) / (1 - base)).tolist()
    table = fit(leads(quiet), {"cheat": leads(losses)}, WIDE)
    assert table.ratios["cheat"] == pytest.approx((0.0, *lose[::-1], 0.0, *won, 0.0), abs=1e-9)


def test_a_curve_throughNearTiesThatAreAllWon_doesNotWanderOff() -> None:
    """The prior has nearly all of them lost, and a whole first step is too far by millions."""
    assert curve([(0, 5_000)] * 2, (1, 3, 10)) == pytest.approx([0.0002, 0.0001], abs=0.0002)


BOUNDS = (40_000, 60_000, 90_000, 130_000, 200_000, 300_000, 450_000, 700_000)


def ties(random: np.random.Generator, count: int, scale: float) -> list[int]:
    """Leads whose losses follow a logistic curve in the logarithm of the distance."""
    apart = random.uniform(1.0, 3_000_000.0, count)
    lost = random.random(count) < 1 / (1 + (apart / (scale * 60_000)) ** 2.5)
    found: list[int] = np.where(lost, -apart, apart).astype(int).tolist()
    return found


def test_fitted_onFewTokens_honestWorkersStayQuiet_andCheatsDoNot() -> None:
    """What a fit gets wrong is paid by the raise; a fit that is not raised reaches odds of 11."""
    random = np.random.default_rng(11)
    highest, ends = 0.0, []
    for _ in range(12):
        table = fit(ties(random, 2_000, 1.0), {"cheat": ties(random, 2_000, 2.0)}, BOUNDS)
        suspicion = Suspicion()
        for _ in range(400):
            suspicion = suspicion.after(ties(random, 64, 1.0), table)
            highest = max(highest, suspicion.value)
        ends.append(_first_alarm([ties(random, 64, 2.0) for _ in range(150)], table))
    assert highest < 3
    assert sorted(ends)[6] * 64 < 3_000


def test_no_leads_cannotBeFitted() -> None:
    with pytest.raises(MalformedError, match=r"^leads: none to fit$"):
        fit([1], {"cheat": []}, CLOSENESS)
    with pytest.raises(MalformedError, match=r"^leads: none to fit$"):
        fit([], {"cheat": [1]}, CLOSENESS)


EDGES_WRONG = "edges: not ascending, or no ratios for them"
RATIOS_WRONG = "ratios.a: not one finite ratio per bin"


@pytest.mark.parametrize(
    ("edges", "ratios", "told"),
    [
        ([0, 0], {"a": [1, 2, 3]}, EDGES_WRONG),
        ([1, 0], {"a": [1, 2, 3]}, EDGES_WRONG),
        ([0], {}, EDGES_WRONG),
        ([0], {"a": [1]}, RATIOS_WRONG),
        ([0], {"a": [1, 2, 3]}, RATIOS_WRONG),
        ([0], {"a": [1, float("inf")]}, RATIOS_WRONG),
        ([0], {"a": [float("nan"), 1]}, RATIOS_WRONG),
    ],
    ids=str,
)
def test_a_broken_table_isRefusedByWhatIsWrong(
    edges: list[int], ratios: dict[str, list[float]], told: str, tmp_path: Path
) -> None:
    with pytest.raises(MalformedError) as caught:
        Table(tuple(edges), {name: tuple(each) for name, each in ratios.items()})
    assert str(caught.value) == told
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"edges": edges, "ratios": ratios}), "utf-8")
    with pytest.raises(MalformedError):
        load(path)


@pytest.mark.parametrize("document", [{"edges": [0]}, {"ratios": {"a": [1, 2]}}, [], 3], ids=str)
def test_what_is_noTable_isRefused(document: object, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(MalformedError, match=r"table\.json: \w+Error"):
        load(path)


def test_a_table_thatWasWritten_isReadAgain(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"edges": TABLE.edges, "ratios": TABLE.ratios}), "utf-8")
    assert load(path) == TABLE
    raw = {"edges": TABLE.edges, "ratios": TABLE.ratios, "weights": "ab" * 32}
    path.write_text(json.dumps(raw), "utf-8")
    assert load(path) == replace(TABLE, weights="ab" * 32)


def test_a_table_thatIsNotThere_isToldByItsPath(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match=r"nowhere\.json.*FileNotFoundError"):
        load(tmp_path / "nowhere.json")


def _first_alarm(found: list[list[int]], table: Table = TABLE) -> int:
    suspicion = Suspicion()
    for number, job in enumerate(found, 1):
        suspicion = suspicion.after(job, table)
        if suspicion.is_alarm:
            return number
    raise AssertionError("no alarm")
