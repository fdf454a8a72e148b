"""Who gets what when a job ends: the contract's money, once more, as one pure function.

Mirrors `Docket._settle`, `Rulings._conclude`, `Disputes.refund` and `Convictions` to the unit
(docs/protocol.md §6, Money): payments round down, demands round up, the rest of each division goes
where the contract sends it. Amounts are token units; shares are basis points.
"""

from dataclasses import dataclass, replace
from enum import Enum

from verillm.errors import InputError
from verillm.types import ATTESTED, Outcome, Reason

BPS = 10_000
BOND_BPS = 12_500
"""The scheduler's bond over lock and fee: aborting costs more than the cheat it would hide."""


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
    DISMISSED = "dismiss"
    FINALIZED = "finalize"
    UNCLAIMED = "settle, nobody had claimed"
    UPHELD = "settle, the claim was right"
    OVERTURNED = "settle, the claim was wrong"
    OPENED = "settle, what was claimed withheld was there: half the claim's bond burns"
    LOST = "challenge, nobody had claimed and the beacon is lost"
    CONVICTED = "convict, the inferencer is at fault: bonds go back"
    AT_SCHEDULER = "convict, the scheduler is at fault: bonds go back, and it pays who worked"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, by party (0 the inferencer, 1..m the committee).

    lost : did not open what they had to; their locks burn. unpaid : other members that are not
    paid, those in no largest clique; they keep their locks. bonded : the challenger had to lock a
    bond. forced : the draw demanded the round, so its parties get the scheduler's share. appealed :
    a re-verification overturned it, and who asked for it wins what the challenger would (`second`).
    """

    outcome: Outcome
    way: Way
    lost: frozenset[int] = frozenset()
    unpaid: frozenset[int] = frozenset()
    bonded: bool = True
    forced: bool = False
    appealed: bool = False


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

    One account in several roles gets the sum. All of it together is the escrow (`total`). `finder`
    brought a proof to the prover, or asked for the re-verification that overturned what stood; who
    finds by a round is the claimer or the challenger.
    """

    client: int = 0
    inferencer: int = 0
    committee: tuple[int, ...] = ()
    scheduler: int = 0
    claimer: int = 0
    challenger: int = 0
    caller: int = 0
    burnt: int = 0
    finder: int = 0

    @property
    def total(self) -> int:
        """Everything paid and burnt less everything slashed: the job's `max_fee`."""
        single = self.client + self.inferencer + self.scheduler + self.claimer
        others = self.challenger + self.caller + self.finder
        return single + sum(self.committee) + others + self.burnt


def could_pay(max_fee: int, unit_price: int, tokens: int, due: int) -> bool:
    """Whether a job answers a claim of what is `due` for `tokens` of work (`IWages`)."""
    return max_fee >= min(unit_price * tokens, due)


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
    by_claim = claim is not None and claim.reason in ATTESTED
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
    if ending.way is Way.DISMISSED:
        return _dismissed(terms, stakes, ending)
    if not stakes.locks:
        raise InputError("a sealed job has a committee")
    if not all(0 <= party <= len(stakes.locks) for party in ending.lost | ending.unpaid):
        raise InputError("parties are 0..m")
    if ending.way is Way.AT_SCHEDULER:
        return _at_scheduler(terms, stakes, ending)
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


def _dismissed(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """`lost` should have answered, `unpaid` were not summoned; the others answered.

    What answers themselves were paid, and locks of who was replaced before, is not in it.
    """
    if ending.outcome != Outcome.REFUND or not stakes.locks:
        raise InputError("a job that was summoned and not sealed is refunded")
    each = share(stakes.max_fee, terms.committee_bps) // len(stakes.locks)
    committee = tuple(
        -lock if party in ending.lost else each * (party not in ending.unpaid)
        for party, lock in enumerate(stakes.locks, 1)
    )
    paid = share(stakes.max_fee, terms.inferencer_bps)
    return Settlement(
        client=stakes.max_fee,
        inferencer=paid,
        committee=committee,
        scheduler=-stakes.bond,
        burnt=stakes.bond - paid - sum(committee),
    )


def punished(stakes: Stakes, at_stake: int, free: int) -> Settlement:
    """What a conviction after the end takes: up to the job's lock or bond, of what is free.

    The convicted party's loss is `finder + burnt`; who that is, the caller knows.
    """
    taken = min(at_stake, free)
    found = min(taken, stakes.fee)
    return Settlement(finder=found, burnt=taken - found)


def _committee(terms: Terms, stakes: Stakes, ending: Ending) -> tuple[tuple[int, ...], int, int]:
    """What each member gets or loses, what all are paid, what of their locks burns."""
    each = share(stakes.fee, terms.committee_bps) // len(stakes.locks)
    committee = tuple(
        -lock if party in ending.lost else each * (party not in ending.unpaid)
        for party, lock in enumerate(stakes.locks, 1)
    )
    paid = sum(max(pay, 0) for pay in committee)
    burnt = sum(lock for party, lock in enumerate(stakes.locks, 1) if party in ending.lost)
    return committee, paid, burnt


def _at_scheduler(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """All back to the client; who worked is paid from the scheduler's bond."""
    if ending.outcome != Outcome.REFUND:
        raise InputError("a scheduler's fault refunds")
    committee, verifiers, burnt = _committee(terms, stakes, ending)
    worker = 0 if 0 in ending.lost else share(stakes.fee, terms.inferencer_bps)
    rest = stakes.bond - verifiers - worker
    found = min(rest, stakes.fee)
    return Settlement(
        client=stakes.max_fee,
        inferencer=worker,
        committee=committee,
        scheduler=-stakes.bond,
        burnt=burnt + rest - found,
        finder=found,
    )


def _settle_job(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """Fee, escrow and locks: `Docket._settle`."""
    committee, verifiers, burnt = _committee(terms, stakes, ending)
    if ending.way is Way.LOST:
        return Settlement(stakes.max_fee, committee=committee, scheduler=-verifiers, burnt=burnt)
    if ending.outcome == Outcome.INCONCLUSIVE:
        rest = stakes.max_fee - verifiers
        return Settlement(client=rest, committee=committee, burnt=burnt)
    if ending.outcome == Outcome.ACCEPT:
        return _accept(terms, stakes, ending)
    if ending.outcome == Outcome.REFUND:
        return Settlement(stakes.max_fee, -verifiers, committee, burnt=burnt)
    if ending.outcome != Outcome.SLASH:
        raise InputError(f"no job ends as {ending.outcome.name}")
    found = min(stakes.lock - verifiers, stakes.fee)
    by_round = ending.way in (Way.OVERTURNED, Way.OPENED, Way.UNCLAIMED) and not ending.appealed
    by_claim = ending.way in (Way.FINALIZED, Way.UPHELD) and not ending.appealed
    return Settlement(
        client=stakes.max_fee,
        inferencer=-stakes.lock,
        committee=committee,
        claimer=found if by_claim else 0,
        challenger=found if by_round else 0,
        finder=0 if by_round or by_claim else found,
        burnt=burnt + stakes.lock - verifiers - found,
    )


def _accept(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """Dust of the committee's division to the scheduler, shares of the silent to the client."""
    committee, verifiers, burnt = _committee(terms, stakes, ending)
    paid = share(stakes.fee, terms.inferencer_bps)
    each = share(stakes.fee, terms.committee_bps) // len(stakes.locks)
    available = stakes.fee - paid - each * len(stakes.locks)
    call = min(terms.caller_fee, available // 2)
    claimer = call if ending.way in (Way.FINALIZED, Way.UPHELD) else 0
    left = available - claimer - call
    shared = _shared(ending, len(stakes.locks), left if ending.forced else 0)
    settled = Settlement(
        client=stakes.max_fee - verifiers - paid - available,
        inferencer=paid,
        committee=committee,
        scheduler=0 if ending.forced else left,
        claimer=claimer,
        caller=call,
        burnt=burnt,
    )
    return _add(settled, shared)


def _shared(ending: Ending, size: int, amount: int) -> Settlement:
    """`amount` in equal parts to the parties that opened; the client gets the rest."""
    opened = size + 1 - len(ending.lost)
    each = amount // max(opened, 1)
    return Settlement(
        client=amount - each * opened,
        inferencer=0 if 0 in ending.lost else each,
        committee=tuple(0 if party in ending.lost else each for party in range(1, size + 1)),
    )


def _settle_bonds(terms: Terms, stakes: Stakes, ending: Ending) -> Settlement:
    """The loser of a claim against a challenge forfeits: `Rulings._conclude`."""
    size = len(stakes.locks)
    if ending.way is Way.UNCLAIMED:
        # Whoever challenges may be the scheduler itself, so it goes to who had to open.
        forfeit = min(terms.claim_bond, stakes.bond)
        return replace(_shared(ending, size, forfeit), scheduler=-forfeit)
    if ending.way is Way.OVERTURNED:
        return replace(_won(ending, size, terms.claim_bond), claimer=-terms.claim_bond)
    if ending.way is Way.OPENED:
        burnt = (terms.claim_bond + 1) // 2
        return Settlement(committee=(0,) * size, claimer=-burnt, burnt=burnt)
    if ending.way is not Way.UPHELD or not ending.bonded:
        return Settlement(committee=(0,) * size)
    bond = terms.challenge_bond
    gained = _won(ending, size, bond) if ending.appealed else _shared(ending, size, bond)
    return replace(gained, challenger=-bond)


def _won(ending: Ending, size: int, bond: int) -> Settlement:
    """A forfeited bond, to whoever was right."""
    if ending.appealed:
        return Settlement(committee=(0,) * size, finder=bond)
    return Settlement(committee=(0,) * size, challenger=bond)


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
        finder=one.finder + other.finder,
    )
