"""JSON in and out, strictly: what every body is parsed with, field by field."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

from eth_typing import ChecksumAddress
from eth_utils.address import is_address, to_checksum_address

from verillm.api.limits import MAX_BODY_BYTES, MAX_DEPTH, MAX_TEXT, MAX_TOKENS, SIGNATURE_BYTES
from verillm.errors import MalformedError
from verillm.types import Hash32

T = TypeVar("T")
Json = Mapping[str, object]


def _no_constant(name: str) -> NoReturn:
    raise MalformedError("body", f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedError("body", "a key stands twice in one object")
    return found


_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def _check_depth(text: str, field: str) -> None:
    """Before parsing: under a raised recursion limit, deep nesting would overflow the C stack."""
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        if (first := found[0][0]) in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedError(field, f"nested deeper than {MAX_DEPTH}")
        elif first != '"':
            depth -= 1


def loads(raw: bytes | str, field: str = "body") -> object:
    """JSON of bounded size and depth without NaN or doubled keys; raises MalformedError."""
    if len(raw) > MAX_BODY_BYTES:
        raise MalformedError(field, f"longer than {MAX_BODY_BYTES} bytes")
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        _check_depth(text, field)
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except ValueError as error:
        raise MalformedError(field, "not JSON") from error


def dumps(value: Json) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def to_hex(value: bytes) -> str:
    """Lower-case 0x hex."""
    return "0x" + value.hex()


def parse_hex(text: object, field: str, size: int | None = None, cap: int = 4096) -> bytes:
    """Bytes from 0x hex of exactly `size` bytes, or of at most `cap`."""
    if not isinstance(text, str) or not text.startswith("0x"):
        raise MalformedError(field, "not 0x hex")
    if len(text) > 2 + 2 * (cap if size is None else size):
        raise MalformedError(field, "too long")
    try:
        value = bytes.fromhex(text[2:])
    except ValueError as error:
        raise MalformedError(field, "not 0x hex") from error
    if 2 * len(value) != len(text) - 2 or (size is not None and len(value) != size):
        raise MalformedError(field, f"not {size} bytes")
    return value


def parse_hash(text: object, field: str = "hash") -> Hash32:
    """32 bytes from 0x hex, such as an id in a path."""
    return Hash32(parse_hex(text, field, 32))


class Fields:
    """Reads one JSON object field by field; `end` rejects whatever nobody asked for."""

    __slots__ = ("_left", "_where")

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedError(where, "not an object")
        self._left: dict[str, object] = dict(value)
        self._where = where

    def take(self, key: str, parse: Callable[[object, str], T]) -> T:
        """The value of `key` through `parse(value, path of the field)`."""
        path = f"{self._where}.{key}"
        if key not in self._left:
            raise MalformedError(path, "missing")
        return parse(self._left.pop(key), path)

    def optional(self, key: str, parse: Callable[[object, str], T]) -> T | None:
        """Like `take`; null is None."""
        return self.take(key, lambda value, path: None if value is None else parse(value, path))

    def number(self, key: str, bits: int = 32) -> int:
        """An unsigned integer below 2^bits, sent as a number."""
        return self.take(key, lambda value, path: _bounded(value, path, bits))

    def amount(self, key: str, bits: int = 96) -> int:
        """An unsigned integer below 2^bits, sent as a decimal string."""
        return self.take(key, lambda value, path: _bounded(_decimal(value, path), path, bits))

    def text(self, key: str, cap: int = MAX_TEXT) -> str:
        """A string of at most `cap` characters."""
        return self.take(key, lambda value, path: _text(value, path, cap))

    def hash(self, key: str) -> Hash32:
        """32 bytes."""
        return self.take(key, parse_hash)

    def address(self, key: str) -> ChecksumAddress:
        """An account's address."""
        return self.take(key, parse_address)

    def signature(self, key: str) -> bytes:
        """A worker's or scheduler's signature: 65 bytes, whose form `signing.recover` checks."""
        return self.take(key, lambda value, path: parse_hex(value, path, SIGNATURE_BYTES))

    def many(self, key: str, parse: Callable[[object, str], T], cap: int) -> tuple[T, ...]:
        """A list of at most `cap` values."""
        return self.take(key, lambda value, path: _list(value, path, parse, cap))

    def end(self) -> None:
        """Raises unless every field of the object was read."""
        if self._left:
            raise MalformedError(f"{self._where}.{min(self._left)}", "unknown field")


def _bounded(value: object, path: str, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise MalformedError(path, f"not an unsigned integer of {bits} bits")
    return value


def _decimal(value: object, path: str) -> int:
    if not (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 78):
        raise MalformedError(path, "not a decimal string")
    return int(value)


def _text(value: object, path: str, cap: int) -> str:
    if not isinstance(value, str) or len(value) > cap:
        raise MalformedError(path, f"not a string of at most {cap} characters")
    return value


def parse_address(value: object, path: str) -> ChecksumAddress:
    """An account's address."""
    if not isinstance(value, str) or not value.startswith("0x") or not is_address(value):
        raise MalformedError(path, "not an address")
    return to_checksum_address(value)


def _list(value: object, path: str, parse: Callable[[object, str], T], cap: int) -> tuple[T, ...]:
    if not isinstance(value, list) or len(value) > cap:
        raise MalformedError(path, f"not a list of at most {cap}")
    return tuple(parse(entry, f"{path}[{index}]") for index, entry in enumerate(value))


def parse_tokens(value: object, path: str) -> tuple[int, ...]:
    """Token ids, each below 2^32."""
    if not isinstance(value, list) or len(value) > MAX_TOKENS:
        raise MalformedError(path, f"not a list of at most {MAX_TOKENS} tokens")
    if not all(type(token) is int and 0 <= token < 1 << 32 for token in value):
        raise MalformedError(path, "holds what is not a token id")
    return tuple(value)
