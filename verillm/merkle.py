"""One Merkle tree shape for traces, items, requests, outputs and tokens (docs/protocol.md §2).

Missing leaves are 32 zero bytes. Why padding and not duplication of an odd node: a duplicated
node lets two lists of different length share a root.
"""

from collections.abc import Sequence
from enum import IntEnum

from verillm.errors import MalformedError
from verillm.hashing import sha
from verillm.types import Hash32

ZERO = Hash32(bytes(32))


class LeafKind(IntEnum):
    """The tree that a leaf belongs to; hashed, so that no leaf of one passes in another."""

    TRACE = 1
    ITEM = 2
    REQUEST = 3
    OUTPUT = 4
    TOKENS = 5
    HEAD = 17


_PREFIX = {kind: bytes((0, kind)) for kind in LeafKind}


def leaf_hash(kind: LeafKind, payload: bytes) -> Hash32:
    """`sha(0x00 ‖ kind ‖ payload)`."""
    return sha(_PREFIX[kind] + payload)


def node_hash(left: Hash32, right: Hash32) -> Hash32:
    """`sha(0x01 ‖ left ‖ right)`."""
    return sha(b"\x01" + left + right)


def depth_of(count: int) -> int:
    """Levels above the leaves: ceil(log2(count)); count is at least 1."""
    if count < 1:
        raise MalformedError("count", "a tree has at least one leaf")
    return (count - 1).bit_length()


class Tree:
    """All levels of one tree, so that any proof is a walk and costs no hash."""

    __slots__ = ("_levels", "count", "depth")

    def __init__(self, leaves: Sequence[Hash32]) -> None:
        self.count = len(leaves)
        self.depth = depth_of(self.count)
        levels = [list(leaves)]
        padding = ZERO
        for _ in range(self.depth):
            level = levels[-1]
            if len(level) % 2:
                level.append(padding)
            levels.append([node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)])
            padding = node_hash(padding, padding)
        self._levels = levels

    @property
    def root(self) -> Hash32:
        """The one node of the top level."""
        return self._levels[-1][0]

    def proof(self, index: int) -> tuple[Hash32, ...]:
        """The siblings of a leaf, from the leaf up."""
        if not 0 <= index < self.count:
            raise MalformedError("index", f"{index} is not below {self.count}")
        return tuple(level[(index >> up) ^ 1] for up, level in enumerate(self._levels[:-1]))


def root_from(leaf: Hash32, index: int, path: Sequence[Hash32]) -> Hash32:
    """The root that a leaf and its siblings lead to."""
    node = leaf
    for up, sibling in enumerate(path):
        node = node_hash(sibling, node) if index >> up & 1 else node_hash(node, sibling)
    return node


def verify_proof(
    root: Hash32, leaf: Hash32, index: int, count: int, path: Sequence[Hash32]
) -> bool:
    """Whether `leaf` is number `index` of the `count` leaves under `root`."""
    if not 0 <= index < count or len(path) != depth_of(count):
        return False
    return root_from(leaf, index, path) == root
