import os
import stat
from pathlib import Path

import pytest

from verillm import keystore
from verillm.errors import ConfigError, WrongPassword
from verillm_node import keys

ROUNDS = 64


def test_both_keys_come_back_under_one_password(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("operator.json", "hot.json")]
    made = [keystore.create(path, "correct horse", rounds=ROUNDS) for path in paths]
    pair = keys.load_pair(paths[0], paths[1], "correct horse")
    assert [pair.operator.key, pair.hot.key] == [account.key for account in made]
    assert [keys.address(path) for path in paths] == [account.address for account in made]


def test_a_wrong_password_has_its_own_code_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    keystore.create(path, "right", rounds=ROUNDS)
    with pytest.raises(WrongPassword) as caught:
        keys.load_pair(path, path, "wrong")
    assert caught.value.code == "wrong_password"
    assert caught.value.remedy


def test_a_keystore_is_readable_by_its_owner_alone_and_holds_no_key_in_clear(
    tmp_path: Path,
) -> None:
    path = tmp_path / "key.json"
    made = keystore.create(path, "right", rounds=ROUNDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.key.hex() not in path.read_text()


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    made = keystore.create(path, "right", rounds=ROUNDS)
    with pytest.raises(ConfigError, match="already"):
        keystore.create(path, "other", rounds=ROUNDS)
    assert keystore.load(path, "right").address == made.address
    assert [each.name for each in tmp_path.iterdir()] == ["key.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"crypto": {}}', "\x00", '{"address": 3}'])
def test_what_is_no_keystore_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(content)
    for read in (keys.address, lambda path: keys.load_pair(path, path, "any")):
        with pytest.raises(ConfigError):
            read(path)


def test_a_missing_keystore_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        keys.address(tmp_path / "none.json")


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keystore.read_password(path)
    path.chmod(0o600)
    assert keystore.read_password(path) == "secret"
