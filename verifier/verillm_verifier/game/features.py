"""What an adversary makes of an arrival: numbers from fields, from times, and from the content.

Everything is known to the worker at the moment when the task arrives (content: after its prefill),
from the task, from its own log, and from the public chain. Of earlier tasks it knows the roles once
their jobs were posted by it, or sealed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verillm_verifier.game.traffic import Arrival, Job, Traffic

Matrix = NDArray[np.float64]
NEVER: Final = 1e4
"""Seconds that stand for an event that has not happened yet."""
MINUTE: Final = 60
REMEMBERED: Final = 250
"""Of jobs, and of own tasks: more than are open at a time, and what is long over tells nothing."""


def fields(traffic: Traffic) -> Matrix:
    """Return what stands in the task itself, and how its numbers fit together."""
    return np.array([_fields(each, traffic.price) for each in traffic.arrivals])


def _fields(task: Arrival, price: int) -> list[float]:
    total = task.length + task.most
    return [
        len(task.items),
        task.length,
        task.most,
        total,
        task.most / task.length,
        *task.items[0].sampling,
        task.fee / price,
        task.lock / price,
        task.fee / price - total,
        task.lock / task.fee,
        task.deadline - task.at,
        task.deadline % MINUTE,
    ]


# ── Times ────────────────────────────────────────────────────────────────────────────────────────
def timing(traffic: Traffic) -> Matrix:
    """Return what came before at the same door and on the chain, and how long ago."""
    jobs = sorted(traffic.jobs.values(), key=lambda job: job.posted)
    rows: dict[int, list[float]] = {}
    for worker in {each.worker for each in traffic.arrivals}:
        own = [(n, each) for n, each in enumerate(traffic.arrivals) if each.worker == worker]
        door = Door(worker, [each for _, each in own], jobs)
        rows |= {place: door.row(index) for index, (place, _) in enumerate(own)}
    return np.array([rows[place] for place in range(len(traffic.arrivals))])


@dataclass(frozen=True, slots=True)
class Door:
    """One worker's memory: its arrivals and all jobs on the chain, both in order of time."""

    worker: str
    own: Sequence[Arrival]
    jobs: Sequence[Job]

    def row(self, index: int) -> list[float]:
        """Return the numbers of one arrival."""
        task = self.own[index]
        now, before = task.at, self.own[max(0, index - REMEMBERED) : index]
        last = bisect_left(self.jobs, now, key=lambda job: job.posted)
        posted = self.jobs[max(0, last - REMEMBERED) : last]
        return [
            *self._door(now, before),
            *self._chain(now, posted),
            *self._turns(now, before, posted),
            *self._parents(task, posted),
        ]

    def _door(self, now: float, before: Sequence[Arrival]) -> list[float]:
        arrivals = [each.at for each in before]
        ended = [each.done for each in before if each.done <= now]
        return [
            _ago(now, arrivals),
            _ago(now, arrivals[:-1]),
            _ago(now, ended),
            sum(each.done > now for each in before),
            sum(now - each < 10 for each in arrivals),
            sum(now - each < MINUTE for each in arrivals),
            now % 1.0,
        ]

    def _chain(self, now: float, posted: Sequence[Job]) -> list[float]:
        others = [job for job in posted if job.worker != self.worker]
        waiting = [job for job in others if job.sealed > now]
        ages = sorted(now - job.posted for job in waiting)
        return [
            _ago(now, [job.posted for job in others]),
            _ago(now, [job.sealed for job in posted if job.sealed <= now]),
            len(waiting),
            sum(age < 2 for age in ages),
            sum(age < 10 for age in ages),
            ages[0] if ages else NEVER,
            ages[-1] if ages else NEVER,
            sum(now - MINUTE < job.sealed <= now for job in posted),
        ]

    def _turns(self, now: float, before: Sequence[Arrival], posted: Sequence[Job]) -> list[float]:
        by_id = {job.job: job for job in posted}
        known = {
            each.job: each.verifies
            for each in before
            if (job := by_id.get(each.job)) is not None and (not each.verifies or job.sealed <= now)
        }
        unknown = [each for each in before if each.job not in known]
        mine = [index for index, job in enumerate(posted) if job.worker == self.worker]
        since = len(posted) - 1 - mine[-1] if mine else len(posted)
        return [
            _ago(now, [each.at for each in before if known.get(each.job) is False]),
            _ago(now, [each.at for each in before if known.get(each.job) is True]),
            len(unknown),
            sum(now - each.at < MINUTE for each in unknown),
            since,
            len({job.worker for job in posted[-since:]}) if since else 0,
            _ago(now, [posted[index].posted for index in mine]),
        ]

    def _parents(self, task: Arrival, posted: Sequence[Job]) -> list[float]:
        """Jobs that this could be the verification of, by what the chain says of their fees."""
        now = task.at
        waiting = [job for job in posted if job.worker != self.worker and job.sealed > now]
        if not waiting:
            return [NEVER, NEVER, NEVER, 0.0]
        return [
            min(abs(job.fee - task.fee) for job in waiting) / max(task.fee, 1),
            min(abs(job.lock - task.lock) for job in waiting) / max(task.lock, 1),
            min(abs(job.deadline - task.deadline) % MINUTE for job in waiting),
            sum(job.fee <= task.fee for job in waiting),
        ]


def _ago(now: float, times: Sequence[float]) -> float:
    return min(now - max(times), NEVER) if times else NEVER


Features = Callable[[Traffic], Matrix]
