"""A begun deployment on disk: which plan, and each transaction before it is sent.

Holds hashes and addresses, no key. Hardhat's deploy.js reads and writes the same file, so that
either can go on with what the other began.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from verillm import api
from verillm.chain.plan import Plan, Step
from verillm.errors import ConfigError, MalformedError
from verillm.files import write_atomically
from verillm.types import ChecksumAddress, Hash32


@dataclass(frozen=True, slots=True)
class Progress:
    """What was planned, and what may have been sent: the transactions of each step by its name."""

    chain_id: int
    deployer: ChecksumAddress
    first_nonce: int
    plan: Hash32
    sent: Mapping[str, tuple[Hash32, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Of a plan of which nothing was sent."""
        return cls(plan.chain_id, plan.deployer, plan.first_nonce, plan.digest)

    def to_json(self) -> dict[str, object]:
        """As the state file holds it."""
        return {
            "chainId": self.chain_id,
            "deployer": self.deployer,
            "firstNonce": self.first_nonce,
            "plan": api.to_hex(self.plan),
            "sent": {name: [api.to_hex(each) for each in all_] for name, all_ in self.sent.items()},
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse what `to_json` gives; raises MalformedError."""
        fields = api.Fields(value, "state")
        progress = cls(
            chain_id=fields.number("chainId", 64),
            deployer=fields.address("deployer"),
            first_nonce=fields.number("firstNonce", 64),
            plan=fields.hash("plan"),
            sent=fields.take("sent", _sent),
        )
        fields.end()
        return progress


def _sent(value: object, path: str) -> dict[str, tuple[Hash32, ...]]:
    if not isinstance(value, dict):
        raise MalformedError(path, "not an object")
    fields = api.Fields(value, path)
    return {name: fields.many(name, api.parse_hash, 1_000) for name in value}


class Journal:
    """The state file; without a path it is kept in memory, for a deployment that nobody resumes."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._progress: Progress | None = None if path is None else _load(path)

    @property
    def progress(self) -> Progress | None:
        """What is recorded."""
        return self._progress

    @property
    def has_begun(self) -> bool:
        """Whether anything may have been sent."""
        return self._progress is not None and bool(self._progress.sent)

    def plan(self, plan: Plan) -> None:
        """Record a plan, unless it is the recorded one; never over one that has begun."""
        if self._progress is None or self._progress.plan != plan.digest:
            if self.has_begun:
                raise ConfigError("a begun deployment is not planned anew")
            self._put(Progress.of(plan))

    def sending(self, step: Step, transaction: Hash32) -> None:
        """Record a transaction; returns only once that would survive a crash."""
        if self._progress is None:
            raise ConfigError("nothing was planned")
        sent = dict(self._progress.sent)
        sent[step.name] = (*sent.get(step.name, ()), transaction)
        self._put(replace(self._progress, sent=sent))

    def sent(self, step: Step) -> tuple[Hash32, ...]:
        """The transactions that may carry a step, oldest first."""
        return () if self._progress is None else self._progress.sent.get(step.name, ())

    def _put(self, progress: Progress) -> None:
        if self.path is not None:
            _save(self.path, json.dumps(progress.to_json(), indent=2) + "\n")
        self._progress = progress


def _load(path: Path) -> Progress | None:
    try:
        return Progress.from_json(api.loads(path.read_bytes(), "state"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except MalformedError as error:
        raise ConfigError(f"{path} is no deployment's state: {error}") from error


def _save(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
