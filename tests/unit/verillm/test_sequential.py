import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from verillm.errors import MalformedError
from verillm.roughness import Scale
from verillm.sequential import ALARM, Suspicion, Table, curve, fit, load

EDGES = (0, 10_000, 100_000)
SHARES = {"honest": (0.98, 0.015, 0.004, 0.001), "cheat": (0.90, 0.05, 0.03, 0.02)}
MARGINS = (0, 5_000, 50_000, 500_000)
"""One margin in each bin."""
SCALE = Scale(12_000, 16_000)
TABLE = Table(
    EDGES,
    {
        "cheat": tuple(
            math.log(c / h) for c, h in zip(SHARES["cheat"], SHARES["honest"], strict=True)
        )
    },
    SCALE,
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


CLOSENESS = (600, 6_000, 60_000)


def leads(losses: dict[int, float], count: int, seed: int) -> list[int]:
    """As many leads at each distance, of which a share is lost."""
    random = np.random.default_rng(seed)
    signs = {at: random.random(count) < share for at, share in losses.items()}
    return [(-at if lost else at) for at, all_lost in signs.items() for lost in all_lost.tolist()]


def test_fitting_comparesWhoWinsNearTies_givenHowNearTheyAre() -> None:
    honest = leads({300: 0.5, 3_000: 0.1, 30_000: 0.01, 300_000: 0.01}, 200_000, 5)
    cheat = leads({300: 0.5, 3_000: 0.3, 30_000: 0.04, 300_000: 0.5}, 200_000, 6)
    fitted = fit(honest, {"cheat": cheat}, CLOSENESS, SCALE).ratios["cheat"]
    beyond, far, near, nothing, *won, last = fitted
    assert far == pytest.approx(math.log((0.9 * 0.04 + 0.001) / 0.01), abs=0.2)
    assert near == pytest.approx(math.log((0.9 * 0.3 + 0.01) / 0.1), abs=0.08)
    assert beyond == nothing == last == 0.0
    assert won == pytest.approx([math.log(0.72 / 0.9), math.log(0.963 / 0.99)], abs=0.02)


def test_a_text_withMoreNearTies_isNoEvidence() -> None:
    honest = leads({3_000: 0.1, 30_000: 0.01}, 20_000, 5)
    cheat = leads({3_000: 0.3, 30_000: 0.04}, 20_000, 6)
    table = fit(honest, {"cheat": cheat}, CLOSENESS, SCALE)
    for losses in ({3_000: 0.1}, {30_000: 0.01}, {3_000: 0.1, 30_000: 0.01}):
        factors = [math.exp(table.scores([lead])["cheat"]) for lead in leads(losses, 40_000, 7)]
        assert float(np.mean(factors)) < 1.005


def test_fitting_neverSaysMoreThanWasSeen() -> None:
    nothing = fit([30_000] * 1000, {"cheat": [-30_000] * 10}, CLOSENESS, SCALE).ratios["cheat"]
    assert max(nothing) <= math.log(1001 / 0.5)
    calmer = fit(leads({3_000: 0.3}, 1000, 1), {"cheat": [3_000] * 1000}, CLOSENESS, SCALE)
    assert set(calmer.ratios["cheat"]) == {0.0}


def test_a_curveThroughThreeBins_isRaisedAndMixed_asByHand() -> None:
    """Three bins have three losses and a curve three numbers: it goes through them."""
    bounds, apart = (1_000, 4_000, 9_000, 36_000), (2_500, 6_500, 30_000)
    honest = ((1_200, 4_000), (320, 4_000), (60, 12_000))
    cheat = ((1_200, 3_000), (600, 3_000), (120, 3_000))
    ignored = [-999, -1_000, 1_000, 36_001, -36_001] * 1_000

    def raised(lost: int, count: int) -> float:
        share = lost / count
        errors = 2 / math.sqrt(count * share * (1 - share))
        return 1 / (1 + math.exp(-math.log(share / (1 - share)) - errors))

    low = [raised(lost, count) for lost, count in honest]
    high = [0.9 * lost / count + 0.1 * base for (lost, count), base in zip(cheat, low, strict=True)]
    lose = [math.log(more / less) for more, less in zip(high, low, strict=True)]
    win = [math.log((1 - more) / (1 - less)) for more, less in zip(high, low, strict=True)]
    honest_leads, cheat_leads = told(honest, apart) + ignored, told(cheat, apart) + ignored
    table = fit(honest_leads, {"cheat": cheat_leads}, bounds, SCALE)
    assert table.edges == (-36_000, -9_000, -4_000, -1_000, 1_000, 4_000, 9_000, 36_000)
    expected = (0.0, lose[2], lose[1], lose[0], 0.0, win[0], win[1], win[2], 0.0)
    assert table.ratios["cheat"] == pytest.approx(expected, rel=0.01)


def told(losses: Sequence[tuple[int, int]], apart: Sequence[int]) -> list[int]:
    """Leads of which just so many of so many are lost at each distance."""
    found = zip(losses, apart, strict=True)
    return [at for (lost, count), far in found for at in [-far] * lost + [far] * (count - lost)]


WIDE = (600, 3_000, 12_000, 40_000, 200_000)
X = [math.log(math.sqrt(a * b) / 6_000) for a, b in pairwise(WIDE)]
FEW: dict[str, Sequence[tuple[int, int]]] = {
    "some": ((3, 10), (1, 10), (0, 5), (1, 8)),
    "next to nothing": ((1, 2), (0, 1), (0, 0), (0, 0)),
    "nothing": ((0, 0), (0, 0), (0, 0), (0, 0)),
    "one, far off": ((0, 1), (0, 0), (0, 0), (1, 4)),
    "many": ((900, 3_000), (150, 3_000), (4, 3_000), (1, 3_000)),
}


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def through(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """The three numbers of the parabola through three points, by divided differences."""
    first, second = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = (second - first) / (x[2] - x[0])
    slope = first - bend * (x[0] + x[1])
    return y[0] - slope * x[0] - bend * x[0] ** 2, slope, bend


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_curve_isTheLikeliestOne_underAWidePrior_inScalars(
    losses: Sequence[tuple[int, int]],
) -> None:
    """Its three numbers are off the prior's by what the tokens say over the prior's strength."""
    shares = curve(losses, WIDE).tolist()
    assert max(shares) < 0.5
    start, slope, bend = through(X, list(map(logit, shares[:3])))
    assert logit(shares[3]) == pytest.approx(start + slope * X[3] + bend * X[3] ** 2)
    more = [lost - count * share for (lost, count), share in zip(losses, shares, strict=True)]
    say = [math.fsum(a * x**power for a, x in zip(more, X, strict=True)) for power in range(3)]
    assert 0.01 * (start + 2.5) == pytest.approx(say[0], abs=1e-6)
    assert 0.5 * (slope + 2.2) == pytest.approx(say[1], abs=1e-6)
    assert 1.0 * (bend + 0.5) == pytest.approx(say[2], abs=1e-6)


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_curve_isRaised_byStandardErrorsOfItsLine_inScalars(
    losses: Sequence[tuple[int, int]],
) -> None:
    plain = curve(losses, WIDE).tolist()
    weights = [count * p * (1 - p) for (_, count), p in zip(losses, plain, strict=True)]
    a, b, c, e, f = (
        math.fsum(weight * x**power for weight, x in zip(weights, X, strict=True))
        for power in range(5)
    )
    a, d, f = a + 0.01, c + 0.5, f + 1.0  # the matrix [a b c; b d e; c e f], to be inverted
    whole = a * (d * f - e * e) - b * (b * f - c * e) + c * (b * e - c * d)
    raised = curve(losses, WIDE, raised=0.25).tolist()
    for share, higher, x in zip(plain, raised, X, strict=True):
        square = (d * f - e * e) + 2 * x * (c * e - b * f) + 2 * x**2 * (b * e - c * d)
        square += x**2 * (a * f - c * c) + 2 * x**3 * (b * c - a * e) + x**4 * (a * d - b * b)
        expected = 1 / (1 + math.exp(-logit(share) - 0.25 * math.sqrt(square / whole)))
        assert higher == pytest.approx(min(0.5, expected), rel=1e-6)


@pytest.mark.parametrize("losses", FEW.values(), ids=FEW)
def test_a_table_countsEachLead_andComparesTheCheatsCurve_withTheHonestOneRaised(
    losses: Sequence[tuple[int, int]],
) -> None:
    quiet, ignored = [(1, 40), (0, 30), (0, 20), (0, 20)], [3, -3, 10**8, -(10**8)]
    base = curve(quiet, WIDE, raised=2.0)
    shares = np.maximum(base, 0.9 * curve(losses, WIDE) + 0.1 * base)
    lose, won = np.log(shares / base).tolist(), np.log((1 - shares) / (1 - base)).tolist()
    honest, cheat = ignored + told(quiet, WIDE[1:]), ignored + told(losses, WIDE[1:])
    table = fit(honest, {"cheat": cheat}, WIDE, SCALE)
    assert table.ratios["cheat"] == pytest.approx((0.0, *lose[::-1], 0.0, *won, 0.0), abs=1e-9)
    assert table.roughness == SCALE


@pytest.mark.parametrize("bounds", [(1, 3, 10), (1_000_000, 3_000_000, 10_000_000)], ids=str)
@pytest.mark.parametrize("lost", [0, 1, 1_000])
def test_a_curve_throughTiesFarFromTheTypical_doesNotWanderOff(
    lost: int, bounds: tuple[int, ...]
) -> None:
    """The prior has nearly none of them lost: a whole first step is too far by ten thousands."""
    share = lost / 5_000
    assert curve([(lost, 5_000)] * 2, bounds) == pytest.approx([share, share], abs=0.0002)


BOUNDS = (2_400, 3_600, 5_400, 7_800, 12_000, 18_000, 27_000, 42_000)


def ties(random: np.random.Generator, count: int, scale: float) -> list[int]:
    """Leads whose losses follow a logistic curve in the logarithm of the distance."""
    apart = random.uniform(1.0, 180_000.0, count)
    lost = random.random(count) < 1 / (1 + (apart / (scale * 3_600)) ** 2.5)
    found: list[int] = np.where(lost, -apart, apart).astype(int).tolist()
    return found


def test_fitted_onFewTokens_honestWorkersStayQuiet_andCheatsDoNot() -> None:
    """What a fit gets wrong is paid by the raise; a fit that is not raised reaches odds of 1e3.

    A curve of three numbers is given a thousand tokens for each.
    """
    random = np.random.default_rng(11)
    highest, ends = 0.0, []
    for _ in range(12):
        table = fit(ties(random, 3_000, 1.0), {"cheat": ties(random, 3_000, 2.0)}, BOUNDS, SCALE)
        suspicion = Suspicion()
        for _ in range(400):
            suspicion = suspicion.after(ties(random, 64, 1.0), table)
            highest = max(highest, suspicion.value)
        ends.append(_first_alarm([ties(random, 64, 2.0) for _ in range(150)], table))
    assert highest < 3
    assert sorted(ends)[6] * 64 < 3_000


NEAR = (2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 18_000, 25_000, 40_000)
SMOOTH, ROUGH = 10_000, 15_000
"""Two kinds of honest work, by how far their states are from the verifiers', ppm."""
RANGE = Scale(12_000, ROUGH)
Told = tuple[list[int], list[int]]
"""A job's leads, ppm of a logit, and the squares of its states."""


def rough_jobs(random: np.random.Generator, count: int, states: int, tokens: int) -> list[Told]:
    """Jobs whose states are so rough, and whose logits are off by four times the tokens' own."""
    found = []
    for _ in range(count):
        apart = random.uniform(0.0, 400_000.0, 64)
        lost = random.normal(0.0, 4.0 * tokens, 64) > apart
        leads: list[int] = np.where(lost, -apart, apart).astype(int).tolist()
        squares: list[int] = (states * random.uniform(0.8, 1.2, 64)).astype(int).tolist()
        found.append((leads, [each**2 for each in squares]))
    return found


def scaled(found: list[Told]) -> list[list[int]]:
    return [list(RANGE.scaled(leads, squares)) for leads, squares in found]


def unscaled(found: list[Told]) -> list[list[int]]:
    """As if every job were typically rough."""
    return [list(RANGE.scaled(leads, ())) for leads, _ in found]


def table_of(honest: list[list[int]], cheat: list[list[int]]) -> Table:
    return fit([*chain(*honest)], {"cheat": [*chain(*cheat)]}, NEAR, RANGE)


def highest_of(found: list[list[int]], table: Table) -> float:
    suspicion, highest = Suspicion(), 0.0
    for job in found:
        suspicion = suspicion.after(job, table)
        highest = max(highest, suspicion.value)
    return highest


def test_power_a_rougherHonestWorker_isQuietByLeadsInItsRoughness_andAlarmsWithoutIt() -> None:
    random = np.random.default_rng(21)
    smooth, rough = (rough_jobs(random, 1_000, kind, kind) for kind in (SMOOTH, ROUGH))
    cheat = rough_jobs(random, 1_000, SMOOTH, 2 * SMOOTH)
    quiet, honest = (rough_jobs(random, 400, kind, kind) for kind in (ROUGH, SMOOTH))

    for fitted in (smooth, smooth + rough):
        told = table_of(scaled(fitted), scaled(cheat))
        assert highest_of(scaled(quiet), told) < 10
        assert highest_of(scaled(honest), told) < 10

    plain = table_of(unscaled(smooth), unscaled(cheat))
    assert highest_of(unscaled(quiet), plain) > ALARM
    assert highest_of(unscaled(honest), plain) < 10


def test_power_a_cheat_withNoisyTokensAndSmoothStates_alarmsSoon() -> None:
    random = np.random.default_rng(22)
    honest = [job for kind in (SMOOTH, ROUGH) for job in rough_jobs(random, 1_000, kind, kind)]
    cheat = rough_jobs(random, 1_000, SMOOTH, 2 * SMOOTH)
    told = table_of(scaled(honest), scaled(cheat))
    ends = [
        _first_alarm(scaled(rough_jobs(random, 100, SMOOTH, 2 * SMOOTH)), told) for _ in range(9)
    ]
    assert sorted(ends)[4] < 12


def test_no_leads_cannotBeFitted() -> None:
    with pytest.raises(MalformedError, match=r"^leads: none to fit$"):
        fit([1], {"cheat": []}, CLOSENESS, SCALE)
    with pytest.raises(MalformedError, match=r"^leads: none to fit$"):
        fit([], {"cheat": [1]}, CLOSENESS, SCALE)


EDGES_WRONG = "edges: not ascending, or no ratios for them"
RATIOS_WRONG = "ratios.a: not one finite ratio per bin"
ROUGHNESS = {"typical": 12_000, "most": 16_000}
WHOLE: dict[str, object] = {"edges": [0], "ratios": {"a": [1, 2]}, "roughness": ROUGHNESS}


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
        Table(tuple(edges), {name: tuple(each) for name, each in ratios.items()}, SCALE)
    assert str(caught.value) == told
    path = tmp_path / "table.json"
    document = {"edges": edges, "ratios": ratios, "roughness": ROUGHNESS}
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(MalformedError, match=re.escape(told)):
        load(path)


@pytest.mark.parametrize(
    "document",
    [
        *({key: WHOLE[key] for key in WHOLE if key != left} for left in WHOLE),
        WHOLE | {"roughness": {"typical": 12_000}},
        WHOLE | {"roughness": {"most": 16_000}},
        WHOLE | {"roughness": 12_000},
        [],
        3,
    ],
    ids=str,
)
def test_what_is_noTable_isRefused(document: object, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(MalformedError, match=r"table\.json: \w+Error"):
        load(path)


def test_a_table_thatWasWritten_isReadAgain(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    raw = {"edges": TABLE.edges, "ratios": TABLE.ratios, "roughness": ROUGHNESS}
    path.write_text(json.dumps(raw), "utf-8")
    assert load(path) == TABLE
    path.write_text(json.dumps(raw | {"weights": "ab" * 32}), "utf-8")
    assert load(path) == replace(TABLE, weights="ab" * 32)


@pytest.mark.parametrize(
    "roughness", [{"typical": 0, "most": 1}, {"typical": 2, "most": 1}], ids=str
)
def test_a_table_whoseRoughnessCannotBe_isRefused(
    roughness: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(WHOLE | {"roughness": roughness}), "utf-8")
    with pytest.raises(MalformedError, match="roughness: not ascending from above 0"):
        load(path)


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
