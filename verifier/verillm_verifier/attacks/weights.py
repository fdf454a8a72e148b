"""Cheats that serve another model: quantised weights, fewer layers, weights of another version."""

from __future__ import annotations

import re
from collections.abc import Callable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from verillm.engine import Engine, EngineMaker, EngineTransform, WeightTransform

Floats = NDArray[np.float32]

LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")
LAST_COMMITTED = 24
"""Of the default model's 30 layers, whose every eighth is committed."""
DRIFT = 0.03
"""Weights of another version, in root mean squares of the matrix."""


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


def without_layers(skip: Callable[[int], bool]) -> WeightTransform:
    """Return a transform that makes layers (counted from 0) add nothing to the residual stream."""

    def transform(name: str, weight: Floats) -> Floats:
        found = LAYER.search(name)
        is_output = ".o_proj." in name or ".down_proj." in name
        if found and is_output and skip(int(found[1])):
            return np.zeros_like(weight)
        return weight

    return transform


def drifted(share: float) -> WeightTransform:
    """Return a transform that moves every layer's matrices at random, by a share of their size."""

    def transform(name: str, weight: Floats) -> Floats:
        if not LAYER.search(name) or weight.ndim != 2:
            return weight
        random = np.random.default_rng(crc32(name.encode()))
        noise = random.standard_normal(weight.shape, np.float32)
        size = np.sqrt(np.mean(np.square(weight)))
        return np.asarray(weight + np.float32(share) * size * noise, np.float32)

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
    return make(without_layers(lambda layer: layer in (4, 5)))


def shallow(make: EngineMaker) -> Engine:
    """Serve a model half as deep: every second layer is left out."""
    return make(without_layers(lambda layer: layer % 2 == 1))


def early_exit_after(layers: int) -> EngineTransform:
    """Return the attack that leaves the model after so many layers, for the final norm."""
    return lambda make: make(without_layers(lambda layer: layer >= layers))


early_exit = early_exit_after(LAST_COMMITTED)


def coarse_after(layers: int) -> EngineTransform:
    """Return the attack that serves the layers behind so many in 4 bits, and those before truly.

    Behind the last committed layer only the final states show it, a part of the mean.
    """
    coarse = quantised(4, 32)

    def transform(name: str, weight: Floats) -> Floats:
        found = LAYER.search(name)
        return coarse(name, weight) if found and int(found[1]) >= layers else weight

    return lambda make: make(transform)


late_int4 = coarse_after(LAST_COMMITTED)


def tuned(make: EngineMaker) -> Engine:
    """Serve another version of the model, as a short fine-tuning leaves it."""
    return make(drifted(DRIFT))
