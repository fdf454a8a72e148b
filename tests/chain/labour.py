"""The machine's rules of work that was not posted: it is claimed, contested, judged or paid."""

from dataclasses import replace
from typing import Any

from hypothesis.stateful import initialize, rule
from hypothesis.strategies import booleans, integers

from tests.chain import unposted
from tests.chain.casework import Case, Plan
from tests.chain.life import Life, operators, parties, people, plans, rarely, seats, where
from tests.chain.unposted import Work
from tests.reference import Refused

texts = rarely("own", "same", "other")
overdue = plans.map(lambda plan: replace(plan, overdue=True))


class Labour(Life):
    """Workers that were given a task and see no job of it."""

    def __init__(self) -> None:
        super().__init__()
        self.unpaid: list[tuple[Case, Work]] = []

    def close_accounts(self) -> None:
        self.beside.pass_time(self.reference.config.unbonding)
        for _, work in self.unpaid:
            self._send(self.town.auditor, "collect_task", work.commitment)

    @initialize(plan=overdue, posted=booleans())
    def begin_with_work(self, plan: Plan, posted: bool) -> None:
        case = self.town.draft(plan)
        if posted:
            self.cases.append(self.town.post(case))
        self._claim(case, 0, "own", "", wait=False)

    @rule(plan=overdue, seat=seats, text=texts, flaw=rarely("", *unposted.FLAWS))
    def claim_what_nobody_posted(self, plan: Plan, seat: int, text: str, flaw: str) -> None:
        self._claim(self._draft(plan, 0, 0, seat), 0, text, flaw, wait=False)

    @rule(which=integers(0), party=parties, text=texts, wait=booleans())
    @where(lambda self: self.cases)
    def claim_work_of_a_job(self, which: int, party: int, text: str, wait: bool) -> None:
        self._claim(self._case(which), party, text, "", wait)

    @rule(which=integers(0, 2), by=people, of=integers(0))
    @where(lambda self: self.unpaid)
    def contest(self, which: int, by: int, of: int) -> None:
        case, work = self.unpaid[-1 - which % len(self.unpaid)]
        if of % 4 == 3 and self.cases:
            case = self._case(of)
        if case.posting is not None:
            values = unposted.contest(case, work.commitment)
            self._send(self._person(by), "contest_task", *values)

    @rule(which=integers(0, 2), by=rarely(None, 0, 8), flaw=rarely("", "quote", "fee", "scheduler"))
    @where(lambda self: self.unpaid)
    def post_claimed(self, which: int, by: int | None, flaw: str) -> None:
        case, work = self.unpaid[-1 - which % len(self.unpaid)]
        job, quote = case.job, case.quote
        if flaw == "quote":
            quote = replace(quote, unit_price=quote.unit_price + 1)
        elif flaw == "fee":
            job = replace(job, max_fee=job.max_fee * 4 + 1)
        elif flaw == "scheduler":
            quote = replace(quote, scheduler=self.town.auditor.address)
        who = case.scheduler if by is None else self._operator(by)
        said = self._send(who, "post_claimed", job, quote, work.commitment)
        self.town.took(case, said.events)
        if said.error is None and flaw != "fee":
            self.cases.append(case)

    @rule(which=integers(0, 2), by=people, late=rarely(1, 600, 8_000))
    @where(lambda self: self.unpaid)
    def collect(self, which: int, by: int, late: int) -> None:
        self.beside.pass_time(late)
        _, work = self.unpaid[-1 - which % len(self.unpaid)]
        self._send(self._person(by), "collect_task", work.commitment)

    @rule(by=operators, post=booleans())
    @where(lambda self: self.unpaid)
    def post_after_all(self, by: int, post: bool) -> None:
        case, _ = self.unpaid[-1]
        if case.posting is None and post:
            self._post(case, case.scheduler, case.worker)

    # ── Shorthands ──────────────────────────────────────────────────────────────────────────────
    def _claim(self, case: Case, party: int, text: str, flaw: str, wait: bool) -> None:
        try:
            work = unposted.done(self.work, case, party if case.posting is not None else 0)
        except (Refused, IndexError):
            return
        if wait:
            due = work.task.deadline + self.reference.config.seal_window
            self.beside.pass_time(max(0, due - self.beside.now))
        worker = self.town.signer(work.task.worker)
        if text != "own":
            worker = self.town.workers[case.number % len(self.town.workers)]
            output = (5, 6, 7) if text == "other" and not party else None
            work = unposted.done_by(self.work, case, work, worker, output)
        places = [each.address for each in self.town.workers]
        seat = places.index(worker.address) if worker.address in places else 0
        values: list[Any] = unposted.claim(self.work, work, seat, case.scheduler, worker, flaw)
        if self._send(self.town.clients[0], "claim_task", *values).error is None:
            self.unpaid.append((case, work))
            self.beside.watched.claims.append(work.commitment)
