"""bfloat16 as 16 bits, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to bfloat16 bits, halves to even; NaN stays NaN."""
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (wide + np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16 bits to float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round float32 to the nearest bfloat16 value."""
    return from_bits(to_bits(values))
