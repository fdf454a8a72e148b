"""What the chain keeps of a job by hash only: posting, sealing, claiming (docs/protocol.md §6)."""

from dataclasses import dataclass

from verillm.errors import InputError
from verillm.hashing import keccak
from verillm.request import Job, Quote
from verillm.schema import abi_encode, solidity
from verillm.task import Inner
from verillm.types import ChecksumAddress, Hash32, JobId, Outcome, Reason


@solidity(
    "Posting(Job job,Quote quote,uint32 seat,address worker,bytes32 commitment,bytes32 outputsRoot,"
    "uint96 lock,uint96 bond,uint32 slots,uint40 postedAt,uint40 postedBlock)"
)
@dataclass(frozen=True, slots=True)
class Posting:
    """Everything fixed when a job is posted."""

    job: Job
    quote: Quote
    seat: int
    worker: ChecksumAddress
    commitment: Hash32
    outputs_root: Hash32
    lock: int
    bond: int
    slots: int
    posted_at: int
    posted_block: int


@solidity("Member(uint32 seat,address owner,bytes32 inner,uint96 lock)")
@dataclass(frozen=True, slots=True)
class Member:
    """A drawn seat with what its owner committed to and what is locked on it."""

    seat: int
    owner: ChecksumAddress
    inner: Hash32
    lock: int


@solidity(
    "Sealing(bytes32 secret,bytes32 beacon,Inner inner,uint96 fee,uint40 sealedBlock,"
    "Member[] committee)"
)
@dataclass(frozen=True, slots=True)
class Sealing:
    """Everything fixed when a job is sealed; the committee in drawn order.

    `beacon` is the hash of the block of `post`: with secret and commitment it gives the draw.
    """

    secret: Hash32
    beacon: Hash32
    inner: Inner
    fee: int
    sealed_block: int
    committee: tuple[Member, ...]

    @property
    def seats(self) -> tuple[int, ...]:
        """The drawn seats."""
        return tuple(member.seat for member in self.committee)

    @property
    def owners(self) -> tuple[ChecksumAddress, ...]:
        """Who holds the drawn seats."""
        return tuple(member.owner for member in self.committee)

    @property
    def inners(self) -> tuple[Hash32, ...]:
        """What each member committed to."""
        return tuple(member.inner for member in self.committee)

    @property
    def locks(self) -> tuple[int, ...]:
        """What is locked on each member."""
        return tuple(member.lock for member in self.committee)


@solidity(
    "Claiming(address claimer,uint8 outcome,uint8 reason,uint8 paid,bytes32 bundle,bytes32 beacon)"
)
@dataclass(frozen=True, slots=True)
class Claiming:
    """Everything fixed when a verdict is claimed.

    `paid` has bit k-1 set for each member k that is; `beacon` is the hash of the block of `seal`.
    """

    claimer: ChecksumAddress
    outcome: Outcome
    reason: Reason
    paid: int
    bundle: Hash32
    beacon: Hash32


@solidity("Attestation(bytes32 jobId,uint8 outcome,uint8 reason,bytes32 bundle)")
@dataclass(frozen=True, slots=True)
class Attestation:
    """What a committee member signs for a verdict that the chain cannot recompute."""

    job_id: JobId
    outcome: Outcome
    reason: Reason
    bundle: Hash32


def record_hash(
    posting: Posting, sealing: Sealing | None = None, claiming: Claiming | None = None
) -> Hash32:
    """The one hash that the contract keeps of a job, by how far it has come.

    A chain: each record is the hash of the one before and of what came to it.
    """
    record = keccak(abi_encode(posting))
    if sealing is not None:
        record = keccak(abi_encode(sealing, before=record))
    if claiming is not None:
        if sealing is None:
            raise InputError("a claim follows a seal")
        record = keccak(abi_encode(claiming, before=record))
    return record
