from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.verillm.builders import PROFILE, noisy, true_states
from verillm.evidence import PartyStates
from verillm.statistics import PairStatistics, States, paper_statistics
from verillm.types import Outcome, Reason
from verillm.verdict import (
    PartyStatus,
    Verdict,
    cliques,
    decide,
    judge_states,
    paid_mask,
    quorum,
)

OPEN, SILENT = PartyStatus.OPEN, PartyStatus.SILENT
NON_FINITE, MISMATCHED = PartyStatus.NON_FINITE, PartyStatus.MISMATCHED
NEAR = PairStatistics(1_000_000, 1, 0)
FAR = PairStatistics(9_000_000, 1, 9)
MIDDLE = PairStatistics(2_000_000, 1, 0)
"""Beyond the refund tier, within the slash tier."""
Pair = tuple[int, int]


def pairs(
    members: int, far: Mapping[Pair, PairStatistics] | None = None
) -> dict[Pair, PairStatistics]:
    return {pair: (far or {}).get(pair, NEAR) for pair in combinations(range(members + 1), 2)}


def decided(
    members: int = 3,
    far: Mapping[Pair, PairStatistics] | None = None,
    statuses: Mapping[int, PartyStatus] | None = None,
    positions: int = 16,
) -> Verdict:
    status = [(statuses or {}).get(k, OPEN) for k in range(members + 1)]
    open_ones = {k for k, each in enumerate(status) if each is OPEN}
    shown = {pair: s for pair, s in pairs(members, far).items() if open_ones >= set(pair)}
    return decide(status, shown, positions, PROFILE, 1)


STEADY = replace(PROFILE, many_positions=8, mean_refund_many=1_200_000, mean_slash_many=1_800_000)
BETWEEN = PairStatistics(1_500_000, 1, 0)
"""Near over few positions, beyond the refund tier of many."""


@pytest.mark.parametrize(
    ("positions", "requests", "outcome"),
    [
        (7, 1, Outcome.ACCEPT),
        (8, 1, Outcome.REFUND),
        (15, 2, Outcome.ACCEPT),
        (16, 2, Outcome.REFUND),
        (31, 4, Outcome.ACCEPT),
    ],
)
def test_means_over_many_positions_of_each_request_are_held_to_less(
    positions: int, requests: int, outcome: Outcome
) -> None:
    shown = pairs(3, alone(0, how=BETWEEN))
    assert decide([OPEN] * 4, shown, positions, STEADY, requests).outcome is outcome
    assert decide([OPEN] * 4, shown, positions, PROFILE, requests).outcome is Outcome.ACCEPT


def test_beyond_the_slash_tier_of_many_positions_is_a_slash() -> None:
    shown = pairs(3, alone(0, how=MIDDLE))
    assert decide([OPEN] * 4, shown, 8, STEADY, 1).outcome is Outcome.SLASH
    assert decide([OPEN] * 4, shown, 7, STEADY, 1).outcome is Outcome.REFUND


def test_verifiers_are_held_to_the_same_means_as_the_inferencer() -> None:
    shown = pairs(3, dict.fromkeys(combinations(range(1, 4), 2), BETWEEN))
    assert kind(decide([OPEN] * 4, shown, 8, STEADY, 1))[1] is Reason.NO_CLIQUE
    assert decide([OPEN] * 4, shown, 7, STEADY, 1).accepted


def alone(party: int, members: int = 3, how: PairStatistics = FAR) -> dict[Pair, PairStatistics]:
    return {(min(party, k), max(party, k)): how for k in range(members + 1) if k != party}


def kind(verdict: Verdict) -> tuple[Outcome, Reason, tuple[int, ...]]:
    return verdict.outcome, verdict.reason, verdict.suspects


def test_everyone_agrees_is_accept() -> None:
    assert kind(decided()) == (Outcome.ACCEPT, Reason.NONE, ())
    assert decided().details.cliques == ((1, 2, 3),)


def test_an_inferencer_far_from_all_is_slashed_and_nearer_is_refunded() -> None:
    assert kind(decided(far=alone(0))) == (Outcome.SLASH, Reason.STATES_DIFFER, ())
    assert kind(decided(far=alone(0, how=MIDDLE))) == (Outcome.REFUND, Reason.STATES_DIFFER, ())


def test_one_member_within_the_slash_tier_keeps_a_reject_in_the_refund_tier() -> None:
    far = alone(0) | {(0, 2): MIDDLE}
    assert kind(decided(far=far)) == (Outcome.REFUND, Reason.STATES_DIFFER, ())


def test_one_rejecting_clique_without_a_member_within_the_slash_tier_is_enough_to_slash() -> None:
    far = alone(0) | {(1, 3): FAR, (0, 1): MIDDLE}
    assert decided(far=far).details.cliques == ((1, 2), (2, 3))
    assert kind(decided(far=far)) == (Outcome.SLASH, Reason.STATES_DIFFER, ())
    far |= {(0, 2): MIDDLE}
    assert kind(decided(far=far)) == (Outcome.REFUND, Reason.STATES_DIFFER, ())


def test_a_lying_verifier_moves_nothing_and_is_the_suspect() -> None:
    assert kind(decided(far=alone(2))) == (Outcome.ACCEPT, Reason.NONE, (2,))
    far = alone(2) | alone(0)
    assert kind(decided(far=far)) == (Outcome.SLASH, Reason.STATES_DIFFER, (2,))


def test_a_liar_between_two_honest_verifiers_does_not_move_the_verdict() -> None:
    # 2 lies so that it agrees with 1 and 3 but not with the inferencer, and 1 and 3 are apart.
    far = {(0, 2): FAR, (1, 3): FAR}
    assert kind(decided(far=far)) == (Outcome.INCONCLUSIVE, Reason.DIVIDED, ())
    assert decided(far=far).details.cliques == ((1, 2), (2, 3))


def test_some_cliques_accept_and_others_are_divided_is_accept() -> None:
    far = {(1, 3): FAR, (0, 3): FAR}
    assert kind(decided(far=far)) == (Outcome.ACCEPT, Reason.NONE, ())
    assert decided(far=far).details.accepting == ((1, 2),)


def test_cliques_that_the_inferencer_agrees_with_in_part_are_divided() -> None:
    # Two cliques of a quorum share a member, so none can accept where another rejects.
    far = {pair: FAR for pair in combinations(range(5), 2)}
    for near in ((1, 2), (3, 4), (0, 1), (0, 2)):
        far[near] = NEAR
    verdict = decide([OPEN] * 5, far, 16, PROFILE, 1)
    assert kind(verdict) == (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE, ())  # 2 of 4 is no quorum
    far |= {(1, 3): NEAR, (2, 3): NEAR, (1, 4): NEAR, (0, 3): FAR, (0, 4): FAR}
    verdict = decide([OPEN] * 5, far, 16, PROFILE, 1)
    assert verdict.details.cliques == ((1, 2, 3), (1, 3, 4))
    assert verdict.outcome is Outcome.INCONCLUSIVE and verdict.reason is Reason.DIVIDED


def test_verifiers_that_all_differ_form_no_clique() -> None:
    far = {pair: FAR for pair in ((1, 2), (1, 3), (2, 3))}
    assert kind(decided(far=far)) == (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE, ())


def test_silent_and_non_finite_verifiers_drop_out_and_a_quorum_of_the_drawn_must_remain() -> None:
    assert kind(decided(statuses={1: SILENT})) == (Outcome.ACCEPT, Reason.NONE, (1,))
    assert kind(decided(statuses={1: NON_FINITE})) == (Outcome.ACCEPT, Reason.NONE, (1,))
    gone = {1: SILENT, 3: NON_FINITE}
    assert kind(decided(statuses=gone)) == (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE, ())


def test_a_mismatched_verifier_drops_out_and_names_the_reason_only_where_no_clique_remains() -> (
    None
):
    assert kind(decided(statuses={2: MISMATCHED})) == (Outcome.ACCEPT, Reason.NONE, (2,))
    gone = {1: MISMATCHED, 2: SILENT}
    assert kind(decided(statuses=gone)) == (Outcome.INCONCLUSIVE, Reason.TASK_MISMATCH, ())


def test_the_first_cause_decides() -> None:
    worst = {0: SILENT, 1: SILENT, 2: SILENT, 3: SILENT}
    assert kind(decided(statuses=worst, positions=0))[:2] == (Outcome.SLASH, Reason.WITHHELD)
    bad = {0: NON_FINITE, 1: MISMATCHED}
    assert kind(decided(statuses=bad, positions=0))[:2] == (Outcome.SLASH, Reason.NON_FINITE)
    few = decided(positions=3, statuses=dict.fromkeys((1, 2, 3), SILENT))
    assert kind(few)[:2] == (Outcome.INCONCLUSIVE, Reason.TOO_FEW_POSITIONS)
    assert decided(positions=4).accepted


def test_a_judged_claim_pays_the_members_of_largest_cliques() -> None:
    assert paid_mask(decided()) == 0b111
    assert paid_mask(decided(far=alone(2))) == 0b101
    assert paid_mask(decided(far=alone(0), statuses={1: SILENT})) == 0b110


def test_an_unjudged_claim_pays_all_that_opened_finite_states_of_their_own_task() -> None:
    assert paid_mask(decided(far=alone(2), statuses={0: SILENT})) == 0b111
    assert paid_mask(decided(statuses={0: NON_FINITE, 1: NON_FINITE})) == 0b110
    assert paid_mask(decided(far={(1, 2): FAR, (1, 3): FAR, (2, 3): FAR})) == 0b111
    gone = {1: MISMATCHED, 2: SILENT}
    assert paid_mask(decided(statuses=gone)) == 0b100


def test_nothing_compared_is_never_accepted_even_where_the_profile_asks_for_nothing() -> None:
    lax = replace(PROFILE, min_positions=0)
    nothing = {pair: PairStatistics(0, 0, 0) for pair in combinations(range(4), 2)}
    verdict = decide([OPEN] * 4, nothing, 0, lax, 1)
    assert kind(verdict) == (Outcome.INCONCLUSIVE, Reason.TOO_FEW_POSITIONS, ())


def test_one_position_is_something_where_the_profile_asks_for_nothing() -> None:
    lax = replace(PROFILE, min_positions=0)
    assert decide([OPEN] * 4, pairs(3), 1, lax, 1).accepted
    few = decide([OPEN] * 4, pairs(3), 0, lax, 1)
    assert kind(few)[:2] == (Outcome.INCONCLUSIVE, Reason.TOO_FEW_POSITIONS)


def test_a_verdict_keeps_what_it_rests_on() -> None:
    statuses = {2: SILENT}
    details = decided(statuses=statuses).details
    assert details.statuses == (OPEN, OPEN, SILENT, OPEN)
    assert details.pairs == {pair: NEAR for pair in ((0, 1), (0, 3), (1, 3))}
    early = decided(positions=0, statuses=statuses).details
    assert (early.statuses, early.pairs) == (details.statuses, details.pairs)
    assert early.cliques == ((1, 3),)
    none = decided(statuses={1: SILENT, 2: SILENT}).details
    assert none.statuses == (OPEN, SILENT, SILENT, OPEN) and none.cliques == ()


def test_an_inferencer_that_is_mismatched_is_missing_evidence_not_accepted() -> None:
    verdict = decided(statuses={0: MISMATCHED})
    assert kind(verdict)[:2] == (Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING)


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_quorum_is_half_of_the_drawn_plus_one_half_rounded_up(members: int, needed: int) -> None:
    assert quorum(members) == needed


@given(st.integers(1, 6), st.data())
@settings(max_examples=150)
def test_cliques_are_all_largest_sets_that_agree_pairwise(
    members: int, data: st.DataObject
) -> None:
    verifiers = list(range(1, members + 1))
    every = list(combinations(verifiers, 2))
    expected: tuple[tuple[int, ...], ...] = ()
    agree = frozenset(data.draw(st.sets(st.sampled_from(every))) if every else ())
    for size in range(members, 0, -1):
        expected = tuple(
            each
            for each in combinations(verifiers, size)
            if all(pair in agree for pair in combinations(each, 2))
        )
        if expected:
            break
    assert cliques(verifiers, agree) == expected


STATISTICS = st.sampled_from([NEAR, MIDDLE, FAR, PairStatistics(0, 0, 0)])


@given(st.integers(1, 5), st.data())
@settings(max_examples=200)
def test_accept_needs_a_quorum_of_open_verifiers_that_agree_with_the_inferencer(
    members: int, data: st.DataObject
) -> None:
    statuses = [data.draw(st.sampled_from(PartyStatus)) for _ in range(members + 1)]
    shown = {
        pair: data.draw(STATISTICS)
        for pair in combinations(range(members + 1), 2)
        if statuses[pair[0]] is statuses[pair[1]] is OPEN
    }
    verdict = decide(statuses, shown, data.draw(st.sampled_from([0, 4, 32])), PROFILE, 1)
    with_inferencer = [k for k in range(1, members + 1) if shown.get((0, k)) == NEAR]
    if verdict.accepted:
        assert len(with_inferencer) >= quorum(members)
    if verdict.outcome is Outcome.SLASH and verdict.reason is Reason.STATES_DIFFER:
        against = [
            k for k in range(1, members + 1) if shown.get((0, k)) not in (None, NEAR, MIDDLE)
        ]
        assert len(against) >= quorum(members)
    assert verdict.outcome is not Outcome.NONE


@given(st.permutations([1, 2, 3, 4]), st.data())
@settings(max_examples=100)
def test_the_order_of_the_committee_does_not_matter(order: list[int], data: st.DataObject) -> None:
    shown = {pair: data.draw(STATISTICS) for pair in combinations(range(5), 2)}
    renamed = {
        tuple(sorted((([0, *order])[a], ([0, *order])[b]))): value
        for (a, b), value in shown.items()
    }
    first = decide([OPEN] * 5, shown, 32, PROFILE, 1)
    second = decide([OPEN] * 5, renamed, 32, PROFILE, 1)  # type: ignore[arg-type]
    assert (first.outcome, first.reason) == (second.outcome, second.reason)
    assert {order[k - 1] for k in first.suspects} == set(second.suspects)


def party(key: int, seed: bytes = b"seed-one", spoil: float = 0.0) -> PartyStates:
    slices, finals = true_states(seed, 8)
    finals = noisy(finals, key)
    if spoil:
        finals = finals ^ np.uint16(int(spoil))
    states = States(tuple(range(1, 9)), noisy(slices, key + 1), finals)
    return PartyStates((states,))


def test_honest_noise_is_accepted_and_other_states_are_slashed() -> None:
    honest = [party(key) for key in range(0, 40, 10)]
    verdict = judge_states(honest, PROFILE, [4])
    assert verdict.accepted
    assert set(verdict.details.pairs) == set(combinations(range(4), 2))
    assert set(verdict.details.paper) == {(0, 1), (0, 2), (0, 3)}
    cheat = [party(0, b"seed-two"), *honest[1:]]
    assert kind(judge_states(cheat, PROFILE, [4])) == (
        Outcome.SLASH,
        Reason.STATES_DIFFER,
        (),
    )


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_one_value_that_is_not_finite_slashes_an_inferencer_and_drops_a_verifier(bits: int) -> None:
    honest = [party(key) for key in range(0, 40, 10)]
    assert honest[0].states is not None and honest[1].states is not None
    spoilt = honest[0].states[0].finals.copy()
    spoilt[3, 5] = bits
    bad = PartyStates((replace(honest[0].states[0], finals=spoilt),))
    verdict = judge_states([bad, *honest[1:]], PROFILE, [4])
    assert kind(verdict)[:2] == (Outcome.SLASH, Reason.NON_FINITE)
    verdict = judge_states([honest[0], honest[1], bad, honest[3]], PROFILE, [4])
    assert kind(verdict) == (Outcome.ACCEPT, Reason.NONE, (2,))
    assert set(verdict.details.pairs) == {(0, 1), (0, 3), (1, 3)}, "it compares with nobody"
    assert set(verdict.details.paper) == {(0, 1), (0, 3)}


def test_the_papers_statistics_stand_beside_each_open_verifier_and_the_inferencer() -> None:
    honest = [party(key) for key in range(0, 40, 10)]
    silent = [honest[0], PartyStates(None), *honest[2:]]
    paper = judge_states(silent, PROFILE, [4]).details.paper
    assert set(paper) == {(0, 2), (0, 3)}
    assert honest[0].states is not None and honest[3].states is not None
    assert paper[0, 3] == paper_statistics(honest[0].states, honest[3].states)
    assert judge_states([PartyStates(None), *honest[1:]], PROFILE, [4]).details.paper == {}


def test_positions_count_over_all_requests_together() -> None:
    parties = [party(key).states or () for key in range(0, 40, 10)]
    twice = [PartyStates((*states, *states)) for states in parties]
    profile = replace(PROFILE, min_positions=16, over_refund=4)
    assert judge_states(twice, profile, [4, 4]).accepted
    more = replace(profile, min_positions=17)
    assert judge_states(twice, more, [4, 4]).reason is Reason.TOO_FEW_POSITIONS


def test_short_requests_of_one_job_are_not_many_positions() -> None:
    parties = [party(key) for key in range(0, 40, 10)]
    assert parties[0].states is not None
    count = len(parties[0].states[0].positions)
    held = replace(PROFILE, many_positions=count, mean_refund_many=1, mean_slash_many=1)
    assert not judge_states(parties, held, [4]).accepted
    twice = [PartyStates((*(each.states or ()), *(each.states or ()))) for each in parties]
    short = replace(held, many_positions=count + 1, over_refund=4)
    assert judge_states(twice, short, [4, 4]).accepted


def test_zeros_for_everyone_agree_with_nobody() -> None:
    zero = States((1, 2, 3, 4), np.zeros((4, 2, 16), np.uint16), np.zeros((4, 32), np.uint16))
    verdict = judge_states([PartyStates((zero,))] * 4, PROFILE, [4])
    assert kind(verdict)[:2] == (Outcome.INCONCLUSIVE, Reason.NO_CLIQUE)
