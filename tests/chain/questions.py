"""The machine's rules of re-verifications, from the question to what the new members say."""

from hypothesis.stateful import initialize, rule
from hypothesis.strategies import booleans, builds, frozensets, integers, sampled_from

from tests.chain import asked
from tests.chain.casework import Case, Plan, sealed
from tests.chain.life import (
    SIZE,
    VERDICTS,
    Life,
    operators,
    parties,
    people,
    rarely,
    where,
)
from verillm.appeal import size_of
from verillm.chain import appeals
from verillm.chain.appeals import AppealPhase
from verillm.chain.reads import Status
from verillm.trace import CommittedTrace
from verillm.types import JobId, Outcome, Reason

MEMBERS = size_of(SIZE)
new = integers(asked.NEW, asked.NEW + MEMBERS - 1)
members = integers(0, MEMBERS)
doubted = builds(
    Plan,
    requests=sampled_from([1, 1, 2]),
    output=sampled_from([(5, 6, 7, 8, 9), (5, 6, 7)]),
    wrong=frozensets(sampled_from([0, 1, 2, 3, asked.NEW, asked.NEW + 1]), max_size=4),
    nan=frozensets(new, max_size=1),
    other=frozensets(new, max_size=1),
    alike=booleans(),
)


class Questions(Life):
    """Anyone asks a larger committee, and anyone goes on with it, or does not."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[JobId, dict[int, CommittedTrace]] = {}
        self.again: dict[JobId, Case] = {}

    @initialize(
        plan=doubted, verdict=sampled_from(VERDICTS), steps=sampled_from([0, 1, 2, 3, 4, 5, 5, 5])
    )
    def begin_with_a_claim(self, plan: Plan, verdict: tuple[Outcome, Reason], steps: int) -> None:
        self.claim_another(plan=plan, verdict=verdict)
        if self._at(Status.CLAIMED):
            self.ask(by=2, parts="all", before=0)
        for _ in range(steps):
            self.go_on(absent=frozenset(), silent=frozenset())

    @rule(
        absent=rarely(frozenset(), frozenset({0}), frozenset({1, 2})),
        silent=rarely(frozenset(), frozenset({0}), frozenset({2}), frozenset({9})),
    )
    @where(lambda self: self._at(Status.REVERIFYING))
    def go_on(self, absent: frozenset[int], silent: frozenset[int]) -> None:
        """What is due next of the newest one: a network at work."""
        case = self._newest(Status.REVERIFYING)
        match self.reference.appeal_of(self.work.id_of(case)).phase:
            case AppealPhase.ASKED:
                self.supply(by=0, whole=True)
            case AppealPhase.COMPLETE:
                self.convene(by=0, wait=12)
            case AppealPhase.CONVENED:
                self.recommit(by=0, absent=absent, strange=False)
            case AppealPhase.CLOSED:
                self.start_round(by=0, wait=12)
            case _:
                self.open_again(silent=silent, lazy=SIZE)

    @rule(plan=doubted, verdict=sampled_from(VERDICTS))
    def claim_another(self, plan: Plan, verdict: tuple[Outcome, Reason]) -> None:
        case = self.town.draft(plan)
        self._post(case, case.scheduler, case.worker)
        if case.posting is None:
            return
        self._seal(case, "", hot=False)
        if case.sealing is not None and self._state(case).status is Status.SEALED:
            signed = self.work.attestations(case, *verdict, self._members(case))
            values = (case.posting, case.sealing, *verdict, 0b111, case.bundle, signed)
            self._took(case, case.scheduler, "claim", *values)

    @rule(by=operators, parts=rarely("all", "none", "half", "twice"), before=integers(0, 1))
    @where(lambda self: self._at(Status.CLAIMED, Status.JUDGED))
    def ask(self, by: int, parts: str, before: int) -> None:
        case = self._newest(Status.CLAIMED, Status.JUDGED, before=before)
        shown = asked.contents(self.work, case)
        given = {"all": shown, "none": (), "half": shown[: len(shown) // 2], "twice": shown * 2}
        self._send(self._operator(by), "reverify", *self.work.record(case), given[parts])

    @rule(by=people, whole=rarely(True, False))
    @where(lambda self: self._at(Status.REVERIFYING))
    def supply(self, by: int, whole: bool) -> None:
        case = self._newest(Status.REVERIFYING)
        supplied = self.reference.state.appeals[self.work.id_of(case)].supplied
        rest = asked.contents(self.work, case)[supplied if whole else 0 :]
        self._send(self._person(by), "supply", *self.work.record(case), rest)

    @rule(by=people, wait=rarely(12, 1, 70))
    @where(lambda self: self._at(Status.REVERIFYING))
    def convene(self, by: int, wait: int) -> None:
        case = self._in(AppealPhase.COMPLETE)
        who = self._person(by).address
        self.beside.send(who, "convene", *self.work.record(case), wait=wait)

    @rule(by=integers(0), absent=frozensets(members, max_size=2), strange=rarely(False, True))
    @where(lambda self: self._at(Status.REVERIFYING))
    def recommit(self, by: int, absent: frozenset[int], strange: bool) -> None:
        case = self._in(AppealPhase.CONVENED)
        identity = self.work.id_of(case)
        for index, member in enumerate(self.reference.appeal_of(identity).committee):
            if index in absent:
                continue
            made = asked.recommit(self.work, case, index, member)
            who = self._operator(by % len(self.town.operators)).address
            caller = who if strange else member.owner
            said = self.beside.send(caller, "recommit", identity, index, made.inner)
            if said.error is None:
                self.made.setdefault(identity, {})[index] = made

    @rule(by=people)
    @where(lambda self: self._at(Status.REVERIFYING))
    def close_commits(self, by: int) -> None:
        case = self._in(AppealPhase.CONVENED)
        self._send(self._person(by), "close_commits", self.work.id_of(case))

    @rule(by=people, wait=rarely(12, 1))
    @where(lambda self: self._at(Status.REVERIFYING))
    def start_round(self, by: int, wait: int) -> None:
        case = self._in(AppealPhase.CLOSED)
        identity, who = self.work.id_of(case), self._person(by).address
        said = self.beside.send(who, "start_round", *self.work.record(case), wait=wait)
        for event in said.events:
            if isinstance(event, appeals.RoundStarted):
                made = self.made.get(identity, {})
                self.again[identity] = asked.second_round(case, event, made)

    @rule(silent=rarely(frozenset(), frozenset({0}), frozenset({2}), frozenset({9})), lazy=parties)
    @where(lambda self: self._at(Status.REVERIFYING))
    def open_again(self, silent: frozenset[int], lazy: int) -> None:
        """What every party shows of the newest round, all of it but the silent's and the lazy's."""
        case = self._in(AppealPhase.OPENED)
        identity = self.work.id_of(case)
        again = self.again.get(identity)
        if again is None:
            return
        there = {index + 1 for index in self.made.get(identity, {})}
        first = range(MEMBERS + 1, len(sealed(again).committee) + 1)
        other = {index - asked.NEW + 1 for index in case.plan.other}
        shown = sorted(({0, *there, *first} - silent) - other)
        caller = self.town.auditor
        for place in range(len(self.work.checked(again))):
            self._send(caller, "reveal", *self.work.reveal(again, place))
            for index in range(len(self.work.where(again, place))):
                for party in other & there if index == 0 else ():
                    self._send(caller, "serve", *self.work.serve(again, place, index, party))
                if index != lazy:
                    self._send(caller, "compare", *self.work.compare(again, place, index, shown))

    @rule(who=members, many=booleans(), reason=rarely(Reason.LENGTH, Reason.STATES_DIFFER))
    @where(lambda self: self._at(Status.REVERIFYING))
    def reject_tokens(self, who: int, many: bool, reason: Reason) -> None:
        case = self._in(AppealPhase.OPENED)
        identity = self.work.id_of(case)
        for index, member in enumerate(self.reference.appeal_of(identity).committee):
            if index == who or (many and index < 4):
                self.beside.send(member.owner, "reject_tokens", identity, index, reason)

    @rule(by=people, late=rarely(1, 61, 121))
    @where(lambda self: self._at(Status.REVERIFYING))
    def conclude(self, by: int, late: int) -> None:
        self.beside.pass_time(late)
        case = self._newest(Status.REVERIFYING)
        self._send(self._person(by), "conclude", *self.work.record(case))

    def _in(self, phase: AppealPhase) -> Case:
        """The newest job there, or the newest of all: a call too early or too late."""
        found = self._at(Status.REVERIFYING)
        there = [
            each for each in found if self.reference.appeal_of(self.work.id_of(each)).phase is phase
        ]
        return (there or found)[-1]
