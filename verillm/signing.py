"""EIP-712: struct hashes, digests, signatures, ids that are digests (docs/protocol.md §3)."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from eth_account.signers.local import LocalAccount
from eth_keys.datatypes import Signature
from eth_keys.exceptions import BadSignature
from eth_utils.address import is_address, to_canonical_address
from eth_utils.exceptions import ValidationError

from verillm.errors import MalformedError, SignatureError
from verillm.hashing import fixed, keccak, u256, word
from verillm.records import Attestation
from verillm.request import Job, Quote, Receipt
from verillm.schema import STRUCTS, Struct, array_of, struct_of
from verillm.task import Commitment, Task
from verillm.types import ChecksumAddress, Hash32, JobId

Signed = Quote | Job | Task | Commitment | Receipt | Attestation
"""What the protocol signs."""

_DOMAIN_TYPE = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
_HALF_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141 // 2


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a signature counts: one contract on one chain."""

    chain_id: int
    contract: ChecksumAddress

    @property
    def separator(self) -> Hash32:
        """The EIP-712 domain separator."""
        return keccak(
            keccak(_DOMAIN_TYPE.encode())
            + keccak(b"VeriLLM")
            + keccak(b"1")
            + u256(self.chain_id)
            + _address(self.contract, "contract")
        )


def struct_hash(value: object) -> Hash32:
    """`keccak(typeHash ‖ members)` of an object bound to a Solidity struct."""
    struct = struct_of(value)
    members = (
        _member(member.kind, getattr(value, member.attribute), f"{struct.name}.{member.name}")
        for member in struct.members
    )
    return keccak(type_hash(struct.name) + b"".join(members))


def digest(domain: Domain, value: Signed) -> Hash32:
    """What is signed: `keccak(0x1901 ‖ separator ‖ structHash)`."""
    return keccak(b"\x19\x01" + domain.separator + struct_hash(value))


def job_id(domain: Domain, job: Job) -> JobId:
    """A job's id is the digest that its client signed."""
    return JobId(digest(domain, job))


def task_hash(task: Task) -> Hash32:
    """What a worker's leaves name their task by."""
    return struct_hash(task)


def sign(domain: Domain, value: Signed, account: LocalAccount) -> bytes:
    """A 65-byte signature r‖s‖v, low s, v 27 or 28."""
    return sign_digest(digest(domain, value), account)


def sign_digest(message: Hash32, account: LocalAccount) -> bytes:
    """Sign a digest itself; whoever calls must know what it is of."""
    return bytes(account.unsafe_sign_hash(message).signature)


def recover(domain: Domain, value: Signed, signature: bytes) -> ChecksumAddress:
    """Who signed; SignatureError unless it is 65 bytes with low s and v 27 or 28."""
    return recover_digest(digest(domain, value), signature)


def recover_digest(message: Hash32, signature: bytes) -> ChecksumAddress:
    """Who signed a digest. High s is refused: it is the same signature made malleable."""
    if len(signature) != 65:
        raise SignatureError(f"a signature has 65 bytes, not {len(signature)}")
    r, s, v = signature[:32], signature[32:64], signature[64]
    if v not in (27, 28):
        raise SignatureError(f"v is 27 or 28, not {v}")
    if int.from_bytes(s, "big") > _HALF_ORDER:
        raise SignatureError("s is in the upper half of the order")
    try:
        key = Signature(r + s + bytes([v - 27])).recover_public_key_from_msg_hash(message)
    except (BadSignature, ValidationError) as error:
        raise SignatureError(f"no key recovers: {error}") from None
    return key.to_checksum_address()


def verify(domain: Domain, value: Signed, signature: bytes, expected: str) -> None:
    """SignatureError unless `expected` signed."""
    signer = recover(domain, value, signature)
    if signer.lower() != expected.lower():
        raise SignatureError(f"signed by {signer}, not by {expected}", signer=signer)


@cache
def type_hash(name: str) -> Hash32:
    """`keccak` of the struct's type with the types that it refers to, sorted."""
    return keccak(encode_type(name).encode())


def encode_type(name: str) -> str:
    """The EIP-712 `encodeType` of a bound struct."""
    referred = _references(name) - {name}
    return "".join(_definition(STRUCTS[each]) for each in (name, *sorted(referred)))


def _definition(struct: Struct) -> str:
    members = ",".join(f"{member.kind} {member.name}" for member in struct.members)
    return f"{struct.name}({members})"


def _references(name: str) -> set[str]:
    found = {name}
    for member in STRUCTS[name].members:
        kind = array_of(member.kind) or member.kind
        if kind in STRUCTS:
            found |= _references(kind)
    return found


def _member(kind: str, value: Any, field: str) -> bytes:
    element = array_of(kind)
    if element is not None:
        return keccak(b"".join(_member(element, entry, field) for entry in value))
    if kind in STRUCTS:
        return struct_hash(value)
    if kind == "address":
        return _address(value, field)
    if kind == "bytes32":
        return word(value, field)
    return bytes(32 - _size(kind)) + fixed(int(value), _size(kind), field)


def _size(kind: str) -> int:
    return int(kind.removeprefix("uint")) // 8


def _address(value: str, field: str) -> bytes:
    if not is_address(value):
        raise MalformedError(field, "not an address")
    return bytes(12) + to_canonical_address(value)
