"""The vector files are what the reference writes today, so that forge reads no stale truth."""

import json
from pathlib import Path

import pytest

from tools.make_vectors import FOLDER, main, vectors


def test_vector_files_are_not_stale(tmp_path: Path) -> None:
    main(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert {name for name in written if written[name] != committed.get(name)} == set()
    assert written.keys() <= committed.keys()


@pytest.mark.parametrize("name", vectors())
def test_vector_files_hold_no_number_that_json_readers_round(name: str) -> None:
    def check(value: object) -> None:
        assert not isinstance(value, float)
        if isinstance(value, int):
            assert abs(value) < 2**53
        for each in value.values() if isinstance(value, dict) else ():
            check(each)
        for each in value if isinstance(value, list) else ():
            check(each)

    check(json.loads((FOLDER / f"{name}.json").read_text()))
