"""Long work begins only where its result can be written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.verifier.lab import profile
from verillm.engine.tiny import write_folder
from verillm.schema import to_json
from verillm_node.cli import main as node
from verillm_verifier.cli import main as audit

Command = tuple[Callable[[Sequence[str]], int], tuple[str, ...], str]
COMMANDS: tuple[Command, ...] = (
    (audit, ("calibrate", "--model", "MODEL"), "--out"),
    (audit, ("calibrate", "--model", "MODEL", "--out", "FREE"), "--picture"),
    (audit, ("certify", "--model", "MODEL", "--profile", "PROFILE"), "--out"),
    (audit, ("lab", "--model", "MODEL", "--profile", "PROFILE"), "--out"),
    (audit, ("lab", "--model", "MODEL", "--profile", "PROFILE"), "--figures"),
    (audit, ("lab", "--model", "MODEL", "--profile", "PROFILE"), "--fixtures"),
    (audit, ("lab", "--model", "MODEL", "--profile", "PROFILE"), "--table"),
    (audit, ("lab", "--game"), "--out"),
    (node, ("devnet", "--lab"), "--lab-out"),
    (node, ("traffic",), "--out"),
    (node, ("traffic", "--paper"), "--out"),
)


@pytest.mark.parametrize(("main", "words", "option"), COMMANDS)
def test_what_cannot_be_written_is_said_before_any_work(
    main: Callable[[Sequence[str]], int],
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("VERILLM_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    written = tmp_path / "profile.json"
    written.write_text(json.dumps({"profile": to_json(profile(2))}))
    named = {
        "MODEL": str(write_folder(tmp_path / "tiny")),
        "PROFILE": str(written),
        "FREE": str(tmp_path / "free.json"),
    }
    blocked = tmp_path / "a file"
    blocked.write_text("x")
    asked = [named.get(word, word) for word in words]
    assert main([*asked, option, str(blocked / "result")]) != 0
    said = capsys.readouterr()
    assert f"{blocked / 'result'} cannot be written" in said.out + said.err
    assert not home.exists()
