"""Honest and cheating jobs judged from facts and bytes: each verdict for its own reason."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tests.unit.verifier import lab
from tests.unit.verifier.lab import CLAIM, POST, SEAL, Engines, Played, Story, play
from tests.unit.verifier.mutate import mutations
from verillm.codec import encode_bundle
from verillm.errors import MalformedError
from verillm.evidence import PartyEvidence, PartyStates
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.request import Sampling
from verillm.signing import sign
from verillm.types import Outcome, Reason
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Audit, Exit, Standing, audit
from verillm_verifier.opinion import form
from verillm_verifier.replay import replay

ACCEPT = (Outcome.ACCEPT, Reason.NONE)


def test_an_honest_job_is_accepted_and_the_chain_agrees(honest: Played, head: HeadRows) -> None:
    result = audit(honest.facts(), honest.raw, head)
    assert (result.verdict.outcome, result.verdict.reason) == ACCEPT
    assert result.standing is Standing.AGREES
    assert result.exit is Exit.ACCEPT
    assert not result.verdict.suspects
    assert result.verdict.details.tokens is not None


def test_without_head_rows_nothing_is_accepted(honest: Played) -> None:
    result = audit(honest.facts(), honest.raw, None)
    assert result.verdict.reason is Reason.HEAD_MISSING
    assert result.standing is Standing.UNCONFIRMED
    assert result.exit is Exit.INCONCLUSIVE


def test_a_claimed_or_unclaimed_job_can_be_judged_before_it_is_final(
    honest: Played, head: HeadRows
) -> None:
    assert audit(honest.facts(until=CLAIM), honest.raw, head).standing is Standing.AGREES
    sealed = audit(honest.facts(until=SEAL), honest.raw, head)
    assert (sealed.standing, sealed.exit) == (Standing.OPEN, Exit.ACCEPT)
    posted = audit(honest.facts(until=POST), None, head)
    assert (posted.standing, posted.exit) == (Standing.OPEN, Exit.INCONCLUSIVE)


def test_a_missing_bundle_is_inconclusive(honest: Played, head: HeadRows) -> None:
    result = audit(honest.facts(), None, head, "gone")
    assert result.verdict.reason is Reason.EVIDENCE_MISSING
    assert result.verdict.details.fact.endswith("gone")
    assert (result.standing, result.exit) == (Standing.UNCONFIRMED, Exit.INCONCLUSIVE)


# ── Power: each cheat has its own reason ─────────────────────────────────────────────────────────
POWER = {
    "int4": (Outcome.SLASH, Reason.STATES_DIFFER),
    "int8_group": (Outcome.REFUND, Reason.STATES_DIFFER),
    "int8_row": (Outcome.REFUND, Reason.STATES_DIFFER),
    "skipped": (Outcome.SLASH, Reason.STATES_DIFFER),
    "other_prompt": (Outcome.SLASH, Reason.STATES_DIFFER),
    "copied": (Outcome.SLASH, Reason.STATES_DIFFER),
    "perturbed": (Outcome.SLASH, Reason.STATES_DIFFER),
    "shuffled": (Outcome.SLASH, Reason.STATES_DIFFER),
    "garbage": (Outcome.SLASH, Reason.STATES_DIFFER),
    "prefilled": (Outcome.SLASH, Reason.MARGIN_MAX),
    "swapped": (Outcome.SLASH, Reason.MARGIN_MAX),
    "own_seed": (Outcome.SLASH, Reason.MARGIN_MAX),
    "temperature": (Outcome.REFUND, Reason.MARGIN_MAX),
    "cut": (Outcome.REFUND, Reason.LENGTH),
    "padded": (Outcome.REFUND, Reason.AFTER_END),
}
ENDING_EARLY = ((8, 16, 25, 4), (5, 8, 7))


@pytest.mark.parametrize("name", POWER)
def test_each_named_cheat_is_rejected_for_its_own_reason(
    engines: Engines, spec: ModelSpec, head: HeadRows, name: str
) -> None:
    story = Story(cheats={0: ATTACKS[name]}, new_tokens=24)
    if name == "padded":  # needs an answer that ends by itself
        story = replace(story, prompts=ENDING_EARLY, new_tokens=100)
    played = play(engines, spec, story)
    settled = POWER[name]
    result = audit(played.facts(*settled), played.raw, head)
    assert (result.verdict.outcome, result.verdict.reason) == settled
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.REJECT)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling.of(0),
        Sampling.of(1.3),
        Sampling.of(0.8, top_p=0.3),
        Sampling.of(0.8, top_k=3),
        Sampling.of(0.8, min_p=0.3),
    ],
    ids=["greedy", "hot", "top_p", "top_k", "min_p"],
)
def test_honest_sampling_of_every_kind_is_accepted(
    engines: Engines, spec: ModelSpec, head: HeadRows, sampling: Sampling
) -> None:
    played = play(engines, spec, Story(sampling=sampling, new_tokens=24))
    assert audit(played.facts(), played.raw, head).exit is Exit.ACCEPT


def test_an_answer_that_ends_by_itself_is_accepted(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    played = play(engines, spec, Story(prompts=ENDING_EARLY, new_tokens=100))
    assert min(len(each.output) for each in played.bundle.checked) < 100
    assert audit(played.facts(), played.raw, head).exit is Exit.ACCEPT


def test_a_chain_that_accepted_the_cheat_is_contradicted(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    played = play(engines, spec, Story(cheats={0: ATTACKS["int4"]}))
    result = audit(played.facts(), played.raw, head)
    assert (result.standing, result.exit) == (Standing.CONTRADICTS, Exit.CONTRADICTED)


def test_a_chain_that_slashed_the_honest_is_contradicted(honest: Played, head: HeadRows) -> None:
    for outcome, reason in (
        (Outcome.SLASH, Reason.STATES_DIFFER),
        (Outcome.REFUND, Reason.LENGTH),
        (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE),
    ):
        result = audit(honest.facts(outcome, reason), honest.raw, head)
        assert (result.standing, result.exit) == (Standing.CONTRADICTS, Exit.CONTRADICTED)


@pytest.mark.parametrize("name", ["int4", "int8_row", "perturbed", "shuffled", "copied", "garbage"])
def test_one_cheating_verifier_is_a_suspect_and_moves_nothing(
    engines: Engines, spec: ModelSpec, head: HeadRows, name: str
) -> None:
    played = play(engines, spec, Story(cheats={2: ATTACKS[name]}))
    result = audit(played.facts(paid=0b101), played.raw, head)
    assert result.verdict.accepted
    assert result.verdict.suspects == (2,)
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.ACCEPT)


def test_a_claim_that_pays_others_than_its_evidence_names_is_contradicted(
    engines: Engines, spec: ModelSpec, head: HeadRows, honest: Played
) -> None:
    garbage = play(engines, spec, Story(cheats={2: ATTACKS["int4"]}))
    for facts, raw in ((garbage.facts(), garbage.raw), (honest.facts(paid=0b011), honest.raw)):
        result = audit(facts, raw, head)
        assert result.verdict.accepted
        assert (result.standing, result.exit) == (Standing.CONTRADICTS, Exit.CONTRADICTED)


def test_two_different_cheats_among_the_verifiers_leave_no_clique(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    played = play(engines, spec, Story(cheats={1: ATTACKS["int4"], 2: ATTACKS["garbage"]}))
    result = audit(played.facts(Outcome.INCONCLUSIVE, Reason.NO_CLIQUE), played.raw, head)
    assert result.verdict.reason is Reason.NO_CLIQUE
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.INCONCLUSIVE)


def without_openings(party: PartyEvidence) -> PartyEvidence:
    return replace(party, openings={})


def test_openings_left_out_of_a_bundle_prove_nothing_against_the_inferencer(
    honest: Played, head: HeadRows
) -> None:
    first, *others = honest.bundle.parties
    for parties in ((without_openings(first), *others), tuple(others)):
        raw = encode_bundle(replace(honest.bundle, parties=parties))
        facts = honest.facts(Outcome.SLASH, Reason.WITHHELD, raw)
        result = audit(facts, raw, head)
        assert result.verdict.outcome is Outcome.INCONCLUSIVE
        assert result.verdict.reason is Reason.EVIDENCE_MISSING
        assert (result.standing, result.exit) == (Standing.UNCONFIRMED, Exit.INCONCLUSIVE)


def test_openings_of_the_committee_left_out_leave_no_clique(honest: Played, head: HeadRows) -> None:
    first, second, *others = honest.bundle.parties
    parties = (first, second, *map(without_openings, others))
    raw = encode_bundle(replace(honest.bundle, parties=parties))
    result = audit(honest.facts(bundle=raw), raw, head)
    assert result.verdict.reason is Reason.NO_CLIQUE
    assert (result.standing, result.exit) == (Standing.CONTRADICTS, Exit.CONTRADICTED)


# ── One's own run ────────────────────────────────────────────────────────────────────────────────
def test_ones_own_run_agrees_with_an_honest_job(
    honest: Played, engines: Engines, head: HeadRows
) -> None:
    result = audit(honest.facts(), honest.raw, head)
    assert result.evidence is not None
    own = replay(engines.engine(), result.evidence.checked)
    opinion = form(result.evidence, own, head)
    assert opinion.agrees == (0, 1, 2, 3)
    assert not opinion.objects
    assert replace(result, opinion=opinion).exit is Exit.ACCEPT


def test_ones_own_run_objects_to_a_captured_committee(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    """All four run the same int4 weights, so they agree: only an outsider can tell."""
    played = play(engines, spec, Story(cheats=dict.fromkeys(range(4), ATTACKS["int4"])))
    result = audit(played.facts(), played.raw, None)
    assert result.verdict.reason is Reason.HEAD_MISSING  # the states alone say accept
    assert result.evidence is not None
    own = replay(engines.engine(), result.evidence.checked)
    opinion = form(result.evidence, own, head)
    assert opinion.agrees == ()
    assert opinion.objects
    assert replace(result, opinion=opinion).exit is not Exit.ACCEPT


# ── Hostile bundles ──────────────────────────────────────────────────────────────────────────────
def is_harmless(result: Audit, honest: Audit) -> bool:
    """Whether a verdict is no accept, or accepts the same outputs by the same states."""
    if not result.verdict.accepted:
        return True
    if result.evidence is None or honest.evidence is None:
        return False
    pairs = zip(result.evidence.parties, honest.evidence.parties, strict=True)
    return result.evidence.checked == honest.evidence.checked and all(
        party.states is None or party.states == known.states or same_states(party, known)
        for party, known in pairs
    )


def same_states(one: PartyStates, other: PartyStates) -> bool:
    if one.states is None or other.states is None:
        return False
    return all(
        a.positions == b.positions
        and np.array_equal(a.slices, b.slices)
        and np.array_equal(a.finals, b.finals)
        for a, b in zip(one.states, other.states, strict=True)
    )


def forged(honest: Played, head: HeadRows, step: int) -> Iterator[tuple[str, Audit]]:
    """Every `step`th single change of the bundle, claimed anew so that its hash is no defence."""
    for path, changed in islice(mutations(honest.bundle, "bundle"), 0, None, step):
        try:
            raw = encode_bundle(changed)
        except (MalformedError, ValueError):
            continue
        yield path, audit(honest.facts(bundle=raw), raw, head)


def check_forgeries(honest: Played, head: HeadRows, step: int) -> int:
    sound, count = audit(honest.facts(), honest.raw, head), 0
    for path, result in forged(honest, head, step):
        assert is_harmless(result, sound), path
        count += 1
    return count


def test_no_changed_field_of_a_claimed_bundle_is_accepted(honest: Played, head: HeadRows) -> None:
    assert check_forgeries(honest, head, 41) > 30


@pytest.mark.slow
def test_no_changed_field_of_a_claimed_bundle_is_accepted_of_all(
    honest: Played, head: HeadRows
) -> None:
    assert check_forgeries(honest, head, 1) > 1000


def test_a_changed_bundle_is_not_the_claimed_one(honest: Played, head: HeadRows) -> None:
    raw = bytearray(honest.raw)
    raw[-1] ^= 1
    result = audit(honest.facts(), bytes(raw), head)
    assert "not the bundle that was claimed" in result.verdict.details.fact
    assert result.exit is Exit.INCONCLUSIVE


def test_damaged_bytes_never_raise_and_are_never_accepted(honest: Played, head: HeadRows) -> None:
    random = np.random.default_rng(7)
    for _ in range(60):
        raw = bytearray(honest.raw)
        for place in random.integers(0, len(raw), 3):
            raw[place] ^= int(random.integers(1, 256))
        damaged = bytes(
            raw[: int(random.integers(1, len(raw) + 1))] if random.random() < 0.3 else raw
        )
        result = audit(honest.facts(bundle=damaged), damaged, head)
        assert not result.verdict.accepted
        assert result.exit is not Exit.ACCEPT


@pytest.mark.parametrize(
    "raw", [b"", b"VLB1", b"VLB1\x00\x01", bytes(100), b"VLB1\xff\xff" + bytes(50)]
)
def test_bytes_that_are_no_bundle_have_a_reason(honest: Played, head: HeadRows, raw: bytes) -> None:
    result = audit(honest.facts(bundle=raw), raw, head)
    assert result.verdict.reason is Reason.EVIDENCE_MISSING
    assert "does not parse" in result.verdict.details.fact
    # A claim of accept on such a bundle had no ground.
    assert result.exit is Exit.CONTRADICTED


def test_the_bundle_of_another_job_proves_nothing(
    honest: Played, engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    other = play(engines, spec, Story(prompts=((1, 2, 3, 4), (5, 6, 7))))
    result = audit(honest.facts(bundle=other.raw), other.raw, head)
    assert result.verdict.reason is Reason.EVIDENCE_MISSING
    assert result.exit is Exit.CONTRADICTED


# ── Signatures ───────────────────────────────────────────────────────────────────────────────────
def resigned(honest: Played, party: int, what: str, signature: bytes) -> bytes:
    parties = list(honest.bundle.parties)
    if what == "task":
        parties[party] = replace(parties[party], task_signature=signature)
    else:
        parties[party] = replace(parties[party], commitment_signature=signature)
    return encode_bundle(replace(honest.bundle, parties=tuple(parties)))


@pytest.mark.parametrize("party", range(4))
@pytest.mark.parametrize("what", ["task", "commitment"])
def test_a_strangers_signature_proves_nothing(
    honest: Played, head: HeadRows, party: int, what: str
) -> None:
    signature = sign(lab.DOMAIN, honest.bundle.parties[party].task, lab.account("stranger"))
    raw = resigned(honest, party, what, signature)
    result = audit(honest.facts(bundle=raw), raw, head)
    assert result.verdict.reason is Reason.EVIDENCE_MISSING
    assert f"party {party}: the {what} is signed by" in result.verdict.details.fact


def test_a_malformed_signature_proves_nothing(honest: Played, head: HeadRows) -> None:
    raw = resigned(honest, 1, "task", b"\xff" * 65)
    result = audit(honest.facts(bundle=raw), raw, head)
    assert "party 1: the task" in result.verdict.details.fact


def test_the_clients_signature_is_checked_unless_it_is_a_contract(
    honest: Played, head: HeadRows
) -> None:
    raw = encode_bundle(replace(honest.bundle, signature=bytes(65)))
    facts = honest.facts(bundle=raw)
    assert audit(facts, raw, head).verdict.reason is Reason.EVIDENCE_MISSING
    assert audit(replace(facts, client_has_code=True), raw, head).verdict.accepted
