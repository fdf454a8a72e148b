"""Named cheats as real processes on a network of the tiny model: caught, and at whose cost."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from verillm.types import Outcome, Reason
from verillm_node.display import Display
from verillm_node.live_lab import CHEATS, Cheat, Row, Setup, faults, page, run

pytestmark = pytest.mark.slow

NAMES = ("honest", "skipped", "own_seed", "garbage_verifier")


@pytest.mark.timeout(900)
def test_cheats_lose_by_their_reason_and_honest_parties_lose_nothing(tmp_path: Path) -> None:
    said = io.StringIO()
    setup = Setup(tmp_path / "net", engine="tiny", tokens=48)
    rows = dict(zip(NAMES, run(setup, NAMES, Display(Console(file=said, width=200))), strict=True))
    ended = {name: (row.outcome, row.reason) for name, row in rows.items()}
    assert ended["honest"] == (Outcome.ACCEPT, Reason.NONE), said.getvalue()
    assert ended["skipped"] == (Outcome.SLASH, Reason.STATES_DIFFER)
    assert ended["own_seed"] == (Outcome.SLASH, Reason.MARGIN_MAX)
    assert ended["garbage_verifier"] == (Outcome.ACCEPT, Reason.NONE)
    assert rows["skipped"].slashed > 0 < rows["own_seed"].slashed
    assert rows["garbage_verifier"].paid == 0
    assert faults(list(rows.values())) == []
    assert "No honest party lost anything." in page(list(rows.values()), setup, len(NAMES))


def _row(cheat: Cheat, outcome: Outcome, others: int = 0) -> Row:
    return Row(cheat, outcome, Reason.NONE, 0, 0, others, 1.0)


def test_what_must_never_be_is_said() -> None:
    honest, verifier = CHEATS["honest"], CHEATS["garbage_verifier"]
    assert faults([_row(CHEATS["int4"], Outcome.ACCEPT)]) == []  # a cheat that passes is a figure
    assert len(faults([_row(honest, Outcome.REFUND)])) == 1
    assert len(faults([_row(verifier, Outcome.INCONCLUSIVE)])) == 1
    assert len(faults([_row(CHEATS["int4"], Outcome.SLASH, others=1)])) == 1
    setup = Setup(Path(), engine="tiny")
    assert "1 jobs did not end" in page([], setup, 1)
    assert "honest work was not accepted" in page([_row(honest, Outcome.SLASH)], setup, 1)
