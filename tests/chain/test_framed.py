"""An honest member that its scheduler gave a false task keeps its stake in a re-verification.

Its states are not those of the job, so it is a stranger there unless it shows its task in time: its
node does, however the scheduler hides what was posted, and from whatever moment on it is there.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import Net
from tests.chain.house import House, Node, deployed_with
from tests.chain.test_audit import engines, folder  # noqa: F401 - fixtures
from tests.unit.verifier import lab
from tests.unit.verifier.lab import HOT, SCHEDULER, Engines, Story
from verillm.appeal import content
from verillm.chain.appeals import AppealPhase, Concluded
from verillm.chain.contract import Status
from verillm.chain.events import Convicted, ItemMismatched, JobHistory, Slashed
from verillm.errors import MalformedError
from verillm.evidence import CheckedOutput, PartyEvidence
from verillm.hashing import keccak
from verillm.signing import sign
from verillm.task import Task, verification_task
from verillm.types import Outcome, Reason
from verillm_node.config import DefendSettings

BOND = 10**15
FRAMED = 1
"""The first committee's only member: whoever is left out of it is captured."""
SHOWN, HIDDEN, FALSE = "shown", "hidden", "false"
HONEST = Story(((10, 20, 30, 40, 50, 60), (70, 80, 90)), 12)
Make = Callable[..., House]


# ── What a scheduler hands out ───────────────────────────────────────────────────────────────────
def another_token(task: Task) -> Task:
    item = task.items[0]
    other = replace(item, tokens=(item.tokens[0] ^ 1, *item.tokens[1:]))
    return replace(task, items=(other, *task.items[1:]))


def another_seed(task: Task) -> Task:
    return replace(task, items=(replace(task.items[0], seed=keccak(b"mine")), *task.items[1:]))


def too_short(task: Task) -> Task:
    """No drawn position but the first ones lies in its trace."""
    items = tuple(replace(each, tokens=each.tokens[:1], max_new_tokens=1) for each in task.items)
    return replace(task, items=items)


def one_item_less(task: Task) -> Task:
    return replace(task, items=task.items[:1])


def one_item_more(task: Task) -> Task:
    return replace(task, items=(*task.items, task.items[0]))


def swapped(task: Task) -> Task:
    return replace(task, items=task.items[::-1])


OTHER_LENGTHS = [
    one_item_less,
    *(pytest.param(each, marks=pytest.mark.slow) for each in (too_short, one_item_more)),
]


@pytest.fixture
def house(
    net: Net,
    folder: Path,  # noqa: F811
    engines: Engines,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    honest, party = verification_task, lab._party

    with deployed_with(net, reverify_bond=BOND) as cheap:

        def make(handed: Callable[[Task], Task], shows: str = HIDDEN, **more: Any) -> House:
            def false(secret: Any, identity: Any, k: int, *rest: Any, **options: Any) -> Task:
                task = honest(secret, identity, k, *rest, **options)
                return handed(task) if k == FRAMED else task

            monkeypatch.setattr(lab, "verification_task", false)
            monkeypatch.setattr(lab, "_party", lambda *values: _what_it_can_open(party, *values))
            made = House(cheap, engines, folder, tmp_path, HONEST, committee=1, **more)
            made.shows_bundle = shows != HIDDEN
            if shows == FALSE:
                made.lies = _with_its_texts(made)
            return made

        yield make


def _what_it_can_open(party: Callable[..., PartyEvidence], k: int, task: Any, *more: Any) -> Any:
    """Nothing, where the task has not what is drawn."""
    try:
        return party(k, task, *more)
    except (MalformedError, IndexError):
        run, _shown, _stream, _spec, domain = more
        signed = sign(domain, run.commitment, lab.worker_of(task.worker))
        return PartyEvidence(k, task, sign(domain, task, HOT), signed, {})


def _with_its_texts(made: House) -> Any:
    """The bundle of a scheduler that sticks to its lie: the member's prompt is the request's.

    Its task is left out, so that nobody else can tell.
    """
    bundle = made.played.bundle
    items = next(each.task.items for each in bundle.parties if each.party == FRAMED)

    def lied(place: int, each: CheckedOutput) -> CheckedOutput:
        tokens = items[place].tokens[: len(each.request.tokens)]
        return replace(each, request=replace(each.request, tokens=tokens))

    checked = tuple(lied(*each) for each in enumerate(bundle.checked))
    others = tuple(each for each in bundle.parties if each.party != FRAMED)
    return replace(bundle, checked=checked, parties=others)


# ── The story ────────────────────────────────────────────────────────────────────────────────────
def asked(made: House) -> LocalAccount:
    """Claims that the job is accepted, and has the scheduler ask about it again; who is framed."""
    played = made.played
    claiming = made.ground.claim(made.shown, Outcome.ACCEPT, Reason.NONE, 0)
    requests = {n: request for n, request in enumerate(played.requests)}
    shown = [
        content(requests[each.index], each.path, each.output, each.output_path)
        for each in played.bundle.checked
    ]
    chain = made.net.chain(HOT)
    chain.send(chain.calls.reverify(played.posting, played.sealing, claiming, shown))
    return made.member(FRAMED)


def convicted(history: JobHistory) -> list[tuple[int, Reason]]:
    return [(each.event.party, each.event.reason) for each in history.all(Convicted)]


def away(made: House, who: LocalAccount, until: AppealPhase) -> None:
    """Everyone but one works until the re-verification is there."""
    made.settings = lambda address: None if address == who.address else DefendSettings()

    async def some(nodes: list[Node]) -> None:
        for _ in range(60):
            for node in nodes:
                await node.round()
            if made.chain.appeal_of(made.job).phase is until:
                return
            made.net.pass_time(2)
        raise AssertionError(f"never {until.name}")

    made.run(some)
    made.settings = lambda _address: DefendSettings()


def held(made: House, who: LocalAccount, before: int) -> JobHistory:
    """Carried on to the end: the scheduler pays, and who was framed has what it had or more."""
    scheduler = made.balance(SCHEDULER)
    history = made.carry()
    assert convicted(history) == [(255, Reason.TASK_DIFFERS)]
    assert made.balance(SCHEDULER) < scheduler
    assert made.balance(who) >= before
    assert made.chain.account_of(who.address).locked == 0
    assert who.address not in {each.event.operator for each in history.all(Slashed)}
    return history


@pytest.mark.parametrize(
    ("handed", "shows"),
    [
        (another_token, FALSE),
        *(
            pytest.param(handed, shows, marks=pytest.mark.slow)
            for handed in (another_token, another_seed)
            for shows in (HIDDEN, SHOWN, FALSE)
            if (handed, shows) != (another_token, FALSE)
        ),
    ],
)
def test_who_was_given_a_false_task_shows_it_while_it_is_judged_again(
    house: Make, handed: Callable[[Task], Task], shows: str
) -> None:
    made = house(handed, shows)
    who = made.member(FRAMED)
    before = made.balance(who)
    asked(made)
    held(made, who, before)


@pytest.mark.parametrize(
    "until",
    [
        pytest.param(AppealPhase.COMPLETE, marks=pytest.mark.slow),
        pytest.param(AppealPhase.CLOSED, marks=pytest.mark.slow),
        AppealPhase.OPENED,
    ],
)
def test_who_was_away_still_shows_it_before_openings_are_due(
    house: Make, until: AppealPhase
) -> None:
    made = house(another_token, FALSE)
    who = made.member(FRAMED)
    before = made.balance(who)
    asked(made)
    away(made, who, until)
    held(made, who, before)


@pytest.mark.slow
@pytest.mark.parametrize("handed", [too_short, one_item_less, one_item_more, swapped])
def test_who_was_given_another_text_shows_that_too(
    house: Make, handed: Callable[[Task], Task]
) -> None:
    made = house(handed)
    who = made.member(FRAMED)
    before = made.balance(who)
    asked(made)
    held(made, who, before)


@pytest.mark.parametrize("handed", OTHER_LENGTHS)
def test_a_text_of_another_length_frees_its_member_without_a_proof(
    house: Make, handed: Callable[[Task], Task]
) -> None:
    made = house(handed, settings=lambda _address: DefendSettings(prove=False))
    who = made.member(FRAMED)
    before = made.balance(who)
    asked(made)
    history = made.carry()
    assert not history.all(Convicted)
    concluded = history.first(Concluded)
    assert concluded is not None
    assert (concluded.event.outcome, concluded.event.strangers) == (Outcome.ACCEPT, 0)
    size = len(made.chain.appeal_of(made.job).committee)
    told = {each.event.party for each in history.all(ItemMismatched)}
    assert told == {size + FRAMED}
    assert made.balance(who) >= before


@pytest.mark.slow
def test_power_without_its_proof_it_loses_its_lock(house: Make) -> None:
    made = house(another_token, settings=lambda _address: DefendSettings(prove=False))
    who = made.member(FRAMED)
    before = made.balance(who)
    asked(made)
    history = made.carry()
    concluded = history.first(Concluded)
    assert concluded is not None
    assert concluded.event.strangers == 1 << (FRAMED - 1)
    assert before - made.balance(who) >= made.played.sealing.committee[0].lock // 2


# ── In a public round ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("handed", OTHER_LENGTHS)
def test_a_public_round_takes_no_lock_for_another_text(
    house: Make, handed: Callable[[Task], Task]
) -> None:
    made = house(handed, settings=lambda _address: DefendSettings(prove=False, reverify=False))
    who = made.member(FRAMED)
    before = made.balance(who)
    claiming = made.ground.claim(made.played, Outcome.ACCEPT, Reason.NONE, 0)
    chain = made.net.chain(lab.worker_of(made.played.posting.worker))
    chain.send(chain.calls.challenge(made.played.posting, made.played.sealing, claiming))
    history = made.carry()
    assert made.chain.job_state(made.job).status is Status.FINAL
    assert {each.event.party for each in history.all(ItemMismatched)} == {FRAMED}
    assert made.balance(who) >= before
