"""The Solidity structs of the protocol as data: one table for EIP-712, ABI and JSON.

A dataclass is bound to its Solidity definition by `@solidity(...)`; encoders walk the table.
Solidity names are camelCase, attributes are the same in snake_case.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from eth_abi.abi import encode
from eth_utils.address import is_address, to_checksum_address

from verillm.errors import MalformedError

MAX_TEXT = 256
MAX_LIST = 4096
_DECIMAL_BITS = 53  # what JavaScript counts exactly; wider types travel as decimal strings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a struct: its Solidity type and name, and the attribute that holds it."""

    kind: str
    name: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Struct:
    """One Solidity struct, bound to a dataclass."""

    name: str
    members: tuple[Member, ...]
    python: type[Any]


STRUCTS: dict[str, Struct] = {}
_BY_TYPE: dict[type[Any], Struct] = {}


def solidity(definition: str) -> Callable[[type[T]], type[T]]:
    """Bind a dataclass to `Name(type member,type member,…)`."""

    def bind(python: type[T]) -> type[T]:
        struct = parse(definition, python)
        STRUCTS[struct.name] = struct
        _BY_TYPE[python] = struct
        return python

    return bind


def parse(definition: str, python: type[Any]) -> Struct:
    """Read `Name(type member,…)`."""
    name, _, rest = definition.partition("(")
    members = tuple(
        Member(kind, member, _snake(member))
        for kind, member in (part.split() for part in rest.removesuffix(")").split(","))
    )
    return Struct(name, members, python)


def struct_of(value: object) -> Struct:
    """The struct that an object's class is bound to; TypeError if it is none."""
    struct = _BY_TYPE.get(type(value))
    if struct is None:
        raise TypeError(f"{type(value).__name__} is not bound to a Solidity struct")
    return struct


def struct_name(python: type[Any]) -> str:
    """The Solidity name of a bound dataclass."""
    return _BY_TYPE[python].name


def array_of(kind: str) -> str | None:
    """The element type of an array type, None for any other."""
    return kind[: kind.rindex("[")] if kind.endswith("]") else None


def abi_type(kind: str) -> str:
    """The type as eth-abi spells it: structs become tuples."""
    element = array_of(kind)
    if element is not None:
        return abi_type(element) + kind[len(element) :]
    if kind in STRUCTS:
        return "(" + ",".join(abi_type(member.kind) for member in STRUCTS[kind].members) + ")"
    return kind


def abi_value(kind: str, value: Any) -> Any:
    """The value as eth-abi takes it: structs become tuples of their members."""
    element = array_of(kind)
    if element is not None:
        return [abi_value(element, entry) for entry in value]
    if kind in STRUCTS:
        members = STRUCTS[kind].members
        return tuple(abi_value(member.kind, getattr(value, member.attribute)) for member in members)
    return value


def abi_encode(value: object, before: bytes | None = None) -> bytes:
    """`abi.encode(value)` of a struct, or `abi.encode(before, value)` with a bytes32 before it."""
    kind = struct_of(value).name
    kinds, values = [abi_type(kind)], [abi_value(kind, value)]
    if before is not None:
        kinds, values = ["bytes32", *kinds], [before, *values]
    return encode(kinds, values)


def to_json(value: Any) -> dict[str, Any]:
    """A bound object as JSON values, by the names of its Solidity struct."""
    members = struct_of(value).members
    return {
        member.name: _to_json(member.kind, getattr(value, member.attribute)) for member in members
    }


def from_json(python: type[T], value: Any, path: str) -> T:
    """A bound object from JSON values; MalformedError names the first field that is wrong."""
    members = _BY_TYPE[python].members
    if not isinstance(value, dict):
        raise MalformedError(path, "not an object")
    for name in value.keys() - {member.name for member in members}:
        raise MalformedError(f"{path}.{str(name)[:MAX_TEXT]}", "unknown field")
    fields = {}
    for member in members:
        where = f"{path}.{member.name}"
        if member.name not in value:
            raise MalformedError(where, "missing")
        fields[member.attribute] = _from_json(member.kind, value[member.name], where)
    return python(**fields)


def bits_of(kind: str) -> int:
    """The width of an integer type."""
    return int(kind.removeprefix("u").removeprefix("int"))


def _to_json(kind: str, value: Any) -> Any:
    element = array_of(kind)
    if element is not None:
        return [_to_json(element, entry) for entry in value]
    if kind in STRUCTS:
        return to_json(value)
    if kind == "bytes32":
        return "0x" + value.hex()
    if "int" in kind and bits_of(kind) > _DECIMAL_BITS:
        return str(value)
    return int(value) if "int" in kind else value


def _from_json(kind: str, value: Any, path: str) -> Any:
    element = array_of(kind)
    if element is not None:
        return _list(kind, element, value, path)
    if kind in STRUCTS:
        return from_json(STRUCTS[kind].python, value, path)
    if "int" in kind:
        return _integer(kind, value, path)
    return _SCALARS[kind](value, path)


def _list(kind: str, element: str, value: Any, path: str) -> tuple[Any, ...]:
    size = kind[len(element) + 1 : -1]
    if not isinstance(value, list) or len(value) > MAX_LIST:
        _refuse(path, f"not a list of at most {MAX_LIST}")
    if size and len(value) != int(size):
        _refuse(path, f"not {size} values")
    return tuple(_from_json(element, entry, f"{path}[{at}]") for at, entry in enumerate(value))


def _integer(kind: str, value: Any, path: str) -> int:
    bits = bits_of(kind)
    if bits > _DECIMAL_BITS:
        if not isinstance(value, str) or not re.fullmatch(r"0|[1-9][0-9]{0,77}", value, re.ASCII):
            _refuse(path, "not a decimal string")
        value = int(value)
    low, high = (0, 1 << bits) if kind.startswith("u") else (-1 << (bits - 1), 1 << (bits - 1))
    if type(value) is not int or not low <= value < high:
        _refuse(path, f"not a {kind}")
    return int(value)


def _bytes32(value: Any, path: str) -> bytes:
    if not isinstance(value, str) or not re.fullmatch(r"0x[0-9a-f]{64}", value):
        _refuse(path, "not 32 bytes of lower-case 0x hex")
    return bytes.fromhex(value[2:])


def _address(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value.startswith("0x") or not is_address(value):
        _refuse(path, "not an address")
    return to_checksum_address(value)


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        _refuse(path, f"not a string of at most {MAX_TEXT} characters")
    return str(value)


def _bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        _refuse(path, "not true or false")
    return bool(value)


_SCALARS: dict[str, Callable[[Any, str], Any]] = {
    "bytes32": _bytes32,
    "address": _address,
    "string": _text,
    "bool": _bool,
}


def _refuse(path: str, fact: str) -> NoReturn:
    raise MalformedError(path, fact)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
