"""What the network remembers: plain data, so that a refused call can be undone by a copy."""

from dataclasses import dataclass, field, fields
from typing import Self

from verillm.chain.appeals import AppealPhase
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.reads import (
    DepositState,
    JobState,
    PlaceState,
    SeatState,
    Status,
    TaskClaimState,
)
from verillm.model import ModelSpec
from verillm.records import Member
from verillm.settlement import Judged
from verillm.statistics import PairStatistics
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, Outcome, Reason, TaskId

NO_JOB = JobState(Status.NONE, 0, Hash32(bytes(32)))
NO_DEPOSIT = DepositState(0, 0, 0)
NO_SEAT = SeatState(ZERO_ADDRESS, 0, 0, 0)
NOTHING = Hash32(bytes(32))
NO_CLAIM = TaskClaimState(ZERO_ADDRESS, ZERO_ADDRESS, TaskId(Hash32(bytes(32))), 0, 0, 0)
NO_PLACE = PlaceState(ZERO_ADDRESS, 0, 0, 0, 0, Hash32(bytes(32)), Hash32(bytes(32)))


class Refused(Exception):
    """A revert, by the name that the contract gives it."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def require(holds: bool, error: str) -> None:
    """Refuse unless it holds."""
    if not holds:
        raise Refused(error)


@dataclass(frozen=True, slots=True)
class Account:
    """An operator's money; locked is at most balance."""

    balance: int = 0
    locked: int = 0
    staked: int = 0
    withdrawing: int = 0
    available_at: int = 0

    @property
    def free(self) -> int:
        """What may still be locked: not locked yet, and not on its way out."""
        leaving = self.withdrawing if self.available_at else 0
        return max(0, self.balance - self.locked - leaving)


@dataclass(frozen=True, slots=True)
class Key:
    """Whose hot key an address is, and until when (0: until rotated)."""

    operator: ChecksumAddress
    valid_until: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A registered model; `free` are the slots to use again, the last one first."""

    spec: ModelSpec
    slots: int = 0
    owners: int = 0
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """A committee that is summoned: what its job's first summons drew, and who was replaced."""

    secret: Hash32
    beacon: Hash32
    scheduler: ChecksumAddress
    places: tuple[PlaceState, ...]
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """A worker's claim on its scheduler's stake, with what a job is told by to be its task's."""

    state: TaskClaimState
    seat: int
    model: ModelId
    outputs_root: Hash32
    requests_root: Hash32
    prompt_tokens: int
    new_tokens: int
    due: int
    block: int


@dataclass(frozen=True, slots=True)
class Dispute:
    """Who opened a round and at what risk, which reason speaks for it, and what it found.

    `finder` brought the reason later, and stands in the challenger's place where it decides.
    """

    challenger: ChecksumAddress
    reason: Reason = Reason.NONE
    finder: ChecksumAddress = ZERO_ADDRESS
    bonded: bool = False
    judged: Judged | None = None
    cause: Reason = Reason.NONE


NO_DISPUTE = Dispute(ZERO_ADDRESS)


@dataclass(frozen=True, slots=True)
class Appeal:
    """A re-verification: who asked, how far it is, whom it drew, what its members say of tokens.

    `block` completed the contents, and from CLOSED on the commitments; `at` and `slots` are what
    the draw needs of the former.
    """

    requester: ChecksumAddress
    phase: AppealPhase
    of_claim: bool
    supplied: int = 0
    tokens: int = 0
    slots: int = 0
    at: int = 0
    block: int = 0
    round: Hash32 = NOTHING
    objections: dict[int, Reason] = field(default_factory=dict)
    committee: tuple[Member, ...] = ()

    @property
    def committed(self) -> frozenset[int]:
        """Members, from 1, that committed to states."""
        made = enumerate(self.committee, 1)
        return frozenset(k for k, member in made if any(member.inner))


@dataclass(frozen=True, slots=True)
class Demand:
    """Who wants a claim's bundle in calldata, how often that was, and which chunks are there."""

    demander: ChecksumAddress = ZERO_ADDRESS
    count: int = 0
    served: frozenset[int] = frozenset()
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """One challenged position: of which checked request, and which of its positions."""

    checked: int
    index: int


@dataclass(frozen=True, slots=True)
class Round:
    """The openings of a public round and what they add up to."""

    job_id: JobId
    reveal_by: int
    open_by: int
    compare_by: int
    lengths: dict[int, tuple[int, int]] = field(default_factory=dict)
    positions: int = 0
    served: frozenset[tuple[int, Place]] = frozenset()
    compared: frozenset[tuple[int, int, Place]] = frozenset()
    sums: dict[tuple[int, int], PairStatistics] = field(default_factory=dict)
    non_finite: frozenset[int] = frozenset()
    mismatched: frozenset[int] = frozenset()


@dataclass(slots=True)
class State:
    """Everything in storage. Values are frozen: a shallow copy of each table is a whole copy."""

    tokens: dict[ChecksumAddress, int] = field(default_factory=dict)
    allowances: dict[ChecksumAddress, int] = field(default_factory=dict)
    deposits: dict[tuple[ChecksumAddress, ChecksumAddress], DepositState] = field(
        default_factory=dict
    )
    accounts: dict[ChecksumAddress, Account] = field(default_factory=dict)
    keys: dict[ChecksumAddress, Key] = field(default_factory=dict)
    hot_keys: dict[ChecksumAddress, ChecksumAddress] = field(default_factory=dict)
    models: dict[ModelId, Model] = field(default_factory=dict)
    seats: dict[tuple[ModelId, int], SeatState] = field(default_factory=dict)
    evicted: dict[tuple[ModelId, int], bool] = field(default_factory=dict)
    jobs: dict[JobId, JobState] = field(default_factory=dict)
    escrows: dict[JobId, int] = field(default_factory=dict)
    kept: dict[int, Hash32] = field(default_factory=dict)
    nonces: dict[tuple[ChecksumAddress, ChecksumAddress, int], bool] = field(default_factory=dict)
    panels: dict[JobId, Panel] = field(default_factory=dict)
    busy: dict[ChecksumAddress, int] = field(default_factory=dict)
    rerun: dict[ChecksumAddress, int] = field(default_factory=dict)
    task_claims: dict[Hash32, TaskClaim] = field(default_factory=dict)
    disputes: dict[JobId, Dispute] = field(default_factory=dict)
    appeals: dict[JobId, Appeal] = field(default_factory=dict)
    outcomes: dict[JobId, Outcome] = field(default_factory=dict)
    demands: dict[JobId, Demand] = field(default_factory=dict)
    punished: dict[JobId, frozenset[int]] = field(default_factory=dict)
    rounds: dict[Hash32, Round] = field(default_factory=dict)

    def copy(self) -> Self:
        """The same, unmoved by what happens to this one."""
        return type(self)(**{each.name: dict(getattr(self, each.name)) for each in fields(self)})
