"""A worker's claim for a task that its scheduler never posted: `TaskClaims` of the contracts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.reference.convictions import SCHEDULER, Convictions
from tests.reference.state import TaskClaim, require
from verillm.api import CommitmentEvent, TaskSubmission
from verillm.chain import events
from verillm.chain.reads import Status, TaskClaimState
from verillm.draw import draw
from verillm.hashing import tokens_bytes
from verillm.proofs.shown import HashedTask
from verillm.records import Claiming, Posting, Sealing, record_hash
from verillm.request import Job, Quote, requests_root
from verillm.settlement import bond_of, least_lock
from verillm.signing import digest, job_id, struct_hash, task_hash
from verillm.task import (
    Commitment,
    inner_hash,
    items_tree,
    output_hash,
    outputs_root,
    task_id,
)
from verillm.types import Hash32, JobId, Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job says of a claim: whether the worker pays for having made it, and how many of its
    tokens the job must be able to pay for if it is to count.
    """

    fined: bool
    tokens: int


class Wages(Convictions):
    """Claims are found by the commitment that they are about, money moves under it."""

    def claim_task(
        self,
        submission: TaskSubmission,
        seat: int,
        commitment: CommitmentEvent,
        outputs: Sequence[Sequence[int]],
    ) -> None:
        """Claim a task's fee from its scheduler's stake; the worker stands for it by its lock."""
        task, inner, scheduler = submission.task, commitment.inner, submission.scheduler
        begins = task.deadline + self.config.seal_window
        require(self.now >= begins, "DeadlineNotReached")
        require(self.now < begins + self.config.unbonding, "DeadlinePassed")
        given = self._signed(scheduler, self._digest(inner.task_hash), submission.signature)
        require(given, "SignatureInvalid")
        require(_hangs_together(submission, commitment, outputs), "WorkInvalid")
        named = Commitment(task.task_id, inner_hash(inner))
        signed = digest(self.domain, named)
        require(self._signed(task.worker, signed, commitment.signature), "SignatureInvalid")
        held = self.seat_of(task.model_id, seat)
        require(held.owner == task.worker, "SeatNotOwned")
        due = min(task.fee, held.price * (inner.prompt_tokens + inner.new_tokens))
        at = struct_hash(named)
        require(at not in self.state.task_claims, "AlreadyClaimed")
        amount = self._lock_up_to(scheduler, due)
        require(amount > 0, "StakeInsufficient")
        self._lock(task.worker, task.lock)
        state = TaskClaimState(
            scheduler,
            task.worker,
            task.task_id,
            amount,
            task.lock,
            self.now + self.config.unbonding,
        )
        root = outputs_root([leaf.output_hash for leaf in commitment.leaves])
        asked = requests_root([item.request for item in task.items])
        lengths = inner.prompt_tokens, inner.new_tokens
        claim = TaskClaim(state, seat, task.model_id, root, asked, *lengths, due, self.block)
        self.state.task_claims[at] = claim
        self.events.append(
            events.TaskClaimed(
                at,
                scheduler,
                task.worker,
                amount,
                state.collectable_at,
                seat,
                HashedTask.of(task),
                inner,
                commitment.leaves,
                tuple(tokens_bytes(tokens) for tokens in outputs),
                commitment.signature,
            )
        )

    def contest_task(
        self, commitment: Hash32, posting: Posting, sealing: Sealing, claiming: Claiming
    ) -> None:
        """End a claim by a job that holds its commitment, refutes it, or was another's work."""
        claim = self._open_claim(commitment)
        identity = self._identity(posting)
        known = self._known_record(identity, posting, sealing, claiming)
        answer = self._answer(identity, commitment, claim, posting, *known)
        require(answer is not None, "NotContested")
        assert answer is not None
        _require_priced(claim, posting.job, posting.quote, answer.tokens)
        burnt = min(claim.state.amount, claim.state.exposure) if answer.fined else 0
        self.events.append(events.TaskContested(commitment, identity, burnt))
        self._release(commitment, claim, 0, burnt)

    def collect_task(self, commitment: Hash32) -> None:
        """Pay a claim that nobody contested."""
        claim = self._open_claim(commitment)
        require(self.now >= claim.state.collectable_at, "DeadlineNotReached")
        self.events.append(events.TaskCollected(commitment, claim.state.amount))
        self._release(commitment, claim, claim.state.amount, 0)

    def post_claimed(self, job: Job, quote: Quote, commitment: Hash32) -> None:
        """Have a committee judge what was claimed: post it, the scheduler pays for the client."""
        claim = self._open_claim(commitment)
        scheduler, lock = claim.state.scheduler, claim.state.exposure
        require(self._acts_for(self.sender, scheduler), "NotOperator")
        named = (quote.scheduler, quote.model_id, struct_hash(quote))
        require(named == (scheduler, claim.model, job.quote), "QuoteMismatch")
        _require_priced(claim, job, quote, claim.prompt_tokens + claim.new_tokens)
        require(lock >= least_lock(job.max_fee, self.config.kappa_bps), "LockTooSmall")
        bond = bond_of(lock, job.max_fee)
        self._close_claim(commitment, claim)
        self._unlock(scheduler, claim.state.amount)
        self._lock(scheduler, bond + job.max_fee)
        self._unlock(scheduler, job.max_fee)
        identity = job_id(self.domain, job)
        self._credit(identity, scheduler, -job.max_fee)
        require(self.job_state(identity).status is Status.NONE, "StatusWrong")
        self.state.escrows[identity] = job.max_fee
        posting = Posting(
            job, quote, claim.seat, claim.state.worker, commitment, claim.outputs_root, lock, bond,
            self.slots_of(quote.model_id)[0], self.now, self.block,
        )  # fmt: skip
        self._enter(identity, Status.POSTED, self.config.seal_window, record_hash(posting))
        self.events.append(events.TaskContested(commitment, identity, 0))
        self.events.append(events.Posted(identity, scheduler, job.client, posting))

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def task_claim_of(self, commitment: Hash32) -> TaskClaimState | None:
        """A claim on a task's fee; amount and exposure are 0 once it is closed."""
        found = self.state.task_claims.get(commitment)
        return None if found is None else found.state

    # ── How a job answers a claim ───────────────────────────────────────────────────────────────
    def _known_record(
        self, identity: JobId, posting: Posting, sealing: Sealing, claiming: Claiming
    ) -> tuple[Sealing | None, Claiming | None]:
        """What of these the job has: callers may bring more than there is."""
        record = self.job_state(identity).record
        if record == record_hash(posting):
            return None, None
        if record == record_hash(posting, sealing):
            return sealing, None
        require(record == record_hash(posting, sealing, claiming), "RecordMismatch")
        return sealing, claiming

    def _answer(
        self,
        identity: JobId,
        commitment: Hash32,
        claim: TaskClaim,
        posting: Posting,
        sealing: Sealing | None,
        claiming: Claiming | None,
    ) -> Answer | None:
        """None where the job says nothing of the claim."""
        state, everything = claim.state, claim.prompt_tokens + claim.new_tokens
        if posting.commitment == commitment:
            return Answer(posting.posted_block < claim.block, everything)
        for k, worker, held in self._sealed_work(identity, posting, sealing):
            if task_id(sealing.secret, identity, k) != state.task_id:  # type: ignore[union-attr]
                continue
            if held == commitment:
                assert sealing is not None
                return Answer(sealing.sealed_block < claim.block, claim.prompt_tokens)
            if worker == state.worker:
                return Answer(True, 0)
            if k == 0 and self._superseded(identity, claim, posting, claiming):
                return Answer(False, everything)
        return Answer(True, 0) if self._was_put_out(identity, claim, posting) else None

    def _sealed_work(
        self, identity: JobId, posting: Posting, sealing: Sealing | None
    ) -> Iterator[tuple[int, str, Hash32]]:
        """The tasks of a sealed job: their numbers, whose they are, what was committed to."""
        if sealing is None:
            return
        yield 0, posting.worker, posting.commitment
        for party, member in enumerate(sealing.committee, 1):
            number = self.task_number_of(identity, party)
            named = Commitment(task_id(sealing.secret, identity, number), member.inner)
            yield number, member.owner, struct_hash(named)

    def _superseded(
        self, identity: JobId, claim: TaskClaim, posting: Posting, claiming: Claiming | None
    ) -> bool:
        """Whether the same requests got another's output, and that was accepted."""
        same = posting.job.requests_root == claim.requests_root
        other = posting.outputs_root != claim.outputs_root
        return same and other and self._was_accepted(identity, claiming)

    def _was_accepted(self, identity: JobId, claiming: Claiming | None) -> bool:
        """Whether the job ended so, and nobody has been convicted of it."""
        accepted = self.state.outcomes.get(identity) is Outcome.ACCEPT
        convicted = self.state.punished.get(identity, frozenset()) & {0, SCHEDULER}
        return claiming is not None and accepted and not convicted

    def _was_put_out(self, identity: JobId, claim: TaskClaim, posting: Posting) -> bool:
        """Whether the worker was summoned for this task, kept silent and lost its place."""
        panel = self.state.panels.get(identity)
        if panel is None:
            return False
        numbers = len(panel.places) + panel.replaced
        seed = draw(panel.secret, posting.commitment, panel.beacon)
        stays = {place.number for place in panel.places}
        for number, (_, owner) in enumerate(self.drawn_seats(posting, seed, numbers), 1):
            named = task_id(panel.secret, identity, number) == claim.state.task_id
            if named and number not in stays and owner == claim.state.worker:
                return True
        return False

    # ── Effects ─────────────────────────────────────────────────────────────────────────────────
    def _open_claim(self, commitment: Hash32) -> TaskClaim:
        claim = self.state.task_claims.get(commitment)
        if claim is None or claim.state.amount == 0:
            require(False, "ClaimUnknown")
        assert claim is not None
        return claim

    def _close_claim(self, commitment: Hash32, claim: TaskClaim) -> None:
        closed = replace(claim.state, amount=0, exposure=0)
        self.state.task_claims[commitment] = replace(claim, state=closed)

    def _release(self, commitment: Hash32, claim: TaskClaim, pay: int, burnt: int) -> None:
        self._close_claim(commitment, claim)
        state, about = claim.state, JobId(commitment)
        self._unlock(state.scheduler, state.amount)
        self._unlock(state.worker, state.exposure)
        self._credit(about, state.scheduler, -pay)
        self._credit(about, state.worker, pay - burnt)
        self._burn(about, burnt)


def _require_priced(claim: TaskClaim, job: Job, quote: Quote, tokens: int) -> None:
    """A job that could not pay for the work at its own price, nor what is due for it, is none."""
    least = min(quote.unit_price * tokens, claim.due)
    require(job.max_fee >= least, "Underpriced")


def _hangs_together(
    submission: TaskSubmission, commitment: CommitmentEvent, outputs: Sequence[Sequence[int]]
) -> bool:
    """Whether the leaves are of the task's items, the tokens of the leaves, the sums of both."""
    task, inner, leaves = submission.task, commitment.inner, commitment.leaves
    if not len(task.items) == len(leaves) == len(outputs) == inner.items or not leaves:
        return False
    for number, (item, leaf, tokens) in enumerate(zip(task.items, leaves, outputs, strict=True)):
        lengths = (leaf.item, leaf.prompt_tokens, leaf.new_tokens)
        if lengths != (number, item.length, len(tokens)):
            return False
        if not 1 <= leaf.new_tokens <= item.max_new_tokens:
            return False
        if leaf.output_hash != output_hash(task.task_id, tokens):
            return False
    sums = (sum(leaf.prompt_tokens for leaf in leaves), sum(leaf.new_tokens for leaf in leaves))
    roots = (task_hash(task), items_tree(leaves).root)
    return (*sums, *roots) == (
        inner.prompt_tokens,
        inner.new_tokens,
        inner.task_hash,
        inner.items_root,
    )
