"""The contract's events as data, and a job's history on chain."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

from verillm.chain import appeals, artifacts
from verillm.chain.contract import Chain, Log, Mined
from verillm.errors import MalformedError
from verillm.hashing import tokens_of
from verillm.model import ModelSpec
from verillm.proofs.shown import HashedTask
from verillm.records import Claiming, Posting, Sealing
from verillm.request import Sampling
from verillm.task import Inner, Item, ItemLeaf, Task
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, Outcome, Reason


# ── Money in and out ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Deposited:
    """A client put tokens at a scheduler's disposal."""

    client: ChecksumAddress
    scheduler: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class UnlockRequested:
    """A client asked for a deposit back."""

    client: ChecksumAddress
    scheduler: ChecksumAddress
    amount: int
    available_at: int


@dataclass(frozen=True, slots=True)
class DepositWithdrawn:
    """A client took its deposit."""

    client: ChecksumAddress
    scheduler: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class StakeAdded:
    """An operator added stake."""

    operator: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class StakeWithdrawalRequested:
    """An operator asked for free stake back."""

    operator: ChecksumAddress
    amount: int
    available_at: int


@dataclass(frozen=True, slots=True)
class StakeWithdrawn:
    """An operator took free stake."""

    operator: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class HotKeySet:
    """An operator named the key that signs for it."""

    operator: ChecksumAddress
    hot_key: ChecksumAddress


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """An operator published its API's address."""

    operator: ChecksumAddress
    endpoint: str


# ── Models and seats ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ModelRegistered:
    """An immutable model version."""

    model_id: ModelId
    spec: ModelSpec


@dataclass(frozen=True, slots=True)
class SeatJoined:
    """An operator took a seat."""

    model_id: ModelId
    seat: int
    owner: ChecksumAddress
    price: int


@dataclass(frozen=True, slots=True)
class SeatLeft:
    """An operator left a seat."""

    model_id: ModelId
    seat: int
    owner: ChecksumAddress
    releasable_at: int


@dataclass(frozen=True, slots=True)
class SeatEvicted:
    """A seat was taken from an operator whose stake no longer carries it."""

    model_id: ModelId
    seat: int
    owner: ChecksumAddress
    releasable_at: int


@dataclass(frozen=True, slots=True)
class SeatReleased:
    """A seat's stake is free."""

    model_id: ModelId
    seat: int
    owner: ChecksumAddress


# ── Jobs ─────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Posted:
    """The inferencer's commitment is on chain."""

    job_id: JobId
    scheduler: ChecksumAddress
    client: ChecksumAddress
    posting: Posting


@dataclass(frozen=True, slots=True)
class Sealed:
    """The committee's commitments are on chain; roles are public."""

    job_id: JobId
    sealing: Sealing


@dataclass(frozen=True, slots=True)
class Convened:
    """The committee is public before the seal: somebody has to be summoned."""

    job_id: JobId
    secret: Hash32
    inner: Inner
    seats: tuple[int, ...]
    owners: tuple[ChecksumAddress, ...]


@dataclass(frozen=True, slots=True)
class HashedItem:
    """An item of a task, its prompt by its root."""

    salt: Hash32
    tokens_root: Hash32
    length: int
    max_new_tokens: int
    sampling: Sampling
    seed: Hash32


@dataclass(frozen=True, slots=True)
class Summoned:
    """A member has to answer on chain; `tokens` by item, u32 each."""

    job_id: JobId
    owner: ChecksumAddress
    index: int
    answer_by: int
    task: HashedTask
    items: tuple[HashedItem, ...]
    tokens: tuple[bytes, ...]
    signature: bytes

    @property
    def whole_task(self) -> Task:
        """The task with its prompts."""
        items = tuple(
            Item(item.salt, tokens_of(tokens), item.max_new_tokens, item.sampling, item.seed)
            for item, tokens in zip(self.items, self.tokens, strict=True)
        )
        given = self.task
        return Task(
            given.task_id,
            given.worker,
            given.model_id,
            items,
            given.deadline,
            given.lock,
            given.fee,
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """A summoned member committed."""

    job_id: JobId
    owner: ChecksumAddress
    index: int
    inner: Inner
    signature: bytes


@dataclass(frozen=True, slots=True)
class Replaced:
    """A summoned member kept silent; the next of the stream has its place, and task `number`."""

    job_id: JobId
    owner: ChecksumAddress
    index: int
    number: int
    seat: int
    successor: ChecksumAddress


@dataclass(frozen=True, slots=True)
class TaskClaimed:
    """A worker claims its fee from a scheduler's stake."""

    commitment: Hash32
    scheduler: ChecksumAddress
    worker: ChecksumAddress
    amount: int
    collectable_at: int
    seat: int
    task: HashedTask
    inner: Inner
    leaves: tuple[ItemLeaf, ...]
    outputs: tuple[bytes, ...]
    signature: bytes


@dataclass(frozen=True, slots=True)
class TaskContested:
    """A job ended a claim."""

    commitment: Hash32
    job_id: JobId
    burnt: int


@dataclass(frozen=True, slots=True)
class TaskCollected:
    """A claim was paid."""

    commitment: Hash32
    amount: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """Someone claimed a verdict, bonded."""

    job_id: JobId
    claiming: Claiming


@dataclass(frozen=True, slots=True)
class BeaconKept:
    """A block's hash is stored for good."""

    block_number: int
    beacon: Hash32


@dataclass(frozen=True, slots=True)
class ChallengeOpened:
    """The public round began."""

    job_id: JobId
    challenger: ChecksumAddress
    open_by: int
    beacon: Hash32
    reason: Reason


@dataclass(frozen=True, slots=True)
class Revealed:
    """The lengths of a checked request are fixed."""

    job_id: JobId
    checked_index: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class PositionServed:
    """One party's opening of one position is in calldata."""

    job_id: JobId
    party: int
    checked_index: int
    position_index: int


@dataclass(frozen=True, slots=True)
class ItemMismatched:
    """A party's item is not the text that it was to run."""

    job_id: JobId
    party: int
    checked_index: int


@dataclass(frozen=True, slots=True)
class PairCompared:
    """The distances of two parties at one position are added up."""

    job_id: JobId
    party_a: int
    party_b: int
    checked_index: int
    position_index: int


@dataclass(frozen=True, slots=True)
class Supported:
    """The committee's word, or a proof, was added to a public round; `deadline` of its state."""

    job_id: JobId
    finder: ChecksumAddress
    reason: Reason
    deadline: int


@dataclass(frozen=True, slots=True)
class Judged:
    """The public round has a verdict; bit p of `lost` is party p, bit k-1 of `paid` member k."""

    job_id: JobId
    outcome: Outcome
    reason: Reason
    lost: int
    paid: int
    settle_after: int


@dataclass(frozen=True, slots=True)
class BundleDemanded:
    """Someone wants the bundle of the claim in calldata."""

    job_id: JobId
    demander: ChecksumAddress
    open_by: int


@dataclass(frozen=True, slots=True)
class ChunkServed:
    """A part of the bundle is in this transaction's calldata."""

    job_id: JobId
    index: int
    chunks: int


@dataclass(frozen=True, slots=True)
class BundleServed:
    """All of the bundle is on chain."""

    job_id: JobId
    finalize_after: int


@dataclass(frozen=True, slots=True)
class ClaimVoided:
    """The bundle was not served: the claim counts no more."""

    job_id: JobId
    claimer: ChecksumAddress
    claim_by: int


@dataclass(frozen=True, slots=True)
class Convicted:
    """A proof against a party: 0..m as ever, 255 the scheduler."""

    job_id: JobId
    party: int
    reason: Reason
    finder: ChecksumAddress


@dataclass(frozen=True, slots=True)
class Finalized:
    """The job is settled."""

    job_id: JobId
    outcome: Outcome
    reason: Reason


@dataclass(frozen=True, slots=True)
class Paid:
    """Someone earned by a job."""

    job_id: JobId
    account: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class Slashed:
    """An operator lost stake by a job."""

    job_id: JobId
    operator: ChecksumAddress
    amount: int


@dataclass(frozen=True, slots=True)
class Burnt:
    """Tokens nobody gets."""

    job_id: JobId
    amount: int


EVENTS: tuple[type[Any], ...] = (
    Deposited,
    UnlockRequested,
    DepositWithdrawn,
    StakeAdded,
    StakeWithdrawalRequested,
    StakeWithdrawn,
    HotKeySet,
    EndpointSet,
    ModelRegistered,
    SeatJoined,
    SeatLeft,
    SeatEvicted,
    SeatReleased,
    Posted,
    Sealed,
    Convened,
    Summoned,
    Answered,
    Replaced,
    TaskClaimed,
    TaskContested,
    TaskCollected,
    Claimed,
    BeaconKept,
    ChallengeOpened,
    Revealed,
    PositionServed,
    ItemMismatched,
    PairCompared,
    Supported,
    Judged,
    BundleDemanded,
    ChunkServed,
    BundleServed,
    ClaimVoided,
    Convicted,
    Finalized,
    Paid,
    Slashed,
    Burnt,
    *appeals.EVENTS,
)
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class At(Generic[E]):
    """An event and where it stands; `timestamp` of its block in the chain's seconds."""

    event: E
    transaction: Hash32
    block_number: int
    block_hash: Hash32
    timestamp: int
    index: int


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Everything that the chain says of a job, in order."""

    job_id: JobId
    events: tuple[At[Any], ...]

    @property
    def posted(self) -> At[Posted] | None:
        """How it was posted."""
        return self.first(Posted)

    @property
    def sealed(self) -> At[Sealed] | None:
        """How it was sealed."""
        return self.first(Sealed)

    @property
    def claimed(self) -> At[Claimed] | None:
        """Which verdict is claimed: the last one, unless its bundle was not served."""
        claims = self.all(Claimed)
        return claims[-1] if len(claims) > len(self.all(ClaimVoided)) else None

    @property
    def challenged(self) -> At[ChallengeOpened] | None:
        """Who opened the public round."""
        return self.first(ChallengeOpened)

    @property
    def judged(self) -> At[Judged] | None:
        """What the public round found."""
        return self.first(Judged)

    @property
    def finalized(self) -> At[Finalized] | None:
        """How it ended."""
        return self.first(Finalized)

    def number_of(self, party: int) -> int:
        """The number of a party's task: its own, unless it replaced somebody."""
        replaced = (at.event for at in self.all(Replaced) if at.event.index == party - 1)
        return max((event.number for event in replaced), default=party)

    def first(self, kind: type[E]) -> At[E] | None:
        """The first event of a kind."""
        return next(iter(self.all(kind)), None)

    def all(self, kind: type[E]) -> tuple[At[E], ...]:
        """All events of a kind, in order."""
        return tuple(each for each in self.events if isinstance(each.event, kind))


@cache
def _by_topic() -> dict[bytes, tuple[artifacts.Entry, type[Any]]]:
    """By name and fields: a summons and an appeal each convene a committee, with other words."""
    kinds = {(kind.__name__, frozenset(f.name for f in fields(kind))): kind for kind in EVENTS}
    entries = artifacts.events("Adjudicator") | artifacts.events("VeriLLM")
    found = {}
    for topic, entry in entries.items():
        kind = kinds.get((entry.name, frozenset(map(_name, entry.inputs))))
        if kind is not None:
            found[topic] = (entry, kind)
    return found


def topic_of(kind: type[Any]) -> Hash32:
    """The first topic of an event's logs."""
    return next(Hash32(t) for t, (_, each) in _by_topic().items() if each is kind)


def parse_log(log: Log) -> Any | None:
    """The event of a log, None if it is not one of ours; raises MalformedError.

    None too for an endpoint or a model's name that is no text: anyone may send one, it stays in the
    log for good, and whoever stopped at it would never read on.
    """
    if not log.topics or log.topics[0] not in _by_topic():
        return None
    entry, kind = _by_topic()[log.topics[0]]
    hints = get_type_hints(kind)
    indexed = [part for part in entry.inputs if part["indexed"]]
    plain = [part for part in entry.inputs if not part["indexed"]]
    if len(indexed) != len(log.topics) - 1:
        raise MalformedError(f"log.{entry.name}", "wrong number of topics")
    values = {}
    for part, topic in zip(indexed, log.topics[1:], strict=True):
        values[_name(part)] = artifacts.decode([part], topic, [hints[_name(part)]])[0]
    kinds = [hints[_name(part)] for part in plain]
    try:
        decoded = artifacts.decode(plain, log.data, kinds)
    except artifacts.NotText:
        return None
    values |= {_name(part): value for part, value in zip(plain, decoded, strict=True)}
    return kind(**values)


def _name(part: artifacts.Component) -> str:
    return artifacts.snake(part["name"])


def events_of(mined: Mined) -> tuple[Any, ...]:
    """Our events in a transaction's receipt, in order."""
    parsed = (parse_log(log) for log in mined.logs)
    return tuple(event for event in parsed if event is not None)


def stream(
    chain: Chain,
    kinds: tuple[type[Any], ...] = EVENTS,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[At[Any]]:
    """Events of some kinds from block `first` (the deployment) to `last` (the newest), in order."""
    yield from _located(chain, chain.logs([[topic_of(kind) for kind in kinds]], first, last))


def job_history(chain: Chain, job_id: JobId) -> JobHistory:
    """All events of a job."""
    about_jobs = [topic_of(kind) for kind in EVENTS if "job_id" in get_type_hints(kind)]
    found = _located(chain, chain.logs([about_jobs, job_id]))
    return JobHistory(job_id, tuple(found))


def _located(chain: Chain, logs: Iterator[Log]) -> Iterator[At[Any]]:
    timestamps: dict[int, int] = {}
    for log in logs:
        if (event := parse_log(log)) is None:
            continue
        number = log.block_number
        if number not in timestamps:
            timestamps[number] = chain.block(number).timestamp
        yield At(event, log.transaction, number, log.block_hash, timestamps[number], log.index)
