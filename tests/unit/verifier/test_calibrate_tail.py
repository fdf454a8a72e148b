"""The tail of honest work: what takes a stake lies above all of it, what refunds above most."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import verillm
from tests.unit.verifier.kept import rare_job
from tests.unit.verillm import builders
from verillm.model import LayerProfile
from verillm.tokens import judge_tokens
from verillm.types import PPM, Outcome, Reason
from verillm_verifier.calibrate_tail import RARE, UNITS, raised
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
PROFILES = Path(verillm.__file__).parent / "data" / "profiles"
SHIPPED = PROFILES / "smollm2-135m-instruct.json"
MIXED = PROFILES / "smollm2-135m-instruct-mixed.json"


def record(ratio: float, over: int = 0, above: int = 0, unit: int = 0, losing: int = 1) -> Record:
    """A job whose cells are all so many medians, but for positions beyond a cap, and of which so
    many tokens lose."""
    count = PROMPT + NEW - 1
    apart = np.full((count, 2), int(ratio * 1_000))
    apart[count - over :] = 4_001
    votes = [(above, above, False)] * losing + [(0, 0, False)] * (NEW - losing)
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


def test_what_takesAStake_liesAboveEveryJob_byAQuarter() -> None:
    higher, seen = raised(PROFILE, [record(1.8, above=800_000)], 1)
    assert (higher.mean_slash, higher.mean_slash_many) == (2_250_000, 2_250_000)
    assert higher.margin_max_slash == 1_000_000
    assert seen is not None
    assert (seen["meanMax"], seen["meanOfManyMax"], seen["marginAboveMax"]) == (
        1_800_000,
        1_800_000,
        800_000,
    )


def test_no_mean_isHeldToMore_thanAContractTakes() -> None:
    higher, _ = raised(PROFILE, [record(2.2)], 1)
    assert (higher.mean_slash, higher.mean_slash_many) == (2_400_000, 2_400_000)


def test_means_thatOneDrawInSoManyReaches_areNoReasonToRefund() -> None:
    common, seen = raised(PROFILE, [record(1.0)] * 100 + [record(1.7)], 1)
    assert (common.mean_refund, common.mean_refund_many) == (1_740_000, 1_740_000)
    assert seen is not None and seen["meanOfManyUsual"] == 1_700_000
    rare, seen = raised(PROFILE, [record(1.0)] * RARE + [record(1.7)], 1)
    assert (rare.mean_refund, rare.mean_refund_many) == (1_600_000, 1_500_000)
    assert seen is not None and seen["meanOfManyUsual"] == 1_000_000


def test_one_job_inSoMany_isRefunded_forItsPositionsAndItsMeanMargin_andNoStakeIsTaken() -> None:
    odd = record(1.0, over=30, above=100_000, losing=40)
    higher, seen = raised(PROFILE, [record(1.0)] * (RARE - 1) + [odd], 1)
    assert (higher.over_refund, higher.margin_mean) == (PROFILE.over_refund, PROFILE.margin_mean)
    assert seen is not None and seen["over"]["allButRare"] == 0
    most = seen["over"]["max"]
    assert 14 <= most <= 26
    assert higher.over_slash == -int(-most * 1.25 // 1)


@pytest.mark.parametrize("others", [[100, 0], [RARE - 1, 1]])
def test_what_moreJobsShow_isAboveTheRefundTier(others: list[int]) -> None:
    """One of a hundred, and a second one of three thousand."""
    quiet, again = others
    odd = record(1.0, over=30, above=100_000, losing=40)
    higher, _ = raised(PROFILE, [record(1.0)] * quiet + [odd] * (1 + again), 1)
    assert 14 <= higher.over_refund <= 26
    assert higher.margin_mean == 64_000


def test_what_oneToken_ofAnyHonestJob_lost_refundsNobody_norByTheMean() -> None:
    odd = record(1.0, above=2_000_000)
    higher, seen = raised(PROFILE, [record(1.0)] * (RARE - 1) + [odd], 1)
    assert (higher.margin_max_refund, higher.margin_max_slash) == (2_500_000, 2_500_000)
    assert higher.margin_mean == 40_000
    assert seen is not None and seen["marginMax"] == 2_000_000
    assert judge_tokens(odd.margins(("bf16",)), higher)[0] is Outcome.ACCEPT


def test_one_loss_inAShortAnswer_isNoMeanThatRefunds() -> None:
    """640 000 over 64 tokens; its one job is all that there is."""
    higher, seen = raised(PROFILE, [record(1.0, above=640_000)], 1)
    assert seen is not None and seen["marginMean"]["max"] == 10_000
    assert higher.margin_mean == 13_000


def test_the_count_neverTakesAStake_withinHalfOfThePositions() -> None:
    higher, _ = raised(PROFILE, [record(1.0, over=60)], 1)
    assert higher.over_slash == max(MANY // 2, higher.over_refund)


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
