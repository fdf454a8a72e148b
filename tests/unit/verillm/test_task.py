from hashlib import sha256

import pytest
from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from verillm.errors import InputError, MalformedError, TokensOutOfBounds
from verillm.request import Request, Sampling, request_leaf
from verillm.task import (
    Inner,
    ItemLeaf,
    derive_secret,
    draw_commit,
    inference_task,
    inner_hash,
    item_leaf_hash,
    output_hash,
    output_leaf,
    outputs_root,
    seed,
    task_id,
    verification_task,
)
from verillm.types import Hash32, JobId, ModelId, TaskId

SECRET, JOB, MODEL = Hash32(b"r" * 32), JobId(Hash32(b"j" * 32)), ModelId(Hash32(b"m" * 32))
WORKER = to_checksum_address("0x" + "ab" * 20)
REQUESTS = [
    Request(b"a" * 32, (1, 2, 3), 4, Sampling(0)),
    Request(b"b" * 32, (4, 5), 6, Sampling(500_000, 3)),
]


def test_power_seed_is_the_abi_hash_of_secret_leaf_and_request() -> None:
    leaf = request_leaf(REQUESTS[1])
    expected = keccak(encode(["bytes32", "bytes32", "uint256"], [SECRET, leaf, 1]))
    assert seed(SECRET, leaf, 1) == expected
    assert seed(SECRET, leaf, 0) != expected


def test_task_id_and_draw_commit_are_abi_hashes() -> None:
    expected = keccak(encode(["bytes32", "bytes32", "uint256"], [SECRET, JOB, 3]))
    assert task_id(SECRET, JOB, 3) == expected
    assert draw_commit(SECRET) == keccak(encode(["bytes32"], [SECRET]))


def test_inner_hash_is_the_abi_hash_of_its_members() -> None:
    inner = Inner(Hash32(b"t" * 32), Hash32(b"i" * 32), 2, 2**40, 7)
    kinds = ["bytes32", "bytes32", "uint32", "uint64", "uint64"]
    expected = keccak(encode(kinds, [inner.task_hash, inner.items_root, 2, 2**40, 7]))
    assert inner_hash(inner) == expected


def test_power_item_and_output_leaves_are_encoded_as_documented() -> None:
    leaf = ItemLeaf(1, 2, 3, Hash32(b"t" * 32), Hash32(b"o" * 32))
    counts = b"".join(number.to_bytes(4, "big") for number in (1, 2, 3))
    assert item_leaf_hash(leaf) == sha256(b"\x00\x02" + counts + b"t" * 32 + b"o" * 32).digest()
    expected = sha256(b"\x00\x04" + (7).to_bytes(4, "big") + b"o" * 32).digest()
    assert output_leaf(7, Hash32(b"o" * 32)) == expected
    assert outputs_root([Hash32(b"o" * 32)]) == output_leaf(0, Hash32(b"o" * 32))


def test_output_hash_binds_tokens_to_the_task() -> None:
    task = TaskId(Hash32(b"k" * 32))
    assert output_hash(task, [1, 258]) == sha256(task + b"\0\0\0\1\0\0\1\2").digest()
    with pytest.raises(MalformedError):
        output_hash(task, [2**32])
    with pytest.raises(MalformedError):
        output_hash(task, [-1])


def test_the_inferencers_task_holds_all_requests_in_order_with_their_seeds() -> None:
    task = inference_task(SECRET, JOB, REQUESTS, WORKER, MODEL, 9, 8, 7)
    assert task.task_id == task_id(SECRET, JOB, 0)
    assert [item.request for item in task.items] == REQUESTS
    assert [item.seed for item in task.items] == [
        seed(SECRET, request_leaf(request), number) for number, request in enumerate(REQUESTS)
    ]


def test_a_verifiers_item_is_prompt_and_output_less_the_last_token_under_the_same_seed() -> None:
    inferred = inference_task(SECRET, JOB, REQUESTS, WORKER, MODEL, 9, 8, 7)
    checked = [(1, REQUESTS[1]), (0, REQUESTS[0])]
    task = verification_task(
        SECRET, JOB, 2, checked, [(70, 71), (80,)], WORKER, MODEL, 9, 8, 7, [3, 1]
    )
    assert task.task_id == task_id(SECRET, JOB, 2)
    assert [item.tokens for item in task.items] == [(4, 5, 70), (1, 2, 3)]
    assert [item.seed for item in task.items] == [inferred.items[1].seed, inferred.items[0].seed]
    assert [item.max_new_tokens for item in task.items] == [3, 1]


def test_a_verification_task_needs_a_member_and_an_output() -> None:
    arguments = (WORKER, MODEL, 9, 8, 7, [1])
    with pytest.raises(InputError):
        verification_task(SECRET, JOB, 0, [(0, REQUESTS[0])], [(1,)], *arguments)
    with pytest.raises(TokensOutOfBounds):
        verification_task(SECRET, JOB, 1, [(0, REQUESTS[0])], [()], *arguments)


def test_secrets_derive_from_one_master_and_differ_by_nonce() -> None:
    assert derive_secret(b"m" * 32, b"1") == derive_secret(b"m" * 32, b"1")
    assert derive_secret(b"m" * 32, b"1") != derive_secret(b"m" * 32, b"2")
    assert len(derive_secret(b"m" * 32, b"")) == 32
