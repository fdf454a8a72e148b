"""What a bundle proves on chain: everything for a cheat, nothing for honest work."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.verifier.lab import DOMAIN, HOT, Engines, Played, Story, play
from tests.unit.verillm import builders
from tests.unit.verillm.builders import Plan, bf16, make_world
from verillm.evidence import Bundle
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.proofs.find import SCHEDULER, Case, Proof, proofs, receipt_proof
from verillm.proofs.rivals import ProvenHead
from verillm.request import Receipt, Sampling
from verillm.sampling import kept, scores, truncates
from verillm.signing import job_id, sign
from verillm.statistics import to_floats
from verillm.task import Item, Task, output_hash
from verillm.trace import TraceItem
from verillm.types import PPM, Hash32, Reason
from verillm_verifier.attacks import ATTACKS

SAMPLINGS = {
    "greedy": Sampling(0),
    "warm": Sampling(800_000),
    "hot": Sampling(2_000_000),
    "top-p": Sampling(PPM, top_p=900_000),
    "top-k": Sampling(PPM, top_k=4),
    "min-p": Sampling(PPM, min_p=50_000),
}


@pytest.fixture(scope="module")
def proven(head: HeadRows) -> ProvenHead:
    return ProvenHead(head)


def case_of(played: Played) -> Case:
    return Case(played.bundle, played.posting, played.sealing, played.spec, DOMAIN)


def names(found: list[Proof]) -> set[tuple[str, int | None, Reason]]:
    for each in found:
        assert "None" not in each.fact
        assert each.fact.startswith("request ") or each.party != SCHEDULER
    return {(each.name, each.party, each.reason) for each in found}


def test_the_head_tree_is_the_registered_one(proven: ProvenHead, spec: ModelSpec) -> None:
    assert proven.tree.root == spec.head_root


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_honest_work_proves_nothing(
    sampling: Sampling, engines: Engines, spec: ModelSpec, proven: ProvenHead
) -> None:
    played = play(engines, spec, Story(sampling=sampling, new_tokens=12))
    assert list(proofs(case_of(played), proven)) == []


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_no_rival_beats_an_honest_token_on_its_own_state_by_more_than_rounding(
    sampling: Sampling, engines: Engines, spec: ModelSpec, proven: ProvenHead
) -> None:
    """Every rival by float32 scores, the nearest few in integers: nowhere near a slash."""
    played = play(engines, spec, Story(sampling=sampling, new_tokens=12))
    tau, seen = spec.profile.logit_tau, 0
    for view in case_of(played).views:
        if view.party:
            continue
        for entry in view.opening.entries:
            if entry.position + 1 < view.item.length:
                continue
            logits = proven.rows.logits(to_floats(entry.final)[None])[0]
            ranked = scores(logits, sampling, view.item.seed, entry.position)
            inside = np.where(kept(logits, sampling), ranked, -np.inf)
            assert inside.max() - ranked[entry.next] <= 0
            for rival in np.argsort(-inside)[:5]:
                at = (entry.position, entry.next, int(rival))
                margin = proven.margin(entry.final, view.item, *at)
                assert margin is not None
                assert not margin.counts(sampling, tau) or margin.margin <= margin.rounding
                assert margin.rounding < 10_000
                seen += 1
    assert seen >= 50


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_the_best_rival_is_that_of_the_scores_among_those_that_count(
    sampling: Sampling, spec: ModelSpec, proven: ProvenHead
) -> None:
    rng, tau, none = np.random.default_rng(5), spec.profile.logit_tau, 0
    item = Item(bytes(32), (1, 2), 3, sampling, Hash32(b"s" * 32))
    for position in range(6):
        final = bf16(rng.standard_normal(spec.hidden, np.float32))
        logits = proven.rows.logits(to_floats(final)[None])[0]
        ranked = scores(logits, sampling, item.seed, position)
        order = np.argsort(-logits, kind="stable")
        for token in (int(order[0]), int(order[3]), int(order[-1])):
            counts = [
                v
                for v in range(len(logits))
                if v != token
                and (not truncates(sampling) or logits[v] >= logits[token] + np.float32(tau / PPM))
            ]
            best = max(counts, key=lambda v: float(ranked[v]), default=None)
            assert proven.best(final, item, position, token, tau) == best
            none += best is None
        third = int(order[3])
        beyond = 2 + int((logits[order[0]] - logits[third]) * PPM)  # none is as far above as that
        assert (proven.best(final, item, position, third, beyond) is None) is truncates(sampling)
    assert bool(none) is truncates(sampling)


def test_a_rival_of_just_tau_above_the_token_counts(spec: ModelSpec, proven: ProvenHead) -> None:
    item = Item(bytes(32), (1, 2), 3, SAMPLINGS["top-k"], Hash32(b"s" * 32))
    final = bf16(np.random.default_rng(5).standard_normal(spec.hidden, np.float32))
    logits = proven.rows.logits(to_floats(final)[None])[0]
    first, exact = int(np.argmax(logits)), 0
    for token in set(range(len(logits))) - {first}:
        tau = round(float(logits[first] - logits[token]) * PPM)
        if logits[first] != logits[token] + np.float32(tau / PPM):
            continue
        exact += 1
        assert proven.best(final, item, 0, token, tau) == first
        assert proven.best(final, item, 0, token, tau + 10) is None
    assert exact > 0, "no logit is a whole number of ppm below the first"


def test_a_state_without_finite_logits_has_no_rival_and_no_margin(
    spec: ModelSpec, proven: ProvenHead
) -> None:
    item = Item(bytes(32), (1, 2), 3, Sampling(0), Hash32(b"s" * 32))
    huge, none = (np.full(spec.hidden, bits, np.uint16) for bits in (0x7F7F, 0x7FC0))
    assert proven.best(huge, item, 0, 1, 0) is None
    assert proven.best(none, item, 0, 1, 0) is None
    assert proven.margin(none, item, 0, 1, 2) is None


@pytest.mark.parametrize("cheat", ["swapped", "own_seed"])
def test_power_forged_tokens_are_proven_on_own_and_on_committees_states(
    cheat: str, engines: Engines, spec: ModelSpec, proven: ProvenHead
) -> None:
    story = Story(cheats={0: ATTACKS[cheat]}, new_tokens=24, sampling=Sampling(0))
    if cheat == "own_seed":
        story = replace(story, sampling=Sampling(2_000_000))
    found = list(proofs(case_of(play(engines, spec, story)), proven))
    own = ("marginOwn", 0, Reason.MARGIN_MAX)
    committee = ("marginCommittee", None, Reason.MARGIN_MAX)
    assert names(found) == {own, committee}


def test_a_verifier_that_lies_proves_nothing_against_the_inferencer(
    engines: Engines, spec: ModelSpec, proven: ProvenHead
) -> None:
    played = play(engines, spec, Story(cheats={2: ATTACKS["garbage"]}, new_tokens=12))
    assert list(proofs(case_of(played), proven)) == []


def test_a_model_without_token_proof_has_no_margins(
    engines: Engines, spec: ModelSpec, proven: ProvenHead
) -> None:
    story = Story(cheats={0: ATTACKS["swapped"]}, new_tokens=24, sampling=Sampling(0))
    case = case_of(play(engines, spec, story))
    for changed in (replace(spec, token_proof=False), replace(spec, head_scale=2 * PPM)):
        assert list(proofs(replace(case, spec=changed), proven)) == []


# ── What parties signed ──────────────────────────────────────────────────────────────────────────
def synthetic(plan: Plan) -> list[Proof]:
    world = make_world(plan)
    bundle, spec = world.bundle, plan.spec
    return list(proofs(Case(bundle, world.posting, world.sealing, spec, builders.DOMAIN)))


def on(party: int, change: Callable[[Item], Item]) -> Callable[[int, Task], Task]:
    """Change the first item of one party's task."""

    def changed(number: int, task: Task) -> Task:
        if number != party:
            return task
        return replace(task, items=(change(task.items[0]), *task.items[1:]))

    return changed


def test_honest_words_prove_nothing() -> None:
    assert synthetic(Plan()) == []


@pytest.mark.parametrize(
    ("change", "party"),
    [
        (lambda item: replace(item, seed=Hash32(b"x" * 32)), 0),
        (lambda item: replace(item, sampling=Sampling(0)), 0),
        (lambda item: replace(item, max_new_tokens=item.max_new_tokens + 1), 0),
        (lambda item: replace(item, tokens=(*item.tokens[:-1], 7)), 0),
        (lambda item: replace(item, seed=Hash32(b"x" * 32)), 2),
        (lambda item: replace(item, sampling=Sampling(0)), 2),
        (lambda item: replace(item, tokens=item.tokens[:-1]), 2),
    ],
)
def test_a_task_that_is_not_the_requests_is_the_schedulers_fault(
    change: Callable[[Item], Item], party: int
) -> None:
    # All requests are checked, so that the changed item is one of them.
    found = synthetic(Plan(requests=2, task=on(party, change)))
    assert ("taskDiffers", SCHEDULER, Reason.TASK_DIFFERS) in names(found)
    assert {each.party for each in found} == {SCHEDULER}


def test_lengths_that_the_client_did_not_ask_for_need_no_task_to_convict_the_scheduler() -> None:
    world = make_world(Plan(requests=2, task=on(0, lambda i: replace(i, tokens=i.tokens[:-1]))))
    # Whoever hides the task cannot hide the leaf.
    first, *others = world.bundle.parties
    bundle = replace(world.bundle, parties=(replace(first, task=others[0].task), *others))
    case = Case(bundle, world.posting, world.sealing, world.spec, builders.DOMAIN)
    assert names(list(proofs(case))) == {("leafDiffers", SCHEDULER, Reason.LENGTH)}


def test_a_verifiers_task_with_another_token_is_the_schedulers_fault() -> None:
    change = on(1, lambda item: replace(item, tokens=(95, *item.tokens[1:])))
    found = synthetic(Plan(requests=2, task=change))
    assert names(found) == {("promptDiffers", SCHEDULER, Reason.TASK_DIFFERS)}


@pytest.mark.parametrize(
    ("sampling", "spec"),
    [
        (Sampling(2 * PPM + 1), builders.SPEC),
        (Sampling(0, top_p=0), builders.SPEC),
        (Sampling(0, min_p=PPM + 1), builders.SPEC),
        (Sampling(0), replace(builders.SPEC, context=15)),
        (Sampling(0), replace(builders.SPEC, vocabulary=40)),
    ],
)
def test_a_task_that_no_worker_can_run_is_the_fault_of_who_took_it(
    sampling: Sampling, spec: ModelSpec
) -> None:
    found = synthetic(Plan(requests=2, sampling=sampling, spec=spec))
    own = [each for each in found if each.name == "outOfBounds"]
    assert ("outOfBounds", 0, Reason.OUT_OF_BOUNDS) in names(found)
    assert {each.party for each in found} <= {0, 1, 2, 3}
    assert found[0] == own[0]  # before all that follows from it


def test_a_task_at_every_bound_proves_nothing() -> None:
    sampling = Sampling(2 * PPM, 2**32 - 1, 1, PPM)
    world = make_world(Plan(requests=2, sampling=sampling))
    items = [item for each in world.bundle.parties for item in each.task.items]
    longest = max(item.length + item.max_new_tokens for item in items)
    outputs = [token for each in world.bundle.checked for token in each.output]
    most = 1 + max(*(token for item in items for token in item.tokens), *outputs)
    spec = replace(builders.SPEC, context=longest, vocabulary=most)
    assert synthetic(Plan(requests=2, sampling=sampling, spec=spec)) == []
    for less in (replace(spec, context=longest - 1), replace(spec, vocabulary=most - 1)):
        assert synthetic(Plan(requests=2, sampling=sampling, spec=less))


def test_a_request_out_of_bounds_alone_is_the_schedulers_fault() -> None:
    """The inferencer's task can be run, so that nothing convicts it."""
    change = on(0, lambda item: replace(item, sampling=Sampling(0)))
    found = synthetic(Plan(requests=1, sampling=Sampling(0, top_p=0), task=change))
    of_first = {each for each in names(found) if each[1] in (0, SCHEDULER)}
    assert of_first == {("taskDiffers", SCHEDULER, Reason.TASK_DIFFERS)}


@pytest.mark.parametrize("party", [0, 2])
def test_a_trace_of_another_prompt_is_the_workers_fault(
    party: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)

    def run(number: int, item: TraceItem) -> TraceItem:
        tokens = (item.tokens[0], item.tokens[1] ^ 1, *item.tokens[2:])
        return replace(item, tokens=tokens) if number == party else item

    found = synthetic(Plan(requests=2, run=run))
    assert names(found) == {("traceDiffers", party, Reason.TRACE_DIFFERS)}


def test_false_lengths_are_the_workers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)

    def run(number: int, item: TraceItem) -> TraceItem:
        return replace(item, prompt_tokens=item.prompt_tokens - 1) if number == 1 else item

    found = synthetic(Plan(requests=2, run=run))
    assert ("lengthsDiffer", 1, Reason.LENGTH) in names(found)
    assert {each.party for each in found} == {1}


def test_tokens_after_the_end_are_the_inferencers_fault() -> None:
    def finish(output: tuple[int, ...]) -> tuple[int, ...]:
        return (*output[:2], builders.END, *output[3:])

    found = synthetic(Plan(requests=2, finish=finish, most=10))
    assert ("afterEnd", 0, Reason.AFTER_END) in names(found)
    assert {each.party for each in found} == {0}


def test_an_end_where_it_belongs_proves_nothing() -> None:
    assert synthetic(Plan(requests=2, finish=lambda output: (*output[:2], builders.END))) == []


@pytest.mark.parametrize("party", [0, 3])
def test_less_at_stake_in_the_task_than_was_locked_is_the_schedulers_fault(party: int) -> None:
    def cheap(number: int, task: Task) -> Task:
        return replace(task, lock=task.lock - 1) if number == party else task

    found = synthetic(Plan(requests=2, task=cheap))
    assert names(found) == {("taskDiffers", SCHEDULER, Reason.TASK_DIFFERS)}


def test_an_output_other_than_the_committed_one_is_the_schedulers_fault() -> None:
    world = make_world(Plan(requests=2))
    shown = world.bundle.checked
    other = replace(shown[0], output=(*shown[0].output[:-1], shown[0].output[-1] ^ 1))
    bundle: Bundle = replace(world.bundle, checked=(other, *shown[1:]))
    case = Case(bundle, world.posting, world.sealing, world.spec, builders.DOMAIN)
    assert ("outputsDiffer", SCHEDULER, Reason.OUTPUT_MISMATCH) in names(list(proofs(case)))


def test_a_receipt_for_another_output_is_the_schedulers_fault(honest: Played) -> None:
    case = case_of(honest)
    shown, identity = case.bundle.checked[0], job_id(DOMAIN, honest.posting.job)
    digest = output_hash(case.first_task, shown.output)
    receipt = Receipt(identity, case.first_task, shown.index, digest)
    assert receipt_proof(case, receipt, sign(DOMAIN, receipt, HOT)) is None
    forged = replace(receipt, output_hash=Hash32(b"y" * 32))
    found = receipt_proof(case, forged, sign(DOMAIN, forged, HOT))
    assert found is not None
    assert names([found]) == {("receiptDiffers", SCHEDULER, Reason.RECEIPT_DIFFERS)}


def test_what_does_not_lie_under_the_commitments_is_passed_over(honest: Played) -> None:
    parties = honest.bundle.parties
    strange = replace(parties[0], task=replace(parties[0].task, fee=1))
    swapped = replace(parties[1], openings=parties[2].openings)
    bundle = replace(honest.bundle, parties=(strange, swapped, *parties[2:]))
    case = Case(bundle, honest.posting, honest.sealing, honest.spec, DOMAIN)
    assert list(proofs(case)) == []
    assert {view.party for view in case.views} == {2, 3}
