"""The tail of honest work: what takes a stake lies above all of it, what refunds above most."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verillm
from tests.unit.verillm import builders
from verillm.model import CheckProfile, LayerProfile
from verillm.types import PPM, Outcome, Reason
from verillm_verifier.calibrate_tail import UNITS, raised
from verillm_verifier.lab.command import read_profile
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import About, Record
from verillm_verifier.lab.trials import MANY, challenged

LAYER = LayerProfile(-8, (1_000,) * 3, (4_000,) * 3)
PROFILE = replace(
    builders.PROFILE,
    mean_slash=2_000_000,
    over_refund=3,
    over_slash=8,
    margin_mean=12_000,
    many_positions=MANY,
    mean_refund_many=1_500_000,
    mean_slash_many=1_900_000,
    layers=(LAYER, LAYER),
)
PROMPT, NEW = 40, 64
FIXTURES = Path(__file__).parents[2] / "fixtures" / "lab"
PROFILES = Path(verillm.__file__).parent / "data" / "profiles"
SHIPPED = PROFILES / "smollm2-135m-instruct.json"
MIXED = PROFILES / "smollm2-135m-instruct-mixed.json"


def record(ratio: float, over: int = 0, above: int = 0, unit: int = 0) -> Record:
    """A job whose cells are all so many medians, but for positions beyond a cap."""
    count = PROMPT + NEW - 1
    apart = np.full((count, 2), int(ratio * 1_000))
    apart[count - over :] = 4_001
    votes = [(above, above, False), *[(0, 0, False)] * (NEW - 1)]
    about = About(unit, "worker", ("bf16",), 1)
    pairs = {("bf16", OWN): apart}
    return Record(about, 0, (PROMPT, NEW), pairs, {"bf16": tuple(votes)}, (), PROFILE)


def test_without_jobs_nothingIsRaised() -> None:
    assert raised(PROFILE, [], 1) == (PROFILE, None)
    assert raised(PROFILE, [record(3.0, unit=UNITS)], 1) == (PROFILE, None)


def test_quiet_jobs_raiseNothing() -> None:
    same, seen = raised(PROFILE, [record(1.0)] * 30, 1)
    assert same == PROFILE
    assert seen is not None and (seen["jobs"], seen["units"]) == (30, UNITS)


def test_what_takesAStake_liesAboveEveryJob_andWhatRefundsDoesNot() -> None:
    higher, seen = raised(PROFILE, [record(1.8, above=800_000)], 1)
    assert (higher.mean_slash, higher.mean_slash_many) == (2_250_000, 2_250_000)
    assert higher.margin_max_slash == 1_000_000
    assert (higher.mean_refund, higher.mean_refund_many) == (1_600_000, 1_500_000)
    assert higher.margin_max_refund == PROFILE.margin_max_refund
    assert seen is not None
    assert (seen["meanMax"], seen["meanOfManyMax"], seen["marginAboveMax"]) == (
        1_800_000,
        1_800_000,
        800_000,
    )


def test_positions_beyondACap_refundOneJobInAThousand_andTakeNoStake() -> None:
    rare = [record(1.0)] * 1_500 + [record(1.0, over=30)]
    higher, seen = raised(PROFILE, rare, 1)
    assert higher.over_refund == PROFILE.over_refund
    assert seen is not None and seen["over"]["q999"] == 0
    most = seen["over"]["max"]
    assert 14 <= most <= 26
    assert higher.over_slash == -int(-most * 1.25 // 1)
    common, _ = raised(PROFILE, [record(1.0)] * 100 + [record(1.0, over=30)], 1)
    assert common.over_refund > 14


def test_one_loss_inAShortAnswer_isNoMeanThatRefunds() -> None:
    """640 000 over 64 tokens; its one job is all that there is."""
    higher, seen = raised(PROFILE, [record(1.0, above=640_000)], 1)
    assert seen is not None and seen["marginMeanQ999"] == 10_000
    assert higher.margin_mean == 13_000
    rare, _ = raised(PROFILE, [record(1.0)] * 1_500 + [record(1.0, above=3_200_000)], 1)
    assert rare.margin_mean == PROFILE.margin_mean


def test_the_count_neverTakesAStake_withinHalfOfThePositions() -> None:
    higher, _ = raised(PROFILE, [record(1.0, over=60)], 1)
    assert higher.over_slash == max(MANY // 2, higher.over_refund)


def rare_job(profile: CheckProfile) -> Record:
    """An honest float32 worker's job of made-up words, as verifiers in bfloat16 and float32 saw."""
    found: dict[str, Any] = json.loads((FIXTURES / "tail.json").read_text("utf-8"))
    kinds = ("bf16", "fp32")
    apart = {(kind, OWN): np.array(found["apart"][kind]) for kind in kinds}
    apart["bf16", "fp32"] = np.array(found["between"])
    votes = {
        kind: tuple((margin, above, outside) for margin, above, outside in found["votes"][kind])
        for kind in kinds
    }
    about, sizes = About(0, found["worker"], kinds, 1), (found["promptTokens"], found["newTokens"])
    return Record(about, 0, sizes, apart, votes, (), profile)


@pytest.mark.parametrize("shipped", [SHIPPED, MIXED], ids=["alone", "mixed"])
@pytest.mark.parametrize("positions", [16, 32, MANY])
def test_the_rarest_honest_job_thatWasSeen_losesNoStake_whoeverJudgesIt(
    positions: int, shipped: Path
) -> None:
    job, random = rare_job(read_profile(shipped)), np.random.default_rng(1)
    for _ in range(200):
        committee = random.choice(["bf16", "fp32"], 3).tolist()
        verdict = job.verdict(OWN, committee, challenged(job, positions, random))
        assert verdict.outcome is not Outcome.SLASH


def test_power_a_calibration_withoutItsTail_wouldHaveTakenThatStake() -> None:
    shipped = read_profile(SHIPPED)
    tight = replace(shipped, over_slash=8, margin_max_slash=689_000)
    job, random = rare_job(tight), np.random.default_rng(1)
    verdict = job.verdict(OWN, ("bf16",) * 3, challenged(job, MANY, random))
    assert (verdict.outcome, verdict.reason) == (Outcome.SLASH, Reason.STATES_DIFFER)
    assert max(job.margins(("bf16",)).margins_above) > 0.689 * PPM
