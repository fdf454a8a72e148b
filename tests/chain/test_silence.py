"""Every end of a job whose members were summoned: who answered, who was put out, who was not asked.

The ways are taken on purpose; `Beside` holds the contract to the reference on each step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import booleans, builds, frozensets, integers, sampled_from

from tests.chain import summoned
from tests.chain.casework import PRICE, Case, Plan, posted
from tests.chain.conftest import Net
from tests.chain.town import CONFIG, Town, inhabited
from tests.reference import Network, summons
from verillm.chain.reads import Status

SIZE = 3


@dataclass(frozen=True)
class Story:
    """By place from 0: who is summoned, who answers, whose place is taken when it does not.

    `work`: how long the tasks are said to take. `poor`: workers with little left to lock.
    """

    asked: frozenset[int] = frozenset({0, 1})
    answers: frozenset[int] = frozenset({0})
    put_out: frozenset[int] = frozenset()
    again: bool = False
    sealed: bool = True
    work: str = ""
    requests: int = 1
    max_fee: int = 83
    poor: frozenset[int] = frozenset()


some = frozensets(integers(0, SIZE - 1))
stories = builds(
    Story,
    asked=frozensets(integers(0, SIZE - 1), min_size=1),
    answers=some,
    put_out=some,
    again=booleans(),
    sealed=booleans(),
    work=sampled_from(["", "", "long"]),
    requests=sampled_from([1, 2, 3]),
    max_fee=integers(0, 3 * PRICE * 12),
    poor=frozensets(integers(0, 5), max_size=3),
)


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


def tell(town: Town, story: Story) -> None:
    """Take a job from its post to its seal, or to its end without one."""
    here, auditor = town.beside, town.auditor.address
    for worker in sorted(story.poor):
        free = here.reference.account(town.workers[worker].address)
        amount = max(1, free.balance - free.staked)
        here.send(town.workers[worker].address, "request_stake_withdrawal", amount)
    case = town.post(town.draft(Plan(requests=story.requests), max_fee=story.max_fee))
    for index in sorted(story.asked):
        summon(town, case, index, story.work)
    for index in sorted(story.answers & story.asked):
        answer(town, case, index)
    for index in sorted(story.put_out & story.asked - story.answers):
        late = here.reference.state.panels[town.work.id_of(case)].places[index].answer_by
        here.pass_time(max(0, late - 1 - here.now))
        here.send(auditor, "replace", posted(case), index)
        if story.again:
            summon(town, case, index, story.work)
    if story.sealed:
        keys = {each.address: each for each in town.workers}
        values = summoned.seal(town.work, case, keys)
        town.took(case, here.send(auditor, "seal_summoned", *values).events)
    state = here.reference.job_state(town.work.id_of(case))
    if state.status is Status.SUMMONED:
        here.pass_time(state.deadline - 1 - here.now)
        here.must(auditor, "dismiss", posted(case))


def summon(town: Town, case: Case, index: int, work: str = "") -> None:
    values = summoned.summons(town.work, case, index, work)
    town.beside.send(case.scheduler.address, "summon", *values)


def answer(town: Town, case: Case, index: int) -> None:
    owner = town.signer(town.work.members(case)[index][0])
    values = summoned.answer(town.work, case, index, owner)
    town.beside.send(town.clients[1].address, "answer", *values)


def check(town: Town, story: Story) -> None:
    with town.beside.undone():
        tell(town, story)
        town.beside.compare()


@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(story=stories)
def test_a_summoned_job_goes_as_the_reference_says(town: Town, story: Story) -> None:
    check(town, story)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=60, deadline=None, database=None)
@given(story=stories)
def test_a_summoned_job_goes_as_the_reference_says_at_length(town: Town, story: Story) -> None:
    check(town, story)


# ── Would a wrong rule be seen? ──────────────────────────────────────────────────────────────────
Patch = pytest.MonkeyPatch


def no_time_to_compute(patch: Patch) -> None:
    patch.setattr(summons, "seconds_of", lambda task: 0)


def new_tokens_count_once(patch: Patch) -> None:
    patch.setattr(summons, "NEW_TOKEN", 1)


def the_silent_lose_nothing(patch: Patch) -> None:
    patch.setattr(Network, "_forfeit", lambda self, job, place: self._unlock(place.owner, 0))


def an_answer_is_free(patch: Patch) -> None:
    credit = Network._credit

    def wrong(self: Network, job: object, operator: object, amount: int) -> None:
        if abs(amount) != CONFIG.answer_fee:
            credit(self, job, operator, amount)  # type: ignore[arg-type]

    patch.setattr(Network, "_credit", wrong)


def numbers_stay_with_the_place(patch: Patch) -> None:
    patch.setattr(Network, "task_number_of", lambda self, job, party: party)


LONG = Story(work="long", requests=2)
PUT_OUT = Story(put_out=frozenset({1}), sealed=False)


@pytest.mark.parametrize(
    ("wrong", "story"),
    [
        (no_time_to_compute, Story()),
        (new_tokens_count_once, LONG),
        (the_silent_lose_nothing, PUT_OUT),
        (an_answer_is_free, Story()),
        (numbers_stay_with_the_place, PUT_OUT),
    ],
)
def test_power_a_wrong_rule_of_a_summons_is_seen(
    town: Town, wrong: Callable[[Patch], None], story: Story
) -> None:
    check(town, story)
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            check(town, story)
