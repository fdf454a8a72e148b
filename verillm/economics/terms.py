"""A deployment's terms as a file: what the deployer knows, and what it fixes where it differs.

    [situation]                # the options of `verillm params`, by name
    owners = "30x2"
    fee = 1000000000000000

    [parameters]               # left out: what is recommended for that situation
    dispute_window = 86400

`verillm params --toml` writes one; nothing unsafe is read from one.
"""

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from verillm.chain.deployment import ZERO_ADDRESS, Config
from verillm.economics.parameters import Parameters, Situation, override
from verillm.economics.recommend import recommend
from verillm.economics.rules import require_safe
from verillm.errors import ConfigError
from verillm.types import ChecksumAddress


def read_table(path: Path) -> dict[str, dict[str, Any]]:
    """Both tables of a terms file; raises ConfigError for what is none."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    found: dict[str, dict[str, Any]] = {"situation": {}, "parameters": {}}
    for name, value in table.items():
        if name not in found or not isinstance(value, dict):
            raise ConfigError(f"{path}: {name} is not one of the tables situation, parameters")
        found[name] = value
    return found


def overlay(options: argparse.Namespace, situation: Mapping[str, Any]) -> argparse.Namespace:
    """The options of `verillm params` with a file's values in the place of their defaults."""
    values = vars(options).copy()
    for name, value in situation.items():
        default = values.get(name)
        if name not in SITUATION_NAMES or isinstance(value, bool):
            raise ConfigError(f"situation.{name} is no option of `verillm params`")
        whole = isinstance(default, int) and not isinstance(value, int)
        if isinstance(value, str) != isinstance(default, str) or whole:
            raise ConfigError(f"situation.{name} must be like {default!r}, not {value!r}")
        values[name] = float(value) if isinstance(default, float) else value
    return argparse.Namespace(**values)


def parameters_of(situation: Situation, changes: Mapping[str, Any]) -> Parameters:
    """The recommendation with these changes; raises UnsafeParameters, ConfigError."""
    for name, value in changes.items():
        if type(value) is not int:
            raise ConfigError(f"parameters.{name} must be a whole number, not {value!r}")
    parameters = override(recommend(situation), changes)
    require_safe(situation, parameters)
    return parameters


def to_toml(situation: Mapping[str, Any], parameters: Parameters) -> str:
    """A terms file that gives these parameters again."""
    lines = ["[situation]"]
    lines += [
        f"{name} = {_value(value)}" for name, value in situation.items() if name in SITUATION_NAMES
    ]
    lines += ["", "[parameters]"]
    lines += [f"{name} = {value}" for name, value in asdict(parameters).items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def config_of(parameters: Parameters, token: ChecksumAddress = ZERO_ADDRESS) -> Config:
    """What the contracts are given; committee and seat stake are the model's."""
    same = {field.name for field in fields(Config)} & {field.name for field in fields(Parameters)}
    values = {name: getattr(parameters, name) for name in same}
    return Config(**values, token=token, forced_every=parameters.forced_rounds)


SITUATION_NAMES = frozenset(
    {
        "owners",
        "fee",
        "value",
        "most_kappa",
        "jobs_at_once",
        "honest_share",
        "noise",
        "detection",
        "token_detection",
        "watch",
        "redress",
        "inference",
        "cheap",
        "prefill",
        "opening",
        "challenge",
        "gas",
        "call",
    }
)
"""The options of `verillm params` that say what a deployer knows."""
