"""Reading and writing safetensors with numpy alone, so that hashing a model needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verillm.engine.bits import from_bits
from verillm.errors import EngineUnavailable

MAX_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies: `size` bytes from `offset` in `path`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int

    def memory(self) -> NDArray[np.uint8]:
        """Map the tensor's bytes."""
        return np.memmap(self.path, np.uint8, "r", self.offset, (self.size,))

    def floats(self) -> NDArray[np.float32]:
        """Read the tensor as float32; raises `EngineUnavailable` for types that are not floats."""
        raw = self.memory()
        if self.dtype == "BF16":
            return from_bits(raw.view(np.uint16)).reshape(self.shape)
        if self.dtype in ("F32", "F16"):
            width = np.float32 if self.dtype == "F32" else np.float16
            return raw.view(width).astype(np.float32).reshape(self.shape)
        raise EngineUnavailable(f"{self.path.name}: {self.name} is of type {self.dtype}")


def tensors(folder: Path) -> tuple[Tensor, ...]:
    """Return every tensor of a model folder's safetensors files, by name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineUnavailable(f"{folder} holds no safetensors files")
    found = {tensor.name: tensor for path in files for tensor in _of_file(path)}
    if not found:
        raise EngineUnavailable(f"{folder} holds no tensors")
    return tuple(found[name] for name in sorted(found))


def _of_file(path: Path) -> Iterator[Tensor]:
    try:
        whole = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_HEADER:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            shape = tuple(int(size) for size in entry["shape"])
            if not 0 <= begin <= end <= whole - 8 - length:
                raise ValueError(f"{name} lies outside the file")
            yield Tensor(name, entry["dtype"], shape, path, 8 + length + begin, end - begin)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineUnavailable(f"{path} is not a safetensors file: {error}") from error


def write(path: Path, values: Mapping[str, NDArray[np.uint16]]) -> None:
    """Write bfloat16 bits as one safetensors file, tensors in name order."""
    header: dict[str, object] = {}
    offset = 0
    for name in sorted(values):
        size = values[name].nbytes
        header[name] = {
            "dtype": "BF16",
            "shape": list(values[name].shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(values):
            file.write(values[name].astype("<u2").tobytes())
