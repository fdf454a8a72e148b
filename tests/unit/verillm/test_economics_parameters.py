from dataclasses import replace

import pytest

from verillm.economics import capture
from verillm.economics.parameters import (
    Parameters,
    Situation,
    coalition,
    cost_of_checking,
    escape,
    largest_forced_rounds,
    least_claim_bond,
    needed_lock,
    override,
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
        ("forced_rounds", 0),
        ("forced_rounds", SAFE.forced_rounds + 1),
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


def test_forced_rounds_are_rarer_the_more_is_at_stake() -> None:
    rich = override(SAFE, {"kappa_bps": 60_000})
    assert largest_forced_rounds(SITUATION, rich) > largest_forced_rounds(SITUATION, SAFE) >= 1
    assert largest_forced_rounds(replace(SITUATION, value=1e9), SAFE) == 0


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
    changed = override(SAFE, {"committee": 5.0, "check_rate": 0.5})
    assert isinstance(changed, Parameters)
    assert (changed.committee, changed.check_rate) == (5, 0.5)
    assert isinstance(changed.committee, int)
