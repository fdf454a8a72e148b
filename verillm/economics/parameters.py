"""What a deployer knows, what a deployment fixes, and what follows from one for the other.

Amounts are token units, durations seconds, shares fractions unless they are named bps.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import ceil, inf

from verillm.economics import capture, lemmas
from verillm.economics.world import Costs
from verillm.errors import InputError
from verillm.settlement import BPS, Terms, least_lock

LARGEST_COMMITTEE = 7
"""What the contract's verdict enumerates."""
YEAR = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Situation:
    """What a deployer knows or assumes.

    seats : of each owner (their concentration). honest_share : of all seats, r; the others are one
    coalition. noise : chance mu that an honest run disagrees with an honest one. detection : chance
    that a check slashes the weakest cheat that runs another model. token_detection : chance that it
    catches one that prefills with the true model, whose tokens alone are wrong. costs, max_fee : of
    the dearest job. value : what a forged output is worth to its maker beyond the fee. watch :
    chance that somebody honest looks at a claim. redress : chance that somebody has the word of a
    captured committee re-verified; 0 counts on nobody. most_kappa : locks per fee that operators
    carry. jobs_at_once : of a seat, until final. capital : yearly cost of locked stake. The rest
    are durations; `positions` is what the public round compares.
    """

    seats: tuple[int, ...]
    honest_share: float
    noise: float
    detection: float
    token_detection: float
    costs: Costs
    max_fee: int
    value: float = 0.0
    watch: float = 0.99
    redress: float = 0.0
    most_kappa: float = 20.0
    jobs_at_once: int = 8
    capital: float = 0.1
    block_seconds: float = 12.0
    inclusion_seconds: float = 300.0
    job_seconds: float = 120.0
    prefill_seconds: float = 10.0
    notice_seconds: float = 1800.0
    positions: int = 64


MAX_DEMANDS = 3
"""Demands of a bundle that one job can see (TermsLib)."""
MOST_REVERIFIERS = 7
"""Members of a re-verification that the contract draws at most (Reverifications)."""
MOST_REPAID = 2
"""Gas of an answer that its fee may repay at most: beyond it silence until summoned is a wage."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a deployment and a model version fix; names as in Config and ModelSpec.

    `forced_rounds` is Config's forcedEvery: one job in A is judged in public, 0 none.
    """

    committee: int
    kappa_bps: int
    inferencer_bps: int
    committee_bps: int
    scheduler_bps: int
    reserve_bps: int
    seat_stake: int
    caller_fee: int
    claim_bond: int
    challenge_bond: int
    answer_fee: int
    reverify_bond: int
    seal_window: int
    claim_window: int
    dispute_window: int
    opening_window: int
    job_window: int
    unbonding: int
    unlock_delay: int
    key_grace: int
    forced_rounds: int

    @property
    def forced_share(self) -> float:
        """The share of jobs whose round the draw forces."""
        return 1 / self.forced_rounds if self.forced_rounds else 0.0

    @property
    def terms(self) -> Terms:
        """What the money rules need; InputError where the contract's constructor would revert."""
        return Terms(
            self.kappa_bps,
            self.inferencer_bps,
            self.committee_bps,
            self.scheduler_bps,
            self.caller_fee,
            self.claim_bond,
            self.challenge_bond,
        )

    @property
    def longest_path(self) -> int:
        """Seconds from a job's signature to its end at the latest, as the contract counts them."""
        claim = self.claim_window + self.dispute_window
        claims = claim + MAX_DEMANDS * (claim + self.opening_window)
        summonses = 4 * self.opening_window + self.seal_window
        public_round = 3 * self.opening_window + 2 * self.dispute_window
        appeal = 7 * self.opening_window
        path = self.job_window + self.seal_window + summonses + claims
        return path + public_round + appeal


def override(parameters: Parameters, values: Mapping[str, float]) -> Parameters:
    """The same parameters but for `values`; InputError for a name that does not exist."""
    known = {field.name for field in fields(Parameters)}
    for name in values:
        if name not in known:
            raise InputError(f"no parameter is called {name}", name=name)
    return Parameters(**(asdict(parameters) | {name: int(value) for name, value in values.items()}))


def check(situation: Situation) -> None:
    """InputError for values that no situation has."""
    shares = (
        "honest_share",
        "noise",
        "detection",
        "token_detection",
        "watch",
        "redress",
    )
    for name in shares:
        if not 0 <= getattr(situation, name) <= 1:
            raise InputError(f"{name} = {getattr(situation, name)!r} is not a share", name=name)
    if situation.noise >= 1:
        raise InputError("noise is below 1", noise=situation.noise)
    if min(situation.seats, default=0) < 1:
        raise InputError("every owner has a seat")
    if situation.max_fee < 1 or situation.jobs_at_once < 1 or situation.value < 0:
        raise InputError("max_fee and jobs_at_once are at least 1, value is not negative")


def coalition(situation: Situation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seats of the honest and of the worst coalition that 1 - r of all seats allows.

    Its stake sits with the smallest owners: identities are free, and each of them can be drawn.
    """
    budget = (1 - situation.honest_share) * sum(situation.seats) + 1e-9
    theirs: list[int] = []
    ours = sorted(situation.seats)
    while ours and sum(theirs) + ours[0] <= budget:
        theirs.append(ours.pop(0))
    return tuple(ours), tuple(theirs)


def captured(situation: Situation, members: int) -> float:
    """The chance that a coalition, one of which is the inferencer, has the drawn majority."""
    honest, theirs = coalition(situation)
    others = theirs[1:]
    if len(honest) + len(others) < members or not others:
        return 0.0 if not others else 1.0
    return min(1.0, capture.capture((*others, *honest), range(len(others)), members))


def reverifiers(committee: int) -> int:
    """Members m' of a re-verification: min(2m + 1, 7), drawn anew from all owners."""
    return min(2 * committee + 1, MOST_REVERIFIERS)


def stands(situation: Situation, committee: int) -> float:
    """The chance that a captured committee's word stands: nobody asks, or the new one errs too.

    A network of fewer owners than the new committee needs has no re-verification.
    """
    members = reverifiers(committee)
    if len(situation.seats) <= members:
        return 1.0
    return 1 - situation.redress * (1 - captured(situation, members))


def escape(situation: Situation, committee: int) -> float:
    """The chance that a coalition's forgery is accepted for good."""
    return captured(situation, committee) * stands(situation, committee)


def needed_lock(situation: Situation, committee: int) -> float:
    """The exposure that makes neither a saving nor a forgery pay; infinite if nothing does.

    A forgery escapes by capture, or, with the true model's prefill, by tokens that are not caught.
    """
    escaped = escape(situation, committee)
    if situation.detection <= 0 or escaped > 1 - 1e-9:
        return inf
    saving = lemmas.least_kappa(1.0, situation.detection * (1 - escaped)) * situation.max_fee
    # A slash for wrong tokens costs the lock, or by a challenge its bond: both have to deter.
    caught = situation.token_detection * (1 - escaped)
    if situation.value > 0 and caught <= 0:
        return inf
    forging = lemmas.least_lock(situation.value, 1 - caught, pay=0.0) if situation.value else 0.0
    return max(saving, forging, float(situation.max_fee))


def cost_of_checking(situation: Situation, parameters: Parameters) -> float:
    """What checking adds to a job: prefills, what lies locked, and its share of forced rounds."""
    prefills = parameters.committee * situation.costs.prefill
    opening = situation.costs.challenge + (1 + parameters.committee) * situation.costs.opening
    locked = least_lock(situation.max_fee, parameters.kappa_bps) * (1 + parameters.committee)
    windows = parameters.seal_window + parameters.claim_window + parameters.dispute_window
    idle = locked * situation.capital * windows / YEAR
    return prefills + idle + opening * parameters.forced_share


def least_claim_bond(situation: Situation, forced_share: float = 0.0) -> float:
    """What a challenge costs, and what a wrong claim can win where nobody looks.

    Where the draw forces a round no claim stands without one: such jobs are as good as watched.
    """
    if not 0 < situation.watch <= 1:
        raise InputError("watch is over 0: silence assents")
    seen = 1 - (1 - situation.watch) * (1 - forced_share)
    gain = situation.max_fee + situation.value
    return max(situation.costs.challenge, gain * (1 - seen) / seen)


def least_challenge_bond(situation: Situation, parameters: Parameters) -> float:
    """What all parties pay to open, and what deters an output whose tokens alone are forged.

    Its maker challenges a slash for tokens, the contract refunds instead: it loses pay, the
    committee's share and this bond, while an escape wins `value`. A forced round asks for no bond.
    """
    size = parameters.committee
    caught = situation.token_detection * (1 - escape(situation, size))
    if caught <= 0:
        return inf
    lost = situation.max_fee * (parameters.inferencer_bps + parameters.committee_bps) / BPS
    forging = lemmas.least_lock(situation.value, 1 - caught, lost)
    bonded = 1 - parameters.forced_share
    if forging > 0 and bonded <= 0:
        return inf
    return max((size + 1) * situation.costs.opening, forging / bonded if forging else 0.0)


def least_reverify_bond(situation: Situation, committee: int) -> float:
    """A new member's wage is bond / 2m': it pays one prefill and opening everything on chain."""
    work = situation.costs.prefill + situation.costs.opening
    return 2 * reverifiers(committee) * work


def least_windows(situation: Situation) -> dict[str, int]:
    """The least windows in which the honest can act, in whole minutes.

    Seal: prefills behind three others, then two inclusions. Dispute: notice, an own prefill, two
    inclusions. Opening: twice what reveal needs in its first half, and a block for each comparison.
    """
    inclusion = situation.inclusion_seconds
    notice = situation.notice_seconds + situation.prefill_seconds + 2 * inclusion
    seconds = {
        "job_window": 4 * situation.job_seconds + inclusion,
        "seal_window": 4 * situation.prefill_seconds + 2 * inclusion,
        "claim_window": 4 * situation.prefill_seconds + 4 * inclusion,
        "dispute_window": notice,
        "opening_window": 2 * notice + situation.positions * situation.block_seconds,
    }
    return {name: ceil(value / 60) * 60 for name, value in seconds.items()}
