"""Who lives in a simulated network: conducts, costs, the world, and what became of its jobs."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from verillm.settlement import Stakes, Terms, bond_of, least_lock
from verillm.types import Mask, Outcome

Reals = NDArray[np.float64]
Indices = NDArray[np.int64]


class Conduct(IntEnum):
    """How an owner behaves, as inferencer and as verifier.

    LAZY runs a cheaper model, and commits to garbage instead of a prefill. PREFILL decodes with the
    cheaper model but prefills with the true one, so that only its tokens betray it. LYING forges an
    output that is worth something to it; FORGING does so and prefills that with the true model,
    nudges its own states so that no proof by them holds, and challenges a slash for its tokens,
    which a round cannot recompute. COLLUDING lies and backs the lies of its allies. GRIEFING
    commits to garbage and opens nothing, whatever that costs.
    """

    HONEST = 0
    LAZY = 1
    PREFILL = 2
    LYING = 3
    COLLUDING = 4
    GRIEFING = 5
    FORGING = 6


@dataclass(frozen=True, slots=True)
class Costs:
    """What work costs: a whole job, one with the cheaper model, a check, an opening on chain,
    a challenge with all its calls, the scheduler's post and seal, a claim or finalize."""

    inference: float
    cheap: float
    prefill: float
    opening: float = 0.0
    challenge: float = 0.0
    scheduler: float = 0.0
    call: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """Everything but who behaves how.

    seats : of each owner. value : what an accepted forgery is worth to its maker. watch : the
    chance that somebody honest looks at a claim. corrupt : the chance that a cheat's job is claimed
    accepted. forced : one job in so many is judged in public, 0 none. redress : the chance that an
    accepted forgery is re-verified, for reverify_bond. proofs : the chance that tokens that are
    caught are proven wrong by the inferencer's own states, where those are the model's. hidden :
    the share of check-like tasks that are jobs. grief : the chance that a right claim is
    challenged. abort : allies of the scheduler do not seal unless they own the committee. pay_all :
    pay every member that was not silent, a rule that the contract does not have. spread, refund,
    slash : of honest runs, and the tiers, over the honest median.
    """

    seats: tuple[int, ...]
    members: int
    terms: Terms
    max_fee: int
    fee: int
    costs: Costs
    value: float = 0.0
    watch: float = 1.0
    corrupt: float = 0.0
    forced: int = 0
    redress: float = 0.0
    reverify_bond: int = 0
    proofs: float = 0.0
    hidden: float = 0.0
    grief: float = 0.0
    abort: bool = False
    pay_all: bool = False
    cheap_distance: float = 3.0
    token_detection: float = 1.0
    spread: float = 0.1
    refund: float = 1.6
    slash: float = 2.0

    @property
    def stakes(self) -> Stakes:
        """What each job of this world holds once it is sealed."""
        lock = least_lock(self.max_fee, self.terms.kappa_bps)
        bond = bond_of(lock, self.max_fee)
        return Stakes(self.max_fee, self.fee, lock, bond, (lock,) * self.members)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """What became of every job.

    conducts : [jobs, m+1], the inferencer's first. outcomes : [jobs]. inferencer, scheduler,
    challenger, burnt : [jobs], profit or amount. verifiers : [jobs, m], profit per check-like task.
    """

    conducts: Indices
    outcomes: Indices
    inferencer: Reals
    verifiers: Reals
    scheduler: Reals
    challenger: Reals
    burnt: Reals

    def as_inferencer(self, conduct: Conduct) -> float:
        """Mean profit of a job; NaN if there was none."""
        return _mean(self.inferencer[self.conducts[:, 0] == conduct])

    def as_verifier(self, conduct: Conduct) -> float:
        """Mean profit of a check-like task; NaN if there was none."""
        return _mean(self.verifiers[self.conducts[:, 1:] == conduct])

    def share(self, outcome: Outcome, conduct: Conduct = Conduct.HONEST) -> float:
        """How often an inferencer of this conduct meets this outcome."""
        return _mean(self.outcomes[self.conducts[:, 0] == conduct] == outcome)


def with_kappa(world: World, kappa: float) -> World:
    """The same world with another exposure per fee."""
    return replace(world, terms=replace(world.terms, kappa_bps=round(kappa * 10_000)))


def _mean(values: NDArray[np.float64] | Mask) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
