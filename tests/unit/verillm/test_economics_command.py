import argparse
import json
from dataclasses import fields
from pathlib import Path

import pytest
from rich.console import Console

from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.economics import command, terms
from verillm.economics.parameters import Parameters
from verillm.economics.rules import UnsafeParameters
from verillm.errors import ConfigError, InputError


def run(*arguments: str) -> str:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        command.run(parser.parse_args(arguments), console)
    return captured.get()


def test_defaults_recommend_every_parameter_with_its_meaning() -> None:
    shown = run()
    names = {field.name for field in fields(Parameters)}
    assert names == set(command.MEANING)
    assert all(name in shown for name in names)
    assert "captures a draw" in shown


def test_json_is_the_parameters() -> None:
    parameters = Parameters(**json.loads(run("--json", "--value", "20")))
    assert parameters.kappa_bps >= 10_000
    assert parameters.terms.challenge_bond == parameters.challenge_bond


def test_an_unsafe_set_is_refused_with_reason_and_remedy() -> None:
    with pytest.raises(UnsafeParameters, match=r"kappa_bps: 10000 is below .* cheating pays") as it:
        run("--set", "kappa_bps=10000")
    assert it.value.code == "unsafe_parameters"
    assert "raise it" in it.value.message


def test_a_hopeless_situation_is_refused() -> None:
    with pytest.raises(UnsafeParameters, match="honest share"):
        run("--honest-share", "0.5")


def test_without_coalition_and_with_a_perfect_token_check_nothing_escapes() -> None:
    assert "deterred up to" in run("--honest-share", "1")
    assert "deterred up to" not in run("--honest-share", "1", "--token-detection", "1")


def test_a_terms_file_gives_its_parameters_again(tmp_path: Path) -> None:
    path = tmp_path / "terms.toml"
    path.write_text(run("--toml", "--value", "20", "--set", "dispute_window=7200"))
    assert run("--toml", "--terms", str(path)) == path.read_text()
    parameters = command.read_terms(path)
    assert parameters.dispute_window == 7_200
    config = Config.from_json(json.loads(run("--contract", "--terms", str(path))))
    assert config == terms.config_of(parameters)
    assert (config.dispute_window, config.kappa_bps) == (7_200, parameters.kappa_bps)
    assert (config.token, config.forced_every) == (ZERO_ADDRESS, parameters.forced_rounds)


def test_a_terms_file_of_a_situation_alone_is_the_recommendation_for_it(tmp_path: Path) -> None:
    path = tmp_path / "terms.toml"
    path.write_text("[situation]\nvalue = 20\n")
    assert command.read_terms(path) == Parameters(**json.loads(run("--json", "--value", "20")))


@pytest.mark.parametrize("form", ["--json", "--toml", "--contract"])
def test_an_unsafe_terms_file_is_refused_in_every_form(tmp_path: Path, form: str) -> None:
    path = tmp_path / "terms.toml"
    path.write_text(run("--toml").replace("claim_bond = 12", "claim_bond = 1"))
    with pytest.raises(UnsafeParameters, match="claim_bond"):
        run(form, "--terms", str(path))
    with pytest.raises(UnsafeParameters, match="claim_bond"):
        command.read_terms(path)


@pytest.mark.parametrize(
    "text",
    [
        "value = 1",
        "[situation]\nvalue = true",
        "[situation]\nfee = 1.5",
        "[situation]\nowners = 30",
        '[situation]\nvalue = "1"',
        "[situation]\nterms = 1",
        "[situation]\nset = 1",
        "[parameters]\nkappa_bps = 12000.0",
        "[other]",
        "[situation",
    ],
)
def test_what_is_no_terms_file_is_a_setting_to_correct(tmp_path: Path, text: str) -> None:
    (tmp_path / "terms.toml").write_text(text)
    with pytest.raises(ConfigError):
        command.read_terms(tmp_path / "terms.toml")


def test_every_name_of_a_situation_is_an_option() -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    others = {"terms", "set", "json", "toml", "contract"}
    assert set(vars(parser.parse_args([]))) - others == terms.SITUATION_NAMES


@pytest.mark.parametrize("owners", ["30", "x2", "3x", "ax2", "99999x1", "3x2,"])
def test_owners_that_do_not_parse_are_input_errors(owners: str) -> None:
    with pytest.raises(InputError, match="--owners"):
        run("--owners", owners)


@pytest.mark.parametrize("change", ["kappa_bps", "kappa_bps=many", "=3", "kapa=3"])
def test_changes_that_do_not_parse_are_input_errors(change: str) -> None:
    with pytest.raises(InputError):
        run("--set", change)


def test_owners_are_counted() -> None:
    assert command.parse_owners("2x3,1x20") == (3, 3, 20)
