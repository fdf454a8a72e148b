"""The machine's rules of jobs: posted, sealed, claimed, disputed; right and wrong calls."""

from typing import Any

from hypothesis.stateful import initialize, rule
from hypothesis.strategies import booleans, integers, lists, sampled_from

from tests.chain.casework import Case, Plan, posted, sealed
from tests.chain.life import (
    SIZE,
    VERDICTS,
    Life,
    attesting,
    clients,
    operators,
    outcomes,
    parties,
    people,
    plans,
    rarely,
    reasons,
    schedulers,
    seats,
    some_parties,
    where,
)
from verillm.chain.reads import Status
from verillm.codec import bundle_chunks
from verillm.records import Attestation
from verillm.types import Outcome, Reason


class Jobs(Life):
    """Anyone calls anything at any time; most of it is a network at work."""

    # ── Jobs ────────────────────────────────────────────────────────────────────────────────────
    @initialize(plan=plans, stage=integers(0, 3))
    def begin(self, plan: Plan, stage: int) -> None:
        case = self.town.draft(plan)
        for step in (self.town.post, self.town.seal, self.town.claim)[:stage]:
            step(case)
        self.cases += [case] * (stage > 0)

    @rule(plan=plans, client=clients, scheduler=schedulers, seat=seats, hot=booleans())
    def post(self, plan: Plan, client: int, scheduler: int, seat: int, hot: bool) -> None:
        case = self._draft(plan, client, scheduler, seat)
        self._post(case, case.scheduler, self._key(case.worker, hot))

    @rule(
        plan=plans,
        seat=seats,
        change=sampled_from(
            [
                {"deadline": -1},
                {"deadline": 602},
                {"deadline": 601},
                {"requests": 0},
                {"requests": 4_097},
                {"requests": 4_096},
                {"max_fee": 0},
                {"max_fee": 9_000},
                {"max_fee": 4_000},
                {"nonce": 1},
            ]
        ),
    )
    def post_another_job(self, plan: Plan, seat: int, change: dict[str, int]) -> None:
        if "deadline" in change:
            change = {"deadline": self.beside.now + change["deadline"]}
        case = self._draft(plan, 0, 0, seat, **change)
        self._post(case, case.scheduler, case.worker)

    @rule(
        plan=plans,
        seat=seats,
        flaw=sampled_from(["caller", "signer", "client", "lock", "deep", "quote", "late", "last"]),
    )
    def post_wrongly(self, plan: Plan, seat: int, flaw: str) -> None:
        case = self._draft(plan, 0, 0, seat)
        caller = self.town.schedulers[flaw == "caller"]
        case.lock += {"lock": -1, "deep": 5_000}.get(flaw, 0)
        if flaw == "quote" and self.cases:
            case.quote = self.cases[-1].quote
        if flaw == "client":
            case.client = self.town.clients[1]
        signer = self.town.auditor if flaw == "signer" else case.worker
        self._post(case, caller, signer, wait={"late": 301, "last": 300}.get(flaw, 1))

    @rule(which=integers(0), hot=booleans())
    @where(lambda self: self._at(Status.POSTED))
    def seal(self, which: int, hot: bool) -> None:
        self._seal(self._at(Status.POSTED)[-1 - which % 2 :][0], "", hot)

    @rule(
        which=integers(0),
        flaw=sampled_from(
            ["", "caller", "secret", "inner", "order", "inners", "signatures", "signer", "record"]
        ),
    )
    @where(lambda self: self.cases)
    def seal_wrongly(self, which: int, flaw: str) -> None:
        self._seal(self._case(which), flaw, False)

    @rule(
        by=operators,
        verdict=sampled_from(VERDICTS),
        paid=rarely(0b111, 0b011, 0b101, 0),
        signers=rarely(0b111, 0b011),
    )
    @where(lambda self: self._at(Status.SEALED))
    def claim(self, by: int, verdict: tuple[Outcome, Reason], paid: int, signers: int) -> None:
        case = self._at(Status.SEALED)[-1]
        who = [each if signers >> k & 1 else None for k, each in enumerate(self._members(case))]
        signed = self.work.attestations(case, *verdict, who)
        values = [posted(case), sealed(case), *verdict, paid, case.bundle, signed]
        self._took(case, self._operator(by), "claim", *values)

    @rule(
        which=integers(0),
        by=people,
        outcome=outcomes,
        reason=reasons,
        paid=rarely(0b111, 0b011, 0b101, 0, 0b1111),
        signers=attesting,
    )
    @where(lambda self: self.cases)
    def claim_wrongly(
        self,
        which: int,
        by: int,
        outcome: Outcome,
        reason: Reason,
        paid: int,
        signers: list[int | None],
    ) -> None:
        case = self._sealed_case(which)
        if case is None:
            return
        signed = self._attested(case, outcome, reason, signers)
        values = [posted(case), sealed(case), outcome, reason, paid, case.bundle, signed]
        self._took(case, self._person(by), "claim", *values)

    @rule(which=integers(0), by=people)
    @where(lambda self: self.cases)
    def finalize(self, which: int, by: int) -> None:
        if (case := self._sealed_case(which)) is not None:
            self._send(self._person(by), "finalize", *self.work.record(case))

    @rule(which=integers(0), by=people)
    @where(lambda self: self.cases)
    def refund(self, which: int, by: int) -> None:
        self._send(self._person(by), "refund", posted(self._case(which)))

    @rule(which=integers(0), by=people, outcome=outcomes, reason=reasons, signers=attesting)
    @where(lambda self: self.cases)
    def challenge_wrongly(
        self, which: int, by: int, outcome: Outcome, reason: Reason, signers: list[int | None]
    ) -> None:
        if (case := self._sealed_case(which)) is not None:
            signed = self._attested(case, outcome, reason, signers)
            values = (*self.work.record(case), outcome, reason, case.bundle, signed)
            self._send(self._person(by), "challenge", *values)

    @rule(
        by=operators,
        attested=rarely(Reason.NONE, Reason.MARGIN_MEAN),
        opened=sampled_from(["", "all", "some"]),
        silent=some_parties,
    )
    @where(lambda self: self._at(Status.SEALED, Status.CLAIMED))
    def challenge(self, by: int, attested: Reason, opened: str, silent: frozenset[int]) -> None:
        case = self._at(Status.SEALED, Status.CLAIMED)[-1]
        late = self._state(case).status is Status.SEALED
        if late:
            self.beside.pass_time(self.reference.config.claim_window)
        values: tuple[Any, ...] = self.work.record(case)
        if attested is not Reason.NONE:
            signed = self.work.attestations(case, Outcome.REFUND, attested, self._members(case))
            values = (*values, Outcome.REFUND, attested, case.bundle, signed)
        self._send(self._operator(by), "challenge", *values)
        if opened and self._state(case).status is Status.CHALLENGED:
            self._open(case, silent if opened == "some" else frozenset())

    # ── The public round ────────────────────────────────────────────────────────────────────────
    @rule(which=integers(0), place=integers(0, 2), by=people)
    @where(lambda self: self.cases)
    def reveal(self, which: int, place: int, by: int) -> None:
        case = self._sealed_case(which)
        if case is not None and place < len(self.work.checked(case)):
            self._send(self._person(by), "reveal", *self.work.reveal(case, place))

    @rule(which=integers(0), place=integers(0, 1), index=integers(0, 3), party=parties)
    @where(lambda self: self.cases)
    def serve(self, which: int, place: int, index: int, party: int) -> None:
        case = self._sealed_case(which)
        if case is not None and self._exists(case, place, index):
            values = self.work.serve(case, place, index, party)
            self._send(self.town.auditor, "serve", *values)

    @rule(
        which=integers(0),
        place=integers(0, 1),
        index=integers(0, 3),
        shown=lists(parties, min_size=1, max_size=4),
    )
    @where(lambda self: self.cases)
    def compare(self, which: int, place: int, index: int, shown: list[int]) -> None:
        case = self._sealed_case(which)
        if case is not None and self._exists(case, place, index):
            values = self.work.compare(case, place, index, shown)
            self._send(self.town.auditor, "compare", *values)

    @rule(which=integers(0), by=people)
    @where(lambda self: self.cases)
    def adjudicate(self, which: int, by: int) -> None:
        if (case := self._sealed_case(which)) is not None:
            self._send(self._person(by), "adjudicate", *self.work.record(case))

    @rule(by=people, wait=sampled_from([1, 61, 121]))
    @where(lambda self: self._at(Status.CHALLENGED))
    def adjudicate_in_time(self, by: int, wait: int) -> None:
        self.beside.pass_time(wait)
        case = self._at(Status.CHALLENGED)[-1]
        self._send(self._person(by), "adjudicate", *self.work.record(case))

    @rule(by=people, outcome=outcomes, reason=reasons, whole=rarely(True, False))
    @where(lambda self: self._at(Status.CHALLENGED, Status.JUDGED))
    def attest(self, by: int, outcome: Outcome, reason: Reason, whole: bool) -> None:
        case = self._at(Status.CHALLENGED, Status.JUDGED)[-1]
        if whole:
            outcome, reason = Outcome.REFUND, Reason.LENGTH
        signed = self.work.attestations(case, outcome, reason, self._members(case))
        word = Attestation(self.work.id_of(case), outcome, reason, case.bundle)
        self._send(self._person(by), "attest", *self.work.record(case), word, signed)

    @rule(by=people, late=rarely(True, False))
    @where(lambda self: self._at(Status.JUDGED))
    def settle(self, by: int, late: bool) -> None:
        self.beside.pass_time(self.reference.config.dispute_window if late else 1)
        case = self._at(Status.JUDGED)[-1]
        self._send(self._person(by), "settle", *self.work.record(case))

    # ── Bundles ─────────────────────────────────────────────────────────────────────────────────
    @rule(which=integers(0), by=people, fresh=rarely(True, False))
    @where(lambda self: self.cases)
    def demand(self, which: int, by: int, fresh: bool) -> None:
        found = self._at(Status.CLAIMED) if fresh else self.cases
        if found and (case := found[-1 - which % len(found)]).sealing is not None:
            self._send(self._person(by), "demand", *self.work.record(case))

    @rule(by=people, flaw=rarely("", "index", "chunk", "hashes"))
    @where(lambda self: self._at(Status.DEMANDED))
    def serve_bundle(self, by: int, flaw: str) -> None:
        case = self._at(Status.DEMANDED)[-1]
        for place in range(len(bundle_chunks(case.evidence))):
            *record, index, chunk, hashes = self.work.serve_bundle(case, place)
            chunk, index = chunk + b"!" * (flaw == "chunk"), index + 2 * (flaw == "index")
            hashes = hashes * (1 + (flaw == "hashes"))
            self._send(self._person(by), "serve_bundle", *record, index, chunk, hashes)

    @rule(by=people, late=rarely(True, False))
    @where(lambda self: self._at(Status.DEMANDED))
    def void_claim(self, by: int, late: bool) -> None:
        self.beside.pass_time(self.reference.config.opening_window if late else 1)
        case = self._at(Status.DEMANDED)[-1]
        self._took(case, self._person(by), "void_claim", *self.work.record(case))

    @rule(by=people)
    @where(lambda self: self._at(Status.CLAIMED))
    def finalize_in_time(self, by: int) -> None:
        self.beside.pass_time(self.reference.config.dispute_window)
        case = self._at(Status.CLAIMED)[-1]
        self._send(self._person(by), "finalize", *self.work.record(case))

    # ── The prover, and whoever is not ──────────────────────────────────────────────────────────
    @rule(
        which=integers(0),
        by=people,
        what=sampled_from(["settle", "demand", "void_claim", "overrule", "convict"]),
    )
    @where(lambda self: self.cases)
    def resort_wrongly(self, which: int, by: int, what: str) -> None:
        case, who = self._sealed_case(which), self._person(by)
        more = {"overrule": (who.address,), "convict": (0, Reason.LENGTH, who.address)}
        if case is not None:
            self._took(case, who, what, *self.work.record(case), *more.get(what, ()))

    @rule(which=integers(0), finder=people, party=sampled_from([0, 0, 255, 1, 2, 3, 4]))
    @where(lambda self: self.cases)
    def convict(self, which: int, finder: int, party: int) -> None:
        if (case := self._sealed_case(which)) is not None:
            values = (party, Reason.OUTPUT_MISMATCH, self._person(finder).address)
            self.beside.send(self.town.prover, "convict", *self.work.record(case), *values)

    @rule(finder=operators, opened=booleans())
    @where(lambda self: self._at(Status.CLAIMED, Status.CHALLENGED, Status.JUDGED))
    def overrule(self, finder: int, opened: bool) -> None:
        case = self._at(Status.CLAIMED, Status.CHALLENGED, Status.JUDGED)[-1]
        values = (*self.work.record(case), self._operator(finder).address)
        self.beside.send(self.town.prover, "overrule", *values)
        if opened and self._state(case).status is Status.CHALLENGED:
            self._open(case, frozenset())

    def _open(self, case: Case, silent: frozenset[int]) -> None:
        """Reveal, serve and compare everything of everyone who is not silent."""
        everyone = range(SIZE + 1)
        other = case.plan.other.intersection(everyone)  # members of a second committee are not here
        whole = [k for k in everyone if k not in silent | other]
        for place in range(len(self.work.checked(case))):
            self._send(self.town.auditor, "reveal", *self.work.reveal(case, place))
            for index in range(len(self.work.where(case, place))):
                for party in other if index == 0 else ():
                    values = self.work.serve(case, place, index, party)
                    self._send(self.town.auditor, "serve", *values)
                values = self.work.compare(case, place, index, whole)
                self._send(self.town.auditor, "compare", *values)
