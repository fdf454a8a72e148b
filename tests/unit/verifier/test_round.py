"""The public round by its events, and the verdicts that only it can prove."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.verifier.lab import CLAIM, CLIENT, END, SEAL, Played, at, block_hash
from verillm.chain.contract import JobState, Status
from verillm.chain.events import ChallengeOpened, Finalized, PositionServed, Revealed
from verillm.codec import encode_bundle
from verillm.head import HeadRows
from verillm.records import record_hash
from verillm.types import Hash32, Outcome, Reason
from verillm_verifier.audit import Exit, Standing, audit
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.facts import Facts, check
from verillm_verifier.round import round_of

CHALLENGE = 35


def challenged(
    played: Played,
    settled: tuple[Outcome, Reason],
    claimed: tuple[Outcome, Reason] = (Outcome.ACCEPT, Reason.NONE),
    silent: Iterable[int] = (),
    reveal: bool = True,
) -> Facts:
    """A claim, a challenge, everyone's openings but the silent ones', an end."""
    facts = played.facts(*claimed)
    *before, _ = facts.history.events
    job = facts.history.job_id
    told: list[Any] = [ChallengeOpened(job, CLIENT.address, 1, block_hash(SEAL))]
    for place, shown in enumerate(played.bundle.checked if reveal else ()):
        prompt, new = len(shown.request.tokens), len(shown.output)
        told.append(Revealed(job, place, prompt, new))
        for position in range(min(prompt + new - 2, played.spec.positions)):
            told += [
                PositionServed(job, party, place, position)
                for party in range(played.spec.committee + 1)
                if party not in silent
            ]
    end = at(Finalized(job, *settled), END)
    history = replace(
        facts.history, events=(*before, *(at(event, CHALLENGE) for event in told), end)
    )
    return replace(facts, history=history)


def test_a_job_without_a_challenge_has_no_round(honest: Played) -> None:
    facts = honest.facts()
    draws = check(facts)
    assert draws is not None
    assert round_of(facts, draws) is None


def test_who_opened_everything_is_not_silent(honest: Played) -> None:
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE), silent=(2,))
    draws = check(facts)
    assert draws is not None
    told = round_of(facts, draws)
    assert told is not None
    assert told.positions == 16
    assert told.served == (16, 16, 0, 16)
    assert told.silent == {2}


def test_an_inferencer_that_reveals_nothing_is_the_only_silent_one(honest: Played) -> None:
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), reveal=False)
    draws = check(facts)
    assert draws is not None
    told = round_of(facts, draws)
    assert told is not None
    assert told.unrevealed == 2
    assert told.silent == {0}


@pytest.mark.parametrize("reveal", [True, False])
def test_a_silent_inferencer_is_slashed_by_the_events_alone(
    honest: Played, head: HeadRows, reveal: bool
) -> None:
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), silent=(0,), reveal=reveal)
    for raw in (None, honest.raw):
        result = audit(facts, raw, head)
        assert result.verdict.reason is Reason.WITHHELD
        assert (result.standing, result.exit) == (Standing.AGREES, Exit.REJECT)


def test_withheld_against_an_inferencer_that_opened_everything_is_a_contradiction(
    honest: Played, head: HeadRows
) -> None:
    result = audit(challenged(honest, (Outcome.SLASH, Reason.WITHHELD)), honest.raw, head)
    assert result.exit is Exit.CONTRADICTED


def test_a_challenge_that_upholds_the_claim_agrees(honest: Played, head: HeadRows) -> None:
    result = audit(challenged(honest, (Outcome.ACCEPT, Reason.NONE)), honest.raw, head)
    assert (result.standing, result.exit) == (Standing.AGREES, Exit.ACCEPT)


def test_parties_silent_in_the_round_do_not_count_in_the_verdict(
    honest: Played, head: HeadRows
) -> None:
    settled = (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE)
    result = audit(challenged(honest, settled, silent=(1, 2)), honest.raw, head)
    assert result.verdict.reason is Reason.NO_CLIQUE
    assert result.standing is Standing.AGREES


def test_a_claims_hollow_bundle_is_no_ground_against_what_the_round_found(
    honest: Played, head: HeadRows
) -> None:
    hollow = encode_bundle(replace(honest.bundle, parties=()))
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE))
    claimed = facts.claiming
    assert claimed is not None
    result = audit(facts, hollow, head)
    assert (result.standing, result.exit) == (Standing.UNCONFIRMED, Exit.INCONCLUSIVE)


def test_an_end_without_comparison_is_no_verdict(honest: Played, head: HeadRows) -> None:
    facts = challenged(honest, (Outcome.INCONCLUSIVE, Reason.NOT_COMPARED))
    result = audit(facts, honest.raw, head)
    assert (result.standing, result.exit) == (Standing.PROCEDURAL, Exit.INCONCLUSIVE)


@pytest.mark.parametrize(
    "event",
    [
        lambda job: Revealed(job, 9, 5, 5),
        lambda job: PositionServed(job, 9, 0, 0),
        lambda job: PositionServed(job, 0, 0, 99),
        lambda job: PositionServed(job, 0, 1, 99),
    ],
)
def test_a_round_about_what_was_not_drawn_cannot_be(
    honest: Played, head: HeadRows, event: Any
) -> None:
    facts = challenged(honest, (Outcome.ACCEPT, Reason.NONE))
    *before, end = facts.history.events
    more = (*before, at(event(facts.history.job_id), CHALLENGE), end)
    with pytest.raises(InconsistentChain):
        audit(replace(facts, history=replace(facts.history, events=more)), honest.raw, head)


def test_an_open_round_does_not_convict_yet(honest: Played, head: HeadRows) -> None:
    """Before the opening window ends, not to have opened is no silence."""
    facts = challenged(honest, (Outcome.SLASH, Reason.WITHHELD), silent=(0,))
    running = replace(facts.history, events=facts.history.events[:-1])
    record = record_hash(honest.posting, honest.sealing, facts.claiming)
    state = JobState(Status.CHALLENGED, 0, Hash32(record))
    result = audit(
        replace(facts, history=running, state=state, record_before_end=None), honest.raw, head
    )
    assert result.verdict.reason is not Reason.WITHHELD
    assert result.exit is not Exit.REJECT
    assert CLAIM < CHALLENGE
