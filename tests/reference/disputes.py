"""The end of a job that was not sealed, and the public round's way in and out: `Disputes`."""

from collections.abc import Sequence
from dataclasses import replace

from tests.reference.adjudicator import Adjudicator
from tests.reference.docket import ATTESTED, CLAIMABLE, NO_BEACON
from tests.reference.ledger import bits
from tests.reference.state import Dispute, require
from verillm.chain import events
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import JobState, Status
from verillm.records import Attestation, Claiming, Posting, Sealing, record_hash
from verillm.settlement import Claim, Ending, Way, adjudicate
from verillm.types import Hash32, JobId, Outcome, Reason

NOTHING = Hash32(bytes(32))


class Disputes(Adjudicator):
    """Ways out of a job that does not end as it should."""

    def refund(self, posting: Posting) -> None:
        """End a job that was not sealed in time, at the scheduler's cost."""
        identity = self._at(Status.POSTED, posting)
        self._require_after(identity)
        self._end(posting, None, Ending(Outcome.REFUND, Way.UNSEALED), Reason.NOT_SEALED)

    def challenge(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        outcome: Outcome = Outcome.NONE,
        reason: Reason = Reason.NONE,
        bundle: Hash32 = NOTHING,
        attestations: Sequence[bytes] = (),
    ) -> None:
        """Open the public round: bonded against a claim, free where nobody claimed in time."""
        identity, challenger = self._identity(posting), self.operator_of(self.sender)
        bonded = False
        if self.job_state(identity).status is Status.SEALED:
            self._at(Status.SEALED, posting, sealing)
            self._require_after(identity)
            beacon = self._beacon(sealing.sealed_block)
            if beacon == NO_BEACON:
                ending = Ending(Outcome.INCONCLUSIVE, Way.LOST)
                return self._end(posting, sealing, ending, Reason.BEACON_LOST)
            claiming = Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, NOTHING, beacon)
        else:
            self._at(Status.CLAIMED, posting, sealing, claiming)
            bonded = not self._is_forced(posting, sealing)
            if bonded:
                self._require_before(identity)
                self._lock(challenger, self.config.challenge_bond)
        if reason != Reason.NONE:
            self._require_reason(identity, sealing, outcome, reason, bundle, attestations)
        record = record_hash(posting, sealing, claiming)
        open_by = self._open(record, posting)
        self.state.jobs[identity] = JobState(Status.CHALLENGED, open_by, record)
        self.state.disputes[identity] = Dispute(challenger, bonded, reason)
        opened = events.ChallengeOpened(identity, challenger, open_by, claiming.beacon, reason)
        self.events.append(opened)
        return None

    def attest(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        attestation: Attestation,
        signatures: Sequence[bytes],
    ) -> None:
        """Add the committee's word to a round that was opened without it."""
        identity = self._disputed(posting, sealing, claiming)
        word = (attestation.outcome, attestation.reason, attestation.bundle)
        self._require_reason(identity, sealing, *word, signatures)
        found = self.state.disputes[identity]
        by_claim = claiming.reason in ATTESTED
        require(not by_claim and found.reason == Reason.NONE, "AlreadySupported")
        finder = self.operator_of(self.sender)
        word_of = replace(found, reason=attestation.reason, finder=finder)
        self.state.disputes[identity] = word_of
        state = self.job_state(identity)
        if state.status is Status.JUDGED:
            self._enter(identity, Status.JUDGED, self.config.dispute_window, state.record)
        until = self.job_state(identity).deadline
        self.events.append(events.Supported(identity, finder, attestation.reason, until))

    def adjudicate(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Compute the verdict of the public round; nobody is paid yet."""
        identity = self._at(Status.CHALLENGED, posting, sealing, claiming)
        judged, cause = self._judged((posting, sealing, claiming))
        found = replace(self.state.disputes[identity], judged=judged, cause=cause)
        self.state.disputes[identity] = found
        record = self.job_state(identity).record
        self._enter(identity, Status.JUDGED, self.config.dispute_window, record)
        ending, reason = self._weighed(sealing, claiming, found)
        size = len(sealing.committee)
        lost = sum(1 << party for party in judged.lost)
        members = frozenset(range(1, size + 1)) - judged.unpaid
        paid = sum(1 << (k - 1) for k in members)
        until = self.job_state(identity).deadline
        said = events.Judged(identity, ending.outcome, reason, lost, paid, until)
        self.events.append(said)

    def settle(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Pay by the verdict."""
        identity = self._at(Status.JUDGED, posting, sealing, claiming)
        self._require_after(identity)
        found = self.state.disputes[identity]
        ending, reason = self._weighed(sealing, claiming, found)
        forced = self._is_forced(posting, sealing)
        ending = replace(ending, bonded=found.bonded, forced=forced)
        claimer = None
        if claiming.claimer != ZERO_ADDRESS:
            claimer = claiming.claimer
            self._unlock(claimer, self.config.claim_bond)
        if found.bonded:
            self._unlock(found.challenger, self.config.challenge_bond)
        winner = found.challenger
        if ending.way is Way.OVERTURNED and reason != found.cause and found.finder is not None:
            winner = found.finder
        self._end(posting, sealing, ending, reason, claimer, winner)

    def _disputed(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> JobId:
        identity = self._identity(posting)
        judged = self.job_state(identity).status is Status.JUDGED
        self._at(Status.JUDGED if judged else Status.CHALLENGED, posting, sealing, claiming)
        if judged:
            self._require_before(identity)
        return identity

    def _weighed(
        self, sealing: Sealing, claiming: Claiming, found: Dispute
    ) -> tuple[Ending, Reason]:
        """The claim against what was found and said."""
        if found.judged is None:
            raise LookupError("nothing is judged yet")
        claim = None
        if claiming.claimer != ZERO_ADDRESS:
            unpaid = bits(~claiming.paid, len(sealing.committee), first=1)
            claim = Claim(claiming.outcome, claiming.reason, unpaid)
        ending = adjudicate(claim, found.judged, found.reason)
        reason = found.cause
        if ending.outcome != found.judged.outcome:
            reason = claiming.reason if claiming.reason in ATTESTED else found.reason
        return ending, reason

    def _require_reason(
        self,
        identity: JobId,
        sealing: Sealing,
        outcome: Outcome,
        reason: Reason,
        bundle: Hash32,
        signatures: Sequence[bytes],
    ) -> None:
        attestable = reason in ATTESTED and reason in CLAIMABLE.get(outcome, ())
        require(attestable, "OutcomeInvalid")
        self._require_attested(sealing, Attestation(identity, outcome, reason, bundle), signatures)
