"""What the package carries of each contract: its ABI and bytecode, and ABI coding over dataclasses.

The functions, events and errors here are the contract's own JSON ABI; a dataclass is coded by the
names of the ABI's components (`taskHash` is the field `task_hash`): no list of fields stands twice.
"""

import dataclasses
import functools
import importlib.resources
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from eth_abi.abi import decode as abi_decode, encode as abi_encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import (
    abi_to_signature,
    collapse_if_tuple,
    event_signature_to_log_topic,
    function_signature_to_4byte_selector,
)
from eth_utils.address import to_checksum_address

from verillm.errors import MalformedError

T = TypeVar("T")
Component = Mapping[str, Any]
EXTENSIONS: Final = ("Recourse", "Summons", "Wages", "Appeals")
"""Contracts whose code VeriLLM runs on its own storage, in the order in which it asks them."""
CONTRACTS: Final = ("VeriLLM", *EXTENSIONS, "Adjudicator", "Prover", "DevToken")


@dataclass(frozen=True, slots=True)
class Entry:
    """One function, event or error of an ABI."""

    name: str
    inputs: tuple[Component, ...]
    outputs: tuple[Component, ...]
    signature: str

    @property
    def selector(self) -> bytes:
        """First four bytes of calldata or of a custom error."""
        return function_signature_to_4byte_selector(self.signature)

    @property
    def topic(self) -> bytes:
        """First topic of an event's logs."""
        return event_signature_to_log_topic(self.signature)

    def encode(self, *values: object) -> bytes:
        """Calldata: the selector, then the values."""
        return self.selector + encode(self.inputs, values)


class NotText(MalformedError):
    """A string that is not UTF-8. Solidity checks none, so a stranger can put one into an event."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled contract."""

    name: str
    abi: tuple[Component, ...]
    bytecode: bytes

    def constructor(self, *values: object) -> bytes:
        """What a deployment sends."""
        inputs = next((e["inputs"] for e in self.abi if e["type"] == "constructor"), ())
        return self.bytecode + encode(inputs, values)

    def entries(self, kind: str) -> dict[str, Entry]:
        """Its functions, events or errors by name."""
        found = {}
        for entry in self.abi:
            if entry["type"] == kind:
                inputs, outputs = tuple(entry["inputs"]), tuple(entry.get("outputs", ()))
                signature = abi_to_signature(typing.cast(Any, entry))
                found[entry["name"]] = Entry(entry["name"], inputs, outputs, signature)
        return found


@functools.cache
def artifact(name: str) -> Artifact:
    """The shipped contract `name`."""
    text = importlib.resources.files(__package__).joinpath("abi", f"{name}.json").read_text()
    return parse_artifact(json.loads(text))


def parse_artifact(value: Mapping[str, Any]) -> Artifact:
    """A contract from the JSON that tools/export_abi.py writes."""
    bytecode = bytes.fromhex(value["bytecode"].removeprefix("0x"))
    return Artifact(value["contractName"], tuple(value["abi"]), bytecode)


@functools.cache
def functions(contract: str) -> dict[str, Entry]:
    """A contract's functions by name; those of VeriLLM wherever their code stands."""
    return {
        name: entry for part in _parts(contract) for name, entry in part.entries("function").items()
    }


@functools.cache
def events(contract: str) -> dict[bytes, Entry]:
    """A contract's events by topic; those of VeriLLM wherever their code stands."""
    found = [entry for part in _parts(contract) for entry in part.entries("event").values()]
    return {entry.topic: entry for entry in found}


def _parts(contract: str) -> list[Artifact]:
    names = (contract, *EXTENSIONS) if contract == "VeriLLM" else (contract,)
    return [artifact(name) for name in names]


@functools.cache
def errors() -> dict[bytes, Entry]:
    """Every custom error that any of our contracts can revert with, by selector."""
    found = [entry for name in CONTRACTS for entry in artifact(name).entries("error").values()]
    return {entry.selector: entry for entry in found}


# ── ABI coding ───────────────────────────────────────────────────────────────────────────────────
def snake(name: str) -> str:
    """The Python name of an ABI component."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def to_abi(component: Component, value: Any) -> Any:
    """A value as eth_abi takes it: dataclasses become tuples in the ABI's order."""
    kind: str = component["type"]
    if kind.endswith("]"):
        element = {**component, "type": kind[: kind.rindex("[")]}
        return [to_abi(element, each) for each in value]
    if kind == "tuple":
        return tuple(to_abi(c, getattr(value, snake(c["name"]))) for c in component["components"])
    return int(value) if isinstance(value, IntEnum) else value


def from_abi(component: Component, value: Any, kind: Any) -> Any:
    """A decoded value as the annotated type `kind`: the inverse of `to_abi`."""
    abi_type: str = component["type"]
    if abi_type.endswith("]"):
        element = {**component, "type": abi_type[: abi_type.rindex("[")]}
        return tuple(from_abi(element, each, _element(kind)) for each in value)
    kind = _plain(kind)
    if abi_type == "tuple":
        hints = _hints(kind)
        pairs = zip(component["components"], value, strict=True)
        names = ((snake(part["name"]), part, each) for part, each in pairs)
        return kind(**{name: from_abi(part, each, hints[name]) for name, part, each in names})
    if abi_type == "address":
        return to_checksum_address(value)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        try:
            return kind(value)
        except ValueError as error:
            raise MalformedError(component["name"], str(error)) from error
    return value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} is not a dataclass")
    return typing.get_type_hints(kind)


def _plain(kind: Any) -> Any:
    """The type under a NewType."""
    while isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    return kind


def _element(kind: Any) -> Any:
    """The element type of `tuple[T, ...]`."""
    kind = _plain(kind)
    arguments = typing.get_args(kind)
    return arguments[0] if arguments and not isinstance(kind, types.UnionType) else object


def encode(inputs: Sequence[Component], values: Sequence[object]) -> bytes:
    """ABI encoding of the values under their components."""
    kinds = [collapse_if_tuple(typing.cast(Any, component)) for component in inputs]
    pairs = zip(inputs, values, strict=True)
    return abi_encode(kinds, [to_abi(component, value) for component, value in pairs])


def decode(
    outputs: Sequence[Component], data: bytes, kinds: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Values of an answer, strictly decoded into the annotated `kinds`; raises MalformedError."""
    try:
        names = [collapse_if_tuple(typing.cast(Any, component)) for component in outputs]
        values = abi_decode(names, data, strict=True)
    except UnicodeDecodeError as error:
        raise NotText("chain answer", str(error)) from error
    except (DecodingError, OverflowError) as error:
        raise MalformedError("chain answer", str(error)) from error
    kinds = [object] * len(outputs) if kinds is None else kinds
    rows = zip(outputs, values, kinds, strict=True)
    return tuple(from_abi(component, value, kind) for component, value, kind in rows)
