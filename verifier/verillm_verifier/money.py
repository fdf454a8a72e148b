"""The money that moved, by the chain's events, against what the outcome demands."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from verillm.chain import appeals
from verillm.chain.events import Answered, Burnt, Convened, Convicted, Paid, Replaced, Slashed
from verillm.records import Posting
from verillm.second import Concluded, conclude, ending_of
from verillm.settlement import Claim, Ending, Settlement, Stakes, Terms, Way, settle
from verillm.types import ChecksumAddress
from verillm_verifier.again import second_of
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

    A final job's payments less its slashes are its escrow. Where no public round was held, every
    account's share is recomputed too, re-verified or not.
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
    if finalized is None or facts.history.challenged is not None or facts.ender is None:
        return None
    if sealing is None and facts.history.first(Convened) is not None:
        return None  # locks of who was summoned are in no event
    if facts.history.first(Convicted) is not None:
        return None  # what was free of a party after the end is in no event
    if facts.history.first(appeals.ReverificationAsked) is not None:
        return _again(facts)
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
    """What a re-verification of a claim leaves to everyone; None where a proof ended it."""
    asked, claiming = facts.history.first(appeals.ReverificationAsked), facts.claiming
    sealing, concluded = facts.sealing, facts.history.first(appeals.Concluded)
    if asked is None or claiming is None or sealing is None or concluded is None:
        return None
    posting, second = facts.posting, second_of(facts)
    size = len(sealing.committee)
    unpaid = frozenset(k for k in range(1, size + 1) if not claiming.paid >> (k - 1) & 1)
    claim = Claim(claiming.outcome, claiming.reason, unpaid)
    fee, locks = sealing.fee, sealing.locks
    stakes = Stakes(posting.job.max_fee, fee, posting.lock, posting.bond, locks)
    ending = ending_of(claim, size, second)
    paid = conclude(_terms(facts), stakes, facts.config.reverify_bond, ending, second)
    return _by_account(facts, posting, paid.shares, _of_second(facts, asked.event.requester, paid))


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
    if facts.claiming is not None:
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
