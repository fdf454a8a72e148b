"""Who gets what when a job ends: the contract's money, once more, as one pure function.

Mirrors `Jobs._settle`, `Jobs.refund` and `Disputes.adjudicate` to the unit (docs/protocol.md §6,
Money): payments round down, demands round up, the rest of each division goes
where the contract sends it. Amounts are token units; shares are basis points.
"""

from dataclasses import dataclass
from enum import Enum

from verillm.errors import InputError
from verillm.types import Outcome, Reason

BPS = 10_000
BOND_BPS = 12_500
"""The scheduler's bond over lock and fee: aborting costs more than the cheat it would hide."""

_ATTESTED = range(Reason.MARGIN_MEAN, Reason.OUTPUT_MISMATCH + 1)


@dataclass(frozen=True, slots=True)
class Terms:
    """The part of a deployment's Config that decides amounts."""

    kappa_bps: int
    inferencer_bps: int
    committee_bps: int
    scheduler_bps: int
    caller_fee: int
    claim_bond: int
    challenge_bond: int

    def __post_init__(self) -> None:
        if self.inferencer_bps + self.committee_bps + self.scheduler_bps != BPS:
            raise InputError("the three shares are 10000 basis points together")
        if self.kappa_bps < BPS:
            raise InputError("kappa_bps is at least 10000: the lock pays committee and finder")
        if min(self.inferencer_bps, self.committee_bps, self.claim_bond, self.challenge_bond) < 1:
            raise InputError("inferencer and committee have shares, and both bonds are over 0")
        if min(self.scheduler_bps, self.caller_fee) < 0:
            raise InputError("no share and no fee is negative")


@dataclass(frozen=True, slots=True)
class Stakes:
    """What a job holds when it ends; `locks` run over the committee in drawn order.

    Before `seal` there is no fee and no committee: fee 0, locks ().
    """

    max_fee: int
    fee: int
    lock: int
    bond: int
    locks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.fee <= self.max_fee <= self.lock:
            raise InputError("0 <= fee <= max_fee <= lock")
        if self.bond < bond_of(self.lock, self.max_fee):
            raise InputError("the bond is at least 5/4 of lock and max_fee")
        if any(not 0 <= lock <= self.lock for lock in self.locks):
            raise InputError("a member's lock is at most the inferencer's")


class Way(Enum):
    """By which call a job came to its end."""

    UNSEALED = "refund"
    FINALIZED = "finalize"
    UNCLAIMED = "adjudicate, nobody had claimed"
    UPHELD = "adjudicate, the claim was right"
    OVERTURNED = "adjudicate, the claim was wrong"
    OPENED = "adjudicate, what was claimed withheld was there: half the claim's bond burns"
    LOST = "challenge, nobody had claimed and the beacon is lost"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, by party (0 the inferencer, 1..m the committee).

    lost : did not open what they had to; their locks burn. unpaid : other members that are not
    paid, those in no largest clique; they keep their locks.
    """

    outcome: Outcome
    way: Way
    lost: frozenset[int] = frozenset()
    unpaid: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim says; `unpaid` are the members 1..m that its mask leaves out."""

    outcome: Outcome
    reason: Reason
    unpaid: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Judged:
    """What the contract computes from the openings of a public round."""

    outcome: Outcome
    lost: frozenset[int] = frozenset()
    unpaid: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What each role ends with beyond what it had, bonds and locks given back; negative: slashed.

    One account in several roles gets the sum. All of it together is the escrow (`check`).
    """

    client: int = 0
    inferencer: int = 0
    committee: tuple[int, ...] = ()
    scheduler: int = 0
    claimer: int = 0
    challenger: int = 0
    caller: int = 0
    burnt: int = 0

    @property
    def total(self) -> int:
        """Everything paid and burnt less everything slashed: the job's `max_fee`."""
        single = self.client + self.inferencer + self.scheduler + self.claimer
        return single + sum(self.committee) + self.challenger + self.caller + self.burnt


def share(amount: int, bps: int) -> int:
    """`bps` of `amount`, rounded down: what is paid."""
    return amount * bps // BPS


def demand(amount: int, bps: int) -> int:
    """`bps` of `amount`, rounded up: what is required."""
    return -(-amount * bps // BPS)


def least_lock(max_fee: int, kappa_bps: int) -> int:
    """The least exposure that `post` takes for a job."""
    return demand(max_fee, kappa_bps)


def bond_of(lock: int, max_fee: int) -> int:
    """The bond that `post` takes from the scheduler."""
    return demand(lock + max_fee, BOND_BPS)


def fee_of(unit_price: int, prompt_tokens: int, new_tokens: int, max_fee: int) -> int:
    """The fee that `seal` fixes from the inferencer's token counts."""
    return min(max_fee, unit_price * (prompt_tokens + new_tokens))


def adjudicate(claim: Claim | None, judged: Judged, attested: Reason = Reason.NONE) -> Ending:
    """How the public round ends: the claim against what the contract computed from the openings.

    `attested` is a reason that the challenger brought signed by the committee. Such a reason, the
    chain cannot recompute it, refunds what the states do not reject, and never slashes. A claim is
    right if it names the outcome and whom it pays; where parties fell silent, if it pays nobody
    too many.
    """
    outcome, unpaid, lost = judged.outcome, judged.unpaid, judged.lost
    by_claim = claim is not None and claim.reason in _ATTESTED
    upheld = claim is not None and claim.outcome == outcome
    rejected = outcome in (Outcome.SLASH, Outcome.REFUND)
    if (by_claim or attested != Reason.NONE) and not rejected:
        outcome, upheld = Outcome.REFUND, by_claim
    if claim is None:
        return Ending(outcome, Way.UNCLAIMED, lost, unpaid)
    paid_wrongly = unpaid - claim.unpaid - lost if lost else unpaid ^ claim.unpaid
    if upheld and not paid_wrongly:
        return Ending(outcome, Way.UPHELD, lost, unpaid)
    way = Way.OPENED if claim.reason == Reason.WITHHELD else Way.OVERTURNED
    return Ending(outcome, way, lost, unpaid)


def settle(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """What everyone ends with. InputError where the contract has no such end."""
    if ending.way is Way.UNSEALED:
        return _unsealed(terms, stakes, ending)
    if not stakes.locks:
        raise InputError("a sealed job has a committee")
    if not all(0 <= party <= len(stakes.locks) for party in ending.lost | ending.unpaid):
        raise InputError("parties are 0..m")
    return _add(_settle_job(terms, stakes, ending), _settle_bonds(terms, stakes, ending))


def _unsealed(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    if ending.outcome != Outcome.REFUND:
        raise InputError("an unsealed job is refunded")
    paid = share(stakes.max_fee, terms.inferencer_bps)
    return Settlement(
        client=stakes.max_fee,
        inferencer=paid,
        scheduler=-stakes.bond,
        burnt=stakes.bond - paid,
    )


def _settle_job(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """Fee, escrow and locks: `Jobs._settle`."""
    each = share(stakes.fee, terms.committee_bps) // len(stakes.locks)
    committee = tuple(
        -lock if party in ending.lost else each * (party not in ending.unpaid)
        for party, lock in enumerate(stakes.locks, 1)
    )
    verifiers = sum(pay for pay in committee if pay > 0)
    burnt = sum(lock for party, lock in enumerate(stakes.locks, 1) if party in ending.lost)
    if ending.way is Way.LOST:
        return Settlement(stakes.max_fee, committee=committee, scheduler=-verifiers, burnt=burnt)
    if ending.outcome == Outcome.INCONCLUSIVE:
        rest = stakes.max_fee - verifiers
        return Settlement(client=rest, committee=committee, burnt=burnt)
    if ending.outcome == Outcome.ACCEPT:
        return _accept(terms, stakes, ending.way, committee, verifiers, burnt)
    if ending.outcome == Outcome.REFUND:
        return Settlement(stakes.max_fee, -verifiers, committee, burnt=burnt)
    if ending.outcome != Outcome.SLASH:
        raise InputError(f"no job ends as {ending.outcome.name}")
    found = min(stakes.lock - verifiers, stakes.fee)
    finder_is_challenger = ending.way in (Way.OVERTURNED, Way.OPENED, Way.UNCLAIMED)
    return Settlement(
        client=stakes.max_fee,
        inferencer=-stakes.lock,
        committee=committee,
        claimer=0 if finder_is_challenger else found,
        challenger=found if finder_is_challenger else 0,
        burnt=burnt + stakes.lock - verifiers - found,
    )


def _accept(
    terms: Terms,
    stakes: Stakes,
    way: Way,
    committee: tuple[int, ...],
    verifiers: int,
    burnt: int,
) -> Settlement:
    """Dust of the committee's division to the scheduler, shares of the silent to the client."""
    paid = share(stakes.fee, terms.inferencer_bps)
    each = share(stakes.fee, terms.committee_bps) // len(stakes.locks)
    available = stakes.fee - paid - each * len(stakes.locks)
    call = min(terms.caller_fee, available // 2)
    claimer = call if way in (Way.FINALIZED, Way.UPHELD) else 0
    return Settlement(
        client=stakes.max_fee - verifiers - paid - available,
        inferencer=paid,
        committee=committee,
        scheduler=available - claimer - call,
        claimer=claimer,
        caller=call,
        burnt=burnt,
    )


def _settle_bonds(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """The loser of a claim against a challenge forfeits: `Disputes.adjudicate`."""
    size = len(stakes.locks)
    nothing = (0,) * size
    if ending.way is Way.UNCLAIMED:
        forfeit = min(terms.claim_bond, stakes.bond)
        return Settlement(committee=nothing, scheduler=-forfeit, challenger=forfeit)
    if ending.way is Way.OVERTURNED:
        bond = terms.claim_bond
        return Settlement(committee=nothing, claimer=-bond, challenger=bond)
    if ending.way is Way.OPENED:
        burnt = (terms.claim_bond + 1) // 2
        return Settlement(committee=nothing, claimer=-burnt, burnt=burnt)
    if ending.way is not Way.UPHELD:
        return Settlement(committee=nothing)
    opened = size + 1 - len(ending.lost)
    each = terms.challenge_bond // opened if opened else 0
    return Settlement(
        client=terms.challenge_bond - each * opened,
        inferencer=0 if 0 in ending.lost else each,
        committee=tuple(0 if party in ending.lost else each for party in range(1, size + 1)),
        challenger=-terms.challenge_bond,
    )


def _add(one: Settlement, other: Settlement) -> Settlement:
    return Settlement(
        client=one.client + other.client,
        inferencer=one.inferencer + other.inferencer,
        committee=tuple(a + b for a, b in zip(one.committee, other.committee, strict=True)),
        scheduler=one.scheduler + other.scheduler,
        claimer=one.claimer + other.claimer,
        challenger=one.challenger + other.challenger,
        caller=one.caller + other.caller,
        burnt=one.burnt + other.burnt,
    )
