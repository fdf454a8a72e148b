from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.verillm.builders import (
    DOMAIN,
    END,
    SEAL_BEACON,
    SPEC,
    VOCABULARY,
    Plan,
    World,
    bf16,
    head,
    make_requests,
    make_world,
    reseed,
    true_states,
)
from verillm.draw import checked_requests, draw
from verillm.errors import EvidenceError, MalformedError
from verillm.evidence import CheckedOutput, PartyEvidence, check_bundle
from verillm.merkle import Tree
from verillm.model import ModelSpec, check_spec
from verillm.request import Sampling, requests_tree
from verillm.statistics import to_floats
from verillm.task import (
    Commitment,
    Task,
    inner_hash,
    items_tree,
    output_hash,
    outputs_tree,
    task_id,
)
from verillm.trace import (
    CommittedTrace,
    Opening,
    TraceItem,
    commitment_hash,
    open_positions,
    trace_leaves,
)
from verillm.types import Hash32, ModelId, Outcome, Reason, TaskId
from verillm.verdict import PartyStatus, Verdict, judge, judge_bundle, paid_mask

OTHER = TaskId(Hash32(b"o" * 32))
COARSE, ONE = np.uint16(0xFFF0), np.uint16(1)


def judged(world: World, with_head: bool = True, spec: ModelSpec | None = None) -> Verdict:
    return judge_bundle(
        world.bundle,
        world.posting,
        world.sealing,
        spec or world.spec,
        DOMAIN,
        SEAL_BEACON,
        head() if with_head else None,
    )


def kind(verdict: Verdict) -> tuple[Outcome, Reason]:
    return verdict.outcome, verdict.reason


@pytest.fixture(scope="module")
def honest() -> World:
    return make_world()


# ── Honest jobs ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0), Sampling.of(0.8, 20, 0.9, 0.02)], ids=str
)
def test_an_honest_job_is_accepted_with_everything_that_it_rests_on(sampling: Sampling) -> None:
    verdict = judged(make_world(Plan(sampling=sampling)))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.suspects == ()
    assert verdict.details.tokens is not None and verdict.details.cliques == ((1, 2, 3),)


def test_an_honest_job_of_one_request_is_accepted() -> None:
    assert judged(make_world(Plan(requests=1))).accepted


def test_evidence_lists_checked_requests_and_positions_in_the_drawn_order(honest: World) -> None:
    evidence = check_bundle(
        honest.bundle, honest.posting, honest.sealing, SPEC, DOMAIN, SEAL_BEACON
    )
    assert [each.index for each in evidence.checked] == [c.index for c in honest.bundle.checked]
    for checked in evidence.checked:
        last = checked.prompt_tokens + checked.new_tokens - 2
        assert last in checked.positions and 0 not in checked.positions
        assert checked.generated.stop == last + 1
    assert len(evidence.parties) == 4


def test_what_states_accept_without_a_head_is_inconclusive_never_accept(honest: World) -> None:
    assert kind(judged(honest, with_head=False)) == (Outcome.INCONCLUSIVE, Reason.HEAD_MISSING)


def test_a_model_without_token_proof_is_never_accepted_on_states_alone() -> None:
    world = make_world(Plan(spec=replace(SPEC, token_proof=False)))
    assert kind(judged(world)) == (Outcome.INCONCLUSIVE, Reason.HEAD_MISSING)


def test_a_job_of_one_token_in_and_out_has_too_few_positions_and_nobody_is_silent() -> None:
    world = make_world(Plan(requests=1, prompt=1, most=1))
    assert world.bundle.parties[0].openings[0].entries == ()
    empty = replace(world.bundle.parties[0], openings={})
    world = reseed(world, parties=(empty, *world.bundle.parties[1:]))
    assert kind(judged(world)) == (Outcome.INCONCLUSIVE, Reason.TOO_FEW_POSITIONS)


# ── Cheats that the evidence shows ──────────────────────────────────────────────────────────────
def only(party: int, change: Callable[[TraceItem], TraceItem]) -> Plan:
    return Plan(run=lambda number, item: change(item) if number == party else item)


def other_states(item: TraceItem) -> TraceItem:
    slices, finals = true_states(b"another!", len(item.finals))
    return replace(item, slices=slices, finals=finals)


def test_power_states_of_another_model_are_slashed() -> None:
    assert kind(judged(make_world(only(0, other_states)))) == (
        Outcome.SLASH,
        Reason.STATES_DIFFER,
    )


def test_power_coarse_states_are_rejected() -> None:
    def coarse(item: TraceItem) -> TraceItem:
        return replace(item, slices=item.slices & COARSE, finals=item.finals & COARSE)

    assert kind(judged(make_world(only(0, coarse))))[1] is Reason.STATES_DIFFER


def test_a_lying_verifier_is_the_suspect_and_moves_nothing() -> None:
    verdict = judged(make_world(only(2, other_states)))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.suspects == (2,)


def test_an_inferencer_whose_states_are_not_finite_is_slashed_for_that() -> None:
    def spoilt(item: TraceItem) -> TraceItem:
        return replace(item, finals=np.full_like(item.finals, 0x7FC0))

    assert kind(judged(make_world(only(0, spoilt)))) == (Outcome.SLASH, Reason.NON_FINITE)


def forged(output: tuple[int, ...]) -> tuple[int, ...]:
    return (*output[:2], (output[2] + 7) % 95 + 1, *output[3:])


def test_power_forged_tokens_over_true_states_are_slashed_by_the_verifiers_states() -> None:
    verdict = judged(make_world(Plan(finish=forged)))
    assert verdict.details.accepting == ((1, 2, 3),)
    assert kind(verdict) == (Outcome.SLASH, Reason.MARGIN_MAX)


def nudged(item: TraceItem) -> TraceItem:
    """Move the third output's own state along (its token's row less the best row) until it wins."""
    rows = head().rows
    finals, at = item.finals.copy(), item.prompt_tokens + 1
    state = to_floats(finals[at]).copy()
    while (best := int(np.argmax(rows @ to_floats(bf16(state))))) != item.tokens[at + 1]:
        state += 0.1 * (rows[item.tokens[at + 1]] - rows[best])
    finals[at] = bf16(state)
    return replace(item, finals=finals)


def test_power_forged_tokens_under_nudged_states_are_seen_in_the_verifiers_states() -> None:
    # At temperature 0 the inferencer's own states now choose the forged token, and its states
    # still agree with everyone's: only the verifiers' margins tell.
    plan = replace(only(0, nudged), finish=forged, sampling=Sampling(0))
    verdict = judged(make_world(plan))
    assert verdict.details.accepting == ((1, 2, 3),)
    assert kind(verdict) == (Outcome.SLASH, Reason.MARGIN_MAX)


def test_an_output_cut_short_is_a_refund_for_its_length() -> None:
    # `most` is 10 and no end token ends it.
    plan = Plan(finish=lambda output: tuple(token or 1 for token in output[:3]))
    world = make_world(plan)
    verdict = judged(world)
    assert kind(verdict) == (Outcome.REFUND, Reason.LENGTH)
    assert paid_mask(verdict) == 0b111
    with pytest.raises(EvidenceError, match="length") as raised:
        check_bundle(world.bundle, world.posting, world.sealing, SPEC, DOMAIN, SEAL_BEACON)
    assert raised.value.party == 0
    assert verdict.details.fact == raised.value.message
    assert "by its own commitment" in raised.value.message


def test_a_fault_of_the_inferencer_leaves_the_committee_judged_by_its_states() -> None:
    plan = replace(only(2, other_states), finish=lambda output: tuple(t or 1 for t in output[:3]))
    verdict = judged(make_world(plan))
    assert kind(verdict) == (Outcome.REFUND, Reason.LENGTH)
    assert verdict.suspects == (2,) and paid_mask(verdict) == 0b101


def test_an_output_padded_past_its_end_token_is_a_refund_for_that() -> None:
    plan = Plan(finish=lambda output: (*output[:2], END, 5))
    assert kind(judged(make_world(plan))) == (Outcome.REFUND, Reason.AFTER_END)


@pytest.mark.parametrize("token", [VOCABULARY, 2**32 - 1])
def test_an_output_token_outside_the_vocabulary_is_outside_every_nucleus(token: int) -> None:
    # No verifier can run it, so they are silent or were given something else: it decides nothing.
    plan = Plan(finish=lambda output: (*output[:-1], token), most=4)
    assert kind(judged(make_world(plan))) == (Outcome.REFUND, Reason.OUTSIDE_NUCLEUS)
    plan = replace(plan, silent=frozenset({1, 2, 3}))
    assert kind(judged(make_world(plan))) == (Outcome.REFUND, Reason.OUTSIDE_NUCLEUS)


@pytest.mark.parametrize("requests", [1, 2, 3])
@pytest.mark.parametrize("field", ["prompt_tokens", "new_tokens"])
@pytest.mark.parametrize("change", [-1, 1, 10**6])
def test_a_fee_for_other_tokens_than_there_are_is_refused(
    requests: int, field: str, change: int
) -> None:
    # The fee follows from the counts that the inferencer commits to. Of three requests two are
    # checked, so more for the third cannot be told from a longer prompt; less than one token can.
    world = make_world(Plan(requests=requests))
    inner = world.committed[0].inner
    counted = replace(inner, **{field: getattr(inner, field) + change})
    verdict = judged(sealed_as(world, replace(world.committed[0], inner=counted)))
    if requests < 3:
        assert kind(verdict) == (Outcome.REFUND, Reason.LENGTH)


def test_a_fee_for_more_than_the_unchecked_requests_can_hold_is_refused() -> None:
    world = make_world()
    inner = world.committed[0].inner
    counted = replace(inner, new_tokens=inner.new_tokens + SPEC.context)
    verdict = judged(sealed_as(world, replace(world.committed[0], inner=counted)))
    assert kind(verdict) == (Outcome.REFUND, Reason.LENGTH)


def counted(world: World, prompt: int, new: int) -> World:
    """Sealed over counts that leave so many tokens to the one request that is not checked."""
    first = world.committed[0]
    leaves = first.leaves[:2]
    inner = replace(
        first.inner,
        prompt_tokens=sum(leaf.prompt_tokens for leaf in leaves) + prompt,
        new_tokens=sum(leaf.new_tokens for leaf in leaves) + new,
    )
    for number in range(256):  # the draw follows from the commitment, and so from the counts
        there = replace(world, sealing=replace(world.sealing, beacon=Hash32(bytes([number]) * 32)))
        made = sealed_as(there, replace(first, inner=inner))
        if {each.index for each in made.bundle.checked} == {0, 1}:
            return made
    raise AssertionError("these two are never drawn")


@pytest.mark.parametrize(
    ("prompt", "new", "possible"),
    [
        (1, 1, True),
        (0, 1, False),
        (1, 0, False),
        (SPEC.context - 1, 1, True),
        (SPEC.context, 1, False),
        (1, SPEC.context - 1, True),
        (2, SPEC.context - 1, False),
    ],
)
def test_what_is_left_to_an_unchecked_request_is_a_text_that_it_can_be(
    prompt: int, new: int, possible: bool
) -> None:
    reason = judged(counted(make_world(), prompt, new)).reason
    assert (reason is Reason.LENGTH) is not possible


def test_an_output_that_ends_with_an_end_token_may_be_short() -> None:
    plan = Plan(finish=lambda output: (*output[:2], END))
    assert judged(make_world(plan)).reason not in (Reason.LENGTH, Reason.AFTER_END)


def test_a_task_that_is_not_the_clients_request_is_a_refund_for_that() -> None:
    def altered(party: int, task: Task) -> Task:
        if party:
            return task
        items = tuple(replace(item, sampling=Sampling(0)) for item in task.items)
        return replace(task, items=items)

    world = make_world(Plan(task=altered))
    assert kind(judged(world)) == (Outcome.REFUND, Reason.TASK_MISMATCH_INFERENCER)


def test_a_task_for_another_version_of_the_model_is_a_refund_for_that() -> None:
    def stale(party: int, task: Task) -> Task:
        return task if party else replace(task, model_id=ModelId(Hash32(b"o" * 32)))

    assert kind(judged(make_world(Plan(task=stale)))) == (
        Outcome.REFUND,
        Reason.TASK_MISMATCH_INFERENCER,
    )


@pytest.mark.parametrize("field", ["seed", "tokens"])
def test_a_verifier_that_got_another_task_drops_out_and_no_one_is_slashed(field: str) -> None:
    def altered(party: int, task: Task) -> Task:
        if party != 1:
            return task
        change: dict[str, Any] = {"seed": Hash32(b"x" * 32), "tokens": (5,) * 12}
        items = tuple(replace(item, **{field: change[field]}) for item in task.items)
        return replace(task, items=items)

    verdict = judged(make_world(Plan(task=altered)))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.details.statuses[1] is PartyStatus.MISMATCHED


def test_a_verifier_shown_with_a_task_that_it_did_not_commit_to_drops_out(honest: World) -> None:
    verdict = judged(with_party(1, task=honest.bundle.parties[2].task)(honest))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.details.statuses[1] is PartyStatus.MISMATCHED


def test_a_verifier_that_copied_anothers_commitment_drops_out() -> None:
    # Whoever copies has another task's hash in every leaf, and no task of its own to show.
    def copied(party: int, task: Task) -> Task:
        return replace(task, task_id=first[0]) if party == 2 else task

    first = [make_world().bundle.parties[1].task.task_id]
    verdict = judged(make_world(Plan(task=copied)))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.details.statuses[2] is PartyStatus.MISMATCHED


def test_an_inferencer_that_replays_a_commitment_of_another_task_is_refused_for_that() -> None:
    world = make_world(
        Plan(task=lambda party, task: replace(task, task_id=OTHER) if party == 0 else task)
    )
    assert kind(judged(sealed_as(world, world.committed[0]))) == (
        Outcome.REFUND,
        Reason.TASK_MISMATCH_INFERENCER,
    )


def sealed_as(world: World, committed: CommittedTrace) -> World:
    """The world as if the inferencer had sealed this trace for its task."""
    task = task_id(world.sealing.secret, world.job_id, 0)
    commitment = Commitment(task, inner_hash(committed.inner))
    hashes = [output_hash(task, output) for output in outputs_of(world)]
    posting = replace(
        world.posting,
        commitment=commitment_hash(commitment),
        outputs_root=outputs_tree(hashes).root,
    )
    world = replace(world, posting=posting, sealing=replace(world.sealing, inner=committed.inner))
    drawn = draw(world.sealing.secret, posting.commitment, world.sealing.beacon)
    requests = make_requests(world.plan)
    chosen = checked_requests(drawn, len(requests), world.spec.checked_requests)
    shown = tuple(
        CheckedOutput(
            q,
            requests[q],
            requests_tree(requests).proof(q),
            outputs_of(world)[q],
            outputs_tree(hashes).proof(q),
        )
        for q in chosen
    )
    every = {at: list(range(len(committed.trace.items[q].finals))) for at, q in enumerate(chosen)}
    openings = {at: open_positions(committed, q, every[at]) for at, q in enumerate(chosen)}
    inferencer = replace(world.bundle.parties[0], openings=openings)
    return reseed(world, checked=shown, parties=(inferencer,))


def outputs_of(world: World) -> list[tuple[int, ...]]:
    return [item.output for item in world.committed[0].trace.items]


def test_a_trace_over_other_tokens_than_the_output_is_refused_for_that() -> None:
    # Leaves over other tokens, under an item leaf that names the true output.
    world = make_world()
    honest = world.committed[0]
    items = tuple(
        replace(item, tokens=(*item.tokens[:-1], item.tokens[-1] ^ 1))
        for item in honest.trace.items
    )
    trees = tuple(Tree(trace_leaves(honest.trace.task_hash, item)) for item in items)
    leaves = tuple(
        replace(leaf, trace_root=tree.root) for leaf, tree in zip(honest.leaves, trees, strict=True)
    )
    forged = CommittedTrace(
        replace(honest.trace, items=items),
        replace(honest.inner, items_root=items_tree(leaves).root),
        honest.commitment,
        leaves,
        trees,
        items_tree(leaves),
    )
    assert kind(judged(sealed_as(world, honest)))[1] is not Reason.OUTPUT_MISMATCH
    assert kind(judged(sealed_as(world, forged))) == (Outcome.REFUND, Reason.OUTPUT_MISMATCH)


def test_two_mismatched_verifiers_of_three_are_a_task_mismatch() -> None:
    def altered(party: int, task: Task) -> Task:
        if party in (0, 3):
            return task
        items = tuple(replace(item, tokens=item.tokens[:-1]) for item in task.items)
        return replace(task, items=items)

    world = make_world(Plan(task=altered))
    assert kind(judged(world)) == (Outcome.INCONCLUSIVE, Reason.TASK_MISMATCH)


def test_an_inferencer_that_opens_nothing_is_withheld() -> None:
    world = make_world(Plan(silent=frozenset({0})))
    assert kind(judged(world)) == (Outcome.SLASH, Reason.WITHHELD)
    absent = reseed(world, parties=world.bundle.parties[1:])
    assert kind(judged(absent)) == (Outcome.SLASH, Reason.WITHHELD)


def test_one_silent_verifier_changes_nothing_and_two_leave_no_clique() -> None:
    assert kind(judged(make_world(Plan(silent=frozenset({3}))))) == (Outcome.ACCEPT, Reason.NONE)
    assert kind(judged(make_world(Plan(silent=frozenset({1, 3}))))) == (
        Outcome.INCONCLUSIVE,
        Reason.NO_CLIQUE,
    )


# ── Bundles that do not hold together ───────────────────────────────────────────────────────────
def opened(world: World, party: int, change: Callable[[Opening], Opening]) -> World:
    parties = list(world.bundle.parties)
    openings = dict(parties[party].openings)
    openings[0] = change(openings[0])
    parties[party] = replace(parties[party], openings=openings)
    return reseed(world, parties=tuple(parties))


def without(position: int) -> Callable[[Opening], Opening]:
    def change(opening: Opening) -> Opening:
        return replace(opening, entries=tuple(e for e in opening.entries if e.position != position))

    return change


def last_position(world: World) -> int:
    checked = world.bundle.checked[0]
    return len(checked.request.tokens) + len(checked.output) - 2


def test_a_party_that_leaves_one_compared_position_closed_is_silent(honest: World) -> None:
    last = last_position(honest)
    assert kind(judged(opened(honest, 0, without(last)))) == (Outcome.SLASH, Reason.WITHHELD)
    verdict = judged(opened(honest, 2, without(last)))
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE)
    assert verdict.suspects == (2,)


def test_verifiers_without_output_states_leave_the_tokens_unjudged(honest: World) -> None:
    world = honest
    for party in (1, 2):
        committed, opening = world.committed[party], world.bundle.parties[party].openings[0]
        full = [entry.position for entry in opening.entries if entry.slices is not None]
        world = opened(world, party, lambda _, c=committed, f=full: open_positions(c, 0, f))  # type: ignore[misc]
    assert kind(judged(world)) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)


def bundle(**changes: Any) -> Callable[[World], World]:
    return lambda world: reseed(world, **changes)


def first_checked(**changes: Any) -> Callable[[World], World]:
    return lambda world: reseed(
        world,
        checked=(replace(world.bundle.checked[0], **changes), *world.bundle.checked[1:]),
    )


def with_party(number: int, **changes: Any) -> Callable[[World], World]:
    def change(world: World) -> World:
        parties: list[PartyEvidence] = list(world.bundle.parties)
        parties[number] = replace(parties[number], **changes)
        return reseed(world, parties=tuple(parties))

    return change


def sealing(**changes: Any) -> Callable[[World], World]:
    return lambda world: replace(world, sealing=replace(world.sealing, **changes))


FALSE_BUNDLES: dict[str, Callable[[World], World]] = {
    "another_job": lambda w: reseed(w, job=replace(w.bundle.job, nonce=2)),
    "another_quote": lambda w: reseed(w, quote=replace(w.bundle.quote, expiry=1)),
    "no_requests": bundle(checked=()),
    "requests_swapped": lambda w: reseed(w, checked=w.bundle.checked[::-1]),
    "request_path": first_checked(path=()),
    "output_path": first_checked(output_path=()),
    "no_output": first_checked(output=()),
    "other_output": first_checked(output=(1, 2, 3)),
    "output_outside_vocabulary": first_checked(output=(VOCABULARY,)),
    "party_twice": lambda w: reseed(w, parties=w.bundle.parties + w.bundle.parties[:1]),
    "party_not_drawn": with_party(1, party=9),
    "openings_swapped": lambda w: with_party(1, openings=w.bundle.parties[2].openings)(w),
    "inferencers_task": lambda w: with_party(0, task=w.bundle.parties[2].task)(w),
    "opening_of_no_request": lambda w: with_party(1, openings={2: w.bundle.parties[1].openings[0]})(
        w
    ),
    "opening_elsewhere": lambda w: with_party(1, openings={0: w.bundle.parties[1].openings[1]})(w),
    "forged_state": lambda w: opened(
        w,
        0,
        lambda o: replace(
            o, entries=(replace(o.entries[0], final=o.entries[0].final ^ ONE), *o.entries[1:])
        ),
    ),
    "another_secret": sealing(secret=Hash32(b"x" * 32)),
    "another_beacon": sealing(beacon=Hash32(b"x" * 32)),
    "committee_short": lambda w: sealing(committee=w.sealing.committee[:-1])(w),
}


@pytest.mark.parametrize("forge", FALSE_BUNDLES.values(), ids=FALSE_BUNDLES)
def test_a_false_bundle_is_missing_evidence_and_convicts_nobody(
    honest: World, forge: Callable[[World], World]
) -> None:
    assert kind(judged(forge(honest))) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)


FACTS: dict[str, str] = {
    "another_job": "another job",
    "another_quote": "another job",
    "no_requests": "other requests than drawn",
    "requests_swapped": "other requests than drawn",
    "request_path": "request {0} is not the client's",
    "output_path": "output {0} is not the posted one",
    "no_output": "a request without tokens",
    "other_output": "output {0} is not the posted one",
    "output_outside_vocabulary": "output {0} is not the posted one",
    "party_twice": "a party stands twice",
    "party_not_drawn": "a party that was not drawn",
    "inferencers_task": "another task than committed to",
    "opening_of_no_request": "an opening of no checked request",
    "opening_elsewhere": "an opening of another item",
    "openings_swapped": "party 1: not the sealed commitment",
    "forged_state": "party 0: position {1} is not under the item",
    "another_secret": "another secret",
    "another_beacon": "other requests than drawn",
    "committee_short": "a committee of another size",
}


@pytest.mark.parametrize(("name", "fact"), FACTS.items(), ids=FACTS)
def test_a_false_bundle_is_told_by_the_fact_that_is_false(
    honest: World, name: str, fact: str
) -> None:
    found = judged(FALSE_BUNDLES[name](honest)).details.fact
    position = honest.bundle.parties[0].openings[0].entries[0].position
    assert fact.format(honest.bundle.checked[0].index, position) in found


@pytest.mark.parametrize(
    ("name", "party"),
    [
        ("inferencers_task", 0),
        ("forged_state", 0),
        ("opening_of_no_request", 1),
        ("opening_elsewhere", 1),
        ("openings_swapped", 1),
        ("another_job", None),
        ("party_not_drawn", None),
    ],
)
def test_a_false_bundle_names_the_party_whose_evidence_is_false(
    honest: World, name: str, party: int | None
) -> None:
    world = FALSE_BUNDLES[name](honest)
    with pytest.raises(EvidenceError) as raised:
        check_bundle(world.bundle, world.posting, world.sealing, SPEC, DOMAIN, SEAL_BEACON)
    assert raised.value.party == party


def test_a_job_of_another_quote_than_its_clients_or_another_posting_is_told(honest: World) -> None:
    quote = replace(honest.posting.quote, expiry=1)
    posting = replace(honest.posting, quote=quote)
    other = replace(reseed(honest, quote=quote), posting=posting)
    assert "another quote than the client's" in judged(other).details.fact
    posting = replace(honest.posting, commitment=Hash32(b"x" * 32))
    assert "another commitment than posted" in judged(replace(honest, posting=posting)).details.fact
    spec = judged(honest, spec=replace(SPEC, positions=9))
    assert "the spec of another model" in spec.details.fact


def test_the_spec_of_another_model_is_missing_evidence(honest: World) -> None:
    verdict = judged(honest, spec=replace(SPEC, positions=9))
    assert kind(verdict) == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)


def test_a_model_whose_profile_lacks_a_layer_is_inconclusive() -> None:
    profile = replace(SPEC.profile, layers=SPEC.profile.layers[:-1])
    world = make_world(Plan(spec=replace(SPEC, profile=profile)))
    verdict = judged(world)
    assert kind(verdict) == (Outcome.INCONCLUSIVE, Reason.PROFILE_MISSING)
    with pytest.raises(MalformedError) as broken:
        check_spec(world.spec)
    assert str(broken.value) in verdict.details.fact


def test_another_seal_beacon_asks_for_other_positions(honest: World) -> None:
    verdict = judge_bundle(
        honest.bundle, honest.posting, honest.sealing, SPEC, DOMAIN, Hash32(b"z" * 32), head()
    )
    assert not verdict.accepted


def test_an_item_leaf_that_contradicts_the_posted_output_is_a_refund() -> None:
    # The inferencer committed to other tokens than its scheduler posted and showed.
    honest = make_world(Plan(requests=1))
    lying = make_world(Plan(requests=1, finish=lambda output: output[::-1]))
    inferencer = lying.bundle.parties[0]
    world = replace(
        honest,
        sealing=replace(honest.sealing, inner=lying.sealing.inner),
        posting=replace(honest.posting, commitment=lying.posting.commitment),
    )
    world = reseed(world, parties=(inferencer, *honest.bundle.parties[1:]))
    assert kind(judged(world)) == (Outcome.REFUND, Reason.OUTPUT_MISMATCH)


def test_evidence_that_holds_together_is_judged(honest: World) -> None:
    evidence = check_bundle(
        honest.bundle, honest.posting, honest.sealing, SPEC, DOMAIN, SEAL_BEACON
    )
    assert judge(evidence, head()).accepted
