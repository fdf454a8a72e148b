"""Calibration: honest runs pass under their own profile, and a second run repeats nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import verillm
from verillm.engine.describe import read_profile
from verillm.engine.tiny import write_folder
from verillm.errors import InputError
from verillm.model import LayerProfile, check_profile
from verillm.statistics import MOST_RATIO
from verillm_verifier import runs
from verillm_verifier.calibrate import main
from verillm_verifier.calibrate_picture import main as redraw
from verillm_verifier.calibrate_states import FEW_POSITIONS, MAX_MEAN, Drawn, thresholds

ROOT = Path(__file__).parents[3]
ARGUMENTS = ("--engine", "tiny", "--prompts", "4", "--new-tokens", "40")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("calibrate") / "tiny")


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VERILLM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(runs, "DECODERS", (runs.DECODERS[0], runs.DECODERS[3]))


def calibrate(folder: Path, out: Path) -> int:
    return main(["--model", str(folder), "--out", str(out), *ARGUMENTS])


def test_honest_runs_pass_and_cheats_do_not(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile.json"
    assert calibrate(folder, out) == 0
    calibrated = read_profile(out)
    check_profile(calibrated.profile, 2)
    document = json.loads(out.read_text())["calibration"]
    for line in document["states"]:
        assert line["honest"] is (line["refund"] == 0.0) or not line["group"].startswith("int")
    assert all(line["rejected"] == 0.0 for line in document["tokens"] if line["honest"])
    rejected = {line["run"]: line["rejected"] for line in document["tokens"]}
    assert rejected["prefilled"] == rejected["int4"] == 1.0
    first = capsys.readouterr().out
    assert "kept from before" not in first

    again = tmp_path / "new folder" / "again.json"
    assert calibrate(folder, again) == 0
    assert capsys.readouterr().out.count("kept from before") == first.count("] ")
    assert again.read_text() == out.read_text()


def test_what_wasSeen_isDrawnBesideTheProfile_andAgainFromItsRecord(
    folder: Path, tmp_path: Path
) -> None:
    out, again = tmp_path / "profile.json", tmp_path / "again.svg"
    assert calibrate(folder, out) == 0
    picture = out.with_suffix(".svg").read_text()
    for label in ("honest", "int4", "prefilled", "refund", "slash"):
        assert f">{label}</text>" in picture
    assert redraw([str(out), str(again)]) == 0
    assert again.read_text() == picture
    document = json.loads(out.read_text())
    seen = document["calibration"]["histograms"]["means"]
    refund = document["profile"]["meanRefundMany"] or document["profile"]["meanRefund"]
    beyond = [low >= refund for low in seen["borders"][:-1]]
    shares = {name: np.average(beyond, weights=of) for name, of in seen["counts"].items()}
    assert (shares["honest"], shares["prefilled"], shares["int4"]) == (0, 0, 1)
    margins = document["calibration"]["histograms"]["margins"]["counts"]
    tokens = {line["run"]: line["jobs"] for line in document["calibration"]["tokens"]}
    assert sum(margins["int4"]) == tokens["int4"]
    assert sum(map(sum, margins.values())) == sum(tokens.values())


def test_without_matplotlib_theProfileIsWritten_andThePictureIsLeftOut(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "profile.json"
    assert calibrate(folder, out) == 0
    assert out.is_file() and not out.with_suffix(".svg").exists()
    assert "not drawn: matplotlib" in capsys.readouterr().out
    assert redraw([str(out), str(tmp_path / "again.svg")]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"profile": 1}'])
def test_what_isNoProfile_isNotDrawn(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, picture = tmp_path / "profile.json", tmp_path / "picture.svg"
    path.write_text(text)
    assert redraw([str(path), str(picture)]) == 1
    assert "no profile in" in capsys.readouterr().err
    shipped_without = Path(verillm.__file__).parent / "data" / "profiles" / "tiny.json"
    assert redraw([str(shipped_without), str(picture)]) == 1
    assert "has no histograms" in capsys.readouterr().err
    assert not picture.exists()


def test_the_largest_thresholdOfAMean_isTheContracts() -> None:
    source = (ROOT / "contracts" / "src" / "libraries" / "SpecLib.sol").read_text()
    [stated] = re.findall(r"constant MAX_MEAN = ([\d_]+);", source)
    assert MAX_MEAN == int(stated) < MOST_RATIO


def test_thresholds_thatNoContractTakes_areNotWritten() -> None:
    def drawn(mean: int) -> Drawn:
        return Drawn(np.array([mean]), np.array([0]), np.array([FEW_POSITIONS]))

    layers = (LayerProfile(-8, (1_000,) * 3, (4_000,) * 3),) * 3
    far = drawn(2_000_000)
    profile = thresholds(far, far, far, layers)
    assert (profile.mean_refund, profile.mean_slash) == (2_100_000, MAX_MEAN)
    with pytest.raises(InputError, match=r"2\.30 of their median"):
        thresholds(drawn(2_300_000), far, far, layers)


def test_a_missing_model_is_refused_before_hours_of_work(tmp_path: Path) -> None:
    assert calibrate(tmp_path / "nowhere", tmp_path / "profile.json") == 1
