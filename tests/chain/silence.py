"""The machine's rules of a member that keeps silent: it is summoned, answers, or is replaced."""

from hypothesis.stateful import initialize, rule
from hypothesis.strategies import booleans, frozensets, integers, sampled_from

from tests.chain import summoned
from tests.chain.casework import Case, Plan, posted
from tests.chain.life import SIZE, Life, operators, people, plans, rarely, where
from tests.reference import Refused
from verillm.chain.reads import Status

places = integers(0, SIZE - 1)
some_places = frozensets(places, min_size=1)


class Silence(Life):
    """A scheduler that reaches nobody, and what anyone may do about it."""

    @initialize(plan=plans, asked=some_places)
    def begin_in_silence(self, plan: Plan, asked: frozenset[int]) -> None:
        case = self.town.post(self.town.draft(plan))
        self.cases.append(case)
        for index in asked:
            self._summon(case, index, "", False)

    @rule(plan=plans, asked=some_places, work=rarely("", "long"), hot=booleans())
    def summon_for_a_new_job(self, plan: Plan, asked: frozenset[int], work: str, hot: bool) -> None:
        case = self._draft(plan, 0, 0, 0)
        self._post(case, case.scheduler, case.worker)
        if case.posting is not None:
            for index in sorted(asked):
                self._summon(case, index, work, hot)

    @rule(which=integers(0, 1), asked=some_places, work=rarely("", "long"), hot=booleans())
    @where(lambda self: self._at(Status.POSTED, Status.SUMMONED))
    def summon(self, which: int, asked: frozenset[int], work: str, hot: bool) -> None:
        case = self._newest(Status.POSTED, Status.SUMMONED, before=which)
        for index in sorted(asked):
            self._summon(case, index, work, hot)

    @rule(index=places, flaw=sampled_from(["caller", *summoned.FLAWS]))
    @where(lambda self: self._at(Status.POSTED, Status.SUMMONED))
    def summon_wrongly(self, index: int, flaw: str) -> None:
        self._summon(self._newest(Status.POSTED, Status.SUMMONED), index, flaw, False)

    @rule(which=integers(0), index=places)
    @where(lambda self: self.cases)
    def summon_at_any_time(self, which: int, index: int) -> None:
        self._summon(self._case(which), index, "", False)

    @rule(who=some_places, by=people, hot=booleans(), flaw=rarely("", "task", "inner", "place"))
    @where(lambda self: self._at(Status.SUMMONED))
    def answer(self, who: frozenset[int], by: int, hot: bool, flaw: str) -> None:
        case = self._newest(Status.SUMMONED)
        for index in sorted(who):
            owner = self.town.signer(self.work.members(case)[index][0])
            values = summoned.answer(self.work, case, index, self._key(owner, hot), flaw)
            self._send(self._person(by), "answer", *values)

    @rule(which=integers(0), index=places, signer=operators)
    @where(lambda self: self.cases)
    def answer_wrongly(self, which: int, index: int, signer: int) -> None:
        case = self._case(which)
        if self._is_drawn(case):
            values = summoned.answer(self.work, case, index, self._operator(signer))
            self._send(self.town.auditor, "answer", *values)

    @rule(index=places, by=people, late=rarely(0, -1, 60))
    @where(lambda self: self._at(Status.SUMMONED))
    def replace(self, index: int, by: int, late: int) -> None:
        case = self._newest(Status.SUMMONED)
        place = self.reference.state.panels[self.work.id_of(case)].places[index]
        self._until(place.answer_by - 1 + late)
        self._send(self._person(by), "replace", posted(case), index)

    @rule(which=integers(0), index=integers(0, SIZE), by=people)
    @where(lambda self: self.cases)
    def replace_at_any_time(self, which: int, index: int, by: int) -> None:
        self._send(self._person(by), "replace", posted(self._case(which)), index)

    @rule(by=people, hot=booleans())
    @where(lambda self: self._at(Status.SUMMONED))
    def seal_summoned(self, by: int, hot: bool) -> None:
        self._seal_summoned(self._newest(Status.SUMMONED), by, "", hot)

    @rule(
        by=people, flaw=sampled_from(["inner", "inners", "signatures", "signer", "record", "early"])
    )
    @where(lambda self: self._at(Status.SUMMONED))
    def seal_summoned_wrongly(self, by: int, flaw: str) -> None:
        self._seal_summoned(self._newest(Status.SUMMONED), by, flaw, False)

    @rule(which=integers(0), by=people, off=sampled_from([None, -2, -1, 0]))
    @where(lambda self: self._at(Status.SUMMONED))
    def dismiss(self, which: int, by: int, off: int | None) -> None:
        case = self._case(which) if off is None else self._newest(Status.SUMMONED)
        if off is not None:
            self._until(self._state(case).deadline + off)
        self._send(self._person(by), "dismiss", posted(case))

    # ── Shorthands ──────────────────────────────────────────────────────────────────────────────
    def _summon(self, case: Case, index: int, flaw: str, hot: bool) -> None:
        if self._is_drawn(case):
            caller = self.town.auditor if flaw == "caller" else case.scheduler
            values = summoned.summons(self.work, case, index, flaw)
            self._send(self._key(caller, hot and caller is case.scheduler), "summon", *values)

    def _seal_summoned(self, case: Case, by: int, flaw: str, hot: bool) -> None:
        keys = {each.address: self._key(each, hot) for each in self.town.operators}
        values = summoned.seal(self.work, case, keys, flaw)
        self._took(case, self._person(by), "seal_summoned", *values)

    def _is_drawn(self, case: Case) -> bool:
        try:
            return bool(self.work.members(case))
        except Refused:
            return False

    def _until(self, time: int) -> None:
        if time > self.beside.now:
            self.beside.pass_time(time - self.beside.now)
