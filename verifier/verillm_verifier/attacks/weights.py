"""Cheats that serve a cheaper model: quantised weights, skipped layers."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from verillm.engine import Engine, EngineMaker, WeightTransform

Floats = NDArray[np.float32]

LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def quantise(weight: Floats, bits: int, group: int | None) -> Floats:
    """Return a matrix rounded to `bits` per weight with one scale per row or per `group` of it."""
    rows = weight.reshape(-1, group) if group else weight
    steps = np.float32(2 ** (bits - 1) - 1)
    scale = np.abs(rows).max(axis=-1, keepdims=True) / steps
    scale[scale == 0] = 1
    return np.asarray(np.rint(rows / scale) * scale, np.float32).reshape(weight.shape)


def quantised(bits: int, group: int | None = None) -> WeightTransform:
    """Return a transform that quantises every layer's matrices; embedding and head stay."""

    def transform(name: str, weight: Floats) -> Floats:
        return quantise(weight, bits, group) if LAYER.search(name) and weight.ndim == 2 else weight

    return transform


def without_layers(skip: frozenset[int]) -> WeightTransform:
    """Return a transform that makes layers (counted from 0) add nothing to the residual stream."""

    def transform(name: str, weight: Floats) -> Floats:
        found = LAYER.search(name)
        is_output = ".o_proj." in name or ".down_proj." in name
        if found and int(found[1]) in skip and is_output:
            return np.zeros_like(weight)
        return weight

    return transform


def int8_row(make: EngineMaker) -> Engine:
    """Serve 8-bit weights with one scale per row."""
    return make(quantised(8))


def int8_group(make: EngineMaker) -> Engine:
    """Serve 8-bit weights with one scale per 32 weights."""
    return make(quantised(8, 32))


def int4(make: EngineMaker) -> Engine:
    """Serve 4-bit weights with one scale per 32 weights."""
    return make(quantised(4, 32))


def skipped(make: EngineMaker) -> Engine:
    """Leave out the fifth and sixth layer."""
    return make(without_layers(frozenset({4, 5})))
