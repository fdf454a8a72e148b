"""The tables of the documentation against the code that they speak of."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools import error_table
from verillm.errors import VeriLLMError
from verillm.types import Outcome, Reason
from verillm_node import config
from verillm_verifier.audit import Exit, Standing

DOCS = Path(__file__).parents[2] / "docs"
OPERATORS = (DOCS / "operators.md").read_text()
PROTOCOL = (DOCS / "protocol.md").read_text()
AUDIT = (DOCS / "audit.md").read_text()
ATTACKS = (DOCS / "attacks.md").read_text()


def test_the_operators_page_lists_every_error_code_with_its_status_and_remedy() -> None:
    assert error_table.page(OPERATORS) == OPERATORS, "run tools/error_table.py"


def test_the_operators_page_names_every_setting() -> None:
    kinds = [config.WorkerSettings, config.SchedulerSettings, config.ChainSettings]
    kinds += [config.KeySettings, config.HttpSettings, config.EngineSettings, config.ModelSettings]
    kinds += [config.DefendSettings]
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


def attack_rows() -> list[list[str]]:
    return [row for row in all_rows(ATTACKS) if row[0] not in ("attack", "---")]


def test_the_attacks_page_has_every_party_and_answers_every_attack_by_a_test() -> None:
    parties = re.findall(r"^## By the (\w+)|^## By a (\w+)", ATTACKS, re.MULTILINE)
    named = {one or other for one, other in parties}
    assert named == {"inferencer", "verifier", "scheduler", "client", "chain"}
    assert len(attack_rows()) >= 55
    for row in attack_rows():
        assert len(row) == 4 and all(row), f"a cell is missing: {row[0]}"
        assert re.search(r"`[\w/.]+::\w+`", row[2]), f"no test: {row[0]}"


def test_the_attacks_page_answers_by_codes_proofs_and_errors_that_there_are() -> None:
    known = {reason.name.lower() for reason in Reason} | set(codes(VeriLLMError))
    for file in (DOCS.parent / "verillm" / "chain" / "abi").glob("*.json"):
        known |= {entry.get("name", "") for entry in json.loads(file.read_text())["abi"]}
    for row in attack_rows():
        for name in re.findall(r"`(\w+)`", row[1]):
            assert name in known, f"{row[0]}: {name}"


def codes(kind: type[VeriLLMError]) -> list[str]:
    return [kind.code, *(code for each in kind.__subclasses__() for code in codes(each))]


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
