"""Every field of a nested value, changed one at a time: no list of fields to forget one in."""

import dataclasses
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import numpy as np


def mutations(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, the value with one leaf changed), for every leaf that it holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            for name, changed in mutations(getattr(value, field.name), f"{path}.{field.name}"):
                yield name, dataclasses.replace(value, **{field.name: changed})
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (
                (name, {**value, key: changed})
                for name, changed in mutations(part, f"{path}[{key}]")
            )
            yield f"{path} without {key}", {k: v for k, v in value.items() if k != key}
    elif isinstance(value, tuple):
        yield from _of_tuple(value, path)
    elif (changed := _leaf(value)) is not None:
        yield path, changed


def _of_tuple(value: tuple[Any, ...], path: str) -> Iterator[tuple[str, Any]]:
    for at, part in enumerate(value):
        for name, changed in mutations(part, f"{path}[{at}]"):
            yield name, (*value[:at], changed, *value[at + 1 :])
    if value:
        yield f"{path} shortened", value[:-1]
        yield f"{path} lengthened", (*value, value[-1])
    if len(value) > 1 and value[0] is not value[1] and not _same(value[0], value[1]):
        yield f"{path} swapped", (value[1], value[0], *value[2:])


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, int | bytes | str) and a == b


def _leaf(value: Any) -> Any:
    """Another value of the same kind; None for what is no leaf."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, IntEnum):
        others = [each for each in type(value) if each != value]
        return others[-1]
    if isinstance(value, int):
        return value + 1
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else b"\x00"
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    if isinstance(value, np.ndarray):
        changed = value.copy()
        changed.flat[0] ^= 0x0040
        return changed
    return None
