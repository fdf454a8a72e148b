"""What happens in a network beside its jobs, and what every rule of the machine needs."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final, TypeVar, cast

from eth_account.signers.local import LocalAccount
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import (
    SearchStrategy,
    booleans,
    builds,
    frozensets,
    integers,
    just,
    lists,
    none,
    one_of,
    sampled_from,
)

from tests.chain.beside import Said
from tests.chain.casework import PRICE, Case, Plan, posted, sealed
from tests.chain.town import PURSE, Town
from tests.reference import Refused
from verillm.chain.appeals import AppealPhase
from verillm.chain.reads import Status
from verillm.types import Outcome, Reason

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])
PEOPLE, OPERATORS, SEATS = 11, 9, 8
SIZE = 3
AS_EVER: Final = {"derandomize": True, "phases": [Phase.generate]}
MONEY = [
    "deposit",
    "request_unlock",
    "withdraw_deposit",
    "add_stake",
    "request_stake_withdrawal",
    "withdraw_stake",
]
VERDICTS = [
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.ACCEPT, Reason.NONE),
    (Outcome.SLASH, Reason.WITHHELD),
    (Outcome.SLASH, Reason.STATES_DIFFER),
    (Outcome.SLASH, Reason.MARGIN_MAX),
    (Outcome.REFUND, Reason.STATES_DIFFER),
    (Outcome.REFUND, Reason.LENGTH),
    (Outcome.INCONCLUSIVE, Reason.DIVIDED),
]

amounts = sampled_from([0, 1, 6, 77, 400, 2_500, 10_000, 20_001, PURSE + 1])
people, operators = integers(0, PEOPLE - 1), integers(0, OPERATORS - 1)
clients, schedulers = integers(0, 1), integers(0, 1)
seats = sampled_from([*range(SEATS), *range(6)])
parties = integers(0, SIZE)
some_parties = frozensets(parties, max_size=2)
outcomes, reasons = sampled_from(list(Outcome)), sampled_from(list(Reason))
pauses = sampled_from([1, 2, 11, 31, 61, 121, 301, 601, 3_601])
plans = builds(
    Plan,
    requests=sampled_from([1, 1, 2, 3]),
    output=sampled_from([(5, 6, 7, 8, 9), (5,), (5, 6, 7)]),
    wrong=some_parties,
    nan=frozensets(parties, max_size=1),
    other=one_of(just(frozenset[int]()), frozensets(integers(1, SIZE), max_size=1)),
)
attesting = lists(one_of(none(), operators), min_size=SIZE - 1, max_size=SIZE + 1)


def rarely(usual: T, *strange: T) -> SearchStrategy[T]:
    """Mostly the usual value: a call that is refused leads nowhere."""
    return sampled_from([usual] * (2 * len(strange)) + list(strange))


def where(holds: Callable[[Any], Any]) -> Callable[[F], F]:
    """A step that does nothing unless it can.

    Not hypothesis's precondition: which jobs stand where follows from block hashes, so a run that
    is repeated would be offered other rules, and called flaky.
    """

    def bound(step: F) -> F:
        @wraps(step)
        def guarded(self: Any, **values: Any) -> None:
            if holds(self):
                step(self, **values)

        return cast(F, guarded)

    return bound


class Life(RuleBasedStateMachine):
    """Money, keys, seats and time; `tests/chain/test_machine.py` adds the jobs."""

    town: Town

    def __init__(self) -> None:
        super().__init__()
        self.beside = self.town.beside
        self.reference, self.work = self.beside.reference, self.town.work
        self.undone = self.beside.undone()
        self.undone.__enter__()
        self.cases: list[Case] = []

    def teardown(self) -> None:
        try:
            self.close_accounts()
            for case in self.cases:
                self._bring_to_an_end(case)
            self.beside.compare()
            for operator in self.town.operators:
                assert self.reference.account(operator.address).locked == 0
        finally:
            self.undone.__exit__(None, None, None)

    def close_accounts(self) -> None:
        """What is owed beside jobs is paid before the last look."""

    @invariant()
    def both_hold_the_same(self) -> None:
        self.beside.compare(whole=False)

    # ── Money, seats, time ──────────────────────────────────────────────────────────────────────
    @rule(who=people, what=sampled_from(MONEY), scheduler=schedulers, amount=amounts)
    def move_money(self, who: int, what: str, scheduler: int, amount: int) -> None:
        at = self._scheduler(scheduler).address
        values: dict[str, tuple[Any, ...]] = {
            "deposit": (at, amount),
            "request_unlock": (at, amount),
            "withdraw_deposit": (at,),
            "add_stake": (amount,),
            "request_stake_withdrawal": (amount,),
            "withdraw_stake": (),
        }
        self._send(self._person(who), what, *values[what])

    @rule(who=operators, of=operators, cold=rarely(False, True), amount=sampled_from([0, 0, 77]))
    def change_keys(self, who: int, of: int, cold: bool, amount: int) -> None:
        named = self._operator(of)
        key = named if cold else self.town.hot[named.address]
        if amount:  # whoever stakes acts for itself from then on
            self._send(named, "transfer", key.address, amount)
            self._send(key, "approve", amount)
            self._send(key, "add_stake", amount)
        self._send(self._operator(who), "set_hot_key", key.address)
        self.beside.compare()

    @rule(
        seat=seats,
        what=sampled_from(["join", "leave", "evict", "release"]),
        by=rarely(None, 0, 3, 8),
        price=sampled_from([PRICE, PRICE - 1, PRICE + 1]),
    )
    def change_seats(self, seat: int, what: str, by: int | None, price: int) -> None:
        who = self._holder(seat) if by is None else self._operator(by)
        self._send(who, what, self.work.model, price if what == "join" else seat)
        self.beside.compare()

    @rule(seconds=pauses)
    def wait(self, seconds: int) -> None:
        self.beside.pass_time(seconds)

    @rule(which=integers(0), off=integers(-2, 0))
    @where(lambda self: self.cases)
    def wait_for_a_deadline(self, which: int, off: int) -> None:
        deadline = self._state(self._case(which)).deadline
        self.beside.pass_time(max(0, deadline + off - self.beside.now))

    @rule(which=integers(0), of_seal=booleans(), keep=booleans(), forget=booleans())
    @where(lambda self: self.cases)
    def turn_to_a_beacon(self, which: int, of_seal: bool, keep: bool, forget: bool) -> None:
        block = self._block(self._case(which), of_seal)
        if keep:
            self._send(self.town.auditor, "keep", block)
        if forget:
            self.beside.forget(block)
            self._send(self.town.auditor, "keep", block + self.reference.block)

    # ── Shorthands ──────────────────────────────────────────────────────────────────────────────
    def _send(self, who: LocalAccount, name: str, *values: Any) -> Said:
        return self.beside.send(who.address, name, *values)

    def _took(self, case: Case, who: LocalAccount, name: str, *values: Any) -> None:
        self.town.took(case, self._send(who, name, *values).events)

    def _person(self, index: int) -> LocalAccount:
        return self.town.people[index]

    def _operator(self, index: int) -> LocalAccount:
        return self.town.operators[index]

    def _scheduler(self, index: int) -> LocalAccount:
        return self.town.schedulers[index]

    def _holder(self, seat: int) -> LocalAccount:
        owner = self.reference.seat_of(self.work.model, seat).owner
        known = [each for each in self.town.operators if each.address == owner]
        return known[0] if known else self.town.workers[0]

    def _key(self, who: LocalAccount, hot: bool) -> LocalAccount:
        return self.town.hot[who.address] if hot else who

    def _draft(self, plan: Plan, client: int, scheduler: int, seat: int, **changes: Any) -> Case:
        parties = (self.town.clients[client], self._scheduler(scheduler), self._holder(seat))
        return self.work.draft(plan, *parties, seat, **changes)

    def _post(self, case: Case, caller: LocalAccount, signer: LocalAccount, wait: int = 1) -> None:
        values = self.work.post(case, signer)
        said = self.beside.send(caller.address, "post", *values, wait=wait)
        if said.error is None:
            self.cases.append(self.town.took(case, said.events))

    def _seal(self, case: Case, flaw: str, hot: bool) -> None:
        caller = self.town.auditor if flaw == "caller" else case.scheduler
        keys = {each.address: self._key(each, hot) for each in self.town.operators}
        try:
            values = self.work.seal(case, keys)
        except Refused:
            values = [posted(case), case.secret, case.runs[0].inner, [], []]
        self._took(case, caller, "seal", *_flawed(values, flaw))

    def _at(self, *status: Status) -> list[Case]:
        return [case for case in self.cases if self._state(case).status in status]

    def _newest(self, *status: Status, before: int = 0) -> Case:
        """The newest that stands there, or one before it; first those whose time is not over."""
        found = self._at(*status)
        open_ = [case for case in found if self._state(case).deadline > self.beside.now]
        return (open_ or found)[-1 - before :][0]

    def _case(self, which: int) -> Case:
        """The newest ones most: old ones are over."""
        return self.cases[-1 - min(which, 5) % len(self.cases)]

    def _sealed_case(self, which: int) -> Case | None:
        case = self._case(which)
        return None if case.sealing is None else case

    def _state(self, case: Case) -> Any:
        return self.reference.job_state(self.work.id_of(case))

    def _block(self, case: Case, of_seal: bool) -> int:
        by_seal = of_seal and case.sealing is not None
        return sealed(case).sealed_block if by_seal else posted(case).posted_block

    def _exists(self, case: Case, place: int, index: int) -> bool:
        checked = place < len(self.work.checked(case))
        return checked and index < len(self.work.where(case, place))

    def _members(self, case: Case) -> list[LocalAccount]:
        return [self.town.signer(owner) for owner in sealed(case).owners]

    def _attested(
        self, case: Case, outcome: Outcome, reason: Reason, signers: list[int | None]
    ) -> list[bytes]:
        who = [None if each is None else self._operator(each) for each in signers]
        return self.work.attestations(case, outcome, reason, who)

    def _bring_to_an_end(self, case: Case) -> None:
        """By anyone, with nothing but time: no party is needed."""
        ways: dict[Status, Callable[[], tuple[str, tuple[Any, ...]]]] = {
            Status.POSTED: lambda: ("refund", (posted(case),)),
            Status.SUMMONED: lambda: ("dismiss", (posted(case),)),
            Status.SEALED: lambda: ("challenge", self.work.record(case)),
            Status.CLAIMED: lambda: (
                "challenge" if self.work.forced(case) else "finalize",
                self.work.record(case),
            ),
            Status.DEMANDED: lambda: ("void_claim", self.work.record(case)),
            Status.CHALLENGED: lambda: ("adjudicate", self.work.record(case)),
            Status.JUDGED: lambda: ("settle", self.work.record(case)),
            Status.REVERIFYING: lambda: self._end_of_question(case),
        }
        while (status := self._state(case).status) is not Status.FINAL:
            name, values = ways[status]()
            self.beside.pass_time(3_600)
            said = self.beside.must(self.town.auditor.address, name, *values)
            self.town.took(case, said.events)

    def _end_of_question(self, case: Case) -> tuple[str, tuple[Any, ...]]:
        identity = self.work.id_of(case)
        if self.reference.appeal_of(identity).phase is AppealPhase.CONVENED:
            return "close_commits", (identity,)
        return "conclude", self.work.record(case)


def _flawed(values: list[Any], flaw: str) -> list[Any]:
    """The arguments of `seal` with one of them wrong."""
    posting, secret, inner, inners, signatures = values
    if flaw == "secret":
        secret = secret[::-1]
    elif flaw == "inner":
        inner = replace(inner, new_tokens=inner.new_tokens + 1)
    elif flaw == "order":
        inners = inners[::-1]
    elif flaw == "inners":
        inners = inners[1:]
    elif flaw == "signatures":
        signatures = signatures[1:]
    elif flaw == "signer":
        signatures = [bytes(65)] * len(signatures)
    elif flaw == "record":
        posting = replace(posting, lock=posting.lock + 1)
    return [posting, secret, inner, inners, signatures]


def live(town: Town, rules: type[Life], **limits: Any) -> None:
    """Run the machine against one town; every life starts from the same state."""
    here = type("Here", (rules,), {"town": town})
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(deadline=None, suppress_health_check=quiet, database=None, **limits)
    run_state_machine_as_test(here, settings=profile)
