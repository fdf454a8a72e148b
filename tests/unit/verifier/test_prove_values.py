"""What a proof brings lies under what was sealed, and differs where it says: the Prover's rules."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.verifier.lab import DOMAIN, HOT, Engines, Played, Story, play
from tests.unit.verifier.prover import (
    PIECE,
    check_asked,
    check_entry,
    check_given,
    check_made,
    check_output,
    check_posted,
    check_rows,
    check_witness,
    shown_of,
    token_of,
)
from tests.unit.verillm import builders
from tests.unit.verillm.builders import Plan, World, make_world
from verillm.hashing import tokens_bytes, tokens_of
from verillm.head import HeadRows
from verillm.merkle import Tree
from verillm.model import ModelSpec
from verillm.proofs.find import SCHEDULER, Case, Proof, proofs, receipt_proof
from verillm.proofs.margins import margin_of
from verillm.proofs.rivals import ProvenHead
from verillm.proofs.shown import (
    NO_PIECE,
    Told,
)
from verillm.request import Receipt, Sampling
from verillm.signing import job_id, sign
from verillm.task import (
    Item,
    Task,
    items_tree,
    output_hash,
)
from verillm.trace import TraceItem, open_positions, state_bytes, state_digest, trace_leaves
from verillm.types import Hash32, ModelId, Reason
from verillm_verifier.attacks import ATTACKS

LONG = 40
"""Prompt tokens: more than a piece."""


def case_of(world: World) -> Case:
    return Case(world.bundle, world.posting, world.sealing, world.spec, builders.DOMAIN)


# ── What was signed ──────────────────────────────────────────────────────────────────────────────
def every(party: int, change: Callable[[Item], Item]) -> Callable[[int, Task], Task]:
    """Change every item of one party's task."""

    def changed(number: int, task: Task) -> Task:
        return task if number != party else replace(task, items=tuple(map(change, task.items)))

    return changed


def found(plan: Plan) -> tuple[Case, list[Proof]]:
    case = case_of(make_world(plan))
    return case, list(proofs(case))


def of(name: str, every_proof: list[Proof]) -> list[tuple[Any, ...]]:
    assert all(each.fact and "None" not in each.fact for each in every_proof)
    values: list[tuple[Any, ...]] = [each.values for each in every_proof if each.name == name]
    assert values, f"no {name} among {[each.name for each in every_proof]}"
    return values


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)


@pytest.mark.parametrize("party", [0, 2])
@pytest.mark.usefixtures("unchecked")
def test_lengths_differ_by_a_leaf_and_a_task_of_the_same_party(party: int) -> None:
    def run(number: int, item: TraceItem) -> TraceItem:
        less = replace(item, prompt_tokens=item.prompt_tokens - 1)
        return less if number == party else item

    case, every_proof = found(Plan(run=run))
    values = of("lengthsDiffer", every_proof)
    assert len(values) == 2
    for named, given, made in values:
        assert named == party
        check_given(case, party, given)
        check_made(case, party, made)
        assert made.leaf.item == given.index
        assert made.leaf.prompt_tokens == given.item.length - 1


@pytest.mark.parametrize(("party", "place"), [(0, 1), (0, PIECE), (2, LONG - 2)])
@pytest.mark.usefixtures("unchecked")
def test_a_trace_differs_by_the_piece_that_holds_the_token(party: int, place: int) -> None:
    def run(number: int, item: TraceItem) -> TraceItem:
        tokens = list(item.tokens)
        tokens[place] ^= 1
        return replace(item, tokens=tuple(tokens)) if number == party else item

    spec = replace(builders.SPEC, positions=LONG + 20)  # all positions are challenged
    case, every_proof = found(Plan(run=run, prompt=LONG, spec=spec))
    values = of("traceDiffers", every_proof)
    assert len(values) == 2
    for named, given, made, at, piece, entry in values:
        assert (named, at) == (party, place)
        check_given(case, party, given)
        check_made(case, party, made)
        check_entry(given.inner.task_hash, made, entry)
        said = entry.token if entry.position == at else entry.next
        assert entry.position in (at, at - 1)
        told = token_of(given.item.salt, given.item.tokens, at, piece)
        assert told == given.item.tokens[at] == said ^ 1


def test_outputs_differ_by_the_posted_hash_and_the_leaf() -> None:
    world = make_world(Plan(requests=2))
    strange = replace(world.sealing.inner, prompt_tokens=1)
    lying = make_world(Plan(requests=2, finish=lambda output: output[::-1]))
    parties = (lying.bundle.parties[0], *world.bundle.parties[1:])
    sealing = replace(world.sealing, inner=lying.sealing.inner)
    case = Case(
        replace(world.bundle, parties=parties),
        world.posting,
        sealing,
        world.spec,
        builders.DOMAIN,
    )
    for number, made, digest, path in of("outputsDiffer", list(proofs(case))):
        check_made(case, 0, made)
        check_posted(case, number, digest, path)
        assert made.leaf.item == number and made.leaf.output_hash != digest
    other = replace(case, sealing=replace(sealing, inner=strange))
    assert list(proofs(other)) == []


def retraced(world: World, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> World:
    """The inferencer's leaves over other tokens, under item leaves that name the true outputs."""
    honest = world.committed[0]
    items = tuple(replace(item, tokens=change(item.tokens)) for item in honest.trace.items)
    trees = tuple(Tree(trace_leaves(honest.trace.task_hash, item)) for item in items)
    leaves = tuple(
        replace(leaf, trace_root=tree.root) for leaf, tree in zip(honest.leaves, trees, strict=True)
    )
    inner = replace(honest.inner, items_root=items_tree(leaves).root)
    forged = replace(
        honest,
        trace=replace(honest.trace, items=items),
        inner=inner,
        leaves=leaves,
        trees=trees,
        items=items_tree(leaves),
    )
    first = world.bundle.parties[0]
    openings = {
        place: open_positions(forged, each.index, range(len(items[each.index].tokens) - 1))
        for place, each in enumerate(world.bundle.checked)
    }
    parties = (replace(first, openings=openings), *world.bundle.parties[1:])
    bundle = replace(world.bundle, parties=parties)
    return replace(world, bundle=bundle, sealing=replace(world.sealing, inner=inner))


@pytest.mark.parametrize("place", [-1, -10])
def test_an_output_differs_by_the_first_entry_of_another_token(place: int) -> None:
    def change(tokens: tuple[int, ...]) -> tuple[int, ...]:
        at = len(tokens) + place
        return (*tokens[:at], tokens[at] ^ 1, *tokens[at + 1 :])

    world = retraced(make_world(Plan(finish=lambda output: tuple(t or 1 for t in output))), change)
    case = case_of(world)
    values = of("outputDiffers", list(proofs(case)))
    assert len(values) == 2
    for number, made, tokens, entry in values:
        shown = shown_of(case, made, 0)
        assert number == shown.index and tokens_of(tokens) == shown.output
        assert made.leaf.output_hash == output_hash(case.first_task, shown.output)
        check_made(case, 0, made)
        check_entry(case.sealing.inner.task_hash, made, entry)
        text = shown.request.tokens + shown.output
        at = len(text) + place
        assert entry.position in (at, at - 1)
        assert (entry.token if entry.position == at else entry.next) == text[at] ^ 1


@pytest.mark.parametrize("after", [1, 7])
def test_the_end_is_shown_by_its_place_in_the_output(after: int) -> None:
    def finish(output: tuple[int, ...]) -> tuple[int, ...]:
        return (7, 9, builders.END, *(3,) * after)

    case, every_proof = found(Plan(finish=finish))
    for spec, given, made, tokens, at in of("afterEnd", every_proof):
        shown = shown_of(case, made, 0)
        assert spec == case.spec and at == 2
        assert tokens_of(tokens) == shown.output and shown.output[at] == builders.END
        check_given(case, 0, given)
        check_made(case, 0, made)
        assert given.index == shown.index


def test_a_token_that_is_none_is_shown_even_at_the_end() -> None:
    none = builders.VOCABULARY
    case, every_proof = found(Plan(finish=lambda output: (*(t or 1 for t in output[:-1]), none)))
    values = of("afterEnd", every_proof)
    assert {each.reason for each in every_proof if each.name == "afterEnd"} == {
        Reason.OUTSIDE_NUCLEUS
    }
    for _, _, made, tokens, at in values:
        assert tokens_of(tokens)[at] == none
        assert at == len(shown_of(case, made, 0).output) - 1


def test_what_no_worker_can_run_is_shown_by_its_first_token_that_is_none() -> None:
    spec = replace(builders.SPEC, vocabulary=60)
    case, every_proof = found(Plan(requests=2, prompt=LONG, spec=spec))
    values = of("outOfBounds", every_proof)
    for named, party, given, at, piece in values:
        assert named == spec
        check_given(case, party, given)
        strange = [place for place, token in enumerate(given.item.tokens) if token >= 60]
        assert at == strange[0]
        assert token_of(given.item.salt, given.item.tokens, at, piece) >= 60
    assert {party for _, party, *_ in values} == {0, 1, 2, 3}
    less = replace(builders.SPEC, context=LONG)
    for _, _, _, at, piece in of("outOfBounds", found(Plan(prompt=LONG, spec=less))[1]):
        assert (at, piece) == (0, NO_PIECE)


def test_bounds_of_another_model_than_the_jobs_convict_no_worker() -> None:
    def other(number: int, task: Task) -> Task:
        return replace(task, model_id=ModelId(Hash32(b"o" * 32)))

    spec = replace(builders.SPEC, vocabulary=60)
    names = {each.name for each in found(Plan(spec=spec, task=other))[1]}
    assert "outOfBounds" not in names and "taskDiffers" in names


CHANGES: dict[str, Callable[[Item], Item]] = {
    "seed": lambda item: replace(item, seed=Hash32(b"x" * 32)),
    "sampling": lambda item: replace(item, sampling=Sampling(0)),
    "most": lambda item: replace(item, max_new_tokens=item.max_new_tokens + 1),
    "token": lambda item: replace(item, tokens=(*item.tokens[:-1], item.tokens[-1] ^ 1)),
    "shorter": lambda item: replace(item, tokens=item.tokens[:-1]),
}


@pytest.mark.parametrize(
    ("party", "name"),
    [(0, "seed"), (0, "sampling"), (0, "most"), (0, "token"), (0, "shorter"), (2, "seed"),
     (2, "sampling"), (2, "shorter")],
)  # fmt: skip
def test_a_task_differs_from_the_request_and_the_posted_output(party: int, name: str) -> None:
    case, every_proof = found(Plan(task=every(party, CHANGES[name])))
    values = of("taskDiffers", every_proof)
    assert len(values) == 2
    for spec, named, given, asked, output in values:
        shown = shown_of(case, given, party)
        assert (spec, named) == (case.spec, party)
        check_given(case, party, given)
        check_asked(case, shown, asked)
        check_output(case, shown, output)


WHOLE: dict[str, Callable[[Task], Task]] = {
    "model": lambda task: replace(task, model_id=ModelId(Hash32(b"o" * 32))),
    "worker": lambda task: replace(task, worker=builders.CLIENT.address),
    "lock": lambda task: replace(task, lock=task.lock - 1),
    "items": lambda task: replace(task, items=(*task.items, task.items[0])),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("party", [0, 3])
@pytest.mark.usefixtures("unchecked")
def test_a_task_for_another_model_worker_lock_or_number_is_the_schedulers_fault(
    party: int, name: str
) -> None:
    def changed(number: int, task: Task) -> Task:
        return WHOLE[name](task) if number == party else task

    every_proof = found(Plan(task=changed))[1]
    assert {each.values[1] for each in every_proof if each.name == "taskDiffers"} == {party}
    assert {each.party for each in every_proof if each.name == "taskDiffers"} == {SCHEDULER}


def test_another_lock_that_is_more_than_was_locked_proves_nothing() -> None:
    def rich(number: int, task: Task) -> Task:
        return replace(task, lock=task.lock + 1, fee=task.fee + 1)

    assert found(Plan(task=rich))[1] == []


def test_an_inferencers_task_of_another_id_is_the_schedulers_fault() -> None:
    def renamed(number: int, task: Task) -> Task:
        return task if number else replace(task, task_id=Hash32(b"o" * 32))  # type: ignore[arg-type]

    every_proof = found(Plan(task=renamed))[1]
    assert "taskDiffers" in {each.name for each in every_proof}


@pytest.mark.parametrize("place", [3, PIECE, LONG, LONG + 2])
def test_a_prompt_differs_by_pieces_of_the_task_and_of_the_request_if_it_is_there(
    place: int,
) -> None:
    def change(item: Item) -> Item:
        tokens = (*item.tokens[:place], item.tokens[place] ^ 1, *item.tokens[place + 1 :])
        return replace(item, tokens=tokens)

    case, every_proof = found(Plan(requests=2, prompt=LONG, task=every(1, change)))
    values = of("promptDiffers", every_proof)
    assert len(values) == 2
    for spec, party, given, asked, told, output in values:
        shown = shown_of(case, given, 1)
        assert (spec, party, told.at) == (case.spec, 1, place)
        check_given(case, 1, given)
        check_asked(case, shown, asked)
        check_output(case, shown, output)
        text = shown.request.tokens + shown.output
        said = token_of(given.item.salt, given.item.tokens, place, told.given)
        assert said == text[place] ^ 1
        if place >= len(shown.request.tokens):
            assert told == Told(place, told.given, NO_PIECE)
        else:
            request = shown.request
            assert token_of(request.salt, request.tokens, place, told.asked) == text[place]


def test_a_receipt_brings_the_posted_hash_of_its_own_request(honest: Played) -> None:
    case = Case(honest.bundle, honest.posting, honest.sealing, honest.spec, DOMAIN)
    identity = job_id(DOMAIN, honest.posting.job)
    for shown in case.bundle.checked:
        forged = Receipt(identity, case.first_task, shown.index, Hash32(b"y" * 32))
        signature = sign(DOMAIN, forged, HOT)
        proof = receipt_proof(case, forged, signature)
        assert proof is not None and proof.fact == f"request {shown.index}"
        receipt, signed, posted, path = proof.values
        assert (receipt, signed) == (forged, signature)
        assert posted == output_hash(case.first_task, shown.output)
        check_posted(case, shown.index, posted, path)  # type: ignore[arg-type]
    unknown = Receipt(identity, case.first_task, 99, Hash32(b"y" * 32))
    assert receipt_proof(case, unknown, b"") is None


# ── Margins ──────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def forged(engines: Engines, spec: ModelSpec, head: HeadRows) -> tuple[Case, list[Proof]]:
    story = Story(cheats={0: ATTACKS["swapped"]}, new_tokens=24, sampling=Sampling(0))
    played = play(engines, spec, story)
    case = Case(played.bundle, played.posting, played.sealing, played.spec, DOMAIN)
    return case, list(proofs(case, ProvenHead(head)))


def test_a_margin_is_shown_by_the_workers_own_state_and_both_rows(
    forged: tuple[Case, list[Proof]], head: HeadRows
) -> None:
    case, every_proof = forged
    profile = case.spec.profile
    for spec, given, made, entry, final, rival in of("marginOwn", every_proof):
        assert spec == case.spec
        check_given(case, 0, given)
        check_made(case, 0, made)
        check_entry(given.inner.task_hash, made, entry)
        check_rows(spec, entry.next, rival)
        shown = shown_of(case, made, 0)
        text = shown.request.tokens + shown.output
        assert (entry.token, entry.next) == (text[entry.position], text[entry.position + 1])
        opening = next(
            each for each in case.bundle.parties[0].openings.values()
            if each.leaf.item == made.leaf.item
        )  # fmt: skip
        state = next(each.final for each in opening.entries if each.position == entry.position)
        assert state_bytes(state) == final and state_digest(state) == entry.final_state
        token_row, rival_row = (head.rows(row, row + 1)[0] for row in (entry.next, rival.id))
        sampled = (given.item.seed, entry.position, entry.next, rival.id, 0)
        margin = margin_of(state, token_row, rival_row, *sampled)
        assert margin.convicts(given.item.sampling, profile.logit_tau, profile.margin_max_slash)


def test_a_committees_margin_is_shown_by_a_majority_of_its_states(
    forged: tuple[Case, list[Proof]],
) -> None:
    case, every_proof = forged
    for spec, given, made, tokens, witnesses, rival in of("marginCommittee", every_proof):
        assert spec == case.spec
        check_given(case, 0, given)
        check_made(case, 0, made)
        shown = shown_of(case, made, 0)
        text = shown.request.tokens + shown.output
        assert tokens == tokens_bytes(text)
        assert len({each.party for each in witnesses}) == len(witnesses) >= 2
        at = {each.entry.position for each in witnesses}
        assert len(at) == 1
        check_rows(spec, text[next(iter(at)) + 1], rival)
        for witness in witnesses:
            check_witness(case, shown, witness)


@pytest.mark.parametrize(("silent", "proven"), [({2}, True), ({1, 3}, False)])
def test_two_of_three_members_are_a_majority_and_one_is_none(
    silent: set[int], proven: bool, forged: tuple[Case, list[Proof]], head: HeadRows
) -> None:
    case = forged[0]
    parties = tuple(
        replace(each, openings={}) if each.party in silent else each for each in case.bundle.parties
    )
    less = replace(case, bundle=replace(case.bundle, parties=parties))
    found = [
        each.values[4] for each in proofs(less, ProvenHead(head)) if each.name == "marginCommittee"
    ]
    assert bool(found) is proven
    for witnesses in found:
        assert {each.party for each in witnesses} == {1, 3}  # type: ignore[attr-defined]
