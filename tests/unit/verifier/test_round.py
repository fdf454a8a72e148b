"""The public round by its sums, and the verdicts that only it can prove."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.unit.verifier.lab import CLIENT, END, SEAL, Engines, Played, Story, at, block_hash, play
from verillm.chain.contract import JobState, PairSums, Round, Status
from verillm.chain.events import ChallengeOpened, Finalized
from verillm.codec import encode_bundle
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.records import record_hash
from verillm.types import Outcome, Reason
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Exit, Standing, audit
from verillm_verifier.facts import Facts
from verillm_verifier.round import Sums, silent, verdict_of

CHALLENGE = 35


def sums(
    played: Played,
    head: HeadRows,
    quiet: Iterable[int] = (),
    revealed: int = 2,
    mismatched: int = 0,
) -> Sums:
    """What the contract would have added up, with everyone's openings but the silent ones'."""
    details = audit(played.facts(), played.raw, head).verdict.details
    cells = next(iter(details.pairs.values())).cells
    positions = cells // len(played.spec.profile.layers) if revealed == 2 else 0
    served = tuple(0 if k in quiet else positions for k in range(8))
    job = played.facts().history.job_id
    pairs = {
        pair: PairSums(each.sum, each.cells, each.over) for pair, each in details.pairs.items()
    }
    found = Round(job, revealed, positions, 0, mismatched, served)
    return Sums(found, pairs, played.spec.committee)


def challenged(
    played: Played, settled: tuple[Outcome, Reason], found: Sums, final: bool = True
) -> Facts:
    """A claim of accept, a challenge, a round, an end."""
    facts = played.facts()
    *before, _ = facts.history.events
    opened = ChallengeOpened(facts.history.job_id, CLIENT.address, 1, block_hash(SEAL), Reason.NONE)
    told = [*before, at(opened, CHALLENGE)]
    if final:
        told.append(at(Finalized(facts.history.job_id, *settled), END))
    state = facts.state
    if not final:
        record = record_hash(played.posting, played.sealing, facts.claiming)
        state = JobState(Status.CHALLENGED, 0, record)
    history = replace(facts.history, events=tuple(told))
    return replace(facts, history=history, state=state, sums=found)


def test_who_opened_everything_is_not_silent(honest: Played, head: HeadRows) -> None:
    found = sums(honest, head, quiet=(2,))
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), found)
    assert silent(facts, found) == {2}


def test_an_inferencer_that_reveals_nothing_is_the_only_silent_one(
    honest: Played, head: HeadRows
) -> None:
    found = sums(honest, head, revealed=1)
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), found)
    assert silent(facts, found) == {0}


def test_the_sums_of_an_honest_round_accept(honest: Played, head: HeadRows) -> None:
    found = sums(honest, head)
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), found)
    assert verdict_of(facts, found).accepted


def test_the_sums_of_many_positions_are_held_to_their_own_means(
    honest: Played, head: HeadRows
) -> None:
    found = sums(honest, head)
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), found)
    assert found.round.revealed == 2

    def judged(many: int) -> Reason:
        profile = replace(
            honest.spec.profile, many_positions=many, mean_refund_many=-1, mean_slash_many=-1
        )
        held = replace(facts, spec=replace(honest.spec, profile=profile))
        return verdict_of(held, found).reason

    each = found.round.positions // 2
    assert judged(each) is not Reason.NONE
    assert judged(each + 1) is Reason.NONE, "of each request there are fewer"


@pytest.mark.parametrize(("quiet", "revealed"), [((0,), 2), ((), 1)])
def test_a_silent_inferencer_is_slashed_by_the_chain_alone(
    honest: Played, head: HeadRows, quiet: tuple[int, ...], revealed: int
) -> None:
    found = sums(honest, head, quiet, revealed)
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), found)
    for raw in (None, honest.raw):
        result = audit(facts, raw, head)
        assert result.verdict.reason is Reason.WITHHELD
        assert (result.standing, result.exit) == (Standing.AGREES, Exit.REJECT)


def test_withheld_against_an_inferencer_that_opened_everything_is_a_contradiction(
    honest: Played, head: HeadRows
) -> None:
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), sums(honest, head))
    assert audit(facts, honest.raw, head).exit is Exit.CONTRADICTED


def test_a_challenge_that_upholds_the_claim_agrees(honest: Played, head: HeadRows) -> None:
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), sums(honest, head))
    result = audit(facts, honest.raw, head)
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.ACCEPT)


def test_a_reject_by_the_sums_needs_no_bundle(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    played = play(engines, spec, Story(cheats={0: ATTACKS["int4"]}))
    facts = challenged(played, (Outcome.SLASH, Reason.STATES_DIFFER), sums(played, head))
    result = audit(facts, None, head)
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.REJECT)
    accepted = challenged(played, (Outcome.ACCEPT, Reason.NONE), sums(played, head))
    assert audit(accepted, None, head).exit is Exit.CONTRADICTED


def test_tokens_rejected_after_a_challenge_refund_and_never_slash(
    engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    played = play(engines, spec, Story(cheats={0: ATTACKS["own_seed"]}, new_tokens=24))
    refunded = challenged(played, (Outcome.REFUND, Reason.MARGIN_MAX), sums(played, head))
    result = audit(refunded, played.raw, head)
    assert result.verdict.outcome is Outcome.SLASH
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.REJECT)
    accepted = challenged(played, (Outcome.ACCEPT, Reason.NONE), sums(played, head))
    assert audit(accepted, played.raw, head).exit is Exit.CONTRADICTED


def test_parties_silent_in_the_round_do_not_count_in_the_verdict(
    honest: Played, head: HeadRows
) -> None:
    settled = (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE)
    result = audit(challenged(honest, settled, sums(honest, head, (1, 2))), honest.raw, head)
    assert result.verdict.reason is Reason.NO_CLIQUE
    assert result.standing is Standing.AGREES


def test_two_mismatched_members_name_the_reason(honest: Played, head: HeadRows) -> None:
    settled = (Outcome.INCONCLUSIVE, Reason.TASK_MISMATCH)
    found = sums(honest, head, mismatched=0b0110)
    result = audit(challenged(honest, settled, found), None, head)
    assert result.verdict.reason is Reason.TASK_MISMATCH
    assert result.standing is Standing.AGREES


def test_a_claims_hollow_bundle_is_no_ground_against_what_the_round_found(
    honest: Played, head: HeadRows
) -> None:
    hollow = encode_bundle(replace(honest.bundle, parties=()))
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), sums(honest, head))
    result = audit(facts, hollow, head)
    assert (result.standing, result.exit) == (Standing.UNCONFIRMED, Exit.INCONCLUSIVE)


def test_an_end_without_comparison_is_no_verdict(honest: Played, head: HeadRows) -> None:
    found = sums(honest, head)
    lacking = {**found.pairs, (1, 2): PairSums(0, 0, 0)}
    facts = challenged(
        honest, (Outcome.INCONCLUSIVE, Reason.NOT_COMPARED), replace(found, pairs=lacking)
    )
    result = audit(facts, honest.raw, head)
    assert result.verdict.reason is Reason.NOT_COMPARED
    assert (result.standing, result.exit) == (Standing.PROCEDURAL, Exit.INCONCLUSIVE)


def test_what_a_majority_attested_without_a_clique_can_not_be_refuted(
    honest: Played, head: HeadRows
) -> None:
    facts = challenged(honest, (Outcome.REFUND, Reason.MARGIN_MEAN), sums(honest, head, (1, 2)))
    result = audit(facts, honest.raw, head)
    assert (result.standing, result.exit) == (Standing.UNCONFIRMED, Exit.INCONCLUSIVE)


def test_an_open_round_does_not_convict_yet(honest: Played, head: HeadRows) -> None:
    """Before the opening window ends, not to have opened is no silence."""
    settled = (Outcome.SLASH, Reason.WITHHELD)
    facts = challenged(honest, settled, sums(honest, head, (0,)), final=False)
    result = audit(facts, honest.raw, head)
    assert result.verdict.reason is not Reason.WITHHELD
    assert result.exit is not Exit.REJECT
