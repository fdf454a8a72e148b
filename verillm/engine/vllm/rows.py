"""Room for captured states: main memory up to a cap, then files that have no name.

A spilled array lives in a file that is unlinked as soon as it is made, so it goes with the array
itself, with its task or with this process, however that ends; nothing is left to sweep. What a
worker has committed to is kept elsewhere (`verillm_node.store.Traces`), until disputes are over.
"""

from __future__ import annotations

import math
import tempfile
import threading
import weakref
from pathlib import Path

import numpy as np

from verillm.errors import EngineOutOfMemory
from verillm.types import Bits

GIB = 1 << 30


class Room:
    """Hands out uint16 arrays, and counts what of them is still alive."""

    def __init__(self, memory: int = 4 * GIB, disk: int = 64 * GIB, folder: Path | None = None):
        self._caps = {"memory": memory, "disk": disk}
        self._used = {"memory": 0, "disk": 0}
        self._folder = folder
        self._lock = threading.Lock()

    @property
    def used(self) -> dict[str, int]:
        """Bytes alive, by where they are."""
        with self._lock:
            return dict(self._used)

    def fits(self, *sizes: int) -> bool:
        """Whether arrays of so many bytes have room now, taken in this order."""
        used = self.used
        for size in sizes:
            places = (place for place, cap in self._caps.items() if used[place] + size <= cap)
            place = next(places, None)
            if place is None:
                return False
            used[place] += size
        return True

    def take(self, shape: tuple[int, ...]) -> Bits:
        """Return an array, not initialised; raises `EngineOutOfMemory`."""
        size = 2 * math.prod(shape)
        place = self._reserve(size)
        try:
            array = self._mapped(shape) if place == "disk" else np.empty(shape, np.uint16)
        except (OSError, MemoryError) as error:
            self._release(place, size)
            raise EngineOutOfMemory(f"no room for {size} bytes of states: {error}") from error
        weakref.finalize(array, self._release, place, size)
        return array

    def _reserve(self, size: int) -> str:
        with self._lock:
            for place, cap in self._caps.items():
                if self._used[place] + size <= cap:
                    self._used[place] += size
                    return place
        raise EngineOutOfMemory(f"captured states exceed their caps: {size} bytes more")

    def _release(self, place: str, size: int) -> None:
        with self._lock:
            self._used[place] -= size

    def _mapped(self, shape: tuple[int, ...]) -> Bits:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            array: Bits = np.memmap(file, np.uint16, "w+", shape=shape)
        return array
