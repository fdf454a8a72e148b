"""Every answer to a claim of a task that was not posted: who did it, what its job came to.

The ways are taken on purpose; `Beside` holds the contract to the reference on each step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount
from hypothesis import Phase, given, settings
from hypothesis.strategies import booleans, builds, frozensets, integers, none, one_of, sampled_from

from tests.chain import summoned, unposted
from tests.chain.casework import PRICE, Case, Plan, posted, sealed
from tests.chain.conftest import Net
from tests.chain.town import CONFIG, Town, inhabited
from tests.chain.unposted import Work
from tests.reference import Network, wages
from verillm.chain.reads import Status
from verillm.types import Outcome, Reason

POSTED, SEALED, CLAIMED, FINAL = range(1, 5)
OVERDUE = Plan(overdue=True)
ACCEPT, REFUND = (Outcome.ACCEPT, Reason.NONE), (Outcome.REFUND, Reason.LENGTH)


@dataclass(frozen=True)
class Story:
    """Whose task is claimed, how far its job had come by then, and how far it comes after it.

    text : "own" as the party did it, "same" or "other" output in another's hands, "reused": other
    requests under the id of this job's task. silent : the member is put out of its place first.
    overturned : what the claim of the job says is not what it ends by.
    """

    plan: Plan = OVERDUE
    party: int = 0
    text: str = "own"
    before: int = 0
    after: int = 0
    verdict: tuple[Outcome, Reason] = ACCEPT
    overturned: bool = False
    silent: bool = False
    judged: bool = False
    max_fee: int = 83
    withdrawn: int | None = None
    poor: frozenset[int] = frozenset()


stories = builds(
    Story,
    plan=builds(Plan, requests=sampled_from([1, 2, 3]), overdue=booleans()),
    party=sampled_from([0, 0, 1, 2, 3]),
    text=sampled_from(["own", "own", "same", "other", "reused"]),
    before=sampled_from([0, *range(5)]),
    after=sampled_from([0, *range(5)]),
    verdict=sampled_from([ACCEPT, ACCEPT, REFUND, (Outcome.SLASH, Reason.WITHHELD)]),
    overturned=booleans(),
    silent=sampled_from([False, False, True]),
    judged=sampled_from([False, False, True]),
    max_fee=integers(0, 3 * PRICE * 12),
    withdrawn=one_of(none(), integers(1, 200)),
    poor=frozensets(integers(0, 5), max_size=2),
)


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


def tell(town: Town, story: Story) -> None:
    """Take a claim from its work to its end."""
    case = town.draft(story.plan, max_fee=story.max_fee)
    if story.party or story.silent:
        town.post(case)
    for index in range(3) if story.silent else ():
        put_out(town, case, index)
    if not story.silent:
        advance(town, case, story, story.before)
    work, worker = worked(town, case, story)
    withdraw(town, story)
    if not claim(town, case, work, worker):
        return
    if story.judged:
        values = [case.job, case.quote, work.commitment]
        said = town.beside.send(case.scheduler.address, "post_claimed", *values)
        town.took(case, said.events)
    if not story.silent:
        advance(town, case, story, max(story.before, story.after))
    if case.posting is not None:
        values = unposted.contest(case, work.commitment)
        town.beside.send(town.auditor.address, "contest_task", *values)
    town.beside.pass_time(CONFIG.unbonding)
    town.beside.send(town.auditor.address, "collect_task", work.commitment)


def put_out(town: Town, case: Case, index: int) -> None:
    """Summon a member before its place is taken: its task stays the one that it had."""
    here, number = town.beside, index + 1
    town.work.member(case, number)
    values = summoned.summons(town.work, case, index)
    here.send(case.scheduler.address, "summon", *values)
    if index == 0:
        here.pass_time(CONFIG.opening_window + 5)
        here.send(town.auditor.address, "replace", posted(case), index)


def advance(town: Town, case: Case, story: Story, stage: int) -> None:
    """As far as it can go: a task that is overdue may be the job's, whose own time runs on."""
    if stage >= POSTED and case.posting is None:
        values = town.work.post(case)
        said = town.beside.send(case.scheduler.address, "post", *values)
        town.took(case, said.events)
    if case.posting is None:
        return
    if stage >= SEALED and case.sealing is None:
        keys = {each.address: each for each in town.workers}
        values = town.work.seal(case, keys)
        said = town.beside.send(case.scheduler.address, "seal", *values)
        town.took(case, said.events)
    if case.sealing is None:
        return
    if stage >= CLAIMED and case.claiming is None:
        signed = town.work.attestations(case, *story.verdict, members(town, case))
        values = [posted(case), sealed(case), *story.verdict, 0b111, case.bundle, signed]
        town.took(case, town.beside.send(case.scheduler.address, "claim", *values).events)
    over = town.beside.reference.job_state(town.work.id_of(case)).status is Status.FINAL
    if stage >= FINAL and case.claiming is not None and not over:
        finish(town, case, story)


def finish(town: Town, case: Case, story: Story) -> None:
    """By its claim; where the draw or the story wants it, by a public round."""
    here, auditor, record = town.beside, town.auditor.address, town.work.record(case)
    in_public = story.overturned or town.work.forced(case)
    if in_public:
        signed = town.work.attestations(case, *REFUND, members(town, case))
        reason = (*REFUND, case.bundle, signed) if story.overturned else ()
        here.send(auditor, "challenge", *record, *reason)
        for place in range(len(town.work.checked(case))):
            here.send(auditor, "reveal", *town.work.reveal(case, place))
            for index in range(len(town.work.where(case, place))):
                values = town.work.compare(case, place, index, range(4))
                here.send(auditor, "compare", *values)
        here.send(auditor, "adjudicate", *record)
    here.pass_time(CONFIG.dispute_window)
    here.send(auditor, "settle" if in_public else "finalize", *record)


def members(town: Town, case: Case) -> list[LocalAccount | None]:
    return [town.signer(owner) for owner in sealed(case).owners]


def worked(town: Town, case: Case, story: Story) -> tuple[Work, LocalAccount]:
    """What is claimed, and by whom."""
    own = unposted.done(town.work, case, 0)
    a_members = bool(story.party) or story.silent
    if a_members:
        party = max(1, story.party)
        task, run = case.made.get((party, party)) or town.work.member(case, party)
        own = Work(task, run, ((1, 1),) * len(task.items))
    owner = town.signer(own.task.worker)
    other = next(each for each in town.workers[1:] if each is not owner)
    if story.text == "own":
        return own, owner
    if story.text == "reused":
        another = town.draft(Plan(requests=2, overdue=True))
        return unposted.done_for_another(town.work, case, another, other), other
    output = (5, 6, 7) if story.text == "other" and not a_members else None  # a member's task has 2
    return unposted.done_by(town.work, case, own, other, output), other


def withdraw(town: Town, story: Story) -> None:
    """Leaves a scheduler little, and some workers nothing that is free."""
    scheduler = town.schedulers[0].address
    if story.withdrawn is not None:
        amount = town.beside.reference.account(scheduler).balance - story.withdrawn
        town.beside.send(scheduler, "request_stake_withdrawal", amount)
    for worker in sorted(story.poor):
        free = town.beside.reference.account(town.workers[worker].address)
        amount = max(1, free.balance - free.staked)
        town.beside.send(town.workers[worker].address, "request_stake_withdrawal", amount)


def claim(town: Town, case: Case, work: Work, worker: LocalAccount) -> bool:
    begins = work.task.deadline + CONFIG.seal_window
    town.beside.pass_time(max(0, begins - 1 - town.beside.now))
    seat = [each.address for each in town.workers].index(worker.address)
    values = unposted.claim(town.work, work, seat, case.scheduler, worker)
    town.beside.watched.claims.append(work.commitment)
    return town.beside.send(town.clients[1].address, "claim_task", *values).error is None


def check(town: Town, story: Story) -> None:
    with town.beside.undone():
        tell(town, story)
        town.beside.compare()


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(story=stories)
def test_a_claim_of_a_task_goes_as_the_reference_says(town: Town, story: Story) -> None:
    check(town, story)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=80, deadline=None, database=None)
@given(story=stories)
def test_a_claim_of_a_task_goes_as_the_reference_says_at_length(town: Town, story: Story) -> None:
    check(town, story)


MEMBER = Story(before=SEALED, party=2, plan=Plan())
NAMED = {
    "collected": Story(),
    "posted before it was claimed": Story(before=POSTED),
    "posted after it was claimed": Story(after=POSTED),
    "another's output was accepted": Story(before=FINAL, text="other"),
    "the same output in another's name": Story(before=FINAL, text="same"),
    "other requests under the id of a task that is over": Story(before=FINAL, text="reused"),
    "another's output was overturned": Story(before=FINAL, text="other", overturned=True),
    "a member that was paid": MEMBER,
    "a member's task in another's hands": replace(MEMBER, text="same"),
    "a member that was put out": Story(silent=True, plan=Plan()),
    "the task of a member that was put out": Story(silent=True, text="same", plan=Plan()),
    "judged": Story(judged=True),
    "a job that could not pay for the work": Story(before=POSTED, max_fee=1),
    "judged by a job that could not pay for the work": Story(judged=True, max_fee=1),
    "a member of a job that could not pay": replace(MEMBER, max_fee=1),
    "another's output in a job that could not pay": Story(before=FINAL, text="other", max_fee=1),
}


@pytest.mark.parametrize(("name", "story"), NAMED.items())
def test_each_named_answer_is_the_references(town: Town, name: str, story: Story) -> None:
    check(town, story)


# ── Would a wrong rule be seen? ──────────────────────────────────────────────────────────────────
Patch = pytest.MonkeyPatch


def nobody_is_put_out(patch: Patch) -> None:
    patch.setattr(Network, "_was_put_out", lambda *_: False)


def any_accepted_job_answers(patch: Patch) -> None:
    def wrong(self: Network, job: Any, claim: Any, posting: Any, claiming: Any) -> bool:
        return self._was_accepted(job, claiming)

    patch.setattr(Network, "_superseded", wrong)


def a_claim_says_how_a_job_ended(patch: Patch) -> None:
    def wrong(self: Network, job: Any, claiming: Any) -> bool:
        return claiming is not None and claiming.outcome is Outcome.ACCEPT

    patch.setattr(Network, "_was_accepted", wrong)


def nobody_is_fined(patch: Patch) -> None:
    release = Network._release

    def wrong(self: Network, commitment: Any, claim: Any, pay: int, burnt: int) -> None:
        release(self, commitment, claim, pay, 0)

    patch.setattr(Network, "_release", wrong)


def any_price_will_do(patch: Patch) -> None:
    patch.setattr(wages, "_require_priced", lambda *_: None)


def the_exposure_stays(patch: Patch) -> None:
    patch.setattr(Network, "_close_claim", lambda *_: None)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (nobody_is_put_out, "a member that was put out"),
        (any_accepted_job_answers, "the same output in another's name"),
        (any_accepted_job_answers, "other requests under the id of a task that is over"),
        (a_claim_says_how_a_job_ended, "another's output was overturned"),
        (nobody_is_fined, "posted before it was claimed"),
        (the_exposure_stays, "judged"),
        (any_price_will_do, "a job that could not pay for the work"),
        (any_price_will_do, "judged by a job that could not pay for the work"),
        (any_price_will_do, "a member of a job that could not pay"),
        (any_price_will_do, "another's output in a job that could not pay"),
    ],
)
def test_power_a_wrong_rule_of_a_claim_is_seen(
    town: Town, wrong: Callable[[Patch], None], name: str
) -> None:
    check(town, NAMED[name])
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        with pytest.raises(AssertionError):
            check(town, NAMED[name])
