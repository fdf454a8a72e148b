"""The two hash functions and the fixed-width integers of everything that is hashed."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
from eth_hash.auto import keccak as _keccak

from verillm.errors import MalformedError
from verillm.types import Hash32


def sha(data: bytes | bytearray | memoryview) -> Hash32:
    """SHA-256: bulk data; a precompile on chain and far faster than keccak in Python."""
    return Hash32(sha256(data).digest())


def keccak(data: bytes) -> Hash32:
    """Keccak-256: everything that Solidity hashes by `keccak256`."""
    return Hash32(_keccak(data))


def u32(value: int) -> bytes:
    """Four bytes, big-endian."""
    return fixed(value, 4)


def u256(value: int) -> bytes:
    """One ABI word, big-endian."""
    return fixed(value, 32)


def fixed(value: int, size: int, field: str = "integer") -> bytes:
    """`size` bytes, big-endian; MalformedError if the value does not fit."""
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise MalformedError(field, f"{value} does not fit {size} bytes") from None


def word(data: bytes, field: str = "word") -> bytes:
    """`data` itself, which must be one 32-byte word."""
    if len(data) != 32:
        raise MalformedError(field, f"{len(data)} bytes where 32 belong")
    return data


def keccak_words(words: Iterable[bytes]) -> Hash32:
    """`keccak256(abi.encode(...))` of static one-word values: their concatenation."""
    return keccak(b"".join(word(value) for value in words))


def tokens_of(data: bytes) -> tuple[int, ...]:
    """Token ids that stand as big-endian u32 each: the inverse of `tokens_bytes`."""
    if len(data) % 4:
        raise MalformedError("tokens", "not a whole number of token ids")
    return tuple(np.frombuffer(data, ">u4").tolist())


def tokens_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as big-endian u32 each."""
    try:
        return np.asarray(tokens, dtype=np.uint32).astype(">u4").tobytes()
    except (OverflowError, TypeError, ValueError):
        raise MalformedError("tokens", "a token id is not an unsigned 32-bit integer") from None
