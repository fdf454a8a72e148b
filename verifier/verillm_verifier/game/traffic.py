"""Recorded traffic: each task's arrival at its worker, and what the chain showed to everyone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verillm.errors import InputError


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt of a task, as its worker has it; sampling as (temperature, topK, topP, minP)."""

    tokens: tuple[int, ...]
    most: int
    sampling: tuple[int, int, int, int]
    seed: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task at a worker's door; times in seconds. `verifies` is what is to be guessed."""

    worker: str
    job: str
    verifies: bool
    at: float
    seconds: float
    deadline: int
    fee: int
    lock: int
    items: tuple[Sample, ...]

    @property
    def length(self) -> int:
        """Prompt tokens of all its items."""
        return sum(len(item.tokens) for item in self.items)

    @property
    def most(self) -> int:
        """New tokens asked for at most."""
        return sum(item.most for item in self.items)

    @property
    def done(self) -> float:
        """When its commitment was out."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Job:
    """What the chain shows of a job; `sealed` is infinite where it never was."""

    job: str
    worker: str
    posted: float
    sealed: float
    fee: int
    lock: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """A recording: arrivals in order, jobs by id, the price of a token, what load it was."""

    arrivals: tuple[Arrival, ...]
    jobs: Mapping[str, Job]
    price: int
    load: Mapping[str, Any]
    model: Path


def read(path: Path) -> Traffic:
    """Read what `verillm-node traffic` wrote; InputError if it is something else."""
    try:
        return parse(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no recorded traffic: {error}") from error


def parse(found: Mapping[str, Any]) -> Traffic:
    """Make traffic of a document; raises as JSON of another form does."""
    arrivals = [
        _arrival(worker["operator"], each)
        for worker in found["workers"]
        for each in worker["tasks"]
    ]
    settings = {name: found[name] for name in ("shuffleSeconds", "fairTurns")}
    return Traffic(
        tuple(sorted(arrivals, key=lambda each: each.at)),
        _jobs(found["chain"]),
        int(found["unitPrice"]),
        found["load"] | settings,
        Path(found["model"]),
    )


def steady(traffic: Traffic) -> list[bool]:
    """Return which arrivals came while jobs came and went: a recording's beginning has no
    verifications yet and its end nothing else, which a network that goes on does not show.
    """
    asked = [each.at for each in traffic.arrivals if not each.verifies]
    first = min(asked, default=0.0) + float(traffic.load["shuffleSeconds"])
    return [first <= each.at <= max(asked, default=0.0) for each in traffic.arrivals]


def _arrival(worker: str, found: Mapping[str, Any]) -> Arrival:
    task = found["task"]
    return Arrival(
        worker=worker,
        job=found["job"],
        verifies=found["party"] != 0,
        at=float(found["arrived"]),
        seconds=float(found["seconds"]),
        deadline=int(task["deadline"]),
        fee=int(task["fee"]),
        lock=int(task["lock"]),
        items=tuple(map(_sample, task["items"])),
    )


def _sample(item: Mapping[str, Any]) -> Sample:
    rule = item["sampling"]
    return Sample(
        tokens=tuple(item["tokens"]),
        most=int(item["maxNewTokens"]),
        sampling=(rule["temperature"], rule["topK"], rule["topP"], rule["minP"]),
        seed=bytes.fromhex(item["seed"].removeprefix("0x")),
    )


def _jobs(chain: list[Mapping[str, Any]]) -> dict[str, Job]:
    sealed = {each["job"]: float(each["time"]) for each in chain if each["event"] == "sealed"}
    return {
        each["job"]: Job(
            each["job"],
            each["worker"],
            float(each["time"]),
            sealed.get(each["job"], float("inf")),
            int(each["fee"]),
            int(each["lock"]),
            int(each["deadline"]),
        )
        for each in chain
        if each["event"] == "posted"
    }
