"""What proofs are found at their edges: the first, the last, the one beyond, in any order."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.verifier.lab import DOMAIN, Engines, Story, play
from tests.unit.verillm import builders
from tests.unit.verillm.builders import Plan, make_world
from verillm.evidence import PartyEvidence
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.proofs.find import SCHEDULER, Case, Proof, View, proofs
from verillm.proofs.rivals import ProvenHead
from verillm.proofs.shown import NO_ENTRY
from verillm.request import Sampling
from verillm.sampling import scores
from verillm.statistics import to_floats
from verillm.task import Item, Task, items_tree
from verillm.trace import Entry, Opening, TraceItem, open_positions
from verillm.types import PPM, Bits, Hash32, ModelId, Reason
from verillm_verifier.attacks import ATTACKS


def case_of(plan: Plan | None = None) -> Case:
    world = make_world(plan)
    return Case(world.bundle, world.posting, world.sealing, world.spec, builders.DOMAIN)


def told(case: Case) -> list[tuple[str, int | None, str]]:
    """The proofs by name, party and fact."""
    return [(each.name, each.party, each.fact) for each in proofs(case)]


def names(case: Case) -> set[tuple[str, int | None]]:
    return {(each.name, each.party) for each in proofs(case)}


def with_party(case: Case, number: int, **changes: object) -> Case:
    parties = list(case.bundle.parties)
    parties[number] = replace(parties[number], **changes)  # type: ignore[arg-type]
    return with_parties(case, tuple(parties))


def with_parties(case: Case, parties: tuple[PartyEvidence, ...]) -> Case:
    return replace(case, bundle=replace(case.bundle, parties=parties))


def items(change: Callable[[Item], Item], party: int) -> Callable[[int, Task], Task]:
    def changed(number: int, task: Task) -> Task:
        return task if number != party else replace(task, items=tuple(map(change, task.items)))

    return changed


@pytest.fixture(scope="module")
def honest() -> Case:
    return case_of()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)


# ── What is passed over, and what stands behind it ───────────────────────────────────────────────
def foreign(case: Case) -> Opening:
    """An opening under nobody's commitment."""
    first = case.bundle.parties[1].openings[0]
    return replace(first, inner=replace(first.inner, prompt_tokens=1))


def test_what_stands_behind_a_strange_opening_is_seen_still(honest: Case) -> None:
    openings = {0: foreign(honest), 1: honest.bundle.parties[2].openings[1]}
    found = with_party(honest, 2, openings=openings).views
    assert [view.given.index for view in found if view.party == 2] == [1]


def test_an_opening_of_no_checked_request_or_by_nobody_drawn_is_passed_over(honest: Case) -> None:
    own = honest.bundle.parties[2].openings
    more = with_party(honest, 2, openings={2: own[0], 7: own[0], **own})
    assert [view.given.index for view in more.views if view.party == 2] == [0, 1]
    for party in (4, 9):
        views = with_party(honest, 2, party=party).views
        assert {view.party for view in views} == {0, 1, 3}
    assert told(more) == []


def test_the_inferencers_item_is_that_of_its_request_and_a_members_that_of_its_place() -> None:
    case = next(
        each
        for each in (case_of(Plan(requests=count)) for count in range(3, 8))
        if each.checked != (0, 1)
    )
    first = [view.given.index for view in case.views if view.party == 0]
    assert first == [each.index for each in case.bundle.checked] != [0, 1]
    assert [view.given.index for view in case.views if view.party == 3] == [0, 1]


def test_a_task_of_too_few_items_shows_those_that_it_has(honest: Case) -> None:
    def short(number: int, task: Task) -> Task:
        return task if number != 3 else replace(task, items=task.items[:1])

    case = case_of(Plan(task=short))
    assert [view.given.index for view in case.views if view.party == 3] == [0]
    more = with_party(case, 3, openings={**case.bundle.parties[3].openings, 1: foreign(case)})
    own = more.bundle.parties[3].openings[0]
    beyond = with_party(case, 3, openings={0: own, 1: own})
    assert [view.given.index for view in beyond.views if view.party == 3] == [0]


def test_parties_stand_in_any_order() -> None:
    change = items(lambda item: replace(item, tokens=item.tokens[:-1]), 0)
    case = case_of(Plan(requests=2, task=change))
    turned = with_parties(case, case.bundle.parties[::-1])
    assert names(turned) == names(case) == {("leafDiffers", SCHEDULER), ("taskDiffers", SCHEDULER)}


# ── What a scheduler posted ──────────────────────────────────────────────────────────────────────
def test_an_answer_of_one_token_or_of_all_that_was_asked_is_as_long_as_it_may_be() -> None:
    for most in (1, 4):
        plan = Plan(most=most, finish=lambda output: tuple(token or 1 for token in output))
        case = case_of(plan)
        assert {len(each.output) for each in case.bundle.checked} == {most}
        assert told(case) == []


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.usefixtures("unchecked")
def test_a_leaf_of_another_length_than_was_asked_is_the_schedulers(change: int) -> None:
    """Of its prompt, by one token, and nothing else is wrong."""

    def run(number: int, item: TraceItem) -> TraceItem:
        if number:
            return item
        return replace(item, prompt_tokens=item.prompt_tokens + change)

    case = case_of(Plan(requests=2, run=run, finish=lambda out: tuple(t or 1 for t in out)))
    found = [each for each in proofs(case) if each.name == "leafDiffers"]
    expected = [f"request {each.index} is not as long" for each in case.bundle.checked]
    assert [each.fact[: len(expected[0])] for each in found] == expected
    for proof, shown in zip(found, case.bundle.checked, strict=True):
        number, made, asked = proof.values
        assert (number, proof.reason) == (shown.index, Reason.LENGTH)
        assert made.leaf.prompt_tokens == len(shown.request.tokens) + change  # type: ignore[attr-defined]
        assert asked.length == len(shown.request.tokens)  # type: ignore[attr-defined]
        assert asked.path == shown.path  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unchecked")
def test_leaves_behind_a_strange_opening_or_beside_one_of_no_request_are_seen_still() -> None:
    def run(number: int, item: TraceItem) -> TraceItem:
        return item if number else replace(item, prompt_tokens=item.prompt_tokens - 1)

    case = case_of(Plan(requests=2, run=run))
    own = case.bundle.parties[0].openings
    changed = with_party(case, 0, openings={2: own[0], 0: foreign(case), 1: own[1]})
    found = [each for each in proofs(changed) if each.name == "leafDiffers"]
    assert [each.values[0] for each in found] == [case.bundle.checked[1].index]


# ── What a worker signed ─────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("party", [0, 2])
@pytest.mark.usefixtures("unchecked")
def test_a_longer_prompt_beside_no_more_new_tokens_than_may_be_is_told(party: int) -> None:
    def run(number: int, item: TraceItem) -> TraceItem:
        return item if number != party else replace(item, prompt_tokens=item.prompt_tokens + 1)

    found = [each for each in told(case_of(Plan(run=run))) if each[0] == "lengthsDiffer"]
    assert [each[1] for each in found] == [party, party]


def test_a_leaf_of_the_output_that_counts_more_tokens_needs_no_entry() -> None:
    world = make_world(Plan(requests=2))
    honest = world.committed[0]
    leaves = tuple(replace(leaf, new_tokens=leaf.new_tokens + 1) for leaf in honest.leaves)
    tree = items_tree(leaves)
    inner = replace(honest.inner, items_root=tree.root)
    forged = replace(honest, leaves=leaves, items=tree, inner=inner)
    openings = {place: open_positions(forged, place, [3]) for place in range(2)}
    case = Case(world.bundle, world.posting, world.sealing, world.spec, builders.DOMAIN)
    case = replace(case, sealing=replace(world.sealing, inner=inner))
    found = [
        each
        for each in proofs(with_party(case, 0, openings=openings))
        if each.name == "outputDiffers"
    ]
    assert [each.values[3] for each in found] == [NO_ENTRY, NO_ENTRY]
    assert {(each.party, each.reason) for each in found} == {(0, Reason.OUTPUT_MISMATCH)}


def test_a_token_beyond_the_vocabulary_by_one_is_none_and_says_where() -> None:
    """The vocabulary holds one token less than its largest id says."""
    last = builders.VOCABULARY
    change = items(lambda item: replace(item, tokens=(*item.tokens[:3], last, *item.tokens[4:])), 2)
    found = [each for each in told(case_of(Plan(requests=2, task=change))) if each[1] == 2]
    expected = "no worker can run item {}: prompt token 3 is none"
    assert found == [("outOfBounds", 2, expected.format(item)) for item in (0, 1)]


def test_a_bound_that_is_broken_is_named() -> None:
    change = items(lambda item: replace(item, sampling=Sampling(0, top_p=0)), 2)
    case = case_of(Plan(requests=2, task=change))
    (first, *_) = [fact for name, party, fact in told(case) if (name, party) == ("outOfBounds", 2)]
    assert first == "no worker can run item 0: its topP is out of bounds"


def beyond(case: Case, number: int, change: Callable[[Entry, View], Entry]) -> Case:
    """The last entry of one party's openings changed, which no commitment bears out."""
    views = {view.opening.leaf.item: view for view in case.views if view.party == number}

    def changed(opening: Opening) -> Opening:
        last = change(opening.entries[-1], views[opening.leaf.item])
        return replace(opening, entries=(*opening.entries[:-1], last))

    openings = {at: changed(each) for at, each in case.bundle.parties[number].openings.items()}
    return with_party(case, number, openings=openings)


@pytest.mark.parametrize("number", [0, 2])
def test_an_entry_just_beyond_the_text_is_no_proof_and_no_error(honest: Case, number: int) -> None:
    """A stranger's bundle may hold any: there is no token to compare it with."""
    for off in (-1, 0, 1, 10**6):

        def moved(entry: Entry, view: View, off: int = off) -> Entry:
            end = len(view.checked.request.tokens) + len(view.checked.output)
            text = view.checked.request.tokens + view.checked.output
            token = text[end - 1] if off < 0 else 3
            return replace(entry, position=end + off, token=token, next=3)

        assert told(beyond(honest, number, moved)) == []


# ── Margins ──────────────────────────────────────────────────────────────────────────────────────
HOT = Sampling(2_000_000)


@pytest.fixture(scope="module")
def forged(engines: Engines, spec: ModelSpec) -> Case:
    """Nearly every token was chosen by other noise than the job's."""
    story = Story(cheats={0: ATTACKS["own_seed"]}, new_tokens=12, sampling=HOT)
    played = play(engines, spec, story)
    return Case(played.bundle, played.posting, played.sealing, played.spec, DOMAIN)


@pytest.fixture(scope="module")
def proven(head: HeadRows) -> ProvenHead:
    return ProvenHead(head)


def worse(rows: HeadRows, first: View, final: Bits, position: int, token: int) -> dict[int, float]:
    """By how much each entry beats a token, by float32."""
    ranked = scores(rows.logits(to_floats(final)[None])[0], HOT, first.item.seed, position)
    return {entry: float(score - ranked[token]) for entry, score in enumerate(ranked)}


def firsts(case: Case) -> Iterator[tuple[View, tuple[int, ...]]]:
    for view in case.views:
        if view.party == 0:
            yield view, view.checked.request.tokens + view.checked.output


def test_every_position_that_an_own_state_convicts_is_found_and_no_other(
    forged: Case, head: HeadRows, proven: ProvenHead
) -> None:
    most = forged.spec.profile.margin_max_slash / PPM
    expected = [
        (view.given.index, entry.position)
        for view, text in firsts(forged)
        for entry in view.opening.entries
        if entry.position >= view.item.length - 1
        and max(worse(head, view, entry.final, entry.position, text[entry.position + 1]).values())
        > most
    ]
    found = [each for each in proofs(forged, proven) if each.name == "marginOwn"]
    assert [(each.values[1].index, each.values[3].position) for each in found] == expected  # type: ignore[attr-defined]
    starts = [(view.given.index, view.item.length - 1) for view, _ in firsts(forged)]
    assert set(starts) & set(expected), "no first token was forged"
    for proof, (_, position) in zip(found, expected, strict=True):
        entry, rival = proof.values[3], proof.values[5]
        assert proof.fact == f"position {position}: {rival.id} beats {entry.next}"  # type: ignore[attr-defined]


def test_every_position_that_members_states_convict_is_found_and_no_other(
    forged: Case, head: HeadRows, proven: ProvenHead
) -> None:
    least, expected = forged.spec.profile.margin_max_refund / PPM, []
    for first, text in firsts(forged):
        members = [view for view in forged.views if view.party and view.checked == first.checked]
        for at in range(first.item.length - 1, len(text) - 1):
            states = [e.final for view in members for e in view.opening.entries if e.position == at]
            beaten = [worse(head, first, final, at, text[at + 1]) for final in states]
            if any(sum(each[v] > least for each in beaten) >= 2 for v in beaten[0]):
                expected.append((first.given.index, at))
    found = [each for each in proofs(forged, proven) if each.name == "marginCommittee"]
    assert [(each.values[1].index, each.values[4][0].entry.position) for each in found] == expected  # type: ignore[attr-defined, index]
    for first, text in firsts(forged):
        edges = {(first.given.index, at) for at in (first.item.length - 1, len(text) - 2)}
        assert edges & set(expected), "neither the first nor the last token was forged"
    for proof, (_, position) in zip(found, expected, strict=True):
        assert proof.fact.startswith(f"position {position}: by ")


def test_members_object_by_more_than_what_is_refunded(forged: Case, proven: ProvenHead) -> None:
    """One unit less and the last of a quorum objects, at just so much it does not."""
    profile = forged.spec.profile
    proof = next(each for each in proofs(forged, proven) if each.name == "marginCommittee")
    _, given, _, _, witnesses, rival = proof.values
    entries = {
        view.party: entry
        for view in forged.views
        for entry in view.opening.entries
        if view.party and view.given.item.seed == given.item.seed  # type: ignore[attr-defined]
        and entry.position == witnesses[0].entry.position  # type: ignore[index]
    }  # fmt: skip
    margins = [
        proven.margin(entry.final, given.item, entry.position, entry.next, rival.id)  # type: ignore[attr-defined]
        for entry in entries.values()
    ]
    second = sorted(each.margin for each in margins if each is not None)[-2]

    def at(refund: int) -> list[Proof]:
        spec = replace(forged.spec, profile=replace(profile, margin_max_refund=refund))
        return [
            each
            for each in proofs(replace(forged, spec=spec), proven)
            if each.name == "marginCommittee"
            and each.values[1] == given
            and each.values[4][0].entry.position == witnesses[0].entry.position  # type: ignore[index]
            and each.values[5] == rival
        ]

    assert len(at(second - 1)) == 1 and at(second) == []


def test_a_state_without_finite_logits_objects_to_nothing(forged: Case, proven: ProvenHead) -> None:
    """With one member silent and the other's states no numbers, one objects: no quorum."""

    def spoilt(opening: Opening) -> Opening:
        none = [replace(e, final=np.full_like(e.final, 0x7FC0)) for e in opening.entries]
        return replace(opening, entries=tuple(none))

    openings = {at: spoilt(each) for at, each in forged.bundle.parties[2].openings.items()}
    found = list(
        proofs(with_party(with_party(forged, 3, openings={}), 2, openings=openings), proven)
    )
    assert {each.name for each in found} == {"marginOwn"}


def test_another_model_than_the_jobs_has_no_margins_of_its_own(
    forged: Case, proven: ProvenHead
) -> None:
    quote = replace(forged.posting.quote, model_id=ModelId(Hash32(b"o" * 32)))
    other = replace(forged, posting=replace(forged.posting, quote=quote))
    found = {each.name for each in proofs(other, proven)}
    assert "marginOwn" not in found and "marginCommittee" in found


def test_margins_are_found_whatever_stands_before_them(forged: Case, proven: ProvenHead) -> None:
    """Members first, and a state without finite logits and a token that is none before the rest."""
    own = [each for each in proofs(forged, proven) if each.name == "marginOwn"]
    turned = with_parties(forged, forged.bundle.parties[::-1])
    assert [each for each in proofs(turned, proven) if each.name == "marginOwn"] == own

    def spoilt(opening: Opening) -> Opening:
        first = next(e for e in opening.entries if e.position >= opening.leaf.prompt_tokens - 1)
        at = opening.entries.index(first)
        strange = [
            replace(first, next=forged.spec.vocabulary),
            replace(first, final=np.full_like(first.final, 0x7FC0)),
        ]
        entries = (*opening.entries[:at], *strange, *opening.entries[at:])
        return replace(opening, entries=entries)

    openings = {at: spoilt(each) for at, each in forged.bundle.parties[0].openings.items()}
    found = list(proofs(with_party(forged, 0, openings=openings), proven))
    assert [each for each in found if each.name == "marginOwn"] == own


def test_an_output_token_that_is_none_has_no_margin(forged: Case, proven: ProvenHead) -> None:
    """Its row does not exist, and it convicts by itself."""
    none = forged.spec.vocabulary
    shown = tuple(replace(each, output=(none, *each.output[1:])) for each in forged.bundle.checked)
    case = replace(forged, bundle=replace(forged.bundle, checked=shown))
    found = [each for each in proofs(case, proven) if each.name == "marginCommittee"]
    for first, _ in firsts(case):
        at = {
            each.values[4][0].entry.position  # type: ignore[index]
            for each in found
            if each.values[1] == first.given
        }
        assert at and first.item.length - 1 not in at
