"""Bounds from the literature, as functions of shares and probabilities in [0, 1].

(P) VeriLLM, arXiv 2509.24257: first committee and re-verification. (S) Proof of Sampling, arXiv
2405.00295: exposure against check rate. Both treat parties as independent; `capture` does not.
Each raises InputError for a value outside its range, and where no finite answer exists.
"""

from math import comb, exp, floor, log

from verillm.errors import InputError


def least_honest_share(noise: float) -> float:
    """(P) The honest share r over which a first committee of odd size is right more often than not.

    `noise` mu: the chance that an honest run strays; a vote is right if neither side's run did and
    the voter is honest, r(1-mu)^2, and an odd majority of votes beats 1/2 iff one vote does.
    """
    _probability("noise", noise, below_one=True)
    return 1 / (2 * (1 - noise) ** 2)


def majority_right(members: int, honest_share: float, noise: float) -> float:
    """The chance itself: more than half of an odd number of independent votes are right."""
    if members < 1 or members % 2 == 0:
        raise InputError("a committee that votes has an odd size")
    _probability("honest_share", honest_share)
    _probability("noise", noise)
    return binomial_tail(members, members // 2 + 1, honest_share * (1 - noise) ** 2)


def reverification_size(honest_share: float, noise: float, error: float) -> int:
    """(P) Members m' of a re-verification that errs with at most `error` xi (Hoeffding).

    The least integer over ln(1/xi) / (2 (r(1-mu) - 1/2)^2). The published m' = 29 (r = .8,
    xi = 1e-2) and 146 (r = 2/3, xi = 1e-3) hold together only for mu between .0185 and .0192.
    """
    _probability("error", error, above_zero=True, below_one=True)
    return floor(log(1 / error) / (2 * _excess(honest_share, noise) ** 2)) + 1


def reverification_error(members: int, honest_share: float, noise: float) -> float:
    """(P) The bound on xi that a re-verification of this size keeps; the inverse of the above."""
    if members < 1:
        raise InputError("a committee has members")
    return exp(-2 * members * _excess(honest_share, noise) ** 2)


def least_kappa(check_rate: float, detection: float) -> float:
    """(S) Exposure per fee over which a cheat that gains at most the fee does not pay: 1 / (p q).

    `check_rate` p: the chance that a job is checked; `detection` q: that the check then slashes.
    """
    _probability("check_rate", check_rate, above_zero=True)
    _probability("detection", detection, above_zero=True)
    return 1 / (check_rate * detection)


def least_check_rate(kappa: float, detection: float) -> float:
    """(S) The check rate over which a cheat worth at most the fee does not pay: 1 / (kappa q)."""
    _probability("detection", detection, above_zero=True)
    if kappa * detection <= 1:
        raise InputError("not even checking every job deters: raise kappa or the detection")
    return 1 / (kappa * detection)


def least_detection(saving: float, pay: float, penalty: float) -> float:
    """The chance of being caught over which a saving does not pay.

    A cheat saves `saving` for sure, and if caught loses its `pay` and `penalty`; same units, each
    at least 0. Over 1: no detection deters it.
    """
    if saving < 0 or pay < 0 or penalty < 0 or pay + penalty == 0:
        raise InputError("amounts are not negative, and something is at stake")
    return saving / (pay + penalty)


def least_lock(gain: float, escape: float, pay: float) -> float:
    """The exposure (units of `gain`) that makes a forged output with outside value not pay.

    With chance `escape` it is accepted (`gain` on top of `pay`), else lock and pay are lost:
    escape · gain < (1 - escape) · (lock + pay). Never below 0.
    """
    _probability("escape", escape, below_one=True)
    return max(0.0, gain * escape / (1 - escape) - pay)


def least_hiding(saving: float, pay: float, penalty: float) -> float:
    """The share of check-like tasks that are jobs, over which lazy checking does not pay.

    Who skips such a task saves `saving`; if it was a job, its pay and `penalty` are lost. It takes
    that where a check is paid whatever was committed; the contract pays only largest cliques.
    """
    return least_detection(saving, pay, penalty)


def caught(requests: int, cheated: int, checked: int, detection: float) -> float:
    """The chance that a job with `cheated` bad requests fails when `checked` of all are drawn.

    Exact: each bad one among those drawn is detected with chance `detection`, independently.
    """
    if not (0 <= cheated <= requests and 0 < checked <= requests):
        raise InputError("0 <= cheated <= requests, 0 < checked <= requests")
    _probability("detection", detection)
    missed = 0.0
    for hit in range(min(cheated, checked) + 1):
        ways = comb(cheated, hit) * comb(requests - cheated, checked - hit)
        missed += ways / comb(requests, checked) * (1 - detection) ** hit
    return 1 - missed


def binomial_tail(trials: int, least: int, chance: float) -> float:
    """The chance of at least `least` successes in independent trials."""
    terms = range(least, trials + 1)
    return float(sum(comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in terms))


def _excess(honest_share: float, noise: float) -> float:
    """How far a single vote's chance of being right lies over 1/2."""
    _probability("honest_share", honest_share)
    _probability("noise", noise)
    excess = honest_share * (1 - noise) - 0.5
    if excess <= 0:
        raise InputError("no committee is large enough: r(1-mu) is not over 1/2")
    return excess


def _probability(
    name: str, value: float, *, above_zero: bool = False, below_one: bool = False
) -> None:
    low = value > 0 if above_zero else value >= 0
    high = value < 1 if below_one else value <= 1
    if not (low and high):
        raise InputError(f"{name} = {value!r} is out of range", **{name: value})
