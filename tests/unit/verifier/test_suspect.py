"""Pooling a worker's jobs: who cheats a little is named in time, and nobody honest is."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount

from tests.unit.verifier.lab import WORKERS, Engines, Played, Story, play
from verillm.errors import InputError
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.sequential import Suspicion, Table
from verillm.types import Hash32
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Audit, audit
from verillm_verifier.suspect import leads, pool, table_of

TABLE = Table((-20_000, 0), {"cheat": (math.log(8.0), math.log(4.0), math.log(0.8 / 0.97))})
HONEST, CHEAT = WORKERS[0], WORKERS[1]


@pytest.fixture(scope="module")
def found(honest: Played, engines: Engines, spec: ModelSpec, head: HeadRows) -> tuple[Audit, Audit]:
    """An honest job, and one whose cheap decode the committee's states contradict."""
    lying = play(engines, spec, Story(cheats={0: ATTACKS["prefilled"]}))
    return audit(honest.facts(), honest.raw, head), audit(lying.facts(), lying.raw, head)


def by(who: LocalAccount, each: Audit) -> Audit:
    """The same job, as if another operator had done it."""
    address = who.address
    history = each.facts.history
    first, *rest = history.events
    posted = replace(first.event, posting=replace(each.facts.posting, worker=address))
    told = (replace(first, event=posted), *rest)
    return replace(each, facts=replace(each.facts, history=replace(history, events=told)))


def test_the_worker_whoseTokensLose_isNamedFirst_andTheHonestIsNot(
    found: tuple[Audit, Audit], head: HeadRows
) -> None:
    fair, foul = found
    pooled = pool([by(HONEST, fair)] * 30 + [by(CHEAT, foul)] * 3, head, TABLE)
    assert [each.worker for each in pooled] == [CHEAT.address, HONEST.address]
    assert pooled[0].is_alarm and not pooled[1].is_alarm
    assert pooled[1].suspicion.value < 1
    assert len(pooled[0].jobs) == 3 and pooled[1].suspicion.tokens == 30 * len(leads(fair, head))
    assert "CHALLENGE THESE JOBS TOGETHER" in pooled[0].line()
    said = json.loads(json.dumps([each.to_json() for each in pooled]))
    assert [each["alarm"] for each in said] == [True, False]


def test_the_odds_areThoseOfTheSequentialTest(found: tuple[Audit, Audit], head: HeadRows) -> None:
    expected = Suspicion()
    for each in found:
        expected = expected.after(leads(each, head), TABLE)
    assert pool([by(CHEAT, each) for each in found], head, TABLE)[0].suspicion == expected


def test_a_job_withoutEvidence_saysNothing_andIsCounted(
    honest: Played, found: tuple[Audit, Audit], head: HeadRows
) -> None:
    lost = audit(honest.facts(), None, head, "gone")
    (pooled,) = pool([lost, found[0], lost], head, TABLE)
    assert pooled.left_out == {"evidence_missing": 2}
    assert len(pooled.jobs) == 1 and "2 evidence_missing" in pooled.line()
    (empty,) = pool([lost], head, TABLE)
    assert empty.suspicion.value == 0.0 and not empty.is_alarm


def test_a_job_whoseVerifiersDisagree_saysNothing(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    cheats = {1: ATTACKS["int4"], 2: ATTACKS["garbage"], 3: ATTACKS["skipped"]}
    torn = play(engines, spec, Story(cheats=cheats))
    (pooled,) = pool([audit(torn.facts(), torn.raw, head)], head, TABLE)
    assert pooled.left_out == {"no_clique": 1}


def test_a_table_isTheModelsOwn_orIsNamed(spec: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        table_of(spec)
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"edges": TABLE.edges, "ratios": TABLE.ratios}), "utf-8")
    assert table_of(spec, path) == TABLE
    shipped = table_of(replace(spec, weights_root=shipped_weights()))
    assert {"int8_row", "int8_group"} <= set(shipped.ratios)


def shipped_weights() -> Hash32:
    import verillm

    folder = Path(verillm.__file__).parent / "data" / "sequential"
    document = json.loads((folder / "smollm2-135m-instruct.json").read_text("utf-8"))
    return Hash32(bytes.fromhex(document["weights"]))
