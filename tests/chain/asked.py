"""What the calls about a re-verification take, and its round as one more case of the casework."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.chain.casework import Case, Casework, posted, sealed
from verillm.appeal import Content, contents_of, recommitted, second_claiming, work as appeal_work
from verillm.chain.appeals import RoundStarted
from verillm.records import Member
from verillm.signing import task_hash
from verillm.trace import CommittedTrace, Trace, TraceItem

NEW: Final = 101
"""The first of the new members where parties of a `Plan` are numbered."""


def contents(work: Casework, case: Case) -> tuple[Content, ...]:
    """Of all checked requests, in drawn order."""
    outputs = (case.plan.output,) * len(case.requests)
    task, _ = case.made[0, 0]
    return contents_of(case.requests, outputs, task.task_id, work.checked(case))


def recommit(work: Casework, case: Case, index: int, member: Member) -> CommittedTrace:
    """What a new member makes of the contents; of another text, where the plan says so."""
    plan, party = case.plan, NEW + index
    shown = contents(work, case)
    if party in plan.other:
        shown = tuple(replace(each, output=each.output + each.output[:4]) for each in shown)
    numbered = list(zip(work.checked(case), shown, strict=True))
    task = appeal_work(case.secret, work.id_of(case), index, member.owner, work.model, numbered, 0)
    items = []
    for number, item in enumerate(task.items):
        tokens = (*item.tokens, 1)
        slices, finals = work.states(plan, item.seed, len(tokens) - 1, party)
        items.append(TraceItem(number, item.length, tokens, slices, finals))
    return recommitted(Trace(task_hash(task), tuple(items)), task)


def second_round(case: Case, started: RoundStarted, made: Mapping[int, CommittedTrace]) -> Case:
    """The case as the second round sees it; who did not commit has nothing to open."""
    size = len(started.sealing.committee) - len(sealed(case).committee)
    runs = [case.runs[0], *(made.get(index, case.runs[0]) for index in range(size))]
    return replace(
        case,
        runs=[*runs, *case.runs[1:]],
        posting=posted(case),
        sealing=started.sealing,
        claiming=second_claiming(started.beacon),
    )
