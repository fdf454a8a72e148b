"""A job on the happy path, and the money of each end: `Docket` and `Jobs` of the contracts."""

from collections.abc import Sequence

from tests.reference.ledger import bits
from tests.reference.roster import Roster
from tests.reference.state import NO_JOB, require
from verillm.chain import events
from verillm.chain.reads import JobState, Status
from verillm.draw import draw, is_forced
from verillm.records import Attestation, Claiming, Member, Posting, Sealing, record_hash
from verillm.request import Job, Quote
from verillm.settlement import Ending, Stakes, Terms, Way, bond_of, demand, fee_of, settle
from verillm.signing import digest, job_id, struct_hash
from verillm.task import Commitment, Inner, draw_commit, inner_hash, task_id
from verillm.types import ChecksumAddress, Hash32, JobId, Outcome, Reason
from verillm.verdict import quorum

MAX_REQUESTS = 4096
NO_BEACON = Hash32(bytes(32))
ATTESTED = range(Reason.MARGIN_MEAN, Reason.OUTPUT_MISMATCH + 1)
"""Reasons that the chain cannot recompute: the committee has to sign them."""
CLAIMABLE = {
    Outcome.ACCEPT: {0},
    Outcome.REFUND: {1, *ATTESTED},
    Outcome.SLASH: {1, 2, 3, 5, 6, 7},
    Outcome.INCONCLUSIVE: set(range(Reason.NO_CLIQUE, Reason.HEAD_MISSING + 1)),
}


class Docket(Roster):
    """Jobs from post to finalize. `hashes` are of all past blocks; `lost` are those forgotten."""

    hashes: dict[int, Hash32]
    lost: set[int]

    # ── A job's life ────────────────────────────────────────────────────────────────────────────
    def post(
        self,
        job: Job,
        quote: Quote,
        seat: int,
        commitment: Hash32,
        outputs_root: Hash32,
        lock: int,
        client_signature: bytes,
        worker_signature: bytes,
    ) -> None:
        """Commit an inferencer to a signed job; lock fee, exposure and bond."""
        self._require_order(job, quote)
        worker, slots = self._inferencer(quote, seat)
        identity = job_id(self.domain, job)
        require(
            self._signed(worker, self._digest(commitment), worker_signature), "SignatureInvalid"
        )
        require(self._is_by(job.client, Hash32(identity), client_signature), "SignatureInvalid")
        bond = self._take(job, quote, worker, lock)
        posting = Posting(
            job, quote, seat, worker, commitment, outputs_root, lock, bond, slots, self.now,
            self.block,
        )  # fmt: skip
        require(self.job_state(identity).status is Status.NONE, "StatusWrong")
        self.state.escrows[identity] = job.max_fee
        self._enter(identity, Status.POSTED, self.config.seal_window, record_hash(posting))
        self.events.append(events.Posted(identity, quote.scheduler, job.client, posting))

    def seal(
        self,
        posting: Posting,
        secret: Hash32,
        inner: Inner,
        inners: Sequence[Hash32],
        signatures: Sequence[bytes],
    ) -> None:
        """Show the secret, seal the drawn committee's commitments, fix the fee."""
        identity = self._at(Status.POSTED, posting)
        self._require_before(identity)
        self._require_inferencer(identity, posting, secret, inner)
        beacon = self._beacon_of(posting.posted_block)
        seats = self.drawn_seats(posting, draw(secret, posting.commitment, beacon))
        require(len(inners) == len(seats), "CommitteeSizeWrong")
        committee = tuple(
            Member(seat, owner, each, self._lock_up_to(owner, posting.lock))
            for (seat, owner), each in zip(seats, inners, strict=True)
        )
        require(len(signatures) == len(committee), "CommitteeSizeWrong")
        for k, (member, signature) in enumerate(zip(committee, signatures, strict=True), 1):
            commitment = struct_hash(Commitment(task_id(secret, identity, k), member.inner))
            signed = self._signed(member.owner, self._digest(commitment), signature)
            require(signed, "SignatureInvalid")
        price, most = posting.quote.unit_price, posting.job.max_fee
        fee = fee_of(price, inner.prompt_tokens, inner.new_tokens, most)
        sealing = Sealing(secret, beacon, inner, fee, self.block, committee)
        record = record_hash(posting, sealing)
        self._enter(identity, Status.SEALED, self.config.claim_window, record)
        self.events.append(events.Sealed(identity, sealing))

    def claim(
        self,
        posting: Posting,
        sealing: Sealing,
        outcome: Outcome,
        reason: Reason,
        paid: int,
        bundle: Hash32,
        attestations: Sequence[bytes] = (),
    ) -> None:
        """Claim a verdict, bonded; silence assents."""
        identity = self._at(Status.SEALED, posting, sealing)
        self._require_before(identity)
        known = paid < 1 << len(sealing.committee)
        require(known and reason in CLAIMABLE.get(outcome, ()), "OutcomeInvalid")
        beacon = self._beacon_of(sealing.sealed_block)
        claimer = self.operator_of(self.sender)
        claiming = Claiming(claimer, outcome, reason, paid, bundle, beacon)
        if reason in ATTESTED:
            attested = Attestation(identity, outcome, reason, bundle)
            self._require_attested(sealing, attested, attestations)
        self._lock(claimer, self.config.claim_bond)
        record = record_hash(posting, sealing, claiming)
        self._enter(identity, Status.CLAIMED, self.config.dispute_window, record)
        self.events.append(events.Claimed(identity, claiming))

    def finalize(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Settle an unchallenged claim."""
        identity = self._at(Status.CLAIMED, posting, sealing, claiming)
        self._require_after(identity)
        seed = draw(sealing.secret, posting.commitment, sealing.beacon)
        require(not is_forced(seed, self.config.forced_every), "RoundForced")
        self._unlock(claiming.claimer, self.config.claim_bond)
        unpaid = bits(~claiming.paid, len(sealing.committee), first=1)
        ending = Ending(claiming.outcome, Way.FINALIZED, unpaid=unpaid)
        self._end(posting, sealing, ending, claiming.reason, claimer=claiming.claimer)

    def keep(self, block: int) -> None:
        """Store a block's hash while the chain still knows it."""
        beacon = self._beacon_of(block)
        self.state.kept[block] = beacon
        self.events.append(events.BeaconKept(block, beacon))

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def job_state(self, identity: JobId) -> JobState:
        """A job's slot."""
        return self.state.jobs.get(identity, NO_JOB)

    def nonce_used(self, client: ChecksumAddress, scheduler: ChecksumAddress, nonce: int) -> bool:
        """Whether a job with this nonce was posted."""
        return (client, scheduler, nonce) in self.state.nonces

    # ── Checks of post ──────────────────────────────────────────────────────────────────────────
    def _require_order(self, job: Job, quote: Quote) -> None:
        require(self._acts_for(self.sender, quote.scheduler), "NotOperator")
        require(struct_hash(quote) == job.quote, "QuoteMismatch")
        require(self.now <= quote.expiry, "QuoteExpired")
        require(self.now <= job.deadline, "DeadlinePassed")
        require(job.deadline <= self.now + self.config.job_window, "DeadlineTooFar")
        require(1 <= job.requests <= MAX_REQUESTS, "RequestsOutOfBounds")

    def _inferencer(self, quote: Quote, seat: int) -> tuple[ChecksumAddress, int]:
        model = self._known(quote.model_id)
        require(model.owners > model.spec.committee, "TooFewOwners")
        taken = self.seat_of(quote.model_id, seat)
        require(self._active_at(taken, self.now), "SeatNotActive")
        require(taken.price <= quote.unit_price, "SeatTooExpensive")
        return taken.owner, model.slots

    def _take(self, job: Job, quote: Quote, worker: ChecksumAddress, lock: int) -> int:
        """The nonce, the fee, the exposure and the bond."""
        nonce = (job.client, quote.scheduler, job.nonce)
        require(nonce not in self.state.nonces, "NonceUsed")
        require(lock >= demand(job.max_fee, self.config.kappa_bps), "LockTooSmall")
        self.state.nonces[nonce] = True
        self._escrow(job.client, quote.scheduler, job.max_fee)
        reserve = demand(self.account(worker).staked, self.config.reserve_bps)
        self._lock(worker, lock, reserve)
        bond = bond_of(lock, job.max_fee)
        self._lock(quote.scheduler, bond)
        return bond

    def _require_inferencer(
        self, identity: JobId, posting: Posting, secret: Hash32, inner: Inner
    ) -> None:
        """The secret is the quote's, and with it the inner is what was posted."""
        require(draw_commit(secret) == posting.quote.draw_commit, "DrawCommitMismatch")
        rebuilt = struct_hash(Commitment(task_id(secret, identity, 0), inner_hash(inner)))
        whole = inner.items == posting.job.requests
        require(rebuilt == posting.commitment and whole, "CommitmentMismatch")

    # ── Where a job stands ──────────────────────────────────────────────────────────────────────
    def _at(
        self,
        status: Status,
        posting: Posting,
        sealing: Sealing | None = None,
        claiming: Claiming | None = None,
    ) -> JobId:
        identity = self._identity(posting)
        state = self.job_state(identity)
        require(state.status is status, "StatusWrong")
        require(state.record == record_hash(posting, sealing, claiming), "RecordMismatch")
        return identity

    def _identity(self, posting: Posting) -> JobId:
        return job_id(self.domain, posting.job)

    def _require_before(self, identity: JobId) -> None:
        require(self.now < self.job_state(identity).deadline, "DeadlinePassed")

    def _require_after(self, identity: JobId) -> None:
        require(self.now >= self.job_state(identity).deadline, "DeadlineNotReached")

    def _enter(self, identity: JobId, status: Status, window: int, record: Hash32) -> None:
        self.state.jobs[identity] = JobState(status, self.now + window, record)

    def _beacon(self, block: int) -> Hash32:
        known = block < self.block and block not in self.lost
        return self.hashes[block] if known else self.state.kept.get(block, NO_BEACON)

    def _beacon_of(self, block: int) -> Hash32:
        beacon = self._beacon(block)
        require(beacon != NO_BEACON, "BeaconUnavailable")
        return beacon

    def _require_attested(
        self, sealing: Sealing, attested: Attestation, attestations: Sequence[bytes]
    ) -> None:
        size = len(sealing.committee)
        require(len(attestations) == size, "CommitteeSizeWrong")
        message = digest(self.domain, attested)
        valid = sum(
            self._signed(member.owner, message, signature)
            for member, signature in zip(sealing.committee, attestations, strict=True)
        )
        require(valid >= quorum(size), "AttestationsInsufficient")

    # ── Money ───────────────────────────────────────────────────────────────────────────────────
    def _end(
        self,
        posting: Posting,
        sealing: Sealing | None,
        ending: Ending,
        reason: Reason,
        claimer: ChecksumAddress | None = None,
        challenger: ChecksumAddress | None = None,
        finder: ChecksumAddress | None = None,
        members: tuple[Member, ...] = (),
    ) -> None:
        """Pay what `verillm.settlement` says to whom it says; bonds of disputes are free again.

        `members` are those of a committee that was summoned and never sealed.
        """
        identity = self._identity(posting)
        state = self.job_state(identity)
        self.state.jobs[identity] = JobState(Status.FINAL, 0, state.record)
        self.state.outcomes[identity] = ending.outcome
        del self.state.escrows[identity]
        self.events.append(events.Finalized(identity, ending.outcome, reason))
        committee = members if sealing is None else sealing.committee
        self._unlock(posting.worker, posting.lock)
        self._unlock(posting.quote.scheduler, posting.bond)
        for member in committee:
            self._unlock(member.owner, member.lock)
        moved = settle(self.terms, self._stakes(posting, sealing, committee), ending)
        parties = [
            (posting.worker, moved.inferencer),
            (posting.quote.scheduler, moved.scheduler),
            (self.operator_of(self.sender), moved.caller),
            *((m.owner, pay) for m, pay in zip(committee, moved.committee, strict=True)),
        ]
        named = ((claimer, "claimer"), (challenger, "challenger"), (finder, "finder"))
        parties += [(who, getattr(moved, role)) for who, role in named if who is not None]
        for operator, amount in parties:
            self._credit(identity, operator, amount)
        self._punish(identity, _guilty(ending))
        self._give_back(identity, posting.job.client, posting.quote.scheduler, moved.client)
        self._burn(identity, moved.burnt)

    def _stakes(
        self, posting: Posting, sealing: Sealing | None, committee: Sequence[Member]
    ) -> Stakes:
        fee = 0 if sealing is None else sealing.fee
        locks = tuple(member.lock for member in committee)
        return Stakes(posting.job.max_fee, fee, posting.lock, posting.bond, locks)

    def _punish(self, identity: JobId, parties: frozenset[int]) -> None:
        if parties:
            before = self.state.punished.get(identity, frozenset())
            self.state.punished[identity] = before | parties

    @property
    def terms(self) -> Terms:
        """The part of the configuration that decides amounts."""
        config = self.config
        return Terms(
            config.kappa_bps,
            config.inferencer_bps,
            config.committee_bps,
            config.scheduler_bps,
            config.caller_fee,
            config.claim_bond,
            config.challenge_bond,
        )


def _guilty(ending: Ending) -> frozenset[int]:
    """Who lost its lock by an end, and so cannot be convicted for it again."""
    return ending.lost | ({0} if ending.outcome is Outcome.SLASH else frozenset())
