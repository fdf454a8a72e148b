"""Re-verification, once a job, by a larger committee in the open: `Reverifications`."""

from collections.abc import Sequence
from dataclasses import replace

from eth_utils.address import to_checksum_address

from tests.reference.adjudicator import Record
from tests.reference.demands import Demands
from tests.reference.docket import ATTESTED
from tests.reference.ledger import bits
from tests.reference.state import NO_DISPUTE, NOTHING, Appeal, Refused, Round, require
from verillm.appeal import (
    Content,
    appeal_draw,
    appeal_task,
    holds,
    inferencer_task,
    second_claiming,
    second_sealing,
    size_of,
)
from verillm.chain import appeals
from verillm.chain.appeals import AppealPhase, AppealState
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import Status
from verillm.draw import checked_requests, draw, draw_seats
from verillm.errors import DrawExhausted, InputError, MalformedError
from verillm.model import CheckProfile, ModelSpec
from verillm.records import Claiming, Member, Posting, Sealing, record_hash
from verillm.request import check_request
from verillm.second import Second, conclude, ending_of, stands
from verillm.settlement import Claim, Ending, Way, adjudicate
from verillm.task import Inner, inner_hash
from verillm.types import ChecksumAddress, Hash32, JobId, Outcome, Reason
from verillm.verdict import quorum

TOKENS_PER_SECOND = 100


class Appeals(Demands):
    """What a requester supplies, a new committee commits to and opens, and what follows."""

    # ── Contents ────────────────────────────────────────────────────────────────────────────────
    def reverify(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        contents: Sequence[Content],
    ) -> None:
        """Ask for it, bonded, while a claim or a verdict can still be disputed."""
        identity = self._identity(posting)
        judged = self.job_state(identity).status is Status.JUDGED
        stood = Status.JUDGED if judged else Status.CLAIMED
        self._at(stood, posting, sealing, claiming)
        self._require_before(identity)
        require(judged or not self._is_forced(posting, sealing), "RoundForced")
        wanted = size_of(len(sealing.committee))
        require(self._known(posting.quote.model_id).owners > wanted, "TooFewOwners")
        requester = self.operator_of(self.sender)
        self._lock(requester, self.config.reverify_bond)
        self.state.appeals[identity] = Appeal(requester, AppealPhase.ASKED, of_claim=not judged)
        self._next(identity, self.config.opening_window)
        supply_by = self.job_state(identity).deadline
        asked = appeals.ReverificationAsked(identity, requester, stood, supply_by)
        self.events.append(asked)
        self._supply(identity, posting, sealing, contents)

    def supply(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        contents: Sequence[Content],
    ) -> None:
        """Bring the contents of the next checked requests."""
        identity, _ = self._before(AppealPhase.ASKED, (posting, sealing, claiming))
        self._supply(identity, posting, sealing, contents)

    def _supply(
        self, identity: JobId, posting: Posting, sealing: Sealing, contents: Sequence[Content]
    ) -> None:
        appeal = self.state.appeals[identity]
        spec = self._known(posting.quote.model_id).spec
        seed = draw(sealing.secret, posting.commitment, sealing.beacon)
        checked = checked_requests(seed, posting.job.requests, spec.checked_requests)
        require(appeal.supplied + len(contents) <= len(checked), "ContentsExceeded")
        task = inferencer_task(sealing.secret, identity)
        for place, shown in enumerate(contents, appeal.supplied):
            require(_is_content(shown, posting, task, checked[place]), "ContentInvalid")
            require(_is_runnable(shown, spec), "ContentOutOfBounds")
            self.events.append(appeals.ContentSupplied(identity, place, shown))
            tokens = (len(shown.tokens) + len(shown.output)) // 4 - 1
            appeal = replace(appeal, supplied=place + 1, tokens=appeal.tokens + tokens)
        if appeal.supplied == len(checked):
            slots = self._known(posting.quote.model_id).slots
            appeal = replace(
                appeal, phase=AppealPhase.COMPLETE, slots=slots, at=self.now, block=self.block
            )
            self._next(identity, self.config.opening_window)
            convene_by = self.job_state(identity).deadline
            self.events.append(appeals.ContentsComplete(identity, appeal.tokens, convene_by))
        self.state.appeals[identity] = appeal

    # ── The committee ───────────────────────────────────────────────────────────────────────────
    def convene(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Draw the new committee and lock its stake."""
        identity, appeal = self._before(AppealPhase.COMPLETE, (posting, sealing, claiming))
        seed = appeal_draw(identity, self._beacon_of(appeal.block))

        def eligible(slot: int) -> str | None:
            seat = self.seat_of(posting.quote.model_id, slot)
            return seat.owner if self._active_at(seat, appeal.at) else None

        size = size_of(len(sealing.committee))
        try:
            drawn = draw_seats(seed, appeal.slots, eligible, posting.worker, size)
        except DrawExhausted:
            raise Refused("DrawExhausted") from None
        window, running = self.config.opening_window, appeal.tokens // TOKENS_PER_SECOND
        self._next(identity, window + min(running, window))
        commit_by = self.job_state(identity).deadline
        members = []
        for seat, name in drawn:
            owner = to_checksum_address(name)
            free = self._takes_on(owner, running, commit_by)
            held = self._lock_up_to(owner, posting.lock) if free else 0
            members.append(Member(seat, owner, NOTHING, held))
        committee = tuple(members)
        self.state.appeals[identity] = replace(
            appeal, phase=AppealPhase.CONVENED, committee=committee
        )
        self.events.append(appeals.Convened(identity, committee, commit_by))

    def _takes_on(self, owner: ChecksumAddress, running: int, commit_by: int) -> bool:
        """Whether an owner can be through in time with this, behind what it was drawn for."""
        through = max(self.now, self.state.rerun.get(owner, 0)) + running
        if through + self.config.opening_window // 2 > commit_by:
            return False
        self.state.rerun[owner] = through
        return True

    def recommit(self, identity: JobId, index: int, inner: Inner) -> None:
        """Commit a member to its states, under a task that is its own."""
        appeal = self._phase(identity, AppealPhase.CONVENED)
        self._require_before(identity)
        member = self._new_member(appeal, index)
        require(not any(member.inner), "AlreadyCommitted")
        own = appeal_task(identity, index, member.owner)
        require(inner.task_hash == own, "TaskHashWrong")
        made = replace(member, inner=inner_hash(inner))
        committee = (*appeal.committee[:index], made, *appeal.committee[index + 1 :])
        self.state.appeals[identity] = replace(appeal, committee=committee)
        self.events.append(appeals.Recommitted(identity, index, inner))
        if all(any(each.inner) for each in committee):
            self._close(identity)

    def close_commits(self, identity: JobId) -> None:
        """End the commitments when their time is over."""
        self._phase(identity, AppealPhase.CONVENED)
        self._require_after(identity)
        self._close(identity)

    def _close(self, identity: JobId) -> None:
        appeal = self.state.appeals[identity]
        made = len(appeal.committed)
        enough = made >= quorum(len(appeal.committee))
        self._next(identity, self.config.opening_window if enough else 0)
        self.state.appeals[identity] = replace(appeal, phase=AppealPhase.CLOSED, block=self.block)
        start_by = self.job_state(identity).deadline
        self.events.append(appeals.CommitsClosed(identity, made, start_by))

    # ── The round ───────────────────────────────────────────────────────────────────────────────
    def start_round(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """Open the round over the new commitments; the first committee stands behind them."""
        identity, appeal = self._before(AppealPhase.CLOSED, (posting, sealing, claiming))
        beacon = self._beacon_of(appeal.block)
        again = second_sealing(sealing, appeal.committee, appeal.block)
        about = record_hash(posting, again, second_claiming(beacon))
        self._next(identity, self.config.opening_window)
        open_by = self._open(about, posting)
        self.state.appeals[identity] = replace(appeal, phase=AppealPhase.OPENED, round=about)
        self.events.append(appeals.RoundStarted(identity, again, beacon, open_by))

    def reject_tokens(self, identity: JobId, index: int, reason: Reason) -> None:
        """A member's word that its own states reject the tokens."""
        appeal = self._phase(identity, AppealPhase.OPENED)
        self._require_before(identity)
        member = self._new_member(appeal, index)
        require(any(member.inner), "NotCommitted")
        require(reason in ATTESTED, "OutcomeInvalid")
        objections = {**appeal.objections, index: reason}
        self.state.appeals[identity] = replace(appeal, objections=objections)
        self.events.append(appeals.TokensRejected(identity, index, reason))

    # ── The end ─────────────────────────────────────────────────────────────────────────────────
    def conclude(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> None:
        """End the job by what the new committee opened, or as it stood."""
        record = (posting, sealing, claiming)
        identity = self._at(Status.REVERIFYING, *record)
        appeal = self.state.appeals[identity]
        require(appeal.phase is not AppealPhase.CONVENED, "PhaseWrong")
        if appeal.phase is AppealPhase.OPENED:
            second, reason = self._heard(appeal, posting, sealing)
        else:
            self._require_after(identity)
            locks = tuple(member.lock for member in appeal.committee)
            absent = frozenset(range(1, len(locks) + 1)) - appeal.committed
            nothing = (Outcome.INCONCLUSIVE, locks, False, False, absent, appeal.committed)
            second, reason = Second(*nothing), Reason.NOT_COMPARED
        self._conclude_second(record, appeal, second, reason)

    def _conclude_second(
        self, record: Record, appeal: Appeal, second: Second, reason: Reason
    ) -> None:
        posting, sealing, claiming = record
        identity, size = self._identity(posting), len(sealing.committee)
        dispute = self.state.disputes.get(identity, NO_DISPUTE)
        # States cannot answer what was said of the tokens meanwhile.
        rejects = second.outcome in (Outcome.SLASH, Outcome.REFUND)
        if dispute.reason is not Reason.NONE and not rejects:
            second, reason = replace(second, outcome=Outcome.REFUND), dispute.reason
        claim = None
        if claiming.claimer != ZERO_ADDRESS:
            unpaid = bits(~claiming.paid, size, first=1)
            claim = Claim(claiming.outcome, claiming.reason, unpaid)
        judged = None if appeal.of_claim else dispute.judged
        attested = Reason.NONE if appeal.of_claim else dispute.reason
        ending = ending_of(claim, size, second, judged, attested)
        before = claiming.outcome if judged is None else adjudicate(claim, judged, attested).outcome
        keeps = stands(before, second)
        strangers = frozenset() if second.says_nothing else second.strangers
        mask = sum(1 << (k - 1) for k in strangers)
        told = appeals.Concluded(identity, second.outcome, reason, keeps, mask)
        self.events.append(told)
        if keeps:
            stood = (claiming.reason, False) if judged is None else self._weighed(record)[1:]
            reason, by_reason = stood
        else:
            by_reason = False
        bonded = dispute.bonded and judged is not None
        forced = judged is not None and self._is_forced(posting, sealing)
        ending = replace(ending, bonded=bonded, forced=forced)
        self._pay_second(record, appeal, second, ending, reason, by_reason)

    def _pay_second(
        self,
        record: Record,
        appeal: Appeal,
        second: Second,
        ending: Ending,
        reason: Reason,
        by_reason: bool,
    ) -> None:
        posting, sealing, claiming = record
        identity = self._identity(posting)
        dispute = self.state.disputes.get(identity, NO_DISPUTE)
        status = Status.CLAIMED if appeal.of_claim else Status.JUDGED
        self._return_bonds(identity, status, claiming)
        self._unlock(appeal.requester, self.config.reverify_bond)
        challenger = dispute.challenger
        found = by_reason and ending.way is Way.OVERTURNED
        if found and dispute.finder != ZERO_ADDRESS:
            challenger = dispute.finder
        held = self._stakes(posting, sealing, sealing.committee)
        paid = conclude(self.terms, held, self.config.reverify_bond, ending, second)
        for member, pay in zip(appeal.committee, paid.members, strict=True):
            self._unlock(member.owner, member.lock)
            self._credit(identity, member.owner, pay)
        self._credit(identity, appeal.requester, paid.requester)
        self._end(
            posting,
            sealing,
            ending,
            reason,
            claimer=claiming.claimer if claiming.claimer != ZERO_ADDRESS else None,
            challenger=None if appeal.of_claim else challenger,
            finder=appeal.requester,
        )
        self._burn(identity, paid.burnt)

    # ── What the openings say ───────────────────────────────────────────────────────────────────
    def _heard(self, appeal: Appeal, posting: Posting, sealing: Sealing) -> tuple[Second, Reason]:
        """The verdict over the new members, what they say of tokens, and who lied before."""
        found, profile = self.state.rounds[appeal.round], self._profile(posting)
        size, first = len(appeal.committee), len(sealing.committee)
        judged, reason = self._verdict(appeal.round, posting, size)
        outcome = judged.outcome
        members = frozenset(range(1, size + 1))
        absent = members - appeal.committed
        paid = members - judged.unpaid - absent
        by_states = outcome is Outcome.ACCEPT or reason is Reason.STATES_DIFFER
        clique = paid if by_states else frozenset[int]()
        whole = len(found.lengths) == self._wanted(posting)
        near, strangers = set[int](), set[int]()
        for k in range(1, first + 1):
            how = self._witness(found, profile, size + k, clique, whole)
            near |= {k} if how == "near" else set()
            if how == "strange":
                require(self.now >= found.open_by, "DeadlineNotReached")
                strangers.add(k)
        if outcome not in (Outcome.SLASH, Outcome.REFUND):
            objection = _majority(appeal)
            mismatched = len(found.mismatched & members) >= quorum(size)
            if objection is Reason.NONE and reason is Reason.TASK_MISMATCH and mismatched:
                objection = Reason.OUTPUT_MISMATCH
            if objection is not Reason.NONE:
                outcome, reason = Outcome.REFUND, objection
        second = Second(
            outcome,
            tuple(member.lock for member in appeal.committee),
            withheld=0 in judged.lost,
            lost=(judged.lost & members) | absent,
            paid=paid,
            near=frozenset(near),
            strangers=frozenset(strangers),
        )
        return second, reason

    def _witness(
        self,
        found: Round,
        profile: CheckProfile,
        party: int,
        clique: frozenset[int],
        whole: bool,
    ) -> str:
        """How a member of the first committee stands to those that decide: near, strange or ""."""
        if party in found.mismatched:
            return ""
        served = sum(party == each for each, _ in found.served)
        opened = not whole or served == found.positions
        require(opened or self.now >= found.open_by, "DeadlineNotReached")
        if not opened or party in found.non_finite:
            return "strange"
        if not clique:
            return "near"
        cells = found.positions * len(profile.layers)
        agrees, differs = False, True
        for member in sorted(clique):
            sums = found.sums.get((member, party))
            if sums is None or sums.cells != cells:
                require(self.now >= found.compare_by, "NotCompared")
                differs = False
                continue
            agrees |= sums.agrees(*profile.refund_tier(found.positions, len(found.lengths)))
            differs &= not sums.agrees(*profile.slash_tier(found.positions, len(found.lengths)))
        return "near" if agrees else "strange" if differs else ""

    def _profile(self, posting: Posting) -> CheckProfile:
        return self._known(posting.quote.model_id).spec.profile

    def _wanted(self, posting: Posting) -> int:
        spec = self._known(posting.quote.model_id).spec
        return min(posting.job.requests, spec.checked_requests)

    # ── Reads ───────────────────────────────────────────────────────────────────────────────────
    def appeal_of(self, identity: JobId) -> AppealState:
        """Where a re-verification stands."""
        appeal = self.state.appeals.get(identity)
        if appeal is None:
            return AppealState(AppealPhase.NONE, ZERO_ADDRESS, ())
        return AppealState(appeal.phase, appeal.requester, appeal.committee)

    # ── Checks ──────────────────────────────────────────────────────────────────────────────────
    def _before(self, phase: AppealPhase, record: Record) -> tuple[JobId, Appeal]:
        identity = self._at(Status.REVERIFYING, *record)
        appeal = self._phase(identity, phase)
        self._require_before(identity)
        return identity, appeal

    def _phase(self, identity: JobId, phase: AppealPhase) -> Appeal:
        require(self.job_state(identity).status is Status.REVERIFYING, "StatusWrong")
        appeal = self.state.appeals[identity]
        require(appeal.phase is phase, "PhaseWrong")
        return appeal

    def _new_member(self, appeal: Appeal, index: int) -> Member:
        require(index < len(appeal.committee), "MemberUnknown")
        member = appeal.committee[index]
        require(self._acts_for(self.sender, member.owner), "NotOperator")
        return member

    def _next(self, identity: JobId, window: int) -> None:
        record = self.job_state(identity).record
        self._enter(identity, Status.REVERIFYING, window, record)


def _is_content(shown: Content, posting: Posting, task: Hash32, request: int) -> bool:
    roots = (posting.job.requests_root, posting.outputs_root)
    try:
        return holds(shown, *roots, task, request, posting.job.requests)  # type: ignore[arg-type]
    except MalformedError:
        return False


def _is_runnable(shown: Content, spec: ModelSpec) -> bool:
    """Whether an honest worker would run it: else whoever is drawn loses its lock for nothing."""
    output = shown.new_tokens
    try:
        check_request(shown.request, spec.context, spec.vocabulary)
    except InputError:
        return False
    return len(output) <= shown.max_new_tokens and max(output) < spec.vocabulary


def _majority(appeal: Appeal) -> Reason:
    """The first member's reason, if enough of them reject the tokens."""
    if len(appeal.objections) < quorum(len(appeal.committee)):
        return Reason.NONE
    return appeal.objections[min(appeal.objections)]
