"""A job's verdict, recomputed from public data alone, and how the chain's own stands to it.

Pure: `facts` come from the chain (`verillm_verifier.facts`), the bundle from anyone. The bundle is
a stranger's: whatever it holds leads to a verdict with a reason, and never to accept by default.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from verillm.chain.appeals import Concluded
from verillm.chain.contract import Status
from verillm.codec import bundle_hash, decode_bundle
from verillm.errors import EvidenceError, MalformedError, SignatureError
from verillm.evidence import Bundle, Evidence, PartyEvidence, PartyStates, gather
from verillm.records import Sealing
from verillm.signing import Signed, recover
from verillm.task import Commitment, inner_hash, task_id
from verillm.tokens import Head
from verillm.types import ATTESTED, ChecksumAddress, Hash32, Outcome, Reason
from verillm.verdict import Verdict, judge, paid_mask, refused
from verillm_verifier.again import verdict_again
from verillm_verifier.facts import Draws, Facts, check
from verillm_verifier.opinion import Opinion
from verillm_verifier.round import silent, verdict_of

PROCEDURAL: Final = (Reason.NOT_SEALED, Reason.BEACON_LOST, Reason.NOT_COMPARED)
"""Ends without a verdict: a deadline passed, so there is nothing to agree with."""


class Exit(IntEnum):
    """What `verillm-audit verify` tells a shell."""

    ACCEPT = 0
    REJECT = 1
    INCONCLUSIVE = 2
    FAILED = 3
    CONTRADICTED = 4


class Standing(StrEnum):
    """How the chain's word stands to the recomputed verdict."""

    AGREES = "agrees"
    CONTRADICTS = "contradicts"
    UNCONFIRMED = "unconfirmed"
    PROCEDURAL = "procedural"
    OPEN = "open"


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """One job, judged again. `settled` is the chain's outcome, of a claim where none is final."""

    facts: Facts
    draws: Draws | None
    bundle: Bundle | None
    evidence: Evidence | None
    verdict: Verdict
    settled: tuple[Outcome, Reason] | None
    standing: Standing
    opinion: Opinion | None = None

    @property
    def exit(self) -> Exit:
        """The exit code: accept only if the evidence says so, and neither the chain nor one's own
        run differs.
        """
        if self.standing is Standing.CONTRADICTS:
            return Exit.CONTRADICTED
        if self.standing is Standing.PROCEDURAL:
            return Exit.INCONCLUSIVE
        if self.verdict.outcome in (Outcome.REFUND, Outcome.SLASH):
            return Exit.REJECT
        if not self.verdict.accepted or (self.opinion is not None and self.opinion.objects):
            return Exit.INCONCLUSIVE
        return Exit.ACCEPT


def audit(facts: Facts, raw: bytes | None, head: Head | None, missing: str = "no bundle") -> Audit:
    """Judge a job again; `missing` says why there is no bundle where `raw` is None.

    Raises InconsistentChain where what the chain says cannot be, and nothing else.
    """
    draws = check(facts)
    settled = settled_as(facts)
    if draws is None or facts.sealing is None:
        verdict = Verdict(Outcome.INCONCLUSIVE, Reason.NOT_SEALED)
        standing = Standing.OPEN if settled is None else _unsealed_standing(settled)
        return Audit(facts, None, None, None, verdict, settled, standing)
    bundle, evidence, verdict = _judged(facts, facts.sealing, raw, head, missing)
    challenged = facts.history.challenged is not None
    standing = stand(verdict, settled, challenged, _is_claimed(facts, raw))
    if standing is Standing.AGREES and misnames_paid(facts, evidence, verdict):
        standing = Standing.CONTRADICTS
    return Audit(facts, draws, bundle, evidence, verdict, settled, standing)


def settled_as(facts: Facts) -> tuple[Outcome, Reason] | None:
    """How the job ended on chain, or what is claimed so far."""
    if facts.history.finalized is not None:
        event = facts.history.finalized.event
        return event.outcome, event.reason
    if facts.claiming is not None:
        return facts.claiming.outcome, facts.claiming.reason
    return None


def stand(
    verdict: Verdict, settled: tuple[Outcome, Reason] | None, challenged: bool, claimed: bool
) -> Standing:
    """How the chain's outcome stands to a recomputed verdict of a sealed job.

    `claimed`: the verdict is of the very bundle that the claim named. If that bundle proves
    nothing, an unchallenged claim had no ground, save for withheld, which no bundle can prove.
    """
    if settled is None:
        return Standing.OPEN
    outcome, reason = settled
    if reason in PROCEDURAL:
        return Standing.PROCEDURAL
    if verdict.outcome is outcome or _lowered(verdict, settled, challenged):
        return Standing.AGREES
    groundless = claimed and not challenged and reason is not Reason.WITHHELD
    if verdict.reason is Reason.EVIDENCE_MISSING and groundless:
        return Standing.CONTRADICTS
    if verdict.reason in (Reason.EVIDENCE_MISSING, Reason.HEAD_MISSING):
        return Standing.UNCONFIRMED
    # A majority of the committee signed for its tokens, where the states gave no verdict.
    attested = challenged and reason in ATTESTED and verdict.outcome is Outcome.INCONCLUSIVE
    return Standing.UNCONFIRMED if attested else Standing.CONTRADICTS


def _lowered(verdict: Verdict, settled: tuple[Outcome, Reason], challenged: bool) -> bool:
    """Whether the public round refunded where the evidence would slash, as it must for tokens."""
    at_tokens = challenged and verdict.reason in ATTESTED
    return at_tokens and settled == (Outcome.REFUND, verdict.reason)


def _is_claimed(facts: Facts, raw: bytes | None) -> bool:
    claiming = facts.claiming
    return raw is not None and claiming is not None and bundle_hash(raw) == claiming.bundle


def misnames_paid(facts: Facts, evidence: Evidence | None, verdict: Verdict) -> bool:
    """Whether an unchallenged claim pays other members than its own evidence does."""
    claiming = facts.claiming
    if claiming is None or evidence is None or facts.history.challenged is not None:
        return False
    if facts.second is not None:
        return False
    return claiming.paid != paid_mask(verdict)


def _unsealed_standing(settled: tuple[Outcome, Reason]) -> Standing:
    unsealed = settled == (Outcome.REFUND, Reason.NOT_SEALED)
    return Standing.PROCEDURAL if unsealed else Standing.CONTRADICTS


# ── From bytes to a verdict ──────────────────────────────────────────────────────────────────────
def _judged(
    facts: Facts, sealing: Sealing, raw: bytes | None, head: Head | None, missing: str
) -> tuple[Bundle | None, Evidence | None, Verdict]:
    """The bundle and the evidence as far as they go, and the verdict that they lead to."""
    public, final = _public(facts), reverified(facts)
    bundle = evidence = None
    try:
        bundle = open_bundle(facts, raw, missing)
        check_signatures(facts, sealing, bundle)
        evidence = _checked(facts, sealing, bundle)
        if facts.sums is not None:
            evidence = silenced(evidence, silent(facts, facts.sums))
        verdict = _proven(judge(evidence, head))
    except EvidenceError as error:
        verdict = refused(error)
    if public is not None and not public.accepted:
        verdict = public
    return bundle, evidence, verdict if final is None else final


def reverified(facts: Facts) -> Verdict | None:
    """What a re-verification's committee says, which is final: its sums and its words on tokens.

    None where there was none, or it said nothing: then the job ends as if it had not been.
    """
    if facts.history.first(Concluded) is None:
        return None
    verdict = verdict_again(facts)
    return None if verdict.outcome is Outcome.INCONCLUSIVE else verdict


def _public(facts: Facts) -> Verdict | None:
    """The verdict of a public round that has ended, on states alone: the chain's sums prove it."""
    if facts.sums is None or facts.state.status is not Status.FINAL:
        return None
    return verdict_of(facts, facts.sums)


def open_bundle(facts: Facts, raw: bytes | None, missing: str) -> Bundle:
    """The bundle that was claimed; EvidenceError if these bytes are not it."""
    if raw is None:
        raise EvidenceError(Reason.EVIDENCE_MISSING, missing)
    if facts.claiming is not None and not _is_claimed(facts, raw):
        raise EvidenceError(Reason.EVIDENCE_MISSING, "not the bundle that was claimed")
    try:
        return decode_bundle(raw)
    except MalformedError as error:
        raise EvidenceError(
            Reason.EVIDENCE_MISSING, f"the bundle does not parse: {error}"
        ) from error


def _checked(facts: Facts, sealing: Sealing, bundle: Bundle) -> Evidence:
    beacon = facts.beacons[sealing.sealed_block]
    return gather(bundle, facts.posting, sealing, facts.spec, facts.domain, beacon)


def _proven(verdict: Verdict) -> Verdict:
    """Withheld is what the public round proves; anyone can leave openings out of a bundle."""
    if verdict.reason is not Reason.WITHHELD:
        return verdict
    details = replace(verdict.details, fact="the bundle lacks openings of the inferencer")
    missing = Reason.EVIDENCE_MISSING
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=missing, details=details)


def silenced(evidence: Evidence, quiet: frozenset[int]) -> Evidence:
    """The evidence without parties that a public round found silent."""
    parties = tuple(
        PartyStates(None) if k in quiet else party for k, party in enumerate(evidence.parties)
    )
    return replace(evidence, parties=parties)


# ── Signatures ───────────────────────────────────────────────────────────────────────────────────
def check_signatures(facts: Facts, sealing: Sealing, bundle: Bundle) -> None:
    """EvidenceError unless client, scheduler and workers signed what the bundle says they did."""
    if not facts.client_has_code:  # a contract's word (ERC-1271) was the chain's to ask for
        _signed(facts, bundle.job, bundle.signature, {facts.posting.job.client}, "the job", None)
    scheduler = _keys(facts, facts.posting.quote.scheduler)
    workers = (facts.posting.worker, *sealing.owners)
    inners = (inner_hash(sealing.inner), *sealing.inners)
    for party in bundle.parties:
        if party.party >= len(workers):
            raise EvidenceError(Reason.EVIDENCE_MISSING, "a party that was not drawn")
        worker, inner = workers[party.party], inners[party.party]
        _check_party(facts, sealing, party, worker, inner, scheduler)


def _check_party(
    facts: Facts,
    sealing: Sealing,
    party: PartyEvidence,
    worker: ChecksumAddress,
    inner: Hash32,
    scheduler: set[ChecksumAddress],
) -> None:
    number = party.party
    if party.task.worker != worker:
        raise EvidenceError(Reason.EVIDENCE_MISSING, "a task for another worker", number)
    commitment = Commitment(task_id(sealing.secret, facts.history.job_id, number), inner)
    _signed(facts, party.task, party.task_signature, scheduler, "the task", number)
    keys = _keys(facts, worker)
    _signed(facts, commitment, party.commitment_signature, keys, "the commitment", number)


def _keys(facts: Facts, operator: ChecksumAddress) -> set[ChecksumAddress]:
    """Who could sign for an operator while the job was run and verified."""
    sealed = facts.history.sealed
    last = facts.posting.posted_at if sealed is None else sealed.timestamp
    return facts.registry.keys_within(operator, facts.posting.posted_at, last)


def _signed(
    facts: Facts,
    value: Signed,
    signature: bytes,
    allowed: set[ChecksumAddress],
    what: str,
    party: int | None,
) -> None:
    try:
        signer = recover(facts.domain, value, signature)
    except SignatureError as error:
        raise EvidenceError(Reason.EVIDENCE_MISSING, f"{what}: {error}", party) from error
    if signer not in allowed:
        raise EvidenceError(Reason.EVIDENCE_MISSING, f"{what} is signed by {signer}", party)
