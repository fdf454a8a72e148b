"""What a worker takes from a second round: openings that the chain checked, and nothing else."""

from types import SimpleNamespace
from typing import Any

from verillm.chain import artifacts
from verillm_node.reverify import due_comparisons, served

ADJUDICATOR = "0x" + "Ad" * 20
SERVE = artifacts.functions("Adjudicator")["serve"].selector


def _view(*events: object) -> Any:
    at = [SimpleNamespace(event=event, transaction=bytes(32)) for event in events]
    history = SimpleNamespace(all=lambda kind: at if kind.__name__ == "PositionServed" else [])
    return SimpleNamespace(history=history, sealing=SimpleNamespace(committee=(None,) * 4))


def test_calldata_of_another_contract_is_passed_over_whatever_it_holds() -> None:
    view = _view(SimpleNamespace(party=1, checked_index=0, position_index=0))
    sent = {"to": "0x" + "ba" * 20, "input": "0x" + (SERVE + b"garbage").hex()}
    deployment = SimpleNamespace(adjudicator=ADJUDICATOR)
    chain: Any = SimpleNamespace(request=lambda *_: sent, deployment=deployment)
    assert served(chain, view) == {}


def test_a_position_that_nobody_opened_needs_no_comparison_and_hides_no_other() -> None:
    round_: Any = SimpleNamespace(view=_view(), lengths={0: None}, where=lambda place: (3, 4))
    shown: Any = {(party, 0, 1): None for party in (0, 1)}
    assert due_comparisons(round_, shown, 2) == [(0, 1, (0, 1))]
