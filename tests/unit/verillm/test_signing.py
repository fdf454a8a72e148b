from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from hypothesis import given, settings, strategies as st

from verillm.errors import MalformedError, SignatureError
from verillm.records import Attestation
from verillm.request import Job, Quote, Receipt, Sampling
from verillm.schema import STRUCTS, array_of, struct_of
from verillm.signing import (
    Domain,
    Signed,
    digest,
    job_id,
    recover,
    recover_digest,
    sign,
    struct_hash,
    verify,
)
from verillm.task import Commitment, Item, Task
from verillm.types import Outcome, Reason

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
DOMAIN = Domain(31337, to_checksum_address("0x" + "12" * 20))
KEY = Account.from_key(b"k" * 32)

H = st.binary(min_size=32, max_size=32)
A = st.binary(min_size=20, max_size=20).map(to_checksum_address)


def U(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


SAMPLINGS = st.builds(Sampling, U(32), U(32), U(32), U(32))
ITEMS = st.builds(Item, H, st.lists(U(32), min_size=1, max_size=40).map(tuple), U(32), SAMPLINGS, H)
JOBS: st.SearchStrategy[Job] = st.builds(Job, A, H, H, U(16), U(96), U(40), U(256))
SIGNED: st.SearchStrategy[Any] = st.one_of(
    st.builds(Quote, A, H, U(96), H, U(40)),
    JOBS,
    st.builds(Task, H, A, H, st.lists(ITEMS, max_size=3).map(tuple), U(40), U(96), U(96)),
    st.builds(Commitment, H, H),
    st.builds(Receipt, H, H, U(32), H),
    st.builds(Attestation, H, st.sampled_from(Outcome), st.sampled_from(Reason), H),
)


def typed_data(value: object) -> dict[str, Any]:
    """The object as any EIP-712 library takes it."""
    types = {
        name: [{"name": member.name, "type": member.kind} for member in STRUCTS[name].members]
        for name in _names(struct_of(value).name)
    }
    domain = {"name": "string", "version": "string", "chainId": "uint256"}
    domain["verifyingContract"] = "address"
    types["EIP712Domain"] = [{"name": name, "type": kind} for name, kind in domain.items()]
    return {
        "types": types,
        "primaryType": struct_of(value).name,
        "domain": {
            "name": "VeriLLM",
            "version": "1",
            "chainId": DOMAIN.chain_id,
            "verifyingContract": DOMAIN.contract,
        },
        "message": _message(value),
    }


def _names(name: str) -> set[str]:
    kinds = {array_of(member.kind) or member.kind for member in STRUCTS[name].members}
    return {name}.union(*(_names(kind) for kind in kinds if kind in STRUCTS))


def _message(value: object) -> dict[str, Any]:
    return {
        member.name: _value(member.kind, getattr(value, member.attribute))
        for member in struct_of(value).members
    }


def _value(kind: str, value: Any) -> Any:
    element = array_of(kind)
    if element is not None:
        return [_value(element, each) for each in value]
    return _message(value) if kind in STRUCTS else value


@given(SIGNED)
@settings(max_examples=60, deadline=None)
def test_digest_equals_that_of_eth_account_for_every_signed_object(value: Signed) -> None:
    theirs = encode_typed_data(full_message=typed_data(value))
    assert digest(DOMAIN, value) == keccak(b"\x19\x01" + theirs.header + theirs.body)
    assert struct_hash(value) == theirs.body


@given(JOBS)
@settings(max_examples=10, deadline=None)
def test_a_signature_recovers_its_signer_and_no_other_object(job: Job) -> None:
    signature = sign(DOMAIN, job, KEY)
    assert recover(DOMAIN, job, signature) == KEY.address
    verify(DOMAIN, job, signature, KEY.address.lower())
    with pytest.raises(SignatureError):
        verify(DOMAIN, replace(job, nonce=job.nonce ^ 1), signature, KEY.address)
    with pytest.raises(SignatureError):
        verify(Domain(1, DOMAIN.contract), job, signature, KEY.address)
    assert job_id(DOMAIN, job) == digest(DOMAIN, job)


COMMITMENT = Commitment(b"t" * 32, b"i" * 32)  # type: ignore[arg-type]
GOOD = sign(DOMAIN, COMMITMENT, KEY)


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[:-1] + bytes([GOOD[-1] - 27]),
        GOOD[:-1] + b"\x1d",
        GOOD[:32] + (ORDER - int.from_bytes(GOOD[32:64], "big")).to_bytes(32, "big")
        + bytes([55 - GOOD[-1]]),
        bytes(64) + b"\x1b",
        b"\xff" * 32 + GOOD[32:],
        GOOD[:32] + bytes(32) + GOOD[-1:],
        ORDER.to_bytes(32, "big") + GOOD[32:],
    ],
    ids=["empty", "short", "long", "v0", "v29", "high_s", "zero", "huge_r", "zero_s", "r_order"],
)  # fmt: skip
def test_a_signature_that_is_not_strict_is_a_signature_error(signature: bytes) -> None:
    with pytest.raises(SignatureError):
        recover(DOMAIN, COMMITMENT, signature)


@given(st.binary(min_size=63, max_size=67))
@settings(max_examples=60, deadline=None)
def test_any_bytes_recover_or_are_a_signature_error(signature: bytes) -> None:
    with suppress(SignatureError):
        recover_digest(digest(DOMAIN, COMMITMENT), signature)


@pytest.mark.parametrize(
    "job",
    [
        Job(KEY.address, b"q" * 32, b"r" * 32, 2**16, 1, 1, 1),  # type: ignore[arg-type]
        Job(KEY.address, b"q" * 31, b"r" * 32, 1, 1, 1, 1),  # type: ignore[arg-type]
        Job(KEY.address, b"q" * 32, b"r" * 32, 1, -1, 1, 1),  # type: ignore[arg-type]
        Job("0x12", b"q" * 32, b"r" * 32, 1, 1, 1, 1),  # type: ignore[arg-type]
    ],
    ids=["wide", "short_hash", "negative", "no_address"],
)
def test_a_value_that_does_not_fit_its_solidity_type_is_malformed(job: Job) -> None:
    with pytest.raises(MalformedError):
        struct_hash(job)
