"""A worker's evidence: what a trace holds, how it is committed to, how it is opened (§5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verillm.errors import EvidenceError, MalformedError
from verillm.hashing import sha, u32
from verillm.merkle import LeafKind, Tree, leaf_hash, verify_proof
from verillm.model import Shape
from verillm.signing import struct_hash, task_hash
from verillm.task import (
    Commitment,
    Inner,
    ItemLeaf,
    Task,
    inner_hash,
    item_leaf_hash,
    items_tree,
    output_hash,
)
from verillm.types import Bits, Hash32, Reason, TaskId


@dataclass(frozen=True, slots=True, eq=False)
class TraceItem:
    """One item's run: P prompt and N new tokens, states at positions 0..P+N-2.

    tokens : P+N ids. slices : uint16 [P+N-1, layers, sliceDims]. finals : uint16 [P+N-1, hidden].
    """

    item: int
    prompt_tokens: int
    tokens: tuple[int, ...]
    slices: Bits
    finals: Bits

    @property
    def new_tokens(self) -> int:
        """How many tokens the worker generated."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def output(self) -> tuple[int, ...]:
        """The tokens that the worker generated."""
        return self.tokens[self.prompt_tokens :]

    @property
    def shape(self) -> Shape:
        """What one position holds."""
        return Shape(self.slices.shape[1], self.slices.shape[2], self.finals.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """All items of one task's run, in the task's order."""

    task_hash: Hash32
    items: tuple[TraceItem, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CommittedTrace:
    """A trace with everything hashed from it: what is signed, and the trees that open it."""

    trace: Trace
    inner: Inner
    commitment: Commitment
    leaves: tuple[ItemLeaf, ...]
    trees: tuple[Tree, ...]
    items: Tree


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One opened position: states, or the final state with the digest of the slices only."""

    position: int
    token: int
    next: int
    slices: Bits | None
    slices_digest: Hash32
    final: Bits
    path: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """Some positions of one item, provable under the worker's inner commitment."""

    task_hash: Hash32
    inner: Inner
    leaf: ItemLeaf
    item_path: tuple[Hash32, ...]
    entries: tuple[Entry, ...]
    shape: Shape


def state_bytes(bits: Bits) -> bytes:
    """bf16 bits as they are hashed: big-endian."""
    return bits.astype(">u2").tobytes()


def state_digest(bits: Bits) -> Hash32:
    """`sha` of states, as it stands in a leaf."""
    return sha(state_bytes(bits))


def trace_leaf(task: Hash32, item: int, entry: Entry) -> Hash32:
    """The leaf of one position."""
    head = task + u32(item) + u32(entry.position) + u32(entry.token) + u32(entry.next)
    return leaf_hash(LeafKind.TRACE, head + entry.slices_digest + state_digest(entry.final))


def trace_leaves(task: Hash32, item: TraceItem) -> list[Hash32]:
    """The leaves of all positions: one conversion for the arrays, three digests a position."""
    slices = memoryview(item.slices.astype(">u2", order="C").tobytes())
    finals = memoryview(item.finals.astype(">u2", order="C").tobytes())
    wide, narrow = 2 * item.finals.shape[1], 2 * item.slices.shape[1] * item.slices.shape[2]
    head = task + u32(item.item)
    numbers = np.array(item.tokens, dtype=">u4").tobytes()
    return [
        leaf_hash(
            LeafKind.TRACE,
            head
            + u32(at)
            + numbers[4 * at : 4 * at + 8]
            + sha(slices[narrow * at : narrow * (at + 1)])
            + sha(finals[wide * at : wide * (at + 1)]),
        )
        for at in range(len(item.tokens) - 1)
    ]


def commit(trace: Trace, task: Task) -> CommittedTrace:
    """Hash a trace of `task`; MalformedError unless it is one."""
    _check_trace(trace, task)
    return hashed(trace, task.task_id)


def hashed(trace: Trace, task_id: TaskId) -> CommittedTrace:
    """A trace with all its trees, under whatever task hash it carries."""
    trees = tuple(Tree(trace_leaves(trace.task_hash, item)) for item in trace.items)
    leaves = tuple(
        ItemLeaf(
            item.item,
            item.prompt_tokens,
            item.new_tokens,
            tree.root,
            output_hash(task_id, item.output),
        )
        for item, tree in zip(trace.items, trees, strict=True)
    )
    items = items_tree(leaves)
    inner = Inner(
        trace.task_hash,
        items.root,
        len(leaves),
        sum(leaf.prompt_tokens for leaf in leaves),
        sum(leaf.new_tokens for leaf in leaves),
    )
    commitment = Commitment(task_id, inner_hash(inner))
    return CommittedTrace(trace, inner, commitment, leaves, trees, items)


def commitment_hash(commitment: Commitment) -> Hash32:
    """What `post` and `seal` handle."""
    return struct_hash(commitment)


def open_positions(
    committed: CommittedTrace, item: int, full: Sequence[int], final_only: Sequence[int] = ()
) -> Opening:
    """Open positions of one item: `full` with slices, `final_only` without; full wins over both."""
    if not 0 <= item < len(committed.leaves):
        raise MalformedError("item", f"{item} is not below {len(committed.leaves)}")
    whole = set(full)
    entries = tuple(
        _entry(committed, item, position, position in whole)
        for position in sorted(whole | set(final_only))
    )
    return Opening(
        committed.trace.task_hash,
        committed.inner,
        committed.leaves[item],
        committed.items.proof(item),
        entries,
        committed.trace.items[item].shape,
    )


def check_opening(opening: Opening, expected_inner: Hash32, shape: Shape) -> None:
    """EvidenceError unless every entry lies under the sealed inner commitment in the right shape.

    Non-finite states pass: they are evidence, and judged as such.
    """
    inner, leaf = opening.inner, opening.leaf
    _demand(inner_hash(inner) == expected_inner, "not the sealed commitment")
    _demand(opening.task_hash == inner.task_hash, "another task's hash")
    _demand(opening.shape == shape, "states of another shape")
    _demand(leaf.prompt_tokens > 0 and leaf.new_tokens > 0, "an item without tokens")
    _demand(
        verify_proof(
            inner.items_root, item_leaf_hash(leaf), leaf.item, inner.items, opening.item_path
        ),
        "the item is not under the commitment",
    )
    count = leaf.prompt_tokens + leaf.new_tokens - 1
    before = -1
    for entry in opening.entries:
        _demand(entry.position > before, "positions are not ascending")
        before = entry.position
        _check_entry(opening, entry, count, shape)


def _check_entry(opening: Opening, entry: Entry, count: int, shape: Shape) -> None:
    _demand(entry.final.shape == (shape.hidden,), "a final state of another size")
    if entry.slices is not None:
        _demand(entry.slices.shape == (shape.layers, shape.slice_dims), "slices of another size")
        _demand(state_digest(entry.slices) == entry.slices_digest, "slices of another digest")
    leaf = trace_leaf(opening.task_hash, opening.leaf.item, entry)
    _demand(
        verify_proof(opening.leaf.trace_root, leaf, entry.position, count, entry.path),
        f"position {entry.position} is not under the item",
    )


def _demand(holds: bool, fact: str) -> None:
    if not holds:
        raise EvidenceError(Reason.EVIDENCE_MISSING, fact)


def _entry(committed: CommittedTrace, number: int, position: int, full: bool) -> Entry:
    item = committed.trace.items[number]
    path = committed.trees[number].proof(position)
    slices = item.slices[position]
    return Entry(
        position,
        item.tokens[position],
        item.tokens[position + 1],
        slices if full else None,
        state_digest(slices),
        item.finals[position],
        path,
    )


def _check_trace(trace: Trace, task: Task) -> None:
    if trace.task_hash != task_hash(task):
        raise MalformedError("trace.taskHash", "of another task")
    if len(trace.items) != len(task.items):
        raise MalformedError("trace.items", f"{len(trace.items)} for {len(task.items)} items")
    for number, (run, item) in enumerate(zip(trace.items, task.items, strict=True)):
        where = f"trace.items[{number}]"
        if run.item != number or run.tokens[: run.prompt_tokens] != item.tokens:
            raise MalformedError(where, "not a run of this item's prompt")
        if not 1 <= run.new_tokens <= item.max_new_tokens:
            raise MalformedError(where, f"{run.new_tokens} new tokens")
        positions = len(run.tokens) - 1
        if run.slices.ndim != 3 or len(run.slices) != positions or run.slices.dtype != np.uint16:
            raise MalformedError(f"{where}.slices", "not uint16 [positions, layers, sliceDims]")
        if run.finals.ndim != 2 or len(run.finals) != positions or run.finals.dtype != np.uint16:
            raise MalformedError(f"{where}.finals", "not uint16 [positions, hidden]")
