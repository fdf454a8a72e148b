"""Leaks put back into recorded traffic, one at a time: does the adversary find each of them?

Each undoes one thing that a scheduler does to hide roles, so its row says what that thing is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from verillm_verifier.game.traffic import Arrival, Traffic

SHORT_ANSWERS: Final = 8
AFTER_POST: Final = 1.5
"""Seconds in which a scheduler that does not wait sends a committee its tasks."""


def _each(traffic: Traffic, change: Callable[[Arrival], Arrival]) -> Traffic:
    changed = sorted(map(change, traffic.arrivals), key=lambda each: each.at)
    return replace(traffic, arrivals=tuple(changed))


def short_answers(traffic: Traffic) -> Traffic:
    """Verifiers are asked for 1 to 8 new tokens; the fee follows, as it would."""

    def change(task: Arrival) -> Arrival:
        if not task.verifies:
            return task
        most = 1 + (int(task.job, 16) + task.lock) % SHORT_ANSWERS
        items = tuple(replace(item, most=most) for item in task.items)
        fee = task.fee + traffic.price * (most * len(items) - task.most)
        return replace(task, items=items, fee=fee, lock=task.lock * fee // task.fee)

    return _each(traffic, change)


def posted_fee(traffic: Traffic) -> Traffic:
    """Verifiers' tasks name the job's own fee and lock, as they stand on the chain."""

    def change(task: Arrival) -> Arrival:
        job = traffic.jobs.get(task.job)
        return task if job is None else replace(task, fee=job.fee, lock=job.lock)

    return _each(traffic, change)


def posted_deadline(traffic: Traffic) -> Traffic:
    """All tasks of a job name one deadline, so that a later one has less time left."""
    first = {each.job: each for each in traffic.arrivals if not each.verifies}

    def change(task: Arrival) -> Arrival:
        own = first.get(task.job)
        return task if own is None else replace(task, deadline=own.deadline)

    return _each(traffic, change)


def no_wait(traffic: Traffic) -> Traffic:
    """Verifiers' tasks leave right behind the post."""

    def change(task: Arrival) -> Arrival:
        job = traffic.jobs.get(task.job)
        if job is None or not task.verifies:
            return task
        at = job.posted + (task.at % 1.0) * AFTER_POST
        deadline = task.deadline - int((task.at - at) // 60) * 60
        return replace(task, at=at, deadline=deadline)

    return _each(traffic, change)


LEAKS: Final[Mapping[str, Callable[[Traffic], Traffic]]] = {
    "verifiers are asked for 1 to 8 new tokens": short_answers,
    "verifiers' tasks name the posted fee and lock": posted_fee,
    "all tasks of a job name one deadline": posted_deadline,
    "verifiers' tasks leave right behind the post": no_wait,
}
