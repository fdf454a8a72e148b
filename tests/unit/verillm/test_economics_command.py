import argparse
import json
from dataclasses import fields

import pytest
from rich.console import Console

from verillm.economics import command
from verillm.economics.parameters import Parameters
from verillm.economics.rules import UnsafeParameters
from verillm.errors import InputError


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
