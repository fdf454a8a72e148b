"""The end of a job that was not sealed, and the public round's way in and out: `Disputes`."""

from collections.abc import Sequence

from tests.reference.adjudicator import Adjudicator
from tests.reference.docket import ATTESTED, CLAIMABLE, NO_BEACON
from tests.reference.ledger import bits
from tests.reference.state import Challenge, require
from verillm.chain import events
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import JobState, Status
from verillm.records import Attestation, Claiming, Posting, Sealing, record_hash
from verillm.settlement import Claim, Ending, Way, adjudicate
from verillm.types import Hash32, Outcome, Reason

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
            self._require_before(identity)
            self._lock(challenger, self.config.challenge_bond)
        if reason != Reason.NONE:
            attestable = reason in ATTESTED and reason in CLAIMABLE.get(outcome, ())
            require(attestable, "OutcomeInvalid")
            attested = Attestation(identity, outcome, reason, bundle)
            self._require_attested(sealing, attested, attestations)
        record = record_hash(posting, sealing, claiming)
        open_by = self._open(record, posting)
        self.state.jobs[identity] = JobState(Status.CHALLENGED, open_by, record)
        self.state.challenges[identity] = Challenge(challenger, reason)
        opened = events.ChallengeOpened(identity, challenger, open_by, claiming.beacon, reason)
        self.events.append(opened)
        return None

    def adjudicate(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Compute the verdict of the public round and settle by it."""
        identity = self._at(Status.CHALLENGED, posting, sealing, claiming)
        judged, reason = self._judged((posting, sealing, claiming))
        opened = self.state.challenges[identity]
        claimed = claiming.claimer != ZERO_ADDRESS
        claim = None
        if claimed:
            unpaid = bits(~claiming.paid, len(sealing.committee), first=1)
            claim = Claim(claiming.outcome, claiming.reason, unpaid)
            self._unlock(claiming.claimer, self.config.claim_bond)
            self._unlock(opened.challenger, self.config.challenge_bond)
        ending = adjudicate(claim, judged, opened.reason)
        if ending.outcome != judged.outcome:
            reason = claiming.reason if claiming.reason in ATTESTED else opened.reason
        claimer = claiming.claimer if claimed else None
        self._end(posting, sealing, ending, reason, claimer, opened.challenger)
