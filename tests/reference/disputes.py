"""The end of a job that was not sealed, and the public round's way in and out: `Disputes`."""

from collections.abc import Sequence

from tests.reference.docket import NO_BEACON
from tests.reference.rulings import Rulings
from tests.reference.state import Dispute
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import Status
from verillm.records import Attestation, Claiming, Posting, Sealing
from verillm.settlement import Ending, Way
from verillm.types import Hash32, Outcome, Reason

NOTHING = Hash32(bytes(32))


class Disputes(Rulings):
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
        """Open the public round: bonded against a claim, unless the draw forces the round."""
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
            word = Attestation(identity, outcome, reason, bundle)
            self._require_reason(sealing, word, attestations)
        dispute = Dispute(challenger, reason, bonded=bonded)
        return self._open_round((posting, sealing, claiming), dispute)

    def attest(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        attestation: Attestation,
        signatures: Sequence[bytes],
    ) -> None:
        """Add the committee's word to a round that was opened without it."""
        identity = self._disputed((posting, sealing, claiming))
        self._require_reason(sealing, attestation, signatures)
        finder = self.operator_of(self.sender)
        self._support(identity, claiming, attestation.reason, finder)

    def adjudicate(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Compute the verdict of the public round; it may be appealed for a while."""
        self._at(Status.CHALLENGED, posting, sealing, claiming)
        self._judge((posting, sealing, claiming))

    def settle(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Pay by a verdict that nobody appealed."""
        identity = self._at(Status.JUDGED, posting, sealing, claiming)
        self._require_after(identity)
        self._conclude((posting, sealing, claiming))
