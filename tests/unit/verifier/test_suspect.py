"""Pooling a worker's jobs: who cheats a little is named in time, and nobody honest is."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from math import isqrt
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount

from tests.unit.verifier.lab import WORKERS, Engines, Played, Story, play
from tests.unit.verillm.builders import noisy
from verillm.errors import InputError
from verillm.evidence import PartyStates
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.roughness import Scale
from verillm.sequential import Suspicion, Table
from verillm.statistics import distance_one
from verillm.tokens import averaged_leads
from verillm.types import Hash32
from verillm.verdict import generated
from verillm_verifier import suspect
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Audit, audit
from verillm_verifier.suspect import leads, pool, table_of

SCALE = Scale(2_000, 8_000)
TABLE = Table((-20_000, 0), {"cheat": (math.log(8.0), math.log(4.0), math.log(0.8 / 0.97))}, SCALE)
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
    assert len(pooled[0].jobs) == 3 and pooled[1].suspicion.tokens == 30 * len(
        leads(fair, head, SCALE)
    )
    assert "CHALLENGE THESE JOBS TOGETHER" in pooled[0].line()
    said = json.loads(json.dumps([each.to_json() for each in pooled]))
    assert [each["alarm"] for each in said] == [True, False]


def test_the_odds_areThoseOfTheSequentialTest(found: tuple[Audit, Audit], head: HeadRows) -> None:
    expected = Suspicion()
    for each in found:
        expected = expected.after(leads(each, head, SCALE), TABLE)
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


def test_a_job_thatASecondCommitteeJudged_saysNothing(
    found: tuple[Audit, Audit], head: HeadRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clique numbers other members than those whose states the bundle holds."""
    monkeypatch.setattr(suspect, "reverified", lambda facts: found[0].verdict)
    (pooled,) = pool([found[0]], head, TABLE)
    assert pooled.left_out == {"evidence_missing": 1} and not pooled.jobs


def test_a_job_whoseVerifiersDisagree_saysNothing(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    cheats = {1: ATTACKS["int4"], 2: ATTACKS["garbage"], 3: ATTACKS["skipped"]}
    torn = play(engines, spec, Story(cheats=cheats))
    (pooled,) = pool([audit(torn.facts(), torn.raw, head)], head, TABLE)
    assert pooled.left_out == {"no_clique": 1}


# ── In roughnesses of the job's states ───────────────────────────────────────────────────────────
Change = Callable[[PartyStates], PartyStates]


def changed(each: Audit, changes: Mapping[int, Change]) -> Audit:
    """The same job and verdict, as if some parties had shown other states."""
    assert each.evidence is not None
    parties = tuple(
        changes[k](party) if k in changes else party
        for k, party in enumerate(each.evidence.parties)
    )
    return replace(each, evidence=replace(each.evidence, parties=parties))


def rounded(key: int) -> Change:
    """Another machine's rounding of all that was compared."""

    def change(party: PartyStates) -> PartyStates:
        assert party.states is not None
        finals = [noisy(states.finals, 10 * key + at) for at, states in enumerate(party.states)]
        shown = zip(party.states, finals, strict=True)
        return replace(party, states=tuple(replace(one, finals=bits) for one, bits in shown))

    return change


def closed(party: PartyStates) -> PartyStates:
    """Some compared position was not opened; all that chose tokens were."""
    return replace(party, states=None)


def endless(request: int, from_end: int) -> Change:
    """One value of a request's states is infinite."""

    def change(party: PartyStates) -> PartyStates:
        assert party.states is not None
        states = list(party.states)
        finals = states[request].finals.copy()
        finals[sorted(states[request].positions).index(from_end), 7] = 0x7F80
        states[request] = replace(states[request], finals=finals)
        return replace(party, states=tuple(states))

    return change


@pytest.fixture(scope="module")
def rough(found: tuple[Audit, Audit]) -> Audit:
    """The honest job on machines that all round otherwise."""
    return changed(found[0], {k: rounded(k) for k in range(4)})


def squares_of(each: Audit, members: Mapping[int, tuple[int, ...]], first: int = -1) -> list[int]:
    """How far the inferencer is from the average of these members of each request, in scalars.

    `first`: the first position that counts, from the first output token on.
    """
    assert each.evidence is not None
    scale, found = each.evidence.spec.profile.layers[-1].scale, []
    for at, checked in enumerate(each.evidence.checked):
        rows = {}
        for k in (0, *members[at]):
            states = each.evidence.parties[k].states
            assert states is not None
            told = zip(states[at].positions, states[at].finals.tolist(), strict=True)
            rows[k] = dict(told)
        for position in rows[0]:
            if position < checked.prompt_tokens + first:
                continue
            apart = {
                (a, b): distance_one(rows[a][position], rows[b][position], scale) ** 2
                for a, b in combinations(sorted(rows), 2)
            }
            own = sum(square for (a, _), square in apart.items() if a == 0)
            spread = sum(square for (a, _), square in apart.items() if a != 0)
            count = len(members[at])
            found.append(max(0, own // count - spread // count**2))
    return found


def expected_leads(
    each: Audit, head: HeadRows, squares: list[int], scale: Scale = SCALE
) -> tuple[int, ...]:
    """The averaged leads in thousandths of the roughness of these squares, by hand."""
    assert each.evidence is not None
    known = sum(squares) + 4 * scale.typical**2
    roughness = min(scale.most, isqrt(known // (len(squares) + 4)))
    told = generated(each.evidence, each.verdict.details.cliques[0])
    profile = each.evidence.spec.profile
    return tuple(
        lead * 1000 // roughness
        for request in told
        for lead in averaged_leads(request, head, profile)
    )


ALL = {0: (1, 2, 3), 1: (1, 2, 3)}


def test_leads_areInRoughnesses_ofTheStatesThatChoseTokens_alone(
    rough: Audit, head: HeadRows
) -> None:
    squares = squares_of(rough, ALL)
    with_prompts = squares_of(rough, ALL, first=-100)
    assert len(with_prompts) > len(squares) > 0 and min(squares) > 0
    found = leads(rough, head, SCALE)
    assert found == expected_leads(rough, head, squares)
    assert found != expected_leads(rough, head, with_prompts)
    assert found != expected_leads(rough, head, [])


@pytest.mark.parametrize("scale", [Scale(1_000, 8_000), Scale(4_000, 8_000), Scale(1_000, 1_200)])
def test_leads_areByTheScaleThatIsAsked(rough: Audit, head: HeadRows, scale: Scale) -> None:
    found = leads(rough, head, scale)
    assert found == expected_leads(rough, head, squares_of(rough, ALL), scale)
    assert found != leads(rough, head, SCALE)


def test_a_pool_scalesByItsTablesRoughness(found: tuple[Audit, Audit], head: HeadRows) -> None:
    finer = replace(TABLE, edges=(-300_000, 0))
    coarser = replace(finer, roughness=Scale(20_000, 80_000))
    for table in (finer, coarser):
        expected = Suspicion().after(leads(found[1], head, table.roughness), table)
        assert pool([found[1]], head, table)[0].suspicion == expected
    odds = [pool([found[1]], head, table)[0].suspicion.value for table in (finer, coarser)]
    assert odds[0] > odds[1]


def test_a_member_outsideTheClique_doesNotCount(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    lying = play(engines, spec, Story(cheats={2: ATTACKS["garbage"]}))
    job = changed(audit(lying.facts(), lying.raw, head), {k: rounded(k) for k in (0, 1, 3)})
    assert job.verdict.details.cliques == ((1, 3),)
    among = {0: (1, 3), 1: (1, 3)}
    assert leads(job, head, SCALE) == expected_leads(job, head, squares_of(job, among))


def test_an_inferencer_thatShowsNoStates_isTakenAsTypical(rough: Audit, head: HeadRows) -> None:
    assert leads(changed(rough, {0: closed}), head, SCALE) == expected_leads(rough, head, [])


@pytest.mark.parametrize("request_at", [0, 1])
def test_an_inferencer_whoseStatesAreNotFinite_isTakenAsTypical(
    rough: Audit, head: HeadRows, request_at: int
) -> None:
    job = changed(rough, {0: endless(request_at, last_of(rough, request_at))})
    assert leads(job, head, SCALE) == expected_leads(rough, head, [])


def test_a_member_thatLeftAComparedStateClosed_isPassedOver(rough: Audit, head: HeadRows) -> None:
    others = {0: (1, 3), 1: (1, 3)}
    squares = squares_of(rough, others)
    assert squares != squares_of(rough, ALL)
    assert leads(changed(rough, {2: closed}), head, SCALE) == expected_leads(rough, head, squares)


def test_a_member_whoseStatesAreNotFinite_isPassedOver_inThatRequest(
    rough: Audit, head: HeadRows
) -> None:
    squares = squares_of(rough, {0: (1, 2, 3), 1: (2, 3)})
    job = changed(rough, {1: endless(1, last_of(rough, 1))})
    assert leads(job, head, SCALE) == expected_leads(rough, head, squares)


def test_an_infiniteState_thatChoseNoToken_isNotLookedAt(rough: Audit, head: HeadRows) -> None:
    job = changed(rough, {k: endless(0, first_of(rough, 0)) for k in (0, 1)})
    expected = expected_leads(rough, head, squares_of(rough, ALL))
    assert leads(job, head, SCALE) == expected


def test_a_job_whoseMembersAllLeftStatesClosed_isTakenAsTypical(
    rough: Audit, head: HeadRows
) -> None:
    """A public round's clique may be of members whose openings a bundle leaves out."""
    job = changed(rough, dict.fromkeys((1, 2, 3), closed))
    assert leads(job, head, SCALE) == expected_leads(rough, head, [])


def last_of(each: Audit, request: int) -> int:
    """The last compared position, whose state chose a token."""
    assert each.evidence is not None
    return max(each.evidence.checked[request].positions)


def first_of(each: Audit, request: int) -> int:
    """The first compared position, whose state chose none."""
    assert each.evidence is not None
    checked = each.evidence.checked[request]
    assert min(checked.positions) < checked.prompt_tokens - 1
    return min(checked.positions)


def test_a_table_isTheModelsOwn_orIsNamed(spec: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        table_of(spec)
    path = tmp_path / "table.json"
    roughness = {"typical": 2_000, "most": 8_000}
    document = {"edges": TABLE.edges, "ratios": TABLE.ratios, "roughness": roughness}
    path.write_text(json.dumps(document), "utf-8")
    assert table_of(spec, path) == TABLE
    shipped = table_of(replace(spec, weights_root=shipped_weights()))
    assert {"int8_row", "int8_group"} <= set(shipped.ratios)


def shipped_weights() -> Hash32:
    import verillm

    folder = Path(verillm.__file__).parent / "data" / "sequential"
    document = json.loads((folder / "smollm2-135m-instruct.json").read_text("utf-8"))
    return Hash32(bytes.fromhex(document["weights"]))
