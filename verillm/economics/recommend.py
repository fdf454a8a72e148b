"""The cheapest parameters that no rule objects to, or the reasons why there are none."""

from dataclasses import replace
from math import ceil

from verillm.economics.parameters import (
    LARGEST_COMMITTEE,
    Parameters,
    Situation,
    check,
    cost_of_checking,
    least_challenge_bond,
    least_claim_bond,
    least_reverify_bond,
    least_windows,
    needed_lock,
)
from verillm.economics.rules import Finding, UnsafeParameters, findings
from verillm.settlement import BPS, least_lock

LARGEST_AMOUNT = 2**96 - 1
MARGIN = 1.5
"""By how much shares and bonds exceed the costs they have to cover."""


def recommend(situation: Situation) -> Parameters:
    """The cheapest safe parameters; UnsafeParameters where this situation has none."""
    check(situation)
    sizes = range(3, min(LARGEST_COMMITTEE, len(situation.seats) - 1) + 1, 2)
    if not sizes:
        few = f"{len(situation.seats)} owners cannot staff a committee of 3 beside the inferencer"
        raise UnsafeParameters((Finding("committee", few, "wait for at least 4 owners"),))
    options = [_with_committee(situation, size) for size in sizes]
    safe = [option for option in options if not findings(situation, option)]
    if not safe:
        raise UnsafeParameters(min((findings(situation, o) for o in reversed(options)), key=len))
    return min(safe, key=lambda option: cost_of_checking(situation, option))


def _with_committee(situation: Situation, committee: int) -> Parameters:
    # No forced rounds: they replace watchers, not members, and the claim's bond does that cheaper.
    needed = needed_lock(situation, committee)
    kappa = min(needed / situation.max_fee, situation.most_kappa)
    kappa_bps = min(ceil(kappa * 100) * 100, int(situation.most_kappa * BPS))
    lock = least_lock(situation.max_fee, kappa_bps)
    caller_fee = ceil(situation.costs.call * MARGIN)
    for_committee = _bps(situation.costs.prefill * committee * MARGIN, situation.max_fee)
    for_scheduler = _bps(situation.costs.scheduler * MARGIN + 2 * caller_fee, situation.max_fee)
    own = situation.jobs_at_once * lock
    reserve_bps = ceil(BPS * committee / (committee + 1))
    windows = least_windows(situation)
    parameters = Parameters(
        committee=committee,
        kappa_bps=kappa_bps,
        inferencer_bps=max(1, BPS - for_committee - for_scheduler),
        committee_bps=for_committee,
        scheduler_bps=for_scheduler,
        reserve_bps=reserve_bps,
        seat_stake=ceil(own * BPS / (BPS - reserve_bps)) + 1,
        caller_fee=caller_fee,
        claim_bond=ceil(least_claim_bond(situation) * MARGIN) + 1,
        challenge_bond=1,
        answer_fee=ceil(situation.costs.call),
        reverify_bond=ceil(least_reverify_bond(situation, committee) * MARGIN) + 1,
        unbonding=0,
        unlock_delay=windows["job_window"],
        key_grace=windows["job_window"] + windows["seal_window"],
        forced_rounds=0,
        **windows,
    )
    bond = min(least_challenge_bond(situation, parameters), float(LARGEST_AMOUNT))
    return replace(
        parameters,
        challenge_bond=ceil(bond * MARGIN) + 1,
        unbonding=parameters.longest_path + 86_400,
    )


def _bps(cost: float, fee: int) -> int:
    return max(1, ceil(cost * BPS / fee))
