"""The lab's fast verdicts against the real ones, and its counts against arithmetic."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.verifier.lab import profile, spec_of
from verillm.engine.tiny import write_folder
from verillm.errors import InputError
from verillm.evidence import CheckedRequest, Evidence, PartyStates
from verillm.head import HeadRows
from verillm.statistics import States
from verillm.types import Hash32, JobId, Outcome, Reason
from verillm.verdict import judge
from verillm_verifier import runs
from verillm_verifier.attacks import states
from verillm_verifier.lab import experiment, pooled, reach
from verillm_verifier.lab.cases import Case, View
from verillm_verifier.lab.experiment import Lab, judge_trial, sequential
from verillm_verifier.lab.figures import Share, interval
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import HONEST
from verillm_verifier.lab.study import DECODERS, LENGTHS, Group, Study, calibrated, collect
from verillm_verifier.lab.trials import Role, Trial, tokens_needed
from verillm_verifier.lab.views import nudged

POSITIONS = (1, 3, 5, 9, 12, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("lab") / "tiny")


@pytest.fixture(scope="module")
def lab(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    study = Study(
        folder,
        "tiny",
        prompts=2,
        cheat_jobs=2,
        subtle_jobs=2,
        new_tokens=12,
        cheats=("int4", "int8_row", "lukewarm", "temperature"),
        decoders=(DECODERS[0], DECODERS[-1]),
    )
    groups = collect(study, tmp_path_factory.mktemp("runs"), lambda _: None)
    return Lab(folder, profile(2), groups)


@pytest.fixture(scope="module")
def cases(lab: Lab) -> Iterator[list[Case]]:
    yield [*lab.cases(HONEST), *lab.cases("int4"), *lab.cases("temperature")]


def party(case: Case, name: str) -> PartyStates:
    """A view as the evidence module would have read it."""
    view = case.views[name]
    rows = list(POSITIONS)
    shown = States(POSITIONS, view.slices[rows], view.finals[rows])
    return PartyStates((shown,), (view.finals[case.prompt_tokens - 1 :],))


@pytest.mark.parametrize("shown", [OWN, "bf16"])
@pytest.mark.parametrize(
    "committee", [("bf16",) * 3, ("bf16", "fp32", "fp32"), ("fp32", OWN, "bf16")]
)
def test_the_fast_verdict_isTheRealOne(
    cases: list[Case], folder: Path, shown: str, committee: tuple[str, ...]
) -> None:
    spec = replace(spec_of(folder), profile=cases[0].profile)
    for case in cases:
        item = case.item
        request = CheckedRequest(0, item.request, case.output, item.seed, POSITIONS)
        parties = tuple(party(case, name) for name in (shown, *committee))
        real = judge(
            Evidence(JobId(Hash32(bytes(32))), spec, (request,), parties), HeadRows(folder)
        )
        fast = case.verdict(shown, committee, POSITIONS)
        assert (fast.outcome, fast.reason) == (real.outcome, real.reason)
        assert fast.suspects == real.suspects
        assert fast.details.pairs == real.details.pairs


def test_power_the_lab_seesInt4ByItsStates_andColdSamplingByItsTokens(lab: Lab) -> None:
    int4 = judge_trial(lab, Trial("int4", "", Role.INFERENCER, "int4"), 5)
    assert int4.results[0].caught.value == 1.0
    assert set(int4.results[0].verdicts) == {(Outcome.SLASH, Reason.STATES_DIFFER)}
    cold = judge_trial(lab, Trial("temperature", "", Role.INFERENCER, "temperature"), 5)
    assert {reason for _, reason in cold.results[0].verdicts} & {
        Reason.MARGIN_MAX,
        Reason.MARGIN_MEAN,
    }


def test_a_lying_verifier_isNamed_andTheJobAccepted(lab: Lab) -> None:
    trial = Trial("garbage", "", Role.VERIFIER, HONEST, fixed=("garbage",))
    row = judge_trial(lab, trial, 5)
    assert row.results[0].caught.value == 1.0
    honest = Trial("honest", "", Role.VERIFIER, HONEST, fixed=("bf16",))
    assert judge_trial(lab, honest, 5).results[0].caught.value == 0.0


def test_another_seed_isCaughtByItsTokens(lab: Lab) -> None:
    trial = Trial("other seed", "", Role.INFERENCER, HONEST, seed=True)
    row = judge_trial(lab, trial, 2)
    assert row.results[0].caught.value == 1.0 and row.positions is None
    assert tokens_needed(lab.cases(HONEST, True), ("bf16",), 1) in (1, 2, 4, 8)


def test_nudged_states_winEveryToken_andLookHonest(lab: Lab) -> None:
    for case in lab.cases("int4"):
        assert max(case.margins(("nudged",)).margins) <= 1_000
        assert max(case.margins(("bf16",)).margins) > 100_000


def test_a_view_thatIsNotFinite_isJudgedAsSuch(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    broken = case.views[OWN].finals.copy()
    broken[3, 0] = 0x7FC0
    views = {**case.views, "broken": View(case.views[OWN].slices, broken)}
    bad = Case(case.item, case.output, views, case.profile, lab.head)
    verdict = bad.verdict("broken", ("bf16",) * 3, POSITIONS)
    assert (verdict.outcome, verdict.reason) == (Outcome.SLASH, Reason.NON_FINITE)


def test_the_sequentialTest_isFittedOnOtherJobsThanItJudges(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled, "RUNS", 10)
    monkeypatch.setattr(pooled, "MOST_TOKENS", 2_000)
    monkeypatch.setattr(pooled, "QUIET_TOKENS", 24)
    monkeypatch.setattr(experiment, "LEAST_QUIET", 2)
    table, alarms, quiet = sequential(lab)
    assert table is not None and set(table.ratios) == {"int8_row", "lukewarm"}
    judged = sum(case.new_tokens for case in lab.cases("int8_row")[1::2])
    assert {each.tokens for each in alarms if each.cheat == "int8_row"} == {judged}
    assert {each.setup for each in quiet} == set(lab.honest)
    assert all(each.highest < 1e5 for each in quiet)
    assert {each.jobs for each in quiet} == {2}
    held_out = sequential(lab, calibrated=[lab.groups[HONEST]])[2]
    assert {each.jobs for each in held_out} == {4}


def test_a_calibrationsJobs_areFittedOn_butForFp32Workers(folder: Path, tmp_path: Path) -> None:
    plan = runs.Plan(folder, "tiny", prompts=1, new_tokens=3)
    assert calibrated(plan, tmp_path) == []
    made = {each.name: each for each in runs.collect(plan, tmp_path, lambda _: None)}
    found = {group.name: group for group in calibrated(plan, tmp_path)}
    assert set(found) == {f"calibration's {name}" for name in made if name.startswith("bf16")}
    for name, group in found.items():
        decode = made[name.removeprefix("calibration's ")]
        assert [job.tokens for job in group.jobs] == [job.tokens for job in decode.jobs]
        assert set(group.checks) == {"bf16", "chunked", "eager", "fp32"}
        assert [item.tokens for item in group.items] == [
            job.tokens[: job.prompt_tokens] for job in group.jobs
        ]


def test_a_cheat_withoutAPromptOfItsLength_isNotRun(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LENGTHS, "int4", range(1 << 20, 1 << 21))
    study = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=("int4",), decoders=DECODERS[:1])
    assert all(group.is_honest for group in collect(study, tmp_path, lambda _: None))


def test_a_group_withoutRuns_isRunOnceOnly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=(), decoders=DECODERS[:1])
    first = list(collect(study, tmp_path, lambda _: None))

    _forbid_runs(monkeypatch)
    second = list(collect(study, tmp_path, lambda _: None))
    assert [_digest(group) for group in first] == [_digest(group) for group in second]


def test_a_lab_ofWhatIsKept_runsNothing_andTakesWholePartsOnly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=("int4",), decoders=DECODERS[:2])
    with pytest.raises(InputError, match="no honest work is kept"):
        list(collect(replace(asked, only_kept=True), tmp_path, lambda _: None))
    run = list(collect(replace(asked, cheat_jobs=2), tmp_path, lambda _: None))
    for name in ("bf16 rows 1, mixed, checked by fp32", f"{HONEST}, checked by int4"):
        next(tmp_path.glob(f"*/{name}.npz")).unlink()
    _forbid_runs(monkeypatch)
    told: list[str] = []
    kept = list(collect(replace(asked, only_kept=True), tmp_path, told.append))
    assert [group.name for group in kept] == [
        group.name for group in run if group.name != "bf16 rows 1, mixed"
    ]
    assert "quantised int4" in run[0].checks and "quantised int4" not in kept[0].checks
    assert [_digest(group) for group in kept if group.name == "int4"] == [
        _digest(group) for group in run if group.name == "int4"
    ]
    assert told[-1].startswith(f"[{len(told)}/{len(told)}]")
    next(tmp_path.glob("*/int4 from 0 of 2, checked by fp32.npz")).unlink()
    left = collect(replace(asked, only_kept=True), tmp_path, lambda _: None)
    assert all(group.is_honest for group in left)


def test_power_a_cheat_isBeyondTheNoisiestHonestDraw_andHonestWorkIsNot(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "LONG", 12)
    honest, cheats = lab.cases(HONEST), {"cheat": lab.cases("int4"), "honest": lab.cases(HONEST)}
    found = {(each.cheat, each.kind): each for each in reach.reaches(honest, cheats, 1)}
    assert found["cheat", "bf16"].beyond == 1.0 and found["cheat", "fp32"].beyond == 1.0
    assert found["honest", "bf16"].beyond == found["honest", "fp32"].beyond == 0.0
    monkeypatch.setattr(reach, "LONG", 13)
    assert reach.reaches(honest, cheats, 1) == ()


def test_forged_states_differFromTheirModel(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    for name in ("copied", "perturbed", "shuffled", "garbage", "replayed"):
        assert case.views[name].finals.shape == case.views[OWN].finals.shape
        assert not np.array_equal(case.views[name].finals, case.views[OWN].finals)
    assert states.perturb_states(case.views[OWN].finals).dtype == np.uint16


def test_nudging_aTokenThatWinsAlready_changesNothing(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    same = nudged(case.views[OWN], case.item, case.output, lab.head, lab.rows)
    assert np.array_equal(same.finals, case.views[OWN].finals)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(10, 10, 0.6915, 1.0), (0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129)],
)
def test_intervals_areClopperAndPearsons(hits: int, count: int, low: float, high: float) -> None:
    assert interval(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_a_share_countsJobs_notDraws() -> None:
    share = Share.of([1.0, 1.0, 0.5, 0.5], 100)
    assert (share.value, share.draws, share.jobs) == (0.75, 400, 4)
    assert share.low == pytest.approx(interval(3, 4)[0])


def _digest(group: Group) -> tuple[object, ...]:
    return group.name, [job.tokens for job in group.jobs], sorted(group.checks)


def _forbid_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("verillm_verifier.lab.study.decode", forbidden)
    monkeypatch.setattr("verillm_verifier.lab.study.prefill", forbidden)
