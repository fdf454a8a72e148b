from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from verillm.economics import capture, lemmas
from verillm.economics.simulation import deviation, draw_parties, simulate
from verillm.economics.world import Conduct, Costs, Tally, World, with_kappa
from verillm.errors import InputError
from verillm.settlement import Terms
from verillm.types import Outcome

TERMS = Terms(15_000, 7_000, 2_000, 1_000, 1_000, claim_bond=200_000, challenge_bond=300_000)
COSTS = Costs(
    inference=400_000,
    cheap=150_000,
    prefill=10_000,
    opening=2_000,
    challenge=20_000,
    scheduler=20_000,
)
WORLD = World((2,) * 20, 3, TERMS, 1_000_000, 900_000, COSTS)
SUBTLE = replace(WORLD, token_detection=0.0, slash=1.6)
JOBS = 3_000
DEVIANTS = [Conduct.LAZY, Conduct.PREFILL, Conduct.LYING, Conduct.FORGING, Conduct.COLLUDING]


def profit(world: World, conduct: Conduct, coalition: int = 1) -> tuple[float, float]:
    """Mean profit as inferencer, honest and deviating."""
    honest, deviant = deviation(world, conduct, JOBS, coalition=coalition)
    return honest.as_inferencer(Conduct.HONEST), deviant.as_inferencer(conduct)


def coalition_of(world: World, size: int, conduct: Conduct = Conduct.COLLUDING) -> Tally:
    return deviation(world, conduct, JOBS, coalition=size)[1]


def test_the_same_arguments_give_the_same_jobs() -> None:
    conducts = [Conduct.LAZY, *[Conduct.HONEST] * 19]
    one, other = (simulate(WORLD, conducts, 200, seed=3) for _ in range(2))
    assert np.array_equal(one.inferencer, other.inferencer)
    assert np.array_equal(one.verifiers, other.verifiers)
    assert not np.array_equal(one.conducts, simulate(WORLD, conducts, 200, seed=4).conducts)


def test_committees_have_distinct_owners_besides_the_inferencer() -> None:
    parties = draw_parties((1, 5, 2, 2, 9), 3, 300, 0)
    assert all(len(set(row)) == 4 for row in parties.tolist())


def test_honest_jobs_are_accepted_and_pay_everybody() -> None:
    tally = simulate(WORLD, [Conduct.HONEST] * 20, JOBS)
    assert tally.share(Outcome.ACCEPT) > 0.99
    assert tally.share(Outcome.SLASH) == tally.share(Outcome.REFUND) == 0
    assert tally.as_inferencer(Conduct.HONEST) == pytest.approx(630_000 - 400_000, rel=0.01)
    assert tally.as_verifier(Conduct.HONEST) == pytest.approx(60_000 - 10_000)
    assert tally.burnt.sum() == 0


@pytest.mark.parametrize("conduct", DEVIANTS)
def test_alone_no_deviation_pays(conduct: Conduct) -> None:
    honest, deviant = profit(WORLD, conduct)
    assert deviant < 0 < honest


@pytest.mark.parametrize("distance", [0.6, 0.9, 1.2, 1.5])
def test_a_subtle_cheat_stops_paying_where_its_losses_exceed_its_saving(distance: float) -> None:
    world = replace(SUBTLE, cheap_distance=distance)
    tally = coalition_of(world, 1, Conduct.LAZY)
    unpaid = 1 - tally.share(Outcome.ACCEPT, Conduct.LAZY)
    slashed = tally.share(Outcome.SLASH, Conduct.LAZY)
    honest, deviant = profit(world, Conduct.LAZY)
    assert (deviant < honest) == (unpaid * 630_000 + slashed * 1_500_000 > 250_000)
    assert (deviant < honest) == (distance > 1)


def test_exposure_turns_a_subtle_cheat_from_profit_to_loss() -> None:
    world = replace(SUBTLE, cheap_distance=0.96)
    low_honest, low = profit(with_kappa(world, 1.0), Conduct.LAZY)
    high_honest, high = profit(with_kappa(world, 6.0), Conduct.LAZY)
    assert low_honest == high_honest
    assert low > low_honest
    assert high < high_honest


@pytest.mark.parametrize("detection", [0.2, 0.5])
def test_a_cheat_that_only_tokens_betray_pays_below_its_least_detection(detection: float) -> None:
    saving = COSTS.inference - COSTS.cheap - COSTS.prefill
    least = lemmas.least_detection(saving, 630_000, 180_000)
    honest, deviant = profit(replace(WORLD, token_detection=detection), Conduct.PREFILL)
    assert 0.2 < least < 0.5
    assert (deviant < honest) == (detection > least)


def test_a_coalition_is_accepted_as_often_as_it_captures_the_draw() -> None:
    tally = coalition_of(WORLD, 6)
    chance = capture.capture((2,) * 19, range(5), 3)
    share = tally.share(Outcome.ACCEPT, Conduct.COLLUDING)
    assert share == pytest.approx(chance, abs=4.5 * (chance / JOBS) ** 0.5)


@pytest.mark.parametrize("size", [4, 6])
def test_a_coalition_breaks_even_at_the_value_that_the_formula_says(size: int) -> None:
    chance = coalition_of(WORLD, size).share(Outcome.ACCEPT, Conduct.COLLUDING)
    lock, pay = WORLD.stakes.lock, 630_000
    value = (1 - chance) / chance * lock - pay + COSTS.cheap / chance
    for factor, sign in ((0.9, -1), (1.1, 1)):
        world = replace(WORLD, value=value * factor)
        assert sign * coalition_of(world, size).as_inferencer(Conduct.COLLUDING) > 0


def test_not_sealing_costs_a_coalition_more_than_being_slashed() -> None:
    sealed = coalition_of(WORLD, 6).as_inferencer(Conduct.COLLUDING)
    aborted = coalition_of(replace(WORLD, abort=True), 6).as_inferencer(Conduct.COLLUDING)
    assert aborted < sealed


def test_who_skips_the_check_would_earn_more_if_all_were_paid_and_roles_were_known() -> None:
    conducts = [*[Conduct.HONEST] * 19, Conduct.LAZY]

    def gain(world: World) -> float:
        tally = simulate(world, conducts, JOBS)
        return tally.as_verifier(Conduct.LAZY) - tally.as_verifier(Conduct.HONEST)

    assert gain(replace(WORLD, pay_all=True)) == pytest.approx(COSTS.prefill, rel=0.05)
    assert gain(replace(WORLD, pay_all=True, hidden=0.03)) < 0
    assert gain(WORLD) == pytest.approx(COSTS.prefill - 60_000, rel=0.05)


def test_one_garbage_verifier_moves_no_verdict() -> None:
    conducts = [*[Conduct.HONEST] * 19, Conduct.GRIEFING]
    tally = simulate(WORLD, conducts, JOBS)
    alone = (tally.conducts[:, 1:] == Conduct.GRIEFING).any(axis=1)
    accepted = tally.outcomes[alone & (tally.conducts[:, 0] == Conduct.HONEST)] == Outcome.ACCEPT
    assert accepted.mean() > 0.98


def test_silence_in_the_public_round_costs_the_lock() -> None:
    conducts = [*[Conduct.HONEST] * 19, Conduct.GRIEFING]
    tally = simulate(replace(WORLD, grief=1.0), conducts, 500)
    assert tally.as_verifier(Conduct.GRIEFING) == -WORLD.stakes.lock
    assert tally.as_verifier(Conduct.HONEST) > 50_000  # paid for opening by the wrong challenge
    assert tally.challenger.max() <= -TERMS.challenge_bond


@pytest.mark.parametrize("conduct", [Conduct.LYING, Conduct.FORGING])
def test_a_false_acceptance_pays_its_challenger(conduct: Conduct) -> None:
    tally = coalition_of(replace(WORLD, corrupt=1.0, value=1_000_000), 1, conduct)
    assert tally.share(Outcome.ACCEPT, conduct) < 0.01
    assert tally.challenger.mean() > 0.99 * (TERMS.claim_bond - COSTS.challenge)
    assert tally.as_inferencer(conduct) < 0


def test_without_watchers_a_false_claim_stands() -> None:
    corrupt = replace(WORLD, corrupt=1.0, watch=0.0)
    assert coalition_of(corrupt, 1, Conduct.LYING).share(Outcome.ACCEPT, Conduct.LYING) == 1


def test_a_forced_round_needs_no_watcher() -> None:
    corrupt = replace(WORLD, corrupt=1.0, watch=0.0)
    shares = [
        coalition_of(replace(corrupt, forced=every), 1, Conduct.LYING).share(
            Outcome.ACCEPT, Conduct.LYING
        )
        for every in (0, 4, 1)
    ]
    assert shares[0] == 1 and shares[2] == 0
    assert shares[1] == pytest.approx(3 / 4, abs=0.04)


def test_a_forced_round_pays_who_opens_with_the_schedulers_share_and_bonds_nobody() -> None:
    honest = [Conduct.HONEST] * 20
    usual, forced = (simulate(replace(WORLD, forced=f), honest, 500) for f in (0, 1))
    accepted = usual.outcomes == Outcome.ACCEPT
    each = (90_000 - 2 * TERMS.caller_fee) // 4 - COSTS.opening
    gained = (forced.inferencer - usual.inferencer)[accepted]
    assert np.all(gained == each)
    assert np.all((forced.verifiers - usual.verifiers)[accepted] == each)
    lost = (usual.scheduler - forced.scheduler)[accepted]
    assert np.all(lost == 90_000 - 2 * TERMS.caller_fee + COSTS.challenge)
    assert forced.challenger.sum() == 0


def test_forged_tokens_risk_no_challenge_bond_in_a_forced_round() -> None:
    bonded, free = (
        coalition_of(replace(WORLD, token_detection=1.0, forced=f), 1, Conduct.FORGING)
        for f in (0, 1)
    )
    refunded = bonded.outcomes == Outcome.REFUND
    saved = (free.inferencer - bonded.inferencer)[refunded]
    assert refunded.mean() > 0.99
    shared = TERMS.challenge_bond // 4  # what the bond's loser got back as one who opened
    assert np.all(saved == TERMS.challenge_bond - shared)


def test_a_captured_committees_word_falls_to_a_larger_one_and_costs_its_members_their_locks() -> (
    None
):
    def accepted(redress: float) -> Tally:
        return coalition_of(replace(WORLD, redress=redress), 8)

    captured, caught = accepted(0.0), accepted(1.0)
    was = captured.outcomes == Outcome.ACCEPT
    still = caught.outcomes == Outcome.ACCEPT
    chance = capture.capture((2,) * 19, range(7), 7)
    assert was.sum() > 300 and not np.any(still & ~was)
    assert still[was].mean() == pytest.approx(chance, abs=4.5 * (chance / was.sum()) ** 0.5)
    overturned = was & ~still
    assert np.all(caught.outcomes[overturned] == Outcome.SLASH)
    lied = caught.conducts[overturned][:, 1:] == Conduct.COLLUDING
    assert np.all(caught.verifiers[overturned][lied] < -WORLD.stakes.lock)
    assert np.all(caught.verifiers[overturned][~lied] > 0)
    assert caught.as_inferencer(Conduct.COLLUDING) < captured.as_inferencer(Conduct.COLLUDING)


def test_whoever_asks_is_paid_by_the_claim_and_pays_the_wages() -> None:
    free, paid = (
        coalition_of(replace(WORLD, redress=1.0, reverify_bond=bond), 8)
        for bond in (0, 14 * 11_000)
    )
    overturned = free.challenger != 0
    assert free.challenger[overturned].mean() > 0
    wages = (free.challenger - paid.challenger)[overturned]
    assert wages.min() >= 4 * 11_000 and wages.max() <= 7 * 11_000


def test_a_network_of_too_few_owners_for_it_has_no_re_verification() -> None:
    small = replace(WORLD, seats=(1,) * 7)
    one, other = (coalition_of(replace(small, redress=r), 4) for r in (0.0, 1.0))
    assert np.array_equal(one.outcomes, other.outcomes)


@pytest.mark.parametrize("conduct", [Conduct.PREFILL, Conduct.FORGING])
def test_a_proof_by_its_own_states_slashes_who_did_not_nudge_them(conduct: Conduct) -> None:
    world = replace(WORLD, token_detection=1.0, proofs=1.0)
    tally = coalition_of(world, 1, conduct)
    slashed = tally.share(Outcome.SLASH, conduct)
    assert (slashed > 0.99) == (conduct is Conduct.PREFILL)


def test_what_a_world_does_not_use_changes_no_job() -> None:
    one, other = (
        simulate(w, [Conduct.HONEST] * 20, 300) for w in (WORLD, replace(WORLD, proofs=1))
    )
    assert np.array_equal(one.inferencer, other.inferencer)


def test_noise_makes_honest_jobs_inconclusive_before_it_slashes_them() -> None:
    noisy = replace(WORLD, refund=1.15, slash=2.0)
    tally = simulate(noisy, [Conduct.HONEST] * 20, JOBS)
    assert tally.share(Outcome.INCONCLUSIVE) > 0.1
    assert tally.share(Outcome.SLASH) == 0


def test_honest_pairs_lie_one_median_apart() -> None:
    halves = replace(WORLD, refund=1.0, slash=1.0, spread=0.0)
    tally = simulate(halves, [Conduct.HONEST] * 20, JOBS)
    # Three verifiers: no pair agrees in about (1/2)^3 of all committees.
    assert tally.share(Outcome.INCONCLUSIVE) > 0.1
    pairs = list(combinations(range(4), 2))
    assert len(pairs) == 6


def test_conducts_must_match_owners() -> None:
    with pytest.raises(InputError):
        simulate(WORLD, [Conduct.HONEST], 10)
