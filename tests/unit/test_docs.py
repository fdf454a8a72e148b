"""The tables of the documentation against the code that they speak of."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools import error_table
from verillm.types import Outcome, Reason
from verillm_node import config
from verillm_verifier.audit import Exit, Standing

DOCS = Path(__file__).parents[2] / "docs"
OPERATORS = (DOCS / "operators.md").read_text()
PROTOCOL = (DOCS / "protocol.md").read_text()
AUDIT = (DOCS / "audit.md").read_text()


def test_the_operators_page_lists_every_error_code_with_its_status_and_remedy() -> None:
    assert error_table.page(OPERATORS) == OPERATORS, "run tools/error_table.py"


def test_the_operators_page_names_every_setting() -> None:
    kinds = [config.WorkerSettings, config.SchedulerSettings, config.ChainSettings]
    kinds += [config.KeySettings, config.HttpSettings, config.EngineSettings, config.ModelSettings]
    names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert names - set(re.findall(r"\w+", OPERATORS)) == set()


def test_the_protocol_page_lists_every_reason_by_its_code() -> None:
    table: dict[int, str] = {}
    for row in all_rows(PROTOCOL):
        if re.fullmatch(r"[\d ]+", row[0]) and len(row) == 3:
            names = re.findall(r"`(\w+)`", row[2])
            table |= dict(zip(map(int, row[0].split()), names, strict=True))
    assert table == {int(reason): reason.name.lower() for reason in Reason}


def all_rows(page: str) -> list[list[str]]:
    lines = (line for line in page.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_protocol_page_lists_every_outcome_by_its_code() -> None:
    listed = re.search(r"Outcome codes: (.+)\.", PROTOCOL)
    assert listed
    pairs = (entry.split() for entry in listed[1].split(", "))
    known = {str(int(outcome)): outcome.name.lower() for outcome in Outcome if outcome}
    assert {code: name for code, name in pairs} == known


def test_the_audit_page_lists_every_exit_code_and_standing() -> None:
    cells = {row[0].strip("`") for row in all_rows(AUDIT)}
    assert {str(int(code)) for code in Exit} <= cells
    assert {standing.value for standing in Standing} <= cells


@pytest.mark.parametrize("kind", [config.WorkerSettings, config.SchedulerSettings])
def test_the_operators_page_shows_settings_that_load(kind: type[Any]) -> None:
    shown = re.findall(r"^```toml\n(.*?)^```$", OPERATORS, re.MULTILINE | re.DOTALL)
    text = shown[0 if kind is config.WorkerSettings else 1]
    assert isinstance(config.parse(tomllib.loads(text), kind, Path()), kind)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, name in re.findall(r"`([\w/]+(?:\.t)?\.(?:py|sol))::(\w+)`", page.read_text()):
        path = DOCS.parent / file
        assert path.is_file(), file
        pattern = rf"^ *(async def|def|function) {name}\("
        assert re.search(pattern, path.read_text(), re.MULTILINE), f"{file}::{name}"
