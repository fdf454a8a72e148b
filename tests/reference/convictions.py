"""What objective proofs do to jobs: `Convictions` of the contracts. No proof is looked at here."""

from tests.reference.adjudicator import Record
from tests.reference.appeals import Appeals
from tests.reference.state import NO_DISPUTE, Dispute, require
from verillm.chain import events
from verillm.chain.reads import Status
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.settlement import Ending, Stakes, Way, punished
from verillm.types import ChecksumAddress, JobId, Outcome, Reason

SCHEDULER = 255


class Convictions(Appeals):
    """Calls of the prover alone."""

    def convict(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        party: int,
        reason: Reason,
        finder: ChecksumAddress,
    ) -> None:
        """Punish a party for what the prover checked, once."""
        require(self.sender == self.config.prover, "NotProver")
        identity, status = self._sealed((posting, sealing, claiming))
        finder = self.operator_of(finder)
        size = len(sealing.committee)
        require(party == SCHEDULER or party <= size, "PartyUnknown")
        before = self.state.punished.get(identity, frozenset())
        require(party not in before, "AlreadyConvicted")
        require(self.now < posting.posted_at + self.config.unbonding, "DeadlinePassed")
        over = status is Status.FINAL
        require(over or party in (0, SCHEDULER), "StatusWrong")
        self._punish(identity, frozenset({party}))
        self.events.append(events.Convicted(identity, party, reason, finder))
        if over:
            return self._take_after(identity, posting, sealing, party, finder)
        lost, unpaid = frozenset[int](), frozenset[int]()
        if (judged := self.state.disputes.get(identity, NO_DISPUTE).judged) is not None:
            lost, unpaid = judged.lost, judged.unpaid
        if status is Status.REVERIFYING:
            appeal = self.state.appeals[identity]
            self._unlock(appeal.requester, self.config.reverify_bond)
            for member in appeal.committee:
                self._unlock(member.owner, member.lock)
        self._return_bonds(identity, status, claiming)
        ending = Ending(Outcome.REFUND, Way.AT_SCHEDULER, lost, unpaid)
        if party == 0:
            ending = Ending(Outcome.SLASH, Way.CONVICTED, lost, unpaid)
        return self._end(posting, sealing, ending, reason, finder=finder)

    def overrule(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        finder: ChecksumAddress,
    ) -> None:
        """Speak against a claim that accepts, or a round that may."""
        require(self.sender == self.config.prover, "NotProver")
        record, identity = (posting, sealing, claiming), self._identity(posting)
        finder = self.operator_of(finder)
        if self.job_state(identity).status is not Status.CLAIMED:
            disputed = self._disputed(record)
            return self._support(disputed, claiming, Reason.MARGIN_MAX, finder)
        self._at(Status.CLAIMED, *record)
        if not self._is_forced(posting, sealing):
            self._require_before(identity)
        milder = claiming.outcome in (Outcome.ACCEPT, Outcome.INCONCLUSIVE)
        require(milder, "OutcomeInvalid")
        return self._open_round(record, Dispute(finder, Reason.MARGIN_MAX))

    def _sealed(self, record: Record) -> tuple[JobId, Status]:
        """The job of these values; where it ended before a claim, its record is the seal's."""
        posting, sealing, claiming = record
        identity = self._identity(posting)
        state = self.job_state(identity)
        early = (Status.NONE, Status.POSTED, Status.SUMMONED)
        require(state.status not in early, "StatusWrong")
        known = (record_hash(posting, sealing), record_hash(posting, sealing, claiming))
        require(state.record in known, "RecordMismatch")
        return identity, state.status

    def _take_after(
        self,
        identity: JobId,
        posting: Posting,
        sealing: Sealing,
        party: int,
        finder: ChecksumAddress,
    ) -> None:
        """After the end: other jobs' locks stay as they are, seats do not."""
        owner, stake = posting.quote.scheduler, posting.bond
        if party == 0:
            owner, stake = posting.worker, posting.lock
        elif party != SCHEDULER:
            member = sealing.committee[party - 1]
            owner, stake = member.owner, member.lock
        account = self.account(owner)
        locks = tuple(member.lock for member in sealing.committee)
        held = Stakes(posting.job.max_fee, sealing.fee, posting.lock, posting.bond, locks)
        taken = punished(held, stake, account.balance - account.locked)
        self._credit(identity, owner, -taken.finder - taken.burnt)
        self._credit(identity, finder, taken.finder)
        self._burn(identity, taken.burnt)
