"""The money that moved, by the chain's events, against what the outcome demands."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from verillm.chain import appeals
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.events import (
    Answered,
    Burnt,
    Convened,
    Convicted,
    Paid,
    Replaced,
    Slashed,
    Supported,
)
from verillm.draw import draw, is_forced
from verillm.records import Posting, Sealing
from verillm.second import Concluded, conclude, ending_of
from verillm.settlement import (
    Claim,
    Ending,
    Judged,
    Settlement,
    Stakes,
    Terms,
    Way,
    adjudicate,
    settle,
)
from verillm.types import ATTESTED, ChecksumAddress, Outcome, Reason
from verillm_verifier.again import attested, second_of
from verillm_verifier.errors import InconsistentChain
from verillm_verifier.facts import Facts


@dataclass(frozen=True, slots=True)
class Moved:
    """Net amounts by account, negative for what was slashed; zeros are left out."""

    accounts: Mapping[ChecksumAddress, int]
    burnt: int


def moved(facts: Facts) -> Moved:
    """What the job's events say."""
    sums: Counter[ChecksumAddress] = Counter()
    for paid in facts.history.all(Paid):
        sums[paid.event.account] += paid.event.amount
    for slashed in facts.history.all(Slashed):
        sums[slashed.event.operator] -= slashed.event.amount
    burnt = sum(each.event.amount for each in facts.history.all(Burnt))
    return Moved({account: net for account, net in sums.items() if net}, burnt)


def check_money(facts: Facts) -> Moved:
    """The money that moved; InconsistentChain if it is not what the outcome demands.

    A final job's payments less its slashes are its escrow. Every account's share is recomputed
    too, whatever was held before the end, except where a proof or a summons left no event of what
    was free or locked.
    """
    found = moved(facts)
    if facts.history.finalized is None:
        return found
    if sum(found.accounts.values()) + found.burnt != facts.posting.job.max_fee:
        raise InconsistentChain("payments, slashes and burns do not add up to the escrow")
    expected = _expected(facts)
    if expected is not None and expected != found:
        raise InconsistentChain(f"paid {found}, where the outcome demands {expected}")
    return found


def _expected(facts: Facts) -> Moved | None:
    finalized, posting, sealing = facts.history.finalized, facts.posting, facts.sealing
    if finalized is None or facts.ender is None:
        return None
    if sealing is None and facts.history.first(Convened) is not None:
        return None  # locks of who was summoned are in no event
    if facts.history.first(Convicted) is not None:
        return None  # what was free of a party after the end is in no event
    if facts.history.first(appeals.ReverificationAsked) is not None:
        return _again(facts)
    if facts.history.challenged is not None:
        return _after_round(facts)
    fee, locks = (0, ()) if sealing is None else (sealing.fee, sealing.locks)
    stakes = Stakes(posting.job.max_fee, fee, posting.lock, posting.bond, locks)
    way, unpaid = Way.LOST, frozenset[int]()
    if sealing is None:
        way = Way.UNSEALED
    elif facts.claiming is not None:
        way = Way.FINALIZED
        members = range(1, len(locks) + 1)
        unpaid = frozenset(k for k in members if not facts.claiming.paid >> (k - 1) & 1)
    ending = Ending(finalized.event.outcome, way, unpaid=unpaid)
    return _by_account(facts, posting, settle(_terms(facts), stakes, ending))


def _again(facts: Facts) -> Moved | None:
    """What a re-verification leaves to everyone; None where a proof ended it."""
    asked = facts.history.first(appeals.ReverificationAsked)
    concluded = facts.history.first(appeals.Concluded)
    sealing, held = facts.sealing, _held(facts)
    if asked is None or sealing is None or concluded is None:
        return None
    posting, second = facts.posting, second_of(facts)
    judged, attested_by_then = (None, Reason.NONE) if held is None else held
    ending = ending_of(_claim(facts), len(sealing.committee), second, judged, attested_by_then)
    ending = _bound(facts, sealing, ending)
    stakes = _stakes(posting, sealing)
    paid = conclude(_terms(facts), stakes, facts.config.reverify_bond, ending, second)
    beside = _of_second(facts, asked.event.requester, paid)
    if held is not None:
        by_reason = concluded.event.stands and _by_reason(facts, *held)
        beside[0][_challenger(facts, ending, by_reason)] += paid.shares.challenger
    return _by_account(facts, posting, paid.shares, beside)


# ── A public round ───────────────────────────────────────────────────────────────────────────────
def _after_round(facts: Facts) -> Moved | None:
    """What the verdict of a public round leaves to everyone; None where a proof ended it."""
    sealing, held = facts.sealing, _held(facts)
    if sealing is None or held is None:
        return None
    ending = _bound(facts, sealing, adjudicate(_claim(facts), *held))
    shares = settle(_terms(facts), _stakes(facts.posting, sealing), ending)
    challenger = _challenger(facts, ending, _by_reason(facts, *held))
    return _by_account(facts, facts.posting, shares, (Counter({challenger: shares.challenger}), 0))


def _held(facts: Facts) -> tuple[Judged, Reason] | None:
    """What the contract computed from a public round's openings, and what was attested by its end.

    Where an attested reason had decided before it was judged, the event names that: then the states
    had not rejected, and whether they had accepted moves nothing.
    """
    said, sealing = facts.history.judged, facts.sealing
    if said is None or sealing is None:
        return None
    event, parties = said.event, range(len(sealing.committee) + 1)
    outcome = Outcome.ACCEPT if event.reason in ATTESTED else event.outcome
    lost = frozenset(party for party in parties if event.lost >> party & 1)
    unpaid = frozenset(k for k in parties[1:] if not event.paid >> (k - 1) & 1)
    return Judged(outcome, lost, unpaid), attested(facts)


def _by_reason(facts: Facts, judged: Judged, reason: Reason) -> bool:
    """Whether a reason decided that the chain cannot recompute."""
    return adjudicate(_claim(facts), judged, reason).outcome is not judged.outcome


def _challenger(facts: Facts, ending: Ending, by_reason: bool) -> ChecksumAddress:
    """Who opened the round; who brought it its reason, where that decided against the claim."""
    opened, supported = facts.history.challenged, facts.history.first(Supported)
    if by_reason and ending.way is Way.OVERTURNED and supported is not None:
        return supported.event.finder
    if opened is None:
        raise InconsistentChain("judged without a challenge")
    return opened.event.challenger


def _bound(facts: Facts, sealing: Sealing, ending: Ending) -> Ending:
    """With whether a challenger had a bond to lose, and whether the draw demanded the round.

    Of a claim that is appealed itself nothing hung on either; a challenge by a proof had no bond,
    and no claim that it speaks against is upheld.
    """
    held, every = facts.history.judged is not None, facts.config.forced_every
    seed = draw(sealing.secret, facts.posting.commitment, sealing.beacon)
    forced = held and is_forced(seed, every)
    return replace(ending, bonded=held and not forced, forced=forced)


def _claim(facts: Facts) -> Claim | None:
    claiming, sealing = facts.claiming, facts.sealing
    if claiming is None or sealing is None or claiming.claimer == ZERO_ADDRESS:
        return None
    members = range(1, len(sealing.committee) + 1)
    unpaid = frozenset(k for k in members if not claiming.paid >> (k - 1) & 1)
    return Claim(claiming.outcome, claiming.reason, unpaid)


def _stakes(posting: Posting, sealing: Sealing) -> Stakes:
    fee, locks = sealing.fee, sealing.locks
    return Stakes(posting.job.max_fee, fee, posting.lock, posting.bond, locks)


def _of_second(
    facts: Facts, requester: ChecksumAddress, paid: Concluded
) -> tuple[Counter[ChecksumAddress], int]:
    """What moves beside the job's own money: to who asked, and to the new members."""
    sums = Counter({requester: paid.requester + paid.shares.finder})
    convened = facts.history.first(appeals.Convened)
    committee = () if convened is None else convened.event.committee
    for member, amount in zip(committee, paid.members, strict=True):
        sums[member.owner] += amount
    return sums, paid.burnt


def _terms(facts: Facts) -> Terms:
    config = facts.config
    return Terms(
        config.kappa_bps,
        config.inferencer_bps,
        config.committee_bps,
        config.scheduler_bps,
        config.caller_fee,
        config.claim_bond,
        config.challenge_bond,
    )


def _by_account(
    facts: Facts,
    posting: Posting,
    shares: Settlement,
    beside: tuple[Counter[ChecksumAddress], int] | None = None,
) -> Moved:
    sums, more = (Counter[ChecksumAddress](), 0) if beside is None else beside
    sums[posting.job.client] += shares.client
    sums[posting.worker] += shares.inferencer
    sums[posting.quote.scheduler] += shares.scheduler
    if facts.claiming is not None and facts.claiming.claimer != ZERO_ADDRESS:
        sums[facts.claiming.claimer] += shares.claimer
    if facts.ender is not None:
        sums[facts.ender] += shares.caller
    owners = () if facts.sealing is None else facts.sealing.owners
    for owner, part in zip(owners, shares.committee, strict=False):
        sums[owner] += part
    burnt = shares.burnt + more + _summoned(facts, posting, sums)
    return Moved({account: net for account, net in sums.items() if net}, burnt)


def _summoned(facts: Facts, posting: Posting, sums: Counter[ChecksumAddress]) -> int:
    """Adds what answers paid and silence cost, apart from how the job ended; what was burnt."""
    history, fee, burnt = facts.history, facts.config.answer_fee, 0
    for answered in history.all(Answered):
        sums[answered.event.owner] += fee
        sums[posting.quote.scheduler] -= fee
    slashed = {(at.transaction, at.event.operator): at.event.amount for at in history.all(Slashed)}
    for replaced in history.all(Replaced):
        owner = replaced.event.owner
        lock = slashed.get((replaced.transaction, owner), 0)
        if lock > posting.lock:
            raise InconsistentChain(f"{owner} lost more than the job's lock by its silence")
        sums[owner] -= lock
        burnt += lock
    return burnt
