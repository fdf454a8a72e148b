"""What a party opened, at its edges: more, less, longer, of a place that it took over."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.verillm.builders import (
    DOMAIN,
    HIDDEN,
    LAYERS,
    SEAL_BEACON,
    SLICE_DIMS,
    SPEC,
    Plan,
    World,
    head,
    make_world,
    reseed,
)
from verillm.evidence import Evidence, PartyStates, check_bundle, gather
from verillm.signing import task_hash
from verillm.task import Commitment, Inner, Task, inner_hash, task_id
from verillm.trace import Opening, TraceItem, commitment_hash, hashed, open_positions
from verillm.types import Bits, Hash32, Outcome, Reason
from verillm.verdict import PartyStatus, Verdict, generated, judge, judge_bundle, paid_mask


def judged(world: World) -> Verdict:
    return judge_bundle(
        world.bundle, world.posting, world.sealing, world.spec, DOMAIN, SEAL_BEACON, head()
    )


def gathered(world: World) -> Evidence:
    return gather(world.bundle, world.posting, world.sealing, world.spec, DOMAIN, SEAL_BEACON)


def kind(verdict: Verdict) -> tuple[Outcome, Reason]:
    return verdict.outcome, verdict.reason


def reopened(world: World, party: int, change: Callable[[int, Opening], Opening]) -> World:
    """The world with all openings of one party changed, by their places."""
    parties = list(world.bundle.parties)
    openings = {at: change(at, each) for at, each in parties[party].openings.items()}
    parties[party] = replace(parties[party], openings=openings)
    return reseed(world, parties=tuple(parties))


def only(party: int, change: Callable[[TraceItem], TraceItem]) -> Plan:
    return Plan(run=lambda number, item: change(item) if number == party else item)


@pytest.fixture(scope="module")
def honest() -> World:
    return make_world()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)


def test_a_verifier_that_opens_more_than_it_had_to_is_open_still(honest: World) -> None:
    def everything(at: int, _: Opening) -> Opening:
        committed = honest.committed[2]
        return open_positions(committed, at, range(len(committed.trace.items[at].tokens) - 1))

    verdict = judged(reopened(honest, 2, everything))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.details.statuses == (PartyStatus.OPEN,) * 4


@pytest.mark.parametrize("party", [0, 2])
def test_a_compared_position_without_its_slices_is_closed(honest: World, party: int) -> None:
    def finals_only(_: int, opening: Opening) -> Opening:
        first = replace(opening.entries[0], slices=None)
        return replace(opening, entries=(first, *opening.entries[1:]))

    found = judged(reopened(honest, party, finals_only))
    assert found.details.statuses[party] is PartyStatus.SILENT
    assert found.accepted is (party != 0)


def test_openings_of_one_of_two_requests_are_not_enough(honest: World) -> None:
    parties = list(honest.bundle.parties)
    parties[1] = replace(parties[1], openings={1: parties[1].openings[1]})
    found = gathered(reseed(honest, parties=tuple(parties))).parties[1]
    assert found.states is None and not found.mismatched
    assert found.generated[0] is None and found.generated[1] is not None


def test_whoever_opened_just_the_states_that_chose_the_output_votes_on_its_tokens() -> None:
    world = make_world(Plan(requests=1, prompt=1))
    for party in gathered(world).parties[1:]:
        (states,) = party.generated
        assert states is not None and len(states) == len(world.bundle.checked[0].output)


def test_what_a_verifier_ran_on_another_text_is_no_evidence() -> None:
    def altered(party: int, task: Task) -> Task:
        if party != 1:
            return task
        items = tuple(replace(item, tokens=(*item.tokens[:-1], 0)) for item in task.items)
        return replace(task, items=items)

    first, second = gathered(make_world(Plan(task=altered))).parties[1:3]
    assert (first.mismatched, first.states, first.generated) == (True, None, ())
    assert not second.mismatched and second.states and second.generated


def test_a_member_that_took_over_a_place_has_its_own_task() -> None:
    def taken_over(number: int) -> World:
        def task(party: int, given: Task) -> Task:
            return (
                replace(given, task_id=task_id(secret, identity, number)) if party == 2 else given
            )

        return make_world(Plan(task=task))

    world = make_world()
    secret, identity = world.sealing.secret, world.job_id
    for number, status in ((2, PartyStatus.OPEN), (4, PartyStatus.OPEN), (11, PartyStatus.OPEN),
                           (3, PartyStatus.MISMATCHED), (12, PartyStatus.MISMATCHED)):  # fmt: skip
        assert judged(taken_over(number)).details.statuses[2] is status


@pytest.mark.usefixtures("unchecked")
def test_a_verifier_whose_leaf_or_trace_is_of_another_text_drops_out() -> None:
    def shorter(item: TraceItem) -> TraceItem:
        return replace(item, prompt_tokens=item.prompt_tokens - 1)

    def other(item: TraceItem) -> TraceItem:
        last = item.prompt_tokens - 1
        tokens = (*item.tokens[:last], item.tokens[last] ^ 1, *item.tokens[last + 1 :])
        return replace(item, tokens=tokens)

    for change in (shorter, other):
        verdict = judged(make_world(only(1, change)))
        assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
        assert verdict.details.statuses[1] is PartyStatus.MISMATCHED
        assert paid_mask(verdict) == 0b110


@pytest.mark.parametrize("change", [lambda out: (*out, 5, 5), lambda out: out[:-1]])
@pytest.mark.usefixtures("unchecked")
def test_an_inferencer_that_committed_to_a_longer_or_shorter_output_is_refused_for_that(
    change: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> None:
    world = make_world(Plan(requests=2))
    lying = make_world(Plan(requests=2, finish=change))
    first = lying.bundle.parties[0]
    parties = (replace(first, openings=dict(first.openings)), *world.bundle.parties[1:])
    posting = replace(world.posting, commitment=lying.posting.commitment)
    sealing = replace(world.sealing, inner=lying.sealing.inner)
    found = judged(reseed(replace(world, posting=posting, sealing=sealing), parties=parties))
    assert kind(found) == (Outcome.REFUND, Reason.OUTPUT_MISMATCH)


@pytest.mark.usefixtures("unchecked")
def test_one_token_more_than_was_asked_for_is_a_refund_for_the_length() -> None:
    found = judged(make_world(Plan(finish=lambda output: (*(t or 1 for t in output), 5))))
    assert kind(found) == (Outcome.REFUND, Reason.LENGTH)


def test_a_task_of_fewer_items_than_the_job_has_requests_is_a_refund_for_that() -> None:
    world = make_world(Plan(requests=2))
    task = world.bundle.parties[0].task
    short = replace(task, items=task.items[:1])
    trace = replace(world.committed[0].trace, task_hash=task_hash(short))
    committed = hashed(trace, short.task_id)
    posting = replace(world.posting, commitment=commitment_of(world, committed.inner))
    openings = {at: open_positions(committed, at, range(5)) for at in range(2)}
    first = replace(world.bundle.parties[0], task=short, openings=openings)
    world = replace(world, posting=posting, sealing=replace(world.sealing, inner=committed.inner))
    found = judged(reseed(world, parties=(first, *world.bundle.parties[1:])))
    assert kind(found) == (Outcome.REFUND, Reason.TASK_MISMATCH_INFERENCER)


def commitment_of(world: World, inner: Inner) -> Hash32:
    first = task_id(world.sealing.secret, world.job_id, 0)
    return commitment_hash(Commitment(first, inner_hash(inner)))


def test_where_nothing_can_be_compared_everyone_shows_nothing_of_the_right_shape() -> None:
    world = make_world(Plan(requests=1, prompt=1, most=1))
    empty = tuple(replace(each, openings={}) for each in world.bundle.parties)
    for parties in (world.bundle.parties, empty):
        shown = gathered(reseed(world, parties=parties)).parties
        for party in shown:
            assert party.states is not None and len(party.states) == 1
            (states,) = party.states
            assert states.positions == ()
            assert states.slices.shape == (0, LAYERS, SLICE_DIMS)
            assert states.finals.shape == (0, HIDDEN)
            assert states.slices.dtype == states.finals.dtype == np.uint16
    assert gathered(reseed(world, parties=empty)).parties[0].generated == (None,)


def test_the_inferencers_fault_is_found_only_in_what_it_opened() -> None:
    plan = Plan(finish=lambda output: tuple(t or 1 for t in output[:3]))
    world = make_world(plan)
    evidence = gathered(world)
    assert evidence.fault is not None and evidence.fault.party == 0
    silent = gathered(make_world(replace(plan, silent=frozenset({0}))))
    assert silent.fault is None
    assert (evidence.job_id, evidence.spec) == (world.job_id, SPEC)


# ── Tokens, by the states of each clique ─────────────────────────────────────────────────────────
def with_finals(evidence: Evidence, strange: dict[int, Bits | None]) -> Evidence:
    """Some members' states of the first output replaced; what is compared stays."""
    parties: list[PartyStates] = list(evidence.parties)
    for party, bits in strange.items():
        parties[party] = replace(parties[party], generated=(bits, *parties[party].generated[1:]))
    return replace(evidence, parties=tuple(parties))


def garbage(evidence: Evidence) -> Bits:
    shown = evidence.parties[0].generated[0]
    assert shown is not None
    return np.full_like(shown, 0x4180)


def evidence_of(world: World) -> Evidence:
    return check_bundle(world.bundle, world.posting, world.sealing, world.spec, DOMAIN, SEAL_BEACON)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    def everything(at: int, opening: Opening) -> Opening:
        full = [entry.position for entry in opening.entries]
        item = world.bundle.checked[at].index
        last = len(world.committed[0].trace.items[item].tokens) - 1
        return open_positions(world.committed[0], item, full, range(last))

    world = make_world()
    return evidence_of(reopened(world, 0, everything))


def test_states_of_an_output_that_are_closed_or_not_finite_do_not_vote(evidence: Evidence) -> None:
    spoilt = garbage(evidence)
    spoilt[2, 3] = 0x7FC0
    for one in (None, spoilt):
        assert judge(with_finals(evidence, {3: one}), head()).accepted
        few = judge(with_finals(evidence, {2: one, 3: None}), head())
        assert kind(few) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)
        assert (
            few.details.cliques == ((1, 2, 3),) and "opened every output state" in few.details.fact
        )
        assert paid_mask(few) == 0b111


def test_the_states_that_judge_an_output_are_the_cliques_and_never_the_inferencers(
    evidence: Evidence,
) -> None:
    assert judge(with_finals(evidence, {0: garbage(evidence)}), head()).accepted
    (first, *_) = generated(evidence, (1, 3))
    for given, party in zip(first.finals, (1, 3), strict=True):
        assert given is evidence.parties[party].generated[0]
    checked = evidence.checked[0]
    assert (first.prompt_tokens, first.output) == (checked.prompt_tokens, checked.output)
    assert (first.sampling, first.seed) == (checked.request.sampling, checked.seed)


def apart(evidence: Evidence, one: int, other: int) -> Evidence:
    """Two members off in other dimensions: near everyone, and just too far from one another."""
    parties = list(evidence.parties)
    for party, first in ((one, 0), (other, 1)):
        states = parties[party].states
        assert states is not None
        moved = tuple(
            replace(each, slices=off(each.slices, first), finals=off(each.finals, first))
            for each in states
        )
        parties[party] = replace(parties[party], states=moved)
    return replace(evidence, parties=tuple(parties))


def off(bits: Bits, first: int) -> Bits:
    changed = bits.copy()
    changed[..., first::2] ^= np.uint16(6)
    return changed


def test_cliques_whose_states_judge_the_tokens_otherwise_are_divided(evidence: Evidence) -> None:
    split = apart(evidence, 1, 3)
    verdict = judge(split, head())
    assert verdict.details.accepting == ((1, 2), (2, 3)), "the two must be apart"
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    bad = garbage(evidence)
    both = judge(with_finals(split, {1: bad, 2: bad, 3: bad}), head())
    assert both.outcome is Outcome.SLASH and both.details.tokens is not None
    one = judge(with_finals(split, {2: bad, 3: bad}), head())
    assert kind(one) == (Outcome.INCONCLUSIVE, Reason.DIVIDED)
    none = judge(with_finals(split, {2: None}), head())
    assert kind(none) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)


def test_a_liar_is_named_though_the_tokens_cannot_be_judged(evidence: Evidence) -> None:
    parties = list(evidence.parties)
    states = parties[2].states
    assert states is not None
    flip = np.uint16(0x100)
    far = tuple(
        replace(each, slices=each.slices ^ flip, finals=each.finals ^ flip) for each in states
    )
    parties[2] = replace(parties[2], states=far)
    verdict = judge(with_finals(replace(evidence, parties=tuple(parties)), {3: None}), head())
    assert kind(verdict) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)
    assert verdict.suspects == (2,)


def test_tokens_are_judged_by_a_quorum_of_all_members_drawn(evidence: Evidence) -> None:
    four = replace(evidence, parties=(*evidence.parties, evidence.parties[3]))
    assert judge(with_finals(four, {3: None}), head()).accepted
    few = judge(with_finals(four, {3: None, 4: None}), head())
    assert kind(few) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)
