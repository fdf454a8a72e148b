"""Every reason why parameters are unsafe, each said once."""

from collections.abc import Iterator
from dataclasses import dataclass

from verillm.economics import capture, lemmas
from verillm.economics.parameters import (
    LARGEST_COMMITTEE,
    MOST_REPAID,
    Parameters,
    Situation,
    check,
    escape,
    least_challenge_bond,
    least_claim_bond,
    least_reverify_bond,
    least_windows,
    needed_lock,
    reverifiers,
)
from verillm.errors import ConfigError
from verillm.settlement import BPS, demand, least_lock


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a parameter is unsafe, and what would cure it."""

    parameter: str
    reason: str
    remedy: str


class UnsafeParameters(ConfigError):
    """With these parameters honesty is not the best response, or the contract refuses them."""

    code = "unsafe_parameters"
    remedy = "Each finding names a remedy; `verillm params` without overrides recommends a set."

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        listed = "; ".join(f"{each.parameter}: {each.reason} ({each.remedy})" for each in findings)
        super().__init__(listed, findings=findings)
        self.findings = findings


def require_safe(situation: Situation, parameters: Parameters) -> None:
    """Raise UnsafeParameters with every reason why not."""
    check(situation)
    found = tuple(findings(situation, parameters))
    if found:
        raise UnsafeParameters(found)


def findings(situation: Situation, parameters: Parameters) -> tuple[Finding, ...]:
    """Every reason why these parameters are unsafe here; () if none."""
    rules = (
        _of_committee,
        _of_exposure,
        _of_shares,
        _of_bonds,
        _of_forced,
        _of_recourse,
        _of_stake,
        _of_windows,
    )
    return tuple(finding for rule in rules for finding in rule(situation, parameters))


def _of_committee(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    least = lemmas.least_honest_share(situation.noise)
    if situation.honest_share <= least:
        reason = (
            f"the honest share {situation.honest_share} is not over {least:.3f} = 1/(2(1-mu)^2)"
        )
        yield Finding("committee", reason, "lower the noise by calibration, or admit fewer owners")
    if parameters.committee % 2 == 0 or not 3 <= parameters.committee <= LARGEST_COMMITTEE:
        reason = f"{parameters.committee} members is not 3, 5 or 7"
        yield Finding("committee", reason, "an even committee only adds ways to be inconclusive")
    if len(situation.seats) <= parameters.committee:
        reason = f"{len(situation.seats)} owners for {parameters.committee} members and inferencer"
        yield Finding("committee", reason, "a smaller committee, or more owners")
    elif capture.exhaustion(situation.seats, parameters.committee) > 1e-6:
        reason = "so few owners hold so many seats that draws give up, at the scheduler's cost"
        yield Finding("committee", reason, "a smaller committee, or a cap on seats per owner")


def _of_exposure(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    needed = needed_lock(situation, parameters.committee)
    needed_bps = needed * BPS / situation.max_fee
    if parameters.kappa_bps > situation.most_kappa * BPS:
        reason = (
            f"{parameters.kappa_bps} is over the {situation.most_kappa:g} fees that seats carry"
        )
        yield Finding("kappa_bps", reason, "more honest owners, less value per job, or more stake")
    if parameters.kappa_bps < needed_bps:
        reason = f"{parameters.kappa_bps} is below {needed_bps:.0f}: cheating pays"
        yield Finding("kappa_bps", reason, _cure_of_exposure(situation, parameters.committee))
    costs, fee = situation.costs, situation.max_fee
    pay, penalty = fee * parameters.inferencer_bps / BPS, fee * parameters.committee_bps / BPS
    # A cheat that only decodes wrongly is refunded, never slashed: pay and committee are its loss.
    saving = costs.inference - costs.cheap - costs.prefill
    least = lemmas.least_detection(max(saving, 0.0), pay, penalty)
    if situation.token_detection < least:
        reason = f"tokens are caught with {situation.token_detection} < {least:.3f}, only refunded"
        yield Finding("token_detection", reason, "tighter margins, or check more requests")


def _cure_of_exposure(situation: Situation, committee: int) -> str:
    caught = situation.token_detection * (1 - escape(situation, committee))
    deterred = situation.most_kappa * situation.max_fee * caught / max(1 - caught, 1e-12)
    return (
        f"raise it, detection or the honest share; a forgery escapes with {1 - caught:.2g}, "
        f"{situation.most_kappa:g} locks deter a value of {deterred:.3g} units"
    )


def _of_shares(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    costs, fee = situation.costs, situation.max_fee
    needs = {
        "inferencer_bps": costs.inference,
        "committee_bps": costs.prefill * parameters.committee,
        "scheduler_bps": costs.scheduler + 2 * parameters.caller_fee,
    }
    for name, cost in needs.items():
        paid = fee * getattr(parameters, name) / BPS
        if paid < cost:
            reason = f"pays {paid:.0f} for work that costs {cost:.0f}"
            yield Finding(name, reason, "raise the share or the price")
    shares = parameters.inferencer_bps + parameters.committee_bps + parameters.scheduler_bps
    if shares != BPS:
        yield Finding("inferencer_bps", f"the shares add up to {shares}", "make them 10000")
    if parameters.caller_fee < costs.call:
        reason = f"{parameters.caller_fee} does not pay a call's gas of {costs.call:.0f}"
        yield Finding("caller_fee", reason, "raise it")


def _of_bonds(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    claim = least_claim_bond(situation, parameters.forced_share)
    if parameters.claim_bond < claim:
        reason = (
            f"{parameters.claim_bond} is below {claim:.0f}: a wrong claim pays, or nobody objects"
        )
        yield Finding("claim_bond", reason, "raise it, or have more auditors watch")
    challenge = least_challenge_bond(situation, parameters)
    if parameters.challenge_bond < challenge:
        reason = (
            f"{parameters.challenge_bond} is below {challenge:.0f}: forged tokens or griefing pay"
        )
        yield Finding("challenge_bond", reason, "raise it, or the detection by tokens")


def _of_forced(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    """A forced round takes the scheduler's share, pays the parties with it, and bonds nobody."""
    forced, costs = parameters.forced_share, situation.costs
    if not forced:
        return
    share = situation.max_fee * parameters.scheduler_bps / BPS - 2 * parameters.caller_fee
    kept, cost = share * (1 - forced), costs.scheduler + costs.challenge * forced
    if kept < cost:
        reason = (
            f"one job in {parameters.forced_rounds} leaves the scheduler {kept:.0f} of {cost:.0f}"
        )
        yield Finding("forced_rounds", reason, "force fewer of them, or raise the share")
    each = share / (1 + parameters.committee)
    if each < costs.opening:
        reason = f"a forced round pays {each:.0f} for openings that cost {costs.opening:.0f}"
        yield Finding("scheduler_bps", reason, "raise the share, or force no rounds")


def _of_recourse(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    """What a summoned member and the members of a re-verification are paid."""
    call = situation.costs.call
    if parameters.answer_fee < call:
        reason = f"{parameters.answer_fee} does not pay an answer's gas of {call:.0f}"
        yield Finding("answer_fee", reason, "raise it")
    if parameters.answer_fee > MOST_REPAID * max(call, 1.0):
        reason = f"{parameters.answer_fee} is over {MOST_REPAID} answers' gas of {call:.0f}"
        yield Finding("answer_fee", f"{reason}: silence until summoned pays", "lower it")
    members, least = (
        reverifiers(parameters.committee),
        least_reverify_bond(situation, parameters.committee),
    )
    if parameters.reverify_bond < least:
        reason = f"{parameters.reverify_bond} is below {least:.0f}: {members} wages pay no work"
        yield Finding("reverify_bond", reason, "raise it")
    if situation.redress > 0 and len(situation.seats) <= members:
        reason = f"{len(situation.seats)} owners cannot staff a re-verification of {members}"
        yield Finding("committee", reason, "count on no redress, or wait for more owners")


def _of_stake(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    lock = least_lock(situation.max_fee, parameters.kappa_bps)
    reserved = demand(parameters.seat_stake, parameters.reserve_bps)
    own = situation.jobs_at_once * lock
    if parameters.seat_stake - reserved < own:
        reason = f"{parameters.seat_stake - reserved} unreserved for {situation.jobs_at_once} locks"
        yield Finding("seat_stake", f"{reason} of {lock}", "more stake, or fewer jobs at once")
    if reserved < own * parameters.committee:
        reason = f"{reserved} reserved is below {own * parameters.committee} of its checks"
        yield Finding("reserve_bps", reason, "reserve m/(m+1) of a seat")


def _of_windows(situation: Situation, parameters: Parameters) -> Iterator[Finding]:
    least = least_windows(situation)
    for name, seconds in least.items():
        if getattr(parameters, name) < seconds:
            reason = f"{getattr(parameters, name)} s is below {seconds} s: the honest come late"
            yield Finding(name, reason, "lengthen it")
    if parameters.unbonding <= parameters.longest_path:
        reason = (
            f"{parameters.unbonding} s is not over the longest path, {parameters.longest_path} s"
        )
        yield Finding("unbonding", reason, "lengthen it")
    if parameters.unlock_delay < parameters.job_window:
        reason = "a client could withdraw under a signed job"
        yield Finding("unlock_delay", reason, "at least the job window")
    if parameters.key_grace < parameters.job_window + parameters.seal_window:
        reason = "a rotated key would void commitments that are still to be posted or sealed"
        yield Finding("key_grace", reason, "at least job window and seal window")
