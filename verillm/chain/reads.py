"""What a deployment's contracts answer: money, seats, jobs and rounds as data."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from eth_typing import ChecksumAddress
from web3.providers.base import BaseProvider

from verillm.chain import artifacts
from verillm.chain.appeals import AppealPhase, AppealState
from verillm.chain.calls import Call
from verillm.chain.deployment import ZERO_ADDRESS, Config, Deployment
from verillm.chain.server import Server
from verillm.errors import UnknownModel
from verillm.model import ModelSpec, model_id as model_id_of
from verillm.records import Member, Posting
from verillm.request import Job
from verillm.types import Hash32, JobId, ModelId, TaskId


class Status(IntEnum):
    """Where a job stands on chain."""

    NONE = 0
    POSTED = 1
    SEALED = 2
    CLAIMED = 3
    CHALLENGED = 4
    FINAL = 5
    DEMANDED = 6
    JUDGED = 7
    REVERIFYING = 8
    SUMMONED = 9

    def has_reached(self, stage: "Status") -> bool:
        """Whether a job that stands here is at `stage`, or past it."""
        return _ORDER.index(self) >= _ORDER.index(stage)


_ORDER = (
    Status.NONE,
    Status.POSTED,
    Status.SUMMONED,
    Status.SEALED,
    Status.CLAIMED,
    Status.DEMANDED,
    Status.CHALLENGED,
    Status.JUDGED,
    Status.REVERIFYING,
    Status.FINAL,
)
"""In the order of a job's life; the contract's numbers are those of its history."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's slot and the hash of everything else about it; `deadline` in the chain's seconds."""

    status: Status
    deadline: int
    record: Hash32


@dataclass(frozen=True, slots=True)
class DepositState:
    """A client's deposit at one scheduler; `unlocking` of it is payable from `available_at`."""

    amount: int
    unlocking: int
    available_at: int


@dataclass(frozen=True, slots=True)
class AccountState:
    """An operator's money: free balance, locked in jobs, staked in seats, and asked back."""

    balance: int
    locked: int
    staked: int
    withdrawing: int
    available_at: int
    hot_key: ChecksumAddress


@dataclass(frozen=True, slots=True)
class SeatState:
    """A seat of one model; active in blocks after `active_from`, `left_at` 0 while it is held."""

    owner: ChecksumAddress
    active_from: int
    left_at: int
    price: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The committee in drawn order and the checked requests of a job."""

    seats: tuple[int, ...]
    owners: tuple[ChecksumAddress, ...]
    checked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlaceState:
    """A place of a summoned committee; `answer_by` 0 until summoned, `inner` until answered."""

    owner: ChecksumAddress
    seat: int
    number: int
    lock: int
    answer_by: int
    task_hash: Hash32
    inner: Hash32

    @property
    def pending(self) -> bool:
        """Summoned, and no answer yet."""
        return bool(self.answer_by) and not any(self.inner)


@dataclass(frozen=True, slots=True)
class TaskClaimState:
    """A worker's claim on a scheduler's stake; `amount` 0 once it is closed."""

    scheduler: ChecksumAddress
    worker: ChecksumAddress
    task_id: TaskId
    amount: int
    exposure: int
    collectable_at: int


@dataclass(frozen=True, slots=True)
class Round:
    """Where a public round stands; bit p of a mask and entry p of `served` are party p's."""

    job_id: JobId
    revealed: int
    positions: int
    non_finite: int
    mismatched: int
    served: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums over the compared positions of two parties (docs/protocol.md §7)."""

    sum: int
    cells: int
    over: int


class Reads(Server):
    """The contracts' views, one method each."""

    def __init__(self, rpc_: str | BaseProvider, deployment: Deployment) -> None:
        super().__init__(rpc_, deployment)
        self._models: dict[ModelId, ModelSpec] = {}

    def _read(self, name: str, kinds: Sequence[Any], *values: object, block: str = "latest") -> Any:
        entry = artifacts.functions("VeriLLM")[name]
        call = Call(name, self.deployment.contract, entry.encode(*values))
        return artifacts.decode(entry.outputs, self._answer(call, ZERO_ADDRESS, block), kinds)

    def _read_round(self, name: str, kinds: Sequence[Any], *values: object) -> Any:
        entry = artifacts.functions("Adjudicator")[name]
        call = Call(name, self.deployment.adjudicator, entry.encode(*values))
        return artifacts.decode(entry.outputs, self._answer(call, ZERO_ADDRESS, "latest"), kinds)

    def _read_token(self, name: str, *values: object) -> Any:
        entry = artifacts.functions("DevToken")[name]
        call = Call(name, self.deployment.token, entry.encode(*values))
        (value,) = artifacts.decode(entry.outputs, self._answer(call, ZERO_ADDRESS, "latest"))
        return value

    def config(self) -> Config:
        """What the deployment fixed for good."""
        (config,) = self._read("config", [Config])
        return config  # type: ignore[no-any-return]

    def job_state(self, job_id: JobId, block: str = "latest") -> JobState:
        """A job's slot."""
        return JobState(*self._read("jobState", [Status, int, Hash32], job_id, block=block))

    def job_id_of(self, job: Job) -> JobId:
        """The job's id as the contract computes it."""
        (job_id,) = self._read("jobIdOf", [JobId], job)
        return JobId(job_id)

    def deposit_of(self, client: ChecksumAddress, scheduler: ChecksumAddress) -> DepositState:
        """A client's deposit at a scheduler."""
        return DepositState(*self._read("depositOf", [int, int, int], client, scheduler))

    def account_of(self, operator: ChecksumAddress) -> AccountState:
        """An operator's money and hot key."""
        return AccountState(*self._read("accountOf", [int] * 5 + [str], operator))

    def operator_of(self, hot_key: ChecksumAddress) -> ChecksumAddress | None:
        """Whose hot key it is, if anyone's."""
        (operator,) = self._read("operatorOf", [str], hot_key)
        return None if operator == ZERO_ADDRESS else operator

    def seat_of(self, model_id: ModelId, seat: int) -> SeatState:
        """A seat of a model."""
        return SeatState(*self._read("seatOf", [str, int, int, int], model_id, seat))

    def slots_of(self, model_id: ModelId) -> tuple[int, int]:
        """Slots and distinct owners of a model."""
        slots, owners = self._read("slotsOf", [int, int], model_id)
        return slots, owners

    def nonce_used(self, client: ChecksumAddress, scheduler: ChecksumAddress, nonce: int) -> bool:
        """Whether a job with this nonce was posted."""
        (used,) = self._read("nonceUsed", [bool], client, scheduler, nonce)
        return bool(used)

    def places_of(self, job_id: JobId) -> tuple[PlaceState, ...]:
        """The places of a summoned committee; empty where nobody was summoned."""
        size, _replaced = self._read("panelOf", [int, int], job_id)
        kinds = [str, int, int, int, int, Hash32, Hash32]
        return tuple(
            PlaceState(*self._read("placeOf", kinds, job_id, index)) for index in range(size)
        )

    def task_claim_of(self, commitment: Hash32) -> TaskClaimState | None:
        """A claim on a task's fee, if there ever was one."""
        found = TaskClaimState(
            *self._read("taskClaimOf", [str, str, Hash32, int, int, int], commitment)
        )
        return None if found.worker == ZERO_ADDRESS else found

    def draw_of(self, posting: Posting, secret: Hash32, beacon: Hash32) -> Drawn:
        """The committee that `seal` demands, and the checked requests."""
        values = (self.deployment.contract, posting, secret, beacon)
        return Drawn(*self._read_round("drawOf", [tuple] * 3, *values))

    def positions_of(
        self,
        sealed_record: Hash32,
        beacon: Hash32,
        request: int,
        prompt_tokens: int,
        new_tokens: int,
        wanted: int,
    ) -> tuple[int, ...]:
        """The challenged positions of a checked request."""
        values = (sealed_record, beacon, request, prompt_tokens, new_tokens, wanted)
        (positions,) = self._read_round("positionsOf", [tuple[int, ...]], *values)
        return tuple(positions)

    def round_of(self, record: Hash32) -> Round:
        """Where the public round over a job's record stands."""
        values = (self.deployment.contract, record)
        return Round(*self._read_round("roundOf", [JobId, *[int] * 4, tuple[int, ...]], *values))

    def pair_of(self, record: Hash32, first: int, second: int) -> PairSums:
        """What the round added up for two parties, `first` < `second`."""
        values = (self.deployment.contract, record, first, second)
        (sums,) = self._read_round("pairOf", [PairSums], *values)
        return sums  # type: ignore[no-any-return]

    def appeal_of(self, job_id: JobId) -> AppealState:
        """Where a job's re-verification stands."""
        kinds = [AppealPhase, str, tuple[Member, ...]]
        return AppealState(*self._read("appealOf", kinds, job_id))

    def model(self, model_id: ModelId) -> ModelSpec:
        """A registered model from its event, checked against its id; raises UnknownModel."""
        if model_id not in self._models:
            entry = artifacts.artifact("VeriLLM").entries("event")["ModelRegistered"]
            for log in self.logs([entry.topic, model_id]):
                with contextlib.suppress(artifacts.NotText):
                    (spec,) = artifacts.decode(entry.inputs[1:], log.data, [ModelSpec])
                    if model_id_of(spec) == model_id:
                        self._models[model_id] = spec
            if model_id not in self._models:
                raise UnknownModel("0x" + model_id.hex())
        return self._models[model_id]

    def token_balance(self, owner: ChecksumAddress) -> int:
        """Tokens that `owner` holds itself."""
        return int(self._read_token("balanceOf", owner))

    def allowance(self, owner: ChecksumAddress) -> int:
        """Tokens of `owner` that the contract may take."""
        return int(self._read_token("allowance", owner, self.deployment.contract))

    def token_units(self) -> tuple[str, int]:
        """Symbol and decimals of the token."""
        return str(self._read_token("symbol")), int(self._read_token("decimals"))
