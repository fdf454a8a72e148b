"""The command line: versions, amounts, and errors that say what to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from verillm import __version__, cli, keystore
from verillm.chain.command import read_spec
from verillm.economics.command import read_terms
from verillm.engine.describe import describe, shipped_profile
from verillm.engine.tiny import write_folder
from verillm.errors import (
    ChainUnreachable,
    ConfigError,
    FeeTooLow,
    InputError,
    SignatureError,
    VeriLLMError,
    WrongPassword,
)
from verillm.types import Reason


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RPC", "DEPLOYMENT", "KEY", "PASSWORD", "PASSWORD_FILE", "SCHEDULER"):
        monkeypatch.delenv(f"VERILLM_{name}", raising=False)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"verillm {__version__}\n"


@pytest.mark.parametrize(
    ("text", "units"),
    [("1", 10**18), ("0.5", 5 * 10**17), ("1e-18", 1), ("12.000000000000000001", 12 * 10**18 + 1)],
)
def test_amounts_are_exact(text: str, units: int) -> None:
    assert cli.parse_amount(text) == units
    assert cli.parse_amount(cli.show_amount(units)) == units


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1e-19", "1e30"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        cli.parse_amount(text)


@pytest.mark.parametrize(("units", "text"), [(0, "0"), (10**19, "10"), (15 * 10**17, "1.5")])
def test_amounts_are_shown_without_trailing_zeros(units: int, text: str) -> None:
    assert cli.show_amount(units) == text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FeeTooLow(1, 2), 3),
        (ConfigError("x"), 3),
        (SignatureError("x"), 4),
        (ChainUnreachable("u", "x"), 5),
        (VeriLLMError("x"), 4),
    ],
)
def test_exit_codes_follow_the_error_tree(error: VeriLLMError, code: int) -> None:
    assert cli.exit_code(error) == code


def test_every_reason_has_a_meaning() -> None:
    assert set(cli.MEANING) == set(Reason)


def test_a_refusal_names_code_reason_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["balance"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error [bad_config]: no key") and "remedy: " in said.err


def test_a_chain_that_is_away_ends_with_its_own_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERILLM_PASSWORD", "pw")
    keystore.create(tmp_path / "key.json", "pw", rounds=2)
    monkeypatch.setenv("VERILLM_RPC", "http://127.0.0.1:9")
    options = ["--key", str(tmp_path / "key.json")]
    assert cli.main([*options, "deploy", "--devnet", "--chain-id", "31337"]) == 5
    assert "error [chain_unreachable]" in capsys.readouterr().err


def test_a_wrong_password_is_named(tmp_path: Path) -> None:
    account = keystore.create(tmp_path / "key.json", "right", rounds=2)
    assert keystore.load(tmp_path / "key.json", "right").key == account.key
    with pytest.raises(WrongPassword):
        keystore.load(tmp_path / "key.json", "wrong")


def test_a_key_is_never_overwritten_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    keystore.create(path, "pw", rounds=2)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="exists"):
        keystore.create(path, "pw", rounds=2)
    assert path.read_bytes() == before and path.stat().st_mode & 0o077 == 0


def test_a_spec_is_the_folders_under_its_calibration_and_the_terms(tmp_path: Path) -> None:
    folder, out = write_folder(tmp_path / "tiny"), tmp_path / "spec.json"
    words = ["spec", str(folder), "--profile", "tiny", "--out", str(out)]
    assert cli.main(words) == 0
    calibrated = shipped_profile("tiny")
    plain = describe(folder, calibrated.profile, name="tiny", terms=calibrated.terms)
    assert read_spec(out) == plain
    (tmp_path / "terms.toml").write_text("[situation]\nvalue = 2\n")
    assert cli.main([*words, "--terms", str(tmp_path / "terms.toml")]) == 0
    fixed = read_terms(tmp_path / "terms.toml")
    assert read_spec(out) == replace(plain, committee=fixed.committee, seat_stake=fixed.seat_stake)


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_what_is_no_spec_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises((ConfigError, InputError)):
        read_spec(tmp_path / "spec.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_spec(tmp_path / "other.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", "nonsense", '{"version": 3}'])
def test_what_is_no_keystore_is_a_setting_to_correct(tmp_path: Path, content: str) -> None:
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(ConfigError):
        keystore.load(tmp_path / "key.json", "pw")


def test_a_password_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keystore.read_password(path)
    path.chmod(0o600)
    assert keystore.read_password(path) == "secret"
