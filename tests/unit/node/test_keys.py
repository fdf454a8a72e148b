import os
import stat
from pathlib import Path

import pytest
from eth_account import Account

from verillm.errors import ConfigError, WrongPassword
from verillm_node import keys

ROUNDS = 64


def test_a_key_comes_back_under_its_password(tmp_path: Path) -> None:
    made = keys.create(tmp_path / "key.json", "correct horse", ROUNDS)
    assert keys.load(tmp_path / "key.json", "correct horse").key == made.key
    assert keys.address(tmp_path / "key.json") == made.address


def test_a_wrong_password_has_its_own_code_and_remedy(tmp_path: Path) -> None:
    keys.create(tmp_path / "key.json", "right", ROUNDS)
    with pytest.raises(WrongPassword) as caught:
        keys.load(tmp_path / "key.json", "wrong")
    assert caught.value.code == "wrong_password"
    assert caught.value.remedy


def test_a_keystore_is_readable_by_its_owner_alone_and_holds_no_key_in_clear(
    tmp_path: Path,
) -> None:
    path = tmp_path / "key.json"
    made = keys.create(path, "right", ROUNDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.key.hex() not in path.read_text()


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    made = keys.create(path, "right", ROUNDS)
    with pytest.raises(ConfigError, match="already holds"):
        keys.store(path, Account.create(), "other", ROUNDS)
    assert keys.load(path, "right").address == made.address
    assert [each.name for each in tmp_path.iterdir()] == ["key.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"crypto": {}}', "\x00"])
def test_what_is_no_keystore_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(content)
    with pytest.raises(ConfigError):
        keys.load(path, "any")


def test_a_missing_keystore_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        keys.load(tmp_path / "none.json", "any")


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keys.read_password(path)
    path.chmod(0o600)
    assert keys.read_password(path) == "secret"
