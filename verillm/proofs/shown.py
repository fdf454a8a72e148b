"""What a proof brings, as the Prover takes it (IProver.sol): views of what parties signed."""

from dataclasses import dataclass

from verillm.hashing import tokens_bytes
from verillm.request import PIECE, Request, Sampling, piece_proof, tokens_root
from verillm.signing import struct_hash
from verillm.task import Inner, Item, ItemLeaf, Task
from verillm.trace import Entry as TraceEntry, Opening, state_bytes, state_digest
from verillm.types import ChecksumAddress, Hash32, ModelId, TaskId

NONE = Hash32(bytes(32))


@dataclass(frozen=True, slots=True)
class HashedTask:
    """A task as the contracts take it: its items by their struct hashes."""

    task_id: TaskId
    worker: ChecksumAddress
    model_id: ModelId
    items: tuple[Hash32, ...]
    deadline: int
    lock: int
    fee: int

    @classmethod
    def of(cls, task: Task) -> "HashedTask":
        """The same task."""
        items = tuple(struct_hash(item) for item in task.items)
        fields = (task.deadline, task.lock, task.fee)
        return cls(task.task_id, task.worker, task.model_id, items, *fields)


@dataclass(frozen=True, slots=True)
class Given:
    """A party's task with one of its items, under what the party committed to."""

    inner: Inner
    task: HashedTask
    index: int
    item: Item


@dataclass(frozen=True, slots=True)
class Made:
    """What a party made of that item."""

    leaf: ItemLeaf
    path: tuple[Hash32, ...]

    @classmethod
    def of(cls, opening: Opening) -> "Made":
        """The item of an opening."""
        return cls(opening.leaf, opening.item_path)


@dataclass(frozen=True, slots=True)
class Entry:
    """One position of a trace, its states by their digests."""

    position: int
    token: int
    next: int
    slices: Hash32
    final_state: Hash32
    path: tuple[Hash32, ...]

    @classmethod
    def of(cls, entry: TraceEntry) -> "Entry":
        """The view of an opened position."""
        digests = (entry.slices_digest, state_digest(entry.final))
        return cls(entry.position, entry.token, entry.next, *digests, entry.path)


NO_ENTRY = Entry(0, 0, 0, NONE, NONE, ())


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a prompt under its tokens root."""

    salt: Hash32
    tokens: bytes
    path: tuple[Hash32, ...]

    @classmethod
    def of(cls, salt: bytes, tokens: tuple[int, ...], at: int) -> "Piece":
        """The piece that holds token `at`."""
        proof = piece_proof(salt, tokens, at // PIECE)
        return cls(proof.piece_salt, tokens_bytes(proof.tokens), proof.path)


NO_PIECE = Piece(NONE, b"", ())


@dataclass(frozen=True, slots=True)
class Told:
    """Token `at` of a verifier's prompt: by its task, and by the request if it is the request's."""

    at: int
    given: Piece
    asked: Piece


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the job, under its requests root."""

    tokens_root: Hash32
    length: int
    max_new_tokens: int
    sampling: Sampling
    path: tuple[Hash32, ...]

    @classmethod
    def of(cls, request: Request, path: tuple[Hash32, ...]) -> "Asked":
        """The view of a request."""
        root, length = tokens_root(request.salt, request.tokens), len(request.tokens)
        return cls(root, length, request.max_new_tokens, request.sampling, path)


@dataclass(frozen=True, slots=True)
class Output:
    """The posted output of a request."""

    tokens: bytes
    path: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the head as bf16 bits, under the head root."""

    bits: bytes
    path: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class Rival:
    """The chosen token's row and a better entry's, whose id this is."""

    id: int
    token: Row
    rival: Row


@dataclass(frozen=True, slots=True)
class Witness:
    """A committee member's state at the position in question."""

    party: int
    given: Given
    made: Made
    entry: Entry
    final_state: bytes

    @classmethod
    def of(cls, party: int, given: Given, opening: Opening, entry: TraceEntry) -> "Witness":
        """The view of a member's opened position."""
        return cls(party, given, Made.of(opening), Entry.of(entry), state_bytes(entry.final))
