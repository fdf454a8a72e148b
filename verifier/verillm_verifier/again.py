"""What a re-verification found, by the sums of its round: who is paid, who lied, who was away.

The contract's own storage is read, as of any round; who committed and who rejects the tokens is in
events that only the network emits.
"""

from dataclasses import replace

from verillm.chain import appeals, events
from verillm.evidence import INFERENCER
from verillm.second import Second
from verillm.types import Outcome, Reason
from verillm.verdict import PartyStatus, Verdict, paid_mask, quorum
from verillm_verifier.facts import Facts
from verillm_verifier.round import Sums, is_revealed, statistics_of, statuses_of, verdict_of

_REJECTED = (Outcome.SLASH, Outcome.REFUND)


def verdict_again(facts: Facts) -> Verdict:
    """The new committee's verdict: its states, its words on tokens, the first one's meanwhile."""
    sums, said = facts.second, attested(facts)
    if sums is None:
        outcome = Outcome.INCONCLUSIVE if said is Reason.NONE else Outcome.REFUND
        return Verdict(outcome, said or Reason.NOT_COMPARED)
    verdict = verdict_of(facts, sums)
    if verdict.outcome in _REJECTED:
        return verdict
    words = {
        each.event.index: each.event.reason for each in facts.history.all(appeals.TokensRejected)
    }
    members = range(1, sums.committee + 1)
    mismatched = sum(sums.round.mismatched >> k & 1 for k in members)
    reason = Reason.NONE
    if len(words) >= quorum(sums.committee):
        reason = words[min(words)]
    elif verdict.reason is Reason.TASK_MISMATCH and mismatched >= quorum(sums.committee):
        reason = Reason.OUTPUT_MISMATCH
    else:
        reason = said
    if reason is Reason.NONE:
        return verdict
    return replace(verdict, outcome=Outcome.REFUND, reason=reason)


def attested(facts: Facts) -> Reason:
    """What the first committee, or a proof, said of the tokens; none as a rule."""
    opened, supported = facts.history.challenged, facts.history.first(events.Supported)
    if supported is not None:
        return supported.event.reason
    return Reason.NONE if opened is None else opened.event.reason


def second_of(facts: Facts) -> Second:
    """What the re-verification comes to, for the money."""
    convened = facts.history.first(appeals.Convened)
    committee = () if convened is None else convened.event.committee
    locks = tuple(member.lock for member in committee)
    made = {each.event.index + 1 for each in facts.history.all(appeals.Recommitted)}
    present = frozenset(made)
    absent = frozenset(range(1, len(locks) + 1)) - present
    if facts.second is None:
        outcome = verdict_again(facts).outcome
        return Second(outcome, locks, heard=False, lost=absent, paid=present)
    return _heard(facts, facts.second, locks, absent)


def _heard(facts: Facts, sums: Sums, locks: tuple[int, ...], absent: frozenset[int]) -> Second:
    states, members = verdict_of(facts, sums), frozenset(range(1, sums.committee + 1))
    lost, opened, withheld = frozenset[int](), members, True
    if is_revealed(facts, sums):
        statuses = dict(enumerate(statuses_of(facts, sums)))
        failed = (PartyStatus.SILENT, PartyStatus.NON_FINITE)
        lost = frozenset(k for k in members if statuses[k] in failed)
        opened = frozenset(k for k in members if statuses[k] is PartyStatus.OPEN)
        withheld = statuses[INFERENCER] in failed
    by_states = states.outcome is Outcome.ACCEPT or states.reason is Reason.STATES_DIFFER
    mask = paid_mask(states) if by_states else 0
    clique = frozenset(k for k in members if mask >> (k - 1) & 1)
    stand = {
        k: _witness(facts, sums, sums.committee + k, clique)
        for k in range(1, facts.spec.committee + 1)
    }
    return Second(
        verdict_again(facts).outcome,
        locks,
        withheld=withheld,
        lost=lost | absent,
        paid=(clique if by_states else opened) - absent,
        near=frozenset(k for k, how in stand.items() if how is True),
        strangers=frozenset(k for k, how in stand.items() if how is False),
    )


def _witness(facts: Facts, sums: Sums, party: int, clique: frozenset[int]) -> bool | None:
    """Whether a first member agrees with one that decides; None where it is not told."""
    found, profile = sums.round, facts.spec.profile
    if found.mismatched >> party & 1:
        return None
    closed = is_revealed(facts, sums) and found.served[party] < found.positions
    if closed or found.non_finite >> party & 1:
        return False
    if not clique:
        return True
    cells = found.positions * len(profile.layers)
    pairs = [statistics_of(sums, member, party) for member in sorted(clique)]
    whole = [pair for pair in pairs if pair.cells == cells]
    if any(pair.agrees(*profile.refund_tier(found.positions, found.revealed)) for pair in whole):
        return True
    slashed = [
        not pair.agrees(*profile.slash_tier(found.positions, found.revealed)) for pair in whole
    ]
    return False if all(slashed) and len(whole) == len(pairs) else None
