from dataclasses import replace

import pytest

from verillm.chain.deployment import Config
from verillm.economics import capture
from verillm.economics.parameters import (
    Parameters,
    Situation,
    captured,
    coalition,
    cost_of_checking,
    escape,
    least_challenge_bond,
    least_claim_bond,
    least_reverify_bond,
    needed_lock,
    override,
    reverifiers,
    stands,
)
from verillm.economics.recommend import recommend
from verillm.economics.rules import UnsafeParameters, findings, require_safe
from verillm.economics.world import Costs
from verillm.errors import InputError
from verillm.settlement import bond_of, least_lock

COSTS = Costs(
    inference=400_000,
    cheap=150_000,
    prefill=4_000,
    opening=2_000,
    challenge=80_000,
    scheduler=20_000,
    call=3_000,
)
SITUATION = Situation(
    seats=(2,) * 30,
    honest_share=0.8,
    noise=0.01,
    detection=0.9,
    token_detection=0.95,
    costs=COSTS,
    max_fee=1_000_000,
    value=1_000_000,
)
SAFE = recommend(SITUATION)


def unsafe(situation: Situation = SITUATION, **values: float) -> set[str]:
    parameters = override(SAFE, values)
    return {finding.parameter for finding in findings(situation, parameters)}


def test_a_recommendation_is_safe_and_the_contract_takes_it() -> None:
    require_safe(SITUATION, SAFE)
    assert SAFE.terms.kappa_bps == SAFE.kappa_bps >= 10_000
    assert SAFE.unbonding > SAFE.longest_path
    assert SAFE.committee % 2 == 1
    lock = least_lock(SITUATION.max_fee, SAFE.kappa_bps)
    assert bond_of(lock, SITUATION.max_fee) > lock + SITUATION.max_fee


@pytest.mark.parametrize("value", [0, 1e6, 1e7, 1e8])
@pytest.mark.parametrize("detection", [0.5, 0.9, 1.0])
def test_more_value_never_gets_less_exposure_and_every_recommendation_is_safe(
    value: float, detection: float
) -> None:
    situation = replace(SITUATION, value=value, detection=detection)
    parameters = recommend(situation)
    assert findings(situation, parameters) == ()
    lock = least_lock(situation.max_fee, parameters.kappa_bps)
    captured = escape(situation, parameters.committee)
    assert captured * value <= (1 - captured) * lock
    assert lock * detection * (1 - captured) >= situation.max_fee * (1 - 1e-9)
    caught = situation.token_detection * (1 - captured)
    assert (1 - caught) * value <= caught * lock


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("committee", 4),
        ("kappa_bps", 11_000),
        ("kappa_bps", 200_001),
        ("inferencer_bps", 3_000),
        ("committee_bps", 10),
        ("scheduler_bps", 10),
        ("caller_fee", 1),
        ("claim_bond", 79_999),
        ("challenge_bond", 7_999),
        ("answer_fee", 2_999),
        ("answer_fee", 6_001),
        ("reverify_bond", 83_999),
        ("forced_rounds", 1),
        ("seat_stake", 1_000_000),
        ("reserve_bps", 5_000),
        ("seal_window", 60),
        ("claim_window", 60),
        ("dispute_window", 60),
        ("opening_window", 60),
        ("job_window", 60),
        ("unbonding", SAFE.longest_path),
        ("unlock_delay", SAFE.job_window - 1),
        ("key_grace", SAFE.job_window),
    ],
)
def test_each_parameter_below_its_need_is_refused_by_name_with_a_remedy(
    name: str, value: float
) -> None:
    parameters = override(SAFE, {name: value})
    with pytest.raises(UnsafeParameters) as refused:
        require_safe(SITUATION, parameters)
    assert name in {finding.parameter for finding in refused.value.findings}
    assert all(finding.reason and finding.remedy for finding in refused.value.findings)
    assert refused.value.to_dict()["code"] == "unsafe_parameters"
    assert name in refused.value.message


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"honest_share": 0.5}, "committee"),
        ({"noise": 0.25}, "committee"),
        ({"seats": (2, 2, 2)}, "committee"),
        ({"seats": (1_000_000, 1, 1, 1, 1), "honest_share": 1.0}, "committee"),
        ({"detection": 0.1}, "kappa_bps"),
        ({"detection": 0.0}, "kappa_bps"),
        ({"value": 1e10}, "kappa_bps"),
        ({"token_detection": 0.0}, "kappa_bps"),
        ({"token_detection": 0.1}, "token_detection"),
        ({"token_detection": 0.0, "value": 0.0}, "challenge_bond"),
        ({"max_fee": 300_000}, "inferencer_bps"),
        ({"watch": 0.1}, "claim_bond"),
        ({"jobs_at_once": 100}, "seat_stake"),
        ({"notice_seconds": 100_000.0}, "dispute_window"),
    ],
)
def test_a_situation_that_became_worse_makes_the_same_parameters_unsafe(
    change: dict[str, float], parameter: str
) -> None:
    assert parameter in unsafe(replace(SITUATION, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"value": 1e10}, {"detection": 0.05}, {"honest_share": 0.4}, {"max_fee": 300_000}],
)
def test_a_situation_without_safe_parameters_is_refused_with_the_reason(
    change: dict[str, float],
) -> None:
    with pytest.raises(UnsafeParameters) as refused:
        recommend(replace(SITUATION, **change))  # type: ignore[arg-type]
    assert refused.value.findings


def test_too_few_owners_for_any_committee_are_refused() -> None:
    with pytest.raises(UnsafeParameters, match="3 owners cannot staff"):
        recommend(replace(SITUATION, seats=(1, 1, 1)))


def test_the_coalition_takes_the_smallest_owners_up_to_its_share() -> None:
    honest, theirs = coalition(replace(SITUATION, seats=(5, 1, 1, 1, 2), honest_share=0.7))
    assert theirs == (1, 1, 1)
    assert sorted(honest) == [2, 5]


def test_concentrated_honest_stake_is_captured_more_often_than_spread_stake() -> None:
    spread = replace(SITUATION, seats=(1,) * 30)
    whale = replace(SITUATION, seats=(20, *(1,) * 10))
    assert escape(whale, 3) > escape(spread, 3)
    others = len(coalition(spread)[1]) - 1
    assert escape(spread, 3) == pytest.approx(capture.capture((1,) * 29, range(others), 3))


def test_nothing_escapes_without_allies_and_everything_with_the_whole_committee() -> None:
    assert escape(replace(SITUATION, honest_share=1.0), 3) == 0
    assert escape(replace(SITUATION, honest_share=0.0), 3) == pytest.approx(1)
    assert needed_lock(replace(SITUATION, honest_share=0.0), 3) == float("inf")


def test_the_defaults_of_a_deployment_reserve_what_a_committee_of_three_asks_for() -> None:
    assert recommend(SITUATION).committee == 3
    assert Config().reserve_bps == Config.devnet().reserve_bps == SAFE.reserve_bps


def test_a_forced_round_counts_as_watched_and_so_lowers_the_claims_bond() -> None:
    blind = replace(SITUATION, watch=0.5, value=1e7)
    bonds = [least_claim_bond(blind, share) for share in (0.0, 0.25, 0.5, 1.0)]
    assert bonds == sorted(bonds, reverse=True)
    assert bonds[0] == pytest.approx(11_000_000)  # (fee + value)(1 - w)/w
    assert bonds[-1] == COSTS.challenge  # nobody has to look, only the challenge has to be paid


def test_a_forced_round_takes_no_bond_so_the_others_must_deter_forged_tokens_for_it() -> None:
    forging = replace(SITUATION, value=1e7, token_detection=0.5)
    bonds = [
        least_challenge_bond(forging, override(SAFE, {"forced_rounds": every}))
        for every in (0, 10, 2)
    ]
    assert bonds[1] == pytest.approx(bonds[0] / 0.9)
    assert bonds[2] == pytest.approx(bonds[0] / 0.5)
    assert least_challenge_bond(forging, override(SAFE, {"forced_rounds": 1})) == float("inf")


def test_frequent_forced_rounds_are_refused_for_what_they_take_from_the_scheduler() -> None:
    generous = {"scheduler_bps": 1_500, "inferencer_bps": 8_320, "committee_bps": 180}
    share = 150_000 - 2 * SAFE.caller_fee
    least = (share + COSTS.challenge) / (share - COSTS.scheduler)  # share (1 - 1/A) >= cost + c/A
    rare, often = int(least) + 1, int(least)
    assert unsafe(SITUATION, **generous, forced_rounds=rare) == set()
    assert unsafe(SITUATION, **generous, forced_rounds=often) == {"forced_rounds"}


def test_a_forced_round_must_pay_its_openings() -> None:
    dear = replace(SITUATION, costs=replace(COSTS, opening=9_000))
    bonds = {"challenge_bond": 100_000, "reverify_bond": 1_000_000}
    assert unsafe(dear, **bonds) == set()
    assert unsafe(dear, **bonds, forced_rounds=1_000) == {"scheduler_bps"}


def test_a_captured_committee_stands_unless_somebody_asks_and_the_larger_one_is_not_captured() -> (
    None
):
    assert stands(SITUATION, 3) == 1
    asked = replace(SITUATION, redress=1.0)
    assert reverifiers(3) == reverifiers(7) == 7
    assert stands(asked, 3) == pytest.approx(captured(SITUATION, 7))
    assert escape(asked, 3) == pytest.approx(captured(SITUATION, 3) * captured(SITUATION, 7))
    half = escape(replace(SITUATION, redress=0.5), 3)
    assert escape(asked, 3) < half < escape(SITUATION, 3)
    assert needed_lock(replace(asked, value=1e8), 3) < needed_lock(replace(SITUATION, value=1e8), 3)


def test_a_network_too_small_for_the_larger_committee_has_no_redress() -> None:
    small = replace(SITUATION, seats=(1,) * 7, redress=1.0)
    assert stands(small, 3) == 1
    assert "committee" in unsafe(small)
    assert "committee" not in unsafe(replace(small, redress=0.0))


def test_a_wage_of_a_reverification_pays_a_prefill_and_the_openings() -> None:
    wage = least_reverify_bond(SITUATION, 3) / (2 * reverifiers(3))
    assert wage == COSTS.prefill + COSTS.opening


def test_larger_committees_and_locks_cost_more() -> None:
    def cost(**values: float) -> float:
        return cost_of_checking(SITUATION, override(SAFE, values))

    assert cost(committee=7) > cost(committee=3)
    assert cost(kappa_bps=60_000) > cost()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: override(SAFE, {"committe": 3}),
        lambda: recommend(replace(SITUATION, noise=1.0)),
        lambda: recommend(replace(SITUATION, honest_share=float("nan"))),
        lambda: recommend(replace(SITUATION, seats=(1, 0))),
        lambda: recommend(replace(SITUATION, max_fee=0)),
        lambda: least_claim_bond(replace(SITUATION, watch=0.0)),
    ],
)
def test_values_that_no_situation_has_are_input_errors(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(InputError):
        ask()


def test_overriding_keeps_counts_whole() -> None:
    changed = override(SAFE, {"committee": 5.0})
    assert isinstance(changed, Parameters)
    assert changed.committee == 5 and isinstance(changed.committee, int)
