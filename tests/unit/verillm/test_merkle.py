from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from verillm.errors import MalformedError
from verillm.merkle import LeafKind, Tree, depth_of, leaf_hash, root_from, verify_proof
from verillm.types import Hash32

HASHES = st.binary(min_size=32, max_size=32).map(Hash32)


def reference_root(leaves: list[bytes]) -> bytes:
    """The definition, word for word: pad with zeros to a power of two, hash pairs."""
    size = 1
    while size < len(leaves):
        size *= 2
    level = leaves + [bytes(32)] * (size - len(leaves))
    while len(level) > 1:
        level = [
            sha256(b"\x01" + level[at] + level[at + 1]).digest() for at in range(0, len(level), 2)
        ]
    return level[0]


def test_a_leaf_is_the_hash_of_zero_kind_and_payload() -> None:
    assert leaf_hash(LeafKind.OUTPUT, b"abc") == sha256(b"\x00\x04abc").digest()


@given(st.lists(HASHES, min_size=1, max_size=40), st.data())
def test_every_proof_of_a_tree_verifies_and_leads_to_the_padded_root(
    leaves: list[Hash32], data: st.DataObject
) -> None:
    tree = Tree(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    assert tree.root == reference_root(list(leaves))
    assert len(tree.proof(index)) == depth_of(len(leaves)) == tree.depth
    assert verify_proof(tree.root, leaves[index], index, len(leaves), tree.proof(index))
    assert root_from(leaves[index], index, tree.proof(index)) == tree.root


@given(st.lists(HASHES, min_size=2, max_size=20, unique=True), st.data())
def test_a_proof_fails_at_another_index_count_length_or_leaf(
    leaves: list[Hash32], data: st.DataObject
) -> None:
    tree, count = Tree(leaves), len(leaves)
    index = data.draw(st.integers(0, count - 1))
    path = tree.proof(index)
    other = data.draw(st.integers(-1, 2 * count).filter(lambda each: each != index))
    assert not verify_proof(tree.root, leaves[index], other, count, path)
    assert not verify_proof(tree.root, leaves[index], index, count, path[:-1])
    assert not verify_proof(tree.root, leaves[index], index, count, (*path, path[0]))
    assert not verify_proof(tree.root, leaves[(index + 1) % count], index, count, path)


@given(st.lists(HASHES, min_size=1, max_size=20))
def test_a_list_with_its_last_leaf_doubled_has_another_root(leaves: list[Hash32]) -> None:
    assert Tree(leaves).root != Tree([*leaves, leaves[-1]]).root


def test_a_padding_leaf_cannot_be_proven() -> None:
    tree = Tree([Hash32(bytes([n + 1]) * 32) for n in range(3)])
    path = (Hash32(b"\x03" * 32), tree.proof(2)[1])
    assert root_from(Hash32(bytes(32)), 3, path) == tree.root
    assert not verify_proof(tree.root, Hash32(bytes(32)), 3, 3, path)


def test_an_inner_node_is_no_leaf_at_the_depth_of_the_count() -> None:
    leaves = [Hash32(bytes([n + 1]) * 32) for n in range(4)]
    tree = Tree(leaves)
    inner = root_from(leaves[0], 0, tree.proof(0)[:1])
    assert root_from(inner, 0, tree.proof(0)[1:]) == tree.root
    assert not verify_proof(tree.root, inner, 0, 4, tree.proof(0)[1:])


def test_an_empty_tree_and_an_index_out_of_bounds_are_refused() -> None:
    with pytest.raises(MalformedError):
        Tree([])
    with pytest.raises(MalformedError):
        Tree([Hash32(bytes(32))]).proof(1)
