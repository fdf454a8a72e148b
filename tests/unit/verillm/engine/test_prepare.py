"""The default model's folder: there and intact, or made anew; never half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verillm.engine import cache_home, load_transform, open_engine, prepare as module
from verillm.engine.prepare import MANIFEST, default_folder, is_prepared, main, prepare
from verillm.engine.tiny import TinyEngine
from verillm.errors import ConfigError, EngineUnavailable


def convert(source: Path, folder: Path, report: module.Report) -> None:
    (folder / "config.json").write_text("{}")
    report(source.name)


@pytest.fixture
def _converter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_convert", convert)
    monkeypatch.setattr(module, "_gguf_file", lambda: Path("model.gguf"))


@pytest.mark.usefixtures("_converter")
def test_a_second_run_finds_the_first_one_s_folder(tmp_path: Path) -> None:
    lines: list[str] = []
    target = prepare(tmp_path / "model", report=lines.append)
    assert json.loads((target / MANIFEST).read_text())["files"].keys() == {"config.json"}
    assert prepare(target, report=lines.append) == target
    assert lines.count("model.gguf") == 1


@pytest.mark.usefixtures("_converter")
def test_a_damaged_folder_is_made_anew(tmp_path: Path) -> None:
    target = prepare(tmp_path / "model")
    (target / "config.json").write_text("[]")
    assert is_prepared(target, full=False)
    assert not is_prepared(target)
    assert (prepare(target) / "config.json").read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineUnavailable("no"), OSError("full")])
def test_a_run_that_breaks_off_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def break_off(_source: Path, folder: Path, _report: module.Report) -> None:
        (folder / "model.safetensors").write_text("half")
        raise error

    monkeypatch.setattr(module, "_convert", break_off)
    monkeypatch.setattr(module, "_gguf_file", lambda: Path("model.gguf"))
    with pytest.raises(type(error)):
        prepare(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_converter")
def test_what_a_killed_run_left_is_removed_but_not_a_living_one_s(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    dead = int(child.stdout)
    (tmp_path / f".model.{dead}-abc").mkdir()
    (tmp_path / f".model.{os.getppid()}-abc").mkdir()
    prepare(tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model", f".model.{os.getppid()}-abc"}


def test_a_missing_package_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package")
    assert main(["--folder", str(tmp_path / "model")]) == 1
    assert "pip install" in capsys.readouterr().out


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILLM_HOME", str(tmp_path))
    assert cache_home() == tmp_path
    assert default_folder().parent.parent == tmp_path


def test_engines_are_opened_by_kind_and_through_a_transform(folder: Path) -> None:
    assert isinstance(open_engine(folder, kind="tiny"), TinyEngine)
    assert callable(load_transform("verillm_verifier.attacks:int4"))
    for reference in ("verillm_verifier.attacks:nothing", "no.such.module:int4", "", ":"):
        with pytest.raises(ConfigError):
            load_transform(reference)


def test_importing_the_seam_imports_no_torch() -> None:
    script = "import sys, verillm.engine, verillm.engine.tiny; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
