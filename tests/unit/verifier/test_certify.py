"""The certificate of honest work: it goes on where it stopped, counts each job once, and sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.verifier.lab import profile
from verillm.engine.tiny import write_folder
from verillm.schema import to_json
from verillm.types import Outcome
from verillm_verifier.certify import main
from verillm_verifier.lab import records
from verillm_verifier.lab.cases import Case
from verillm_verifier.lab.certificate import between, certificate, judge_all, upper
from verillm_verifier.lab.honest import CASTS, WORKERS, Runs, items_for, run
from verillm_verifier.lab.judged import OWN

NEW = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("certify") / "tiny")


@pytest.fixture(scope="module")
def runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(folder, profile(2), tmp_path_factory.mktemp("runs"), "tiny", NEW, 4)
    run(made, range(3), lambda: False, lambda _: None)
    return made


def test_units_takeTurns_soThatEverySetupMeetsEveryKindOfVerifier(runs: Runs) -> None:
    met = {
        (about.worker, about.checkers)
        for about in map(runs.about, range(len(WORKERS) * len(CASTS)))
    }
    assert len(met) == len(WORKERS) * len(CASTS)
    seeds = {item.seed for unit in range(6) for item in items_for(runs, unit).values()}
    assert len(seeds) == sum(len(items_for(runs, unit)) for unit in range(6))


def test_a_kept_job_isJudgedAsWithItsStates(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Case] = []
    monkeypatch.setattr(records, "write", lambda _path, _about, cases, _prompts: kept.extend(cases))
    run(replace(runs, work=tmp_path), [0], lambda: False, lambda _: None)
    jobs = [job for job in runs.kept() if job.about.unit == 0]
    assert len(jobs) == len(kept) == 4
    for job, case in zip(jobs, kept, strict=True):
        kinds = job.about.checkers
        assert job.leads == case.leads(kinds)
        for committee in ((kinds[0],) * 3, (kinds[0], kinds[1], kinds[1])):
            mine = job.verdict(OWN, committee, (1, 3, 8, 12))
            real = case.verdict(OWN, committee, (1, 3, 8, 12))
            assert (mine.outcome, mine.reason, mine.details.pairs) == (
                real.outcome,
                real.reason,
                real.details.pairs,
            )


def test_power_a_profile_thatIsTooTight_isSeenToRefuse(runs: Runs) -> None:
    fair = certificate(judge_all(runs.kept(), 8), NEW)
    assert fair["all"]["rejected"] == fair["all"]["undecided"] == 0
    tight = replace(runs.profile, mean_refund=1, over_refund=0)
    refused = judge_all((job.under(tight) for job in runs.kept()), 8)
    assert any(each.outcome is not Outcome.ACCEPT for each in refused)
    stated = certificate(refused, NEW)["all"]
    assert stated["boundNotAccepted"] > fair["all"]["boundNotAccepted"]
    assert fair["all"]["slashed"] == 0 < stated["rejected"]
    ruinous = replace(tight, mean_slash=1, over_slash=0)
    taken = certificate(judge_all((job.under(ruinous) for job in runs.kept()), 8), NEW)["all"]
    assert taken["slashed"] > 0 and taken["boundSlashed"] > fair["all"]["boundSlashed"]


def test_power_no_bound_rests_onOneLuckyDraw(runs: Runs) -> None:
    fair = judge_all(runs.kept(), 8)
    unlucky = [replace(fair[0], rejected=0.95, slashed=0.5, undecided=0.05), *fair[1:]]
    told, lucky = certificate(fair, NEW)["all"], certificate(unlucky, NEW)["all"]
    assert lucky["rejected"] == lucky["slashed"] == lucky["undecided"] == 0
    count = len(fair)
    assert told["boundRejected"] == told["boundSlashed"] == upper(0, count)
    assert lucky["boundRejected"] == upper(0.95, count) > upper(0, count)
    assert lucky["boundSlashed"] == upper(0.5, count)
    assert lucky["boundNotAccepted"] == upper(1.0, count)


def test_units_thatThresholdsHaveSeen_certifyNothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    record = {"tail": {"units": 1}}
    path.write_text(json.dumps({"profile": to_json(profile(2)), "calibration": record}))
    asked = ["--model", str(folder), "--profile", str(path), "--engine", "tiny", "--prompts", "2",
             "--new-tokens", "6", "--work", str(tmp_path / "work"), "--positions", "6"]  # fmt: skip
    assert main([*asked, "--jobs", "1", "--tail", "0"]) == 0
    kept = Runs(folder, profile(2), tmp_path / "work", "tiny", 6, 2)
    seen = next(iter(kept.kept())).about
    assert seen.unit == 0
    assert main([*asked, "--jobs", "2"]) == 0
    stated = json.loads(path.read_text("utf-8"))["calibration"]["certificate"]
    assert stated["all"]["jobs"] == sum(each.about.unit > 0 for each in kept.kept())
    assert seen.worker not in stated["byWorker"]
    capsys.readouterr()
    for unit in range(2):
        kept.path(unit).unlink()
    assert main([*asked, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "unit 1:" in said and "unit 0:" not in said


def test_the_bound_isClopperAndPearsons() -> None:
    assert upper(0, 2995) == pytest.approx(1 - 0.05 ** (1 / 2995))
    assert upper(0, 2995) < 1e-3 < upper(0, 2990)
    assert upper(1, 100) > upper(0, 100)
    assert upper(5, 5) == upper(0, 0) == 1.0


def test_the_spread_betweenPrompts_isAllOrNothing() -> None:
    assert between([(0, 1.0), (0, 1.0), (1, 2.0), (1, 2.0)]) == 1.0
    assert between([(0, 1.0), (0, 2.0), (1, 1.0), (1, 2.0)]) == 0.0
    assert between([(0, 1.0), (1, 1.0)]) == 0.0


def test_the_command_goesOnWhereItStopped_andWritesTheBoundIntoTheProfile(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"profile": to_json(profile(2)), "calibration": {"date": "x"}}))
    asked = ["--model", str(folder), "--profile", str(path), "--engine", "tiny", "--prompts", "2",
             "--new-tokens", "6", "--work", str(tmp_path / "work"), "--positions", "6"]  # fmt: skip
    assert main([*asked, "--jobs", "1", "--minutes", "0"]) == 1
    assert "no honest jobs" in capsys.readouterr().out
    assert main([*asked, "--jobs", "2"]) == 0
    first = capsys.readouterr().out
    assert main([*asked, "--jobs", "2", "--part", "1/1"]) == 0
    assert "unit 0" in first and "unit" not in capsys.readouterr().out
    document = json.loads(path.read_text("utf-8"))["calibration"]
    assert document["date"] == "x"
    stated = document["certificate"]
    assert stated["all"]["jobs"] >= 2 and 0 < stated["all"]["boundRejected"] < 1
    assert sum(each["jobs"] for each in stated["byWorker"].values()) == stated["all"]["jobs"]


def test_a_profile_withoutARecord_getsOne(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"profile": to_json(profile(2))}))
    asked = ["--model", str(folder), "--profile", str(path), "--engine", "tiny", "--prompts", "1",
             "--new-tokens", "6", "--work", str(tmp_path / "work"), "--positions", "6"]  # fmt: skip
    assert main([*asked, "--jobs", "1"]) == 0
    assert json.loads(path.read_text("utf-8"))["calibration"]["certificate"]["all"]["jobs"] >= 1


@pytest.mark.parametrize("part", ["0/2", "3/2", "one", "1/2/3"])
def test_a_part_thatIsNone_isRefused(folder: Path, tmp_path: Path, part: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"profile": to_json(profile(2))}))
    assert main(["--model", str(folder), "--profile", str(path), "--part", part]) == 1
