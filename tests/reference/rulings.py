"""How a public round begins, and what its verdict does: `Rulings` of the contracts."""

from collections.abc import Sequence
from dataclasses import replace

from tests.reference.adjudicator import Adjudicator, Record
from tests.reference.docket import ATTESTED, CLAIMABLE
from tests.reference.ledger import bits
from tests.reference.state import NO_DISPUTE, Dispute, require
from verillm.chain import events
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import JobState, Status
from verillm.draw import draw, is_forced
from verillm.records import Attestation, Claiming, Posting, Sealing, record_hash
from verillm.settlement import Claim, Ending, Way, adjudicate
from verillm.types import ChecksumAddress, JobId, Reason


class Rulings(Adjudicator):
    """Between a challenge and its settlement."""

    def _open_round(self, record: Record, dispute: Dispute) -> None:
        posting, _, claiming = record
        identity, at = self._identity(posting), record_hash(*record)
        open_by = self._open(at, posting)
        self.state.jobs[identity] = JobState(Status.CHALLENGED, open_by, at)
        self.state.disputes[identity] = dispute
        opened = (dispute.challenger, open_by, claiming.beacon, dispute.reason)
        self.events.append(events.ChallengeOpened(identity, *opened))

    def _is_forced(self, posting: Posting, sealing: Sealing) -> bool:
        seed = draw(sealing.secret, posting.commitment, sealing.beacon)
        return is_forced(seed, self.config.forced_every)

    def _require_reason(
        self, sealing: Sealing, word: Attestation, attestations: Sequence[bytes]
    ) -> None:
        """What the chain cannot recompute, signed by a majority of the committee."""
        claimable = word.reason in CLAIMABLE.get(word.outcome, ())
        require(word.reason in ATTESTED and claimable, "OutcomeInvalid")
        self._require_attested(sealing, word, attestations)

    def _disputed(self, record: Record) -> JobId:
        """The job of these values, with a round that is not settled yet."""
        status = self.job_state(self._identity(record[0])).status
        appealed = status in (Status.JUDGED, Status.REVERIFYING)
        identity = self._at(status if appealed else Status.CHALLENGED, *record)
        if status is Status.JUDGED:
            self._require_before(identity)
        return identity

    def _support(
        self, identity: JobId, claiming: Claiming, reason: Reason, finder: ChecksumAddress
    ) -> None:
        """Give a round its reason, once; a verdict then has its window anew."""
        dispute = self.state.disputes.get(identity, NO_DISPUTE)
        unknown = claiming.reason not in ATTESTED and dispute.reason == Reason.NONE
        require(unknown, "AlreadySupported")
        self.state.disputes[identity] = replace(dispute, reason=reason, finder=finder)
        state = self.job_state(identity)
        if state.status is Status.JUDGED:
            self._enter(identity, Status.JUDGED, self.config.dispute_window, state.record)
        deadline = self.job_state(identity).deadline
        self.events.append(events.Supported(identity, finder, reason, deadline))

    def _weighed(self, record: Record) -> tuple[Ending, Reason, bool]:
        """How the job ends by its verdict, the reason, and whether an attested one decided."""
        posting, sealing, claiming = record
        dispute = self.state.disputes[self._identity(posting)]
        judged, reason = dispute.judged, dispute.cause
        assert judged is not None
        claim = None
        if claiming.claimer != ZERO_ADDRESS:
            unpaid = bits(~claiming.paid, len(sealing.committee), first=1)
            claim = Claim(claiming.outcome, claiming.reason, unpaid)
        ending = adjudicate(claim, judged, dispute.reason)
        # A reason turns what the states do not reject into a refund, and nothing else.
        by_reason = ending.outcome != judged.outcome
        if by_reason:
            reason = claiming.reason if claiming.reason in ATTESTED else dispute.reason
        forced = self._is_forced(posting, sealing)
        return replace(ending, bonded=dispute.bonded, forced=forced), reason, by_reason

    def _conclude(self, record: Record) -> None:
        """End the job by its round's verdict."""
        posting, sealing, claiming = record
        dispute = self.state.disputes[self._identity(posting)]
        ending, reason, by_reason = self._weighed(record)
        claimed = claiming.claimer != ZERO_ADDRESS
        self._return_bonds(self._identity(posting), Status.JUDGED, claiming)
        challenger = dispute.challenger
        if by_reason and ending.way is Way.OVERTURNED and dispute.finder != ZERO_ADDRESS:
            challenger = dispute.finder
        self._end(
            posting,
            sealing,
            ending,
            reason,
            claimer=claiming.claimer if claimed else None,
            challenger=challenger,
        )

    def _return_bonds(self, identity: JobId, status: Status, claiming: Claiming) -> None:
        """Free what a claim and what speaks against it locked; who forfeits is decided apart."""
        if status is Status.SEALED:
            return
        if claiming.claimer != ZERO_ADDRESS:
            self._unlock(claiming.claimer, self.config.claim_bond)
        bond = self.config.challenge_bond
        if status is Status.DEMANDED:
            self._unlock(self.state.demands[identity].demander, bond)
        elif (dispute := self.state.disputes.get(identity)) is not None and dispute.bonded:
            self._unlock(dispute.challenger, bond)

    def _judge(self, record: Record) -> None:
        """Store the verdict of a round as soon as nobody may add to it; pay nobody."""
        identity = self._identity(record[0])
        judged, cause = self._judged(record)
        dispute = replace(self.state.disputes[identity], judged=judged, cause=cause)
        self.state.disputes[identity] = dispute
        record_ = self.job_state(identity).record
        self._enter(identity, Status.JUDGED, self.config.dispute_window, record_)
        ending, reason, _ = self._weighed(record)
        members = frozenset(range(1, len(record[1].committee) + 1))
        lost = sum(1 << party for party in judged.lost)
        paid = sum(1 << (party - 1) for party in members - judged.unpaid)
        after = self.job_state(identity).deadline
        self.events.append(events.Judged(identity, ending.outcome, reason, lost, paid, after))
