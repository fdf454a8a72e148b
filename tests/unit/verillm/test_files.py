"""Files are whole or as they were, and what cannot be written is said before the work is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verillm.errors import InputError
from verillm.files import make_room, write_atomically


def test_an_interrupted_write_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def crash(_source: object, _target: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_room_is_made_in_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    make_room(path)
    assert path.parent.is_dir() and not path.exists()


def test_where_no_file_can_be_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="cannot be written"):
            make_room(path)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(InputError, match="read-only"):
        make_room(tmp_path / "other")
