"""The verdict: a pure function of evidence, closed so that nothing unknown is accepted (§7).

`decide` is what the chain computes from pair statistics; `judge_states` computes those from states;
`judge` goes on to the tokens, off chain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import combinations
from typing import Final

from verillm.errors import EvidenceError
from verillm.evidence import INFERENCER, Bundle, Evidence, PartyStates, gather
from verillm.model import CheckProfile, ModelSpec
from verillm.records import Posting, Sealing
from verillm.signing import Domain
from verillm.statistics import (
    PairStatistics,
    PaperStatistics,
    compare,
    is_finite,
    paper_statistics,
)
from verillm.tokens import Generated, Head, TokenStatistics, judge_tokens, token_statistics
from verillm.types import Bits, Hash32, Outcome, Reason

__all__ = [
    "Details",
    "Outcome",
    "PartyStatus",
    "Reason",
    "Verdict",
    "cliques",
    "decide",
    "generated",
    "judge",
    "judge_bundle",
    "judge_states",
    "paid_mask",
    "quorum",
    "refused",
]

Pair = tuple[int, int]


class PartyStatus(Enum):
    """What a party's evidence is worth."""

    OPEN = "open"
    SILENT = "silent"
    NON_FINITE = "non_finite"
    MISMATCHED = "mismatched"


@dataclass(frozen=True, slots=True)
class Details:
    """What a verdict rests on; pairs are (lower, higher) party numbers, 0 the inferencer."""

    statuses: tuple[PartyStatus, ...] = ()
    pairs: Mapping[Pair, PairStatistics] = field(default_factory=dict)
    cliques: tuple[tuple[int, ...], ...] = ()
    accepting: tuple[tuple[int, ...], ...] = ()
    paper: Mapping[Pair, PaperStatistics] = field(default_factory=dict)
    tokens: TokenStatistics | None = None
    fact: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome and reason; `suspects` are the verifiers in no largest clique."""

    outcome: Outcome
    reason: Reason
    suspects: tuple[int, ...] = ()
    details: Details = field(default_factory=Details)

    @property
    def accepted(self) -> bool:
        """Whether the inferencer is paid."""
        return self.outcome is Outcome.ACCEPT


_BY_EVIDENCE: Final = {
    Reason.OUTSIDE_NUCLEUS: Outcome.REFUND,
    Reason.LENGTH: Outcome.REFUND,
    Reason.AFTER_END: Outcome.REFUND,
    Reason.TASK_MISMATCH_INFERENCER: Outcome.REFUND,
    Reason.OUTPUT_MISMATCH: Outcome.REFUND,
}
"""What evidence that does not hold together leads to; every other reason is inconclusive."""


_UNJUDGED: Final = (Reason.WITHHELD, Reason.NON_FINITE)
"""Slashes that no comparison of states led to."""


def quorum(committee: int) -> int:
    """⌈(m+1)/2⌉ of the m drawn."""
    return (committee + 2) // 2


def cliques(verifiers: Sequence[int], agree: frozenset[Pair]) -> tuple[tuple[int, ...], ...]:
    """All largest sets of verifiers that agree pairwise, in ascending order; () if none to choose.

    `verifiers` ascend, `agree` holds pairs (lower, higher).
    """
    every = list(_pairwise((), verifiers, agree))
    most = max(map(len, every))
    return tuple(clique for clique in every if clique and len(clique) == most)


def decide(
    statuses: Sequence[PartyStatus],
    pairs: Mapping[Pair, PairStatistics],
    positions: int,
    profile: CheckProfile,
    requests: int,
) -> Verdict:
    """The verdict on states; the first cause that hits decides.

    statuses : of the inferencer and the m verifiers. pairs : of all open ones. positions : compared
    in all `requests` that are checked together.
    """
    verifiers = [k for k, status in enumerate(statuses) if k and status is PartyStatus.OPEN]
    agree = _agreeing(pairs, *profile.refund_tier(positions, requests))
    largest = cliques(verifiers, agree)
    if largest and len(largest[0]) < quorum(len(statuses) - 1):
        largest = ()
    details = Details(tuple(statuses), dict(pairs), largest)
    early = _early(statuses[INFERENCER], positions, profile)
    if early is not None:
        return Verdict(*early, details=details)
    if not largest:
        mismatched = PartyStatus.MISMATCHED in statuses
        reason = Reason.TASK_MISMATCH if mismatched else Reason.NO_CLIQUE
        return Verdict(Outcome.INCONCLUSIVE, reason, details=details)
    within = {k for clique in largest for k in clique}
    suspects = tuple(k for k in range(1, len(statuses)) if k not in within)
    accepting = tuple(clique for clique in largest if all((INFERENCER, k) in agree for k in clique))
    details = replace(details, accepting=accepting)
    near = _agreeing(pairs, *profile.slash_tier(positions, requests))
    outcome, reason = _over_all(largest, accepting, agree, near)
    return Verdict(outcome, reason, suspects, details)


def judge_states(
    parties: Sequence[PartyStates], profile: CheckProfile, prompt_tokens: Sequence[int]
) -> Verdict:
    """The verdict on states: party 0 is the inferencer; P of each checked request is its."""
    statuses = [party_status(party) for party in parties]
    shown = {
        k: party.states
        for k, party in enumerate(parties)
        if statuses[k] is PartyStatus.OPEN and party.states is not None
    }
    pairs = {
        (a, b): compare(shown[a], shown[b], profile, prompt_tokens)
        for a, b in combinations(sorted(shown), 2)
    }
    positions = sum(len(states.positions) for states in parties[INFERENCER].states or ())
    verdict = decide(statuses, pairs, positions, profile, len(prompt_tokens))
    paper = {
        (INFERENCER, k): paper_statistics(shown[INFERENCER], shown[k])
        for k in shown
        if k and INFERENCER in shown
    }
    return replace(verdict, details=replace(verdict.details, paper=paper))


def judge(evidence: Evidence, head: Head | None) -> Verdict:
    """The verdict on evidence that holds together; accept needs the head rows too.

    The inferencer's fault comes before its states, whatever those say.
    """
    profile = evidence.spec.profile
    prompts = [checked.prompt_tokens for checked in evidence.checked]
    verdict = judge_states(evidence.parties, profile, prompts)
    if evidence.fault is not None:
        return _at_fault(verdict, evidence.fault)
    if not verdict.accepted:
        return verdict
    # A head with a bias or soft-capping yields other logits than its rows: as good as no head.
    if head is None or not evidence.spec.token_proof:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=Reason.HEAD_MISSING)
    return _with_tokens(verdict, evidence, head)


def judge_bundle(
    bundle: Bundle,
    posting: Posting,
    sealing: Sealing,
    spec: ModelSpec,
    domain: Domain,
    beacon: Hash32,
    head: Head | None,
) -> Verdict:
    """The verdict on a bundle, whatever it holds: evidence that does not hold together has one."""
    try:
        evidence = gather(bundle, posting, sealing, spec, domain, beacon)
    except EvidenceError as error:
        return refused(error)
    return judge(evidence, head)


def refused(error: EvidenceError) -> Verdict:
    """The verdict that evidence leads to which does not hold together."""
    outcome = _BY_EVIDENCE.get(error.reason, Outcome.INCONCLUSIVE)
    return Verdict(outcome, error.reason, details=Details(fact=error.message))


def paid_mask(verdict: Verdict) -> int:
    """Which members a claim of this verdict pays: bit k-1 for member k.

    Where states were judged, the members of some largest clique; else, and where that leaves none,
    all that opened finite states of their own task.
    """
    details = verdict.details
    judged = verdict.outcome is not Outcome.INCONCLUSIVE and verdict.reason not in _UNJUDGED
    members = {k for clique in details.cliques for k in clique} if judged else set()
    opened = {k for k, status in enumerate(details.statuses) if status is PartyStatus.OPEN}
    return sum(1 << (k - 1) for k in (members or opened) if k != INFERENCER)


def party_status(party: PartyStates) -> PartyStatus:
    """What a party's states are worth."""
    if party.mismatched:
        return PartyStatus.MISMATCHED
    if party.states is None:
        return PartyStatus.SILENT
    if not all(states.finite for states in party.states):
        return PartyStatus.NON_FINITE
    return PartyStatus.OPEN


def _at_fault(verdict: Verdict, fault: EvidenceError) -> Verdict:
    found = refused(fault)
    details = replace(verdict.details, fact=fault.message)
    return Verdict(found.outcome, found.reason, verdict.suspects, details)


# ── States ──────────────────────────────────────────────────────────────────────────────────────
def _early(
    inferencer: PartyStatus, positions: int, profile: CheckProfile
) -> tuple[Outcome, Reason] | None:
    if inferencer is PartyStatus.SILENT:
        return Outcome.SLASH, Reason.WITHHELD
    if inferencer is PartyStatus.NON_FINITE:
        return Outcome.SLASH, Reason.NON_FINITE
    if inferencer is not PartyStatus.OPEN:
        return Outcome.INCONCLUSIVE, Reason.EVIDENCE_MISSING
    if positions < max(1, profile.min_positions):
        return Outcome.INCONCLUSIVE, Reason.TOO_FEW_POSITIONS
    return None


def _agreeing(pairs: Mapping[Pair, PairStatistics], mean: int, over: int) -> frozenset[Pair]:
    return frozenset(pair for pair, statistics in pairs.items() if statistics.agrees(mean, over))


def _over_all(
    largest: tuple[tuple[int, ...], ...],
    accepting: tuple[tuple[int, ...], ...],
    agree: frozenset[Pair],
    near: frozenset[Pair],
) -> tuple[Outcome, Reason]:
    """A lying verifier can add a clique of equal size, so no one clique may decide."""
    rejecting = [c for c in largest if not any((INFERENCER, k) in agree for k in c)]
    if accepting and not rejecting:
        return Outcome.ACCEPT, Reason.NONE
    if accepting or not rejecting:
        return Outcome.INCONCLUSIVE, Reason.DIVIDED
    slash = any(not any((INFERENCER, k) in near for k in clique) for clique in rejecting)
    return (Outcome.SLASH if slash else Outcome.REFUND), Reason.STATES_DIFFER


def _pairwise(
    chosen: tuple[int, ...], candidates: Sequence[int], agree: frozenset[Pair]
) -> Iterator[tuple[int, ...]]:
    """Every set that agrees pairwise, the empty one first: at most 2^m of the m drawn."""
    yield chosen
    for at, each in enumerate(candidates):
        near = [other for other in candidates[at + 1 :] if (each, other) in agree]
        yield from _pairwise((*chosen, each), near, agree)


# ── Tokens ──────────────────────────────────────────────────────────────────────────────────────
def _with_tokens(verdict: Verdict, evidence: Evidence, head: Head) -> Verdict:
    """Judge the tokens by each accepting clique; they must say the same."""
    profile, accepting = evidence.spec.profile, verdict.details.accepting
    try:
        every = [token_statistics(generated(evidence, c), head, profile) for c in accepting]
    except EvidenceError as error:
        return replace(
            refused(error),
            suspects=verdict.suspects,
            details=replace(verdict.details, fact=error.message),
        )
    details = replace(verdict.details, tokens=every[-1])
    found = [judge_tokens(statistics, profile) for statistics in every]
    outcome, reason = found[0]
    if any(other != found[0] for other in found):
        outcome, reason = Outcome.INCONCLUSIVE, Reason.DIVIDED
    return Verdict(outcome, reason, verdict.suspects, details)


def generated(evidence: Evidence, clique: tuple[int, ...]) -> list[Generated]:
    """The checked outputs, with the clique's states of them; EvidenceError without a quorum."""
    return [
        Generated(
            checked.prompt_tokens,
            checked.output,
            checked.request.sampling,
            checked.seed,
            _finals(evidence, clique, at),
        )
        for at, checked in enumerate(evidence.checked)
    ]


def _finals(evidence: Evidence, clique: tuple[int, ...], at: int) -> tuple[Bits, ...]:
    """The clique's finite states of one output; a quorum must have them open."""
    shown = (evidence.parties[k].generated[at] for k in clique)
    finals = tuple(bits for bits in shown if bits is not None and is_finite(bits))
    if len(finals) < quorum(len(evidence.parties) - 1):
        raise EvidenceError(Reason.EVIDENCE_MISSING, "too few verifiers opened every output state")
    return finals
