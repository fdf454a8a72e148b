"""Cheats by a cheaper number format that is not an integer's."""

from __future__ import annotations

import numpy as np

from verillm.engine import Engine, EngineMaker
from verillm_verifier.attacks.weights import LAYER, Floats

LARGEST = 448.0
"""The largest e4m3 number."""
MANTISSA_BITS = 3
LEAST_EXPONENT = -6


def to_fp8(weight: Floats) -> Floats:
    """Return a matrix rounded to e4m3 (three bits of mantissa) with one scale per row."""
    scale = np.abs(weight).max(axis=-1, keepdims=True) / np.float32(LARGEST)
    scale[scale == 0] = 1
    scaled = weight / scale
    exponent = np.frexp(scaled)[1] - 1
    step = np.ldexp(np.float32(1), np.maximum(exponent, LEAST_EXPONENT) - MANTISSA_BITS)
    return np.asarray(np.rint(scaled / step) * step * scale, np.float32)


def fp8(make: EngineMaker) -> Engine:
    """Serve weights in 8-bit floating point with one scale per row."""
    return make(lambda name, weight: to_fp8(weight) if _is_layer(name, weight) else weight)


def _is_layer(name: str, weight: Floats) -> bool:
    return bool(LAYER.search(name)) and weight.ndim == 2
