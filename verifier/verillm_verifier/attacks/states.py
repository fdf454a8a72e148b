"""Cheats in the states that are shown: copied, perturbed, shuffled, random; tokens stay honest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from verillm.engine import Engine, EngineMaker
from verillm.trace import Trace
from verillm.types import Bits
from verillm_verifier.attacks.deviant import Deviant

NOISE_BITS = 4


def copy_states(states: Bits) -> Bits:
    """Show the last position's states everywhere."""
    return np.repeat(states[-1:], len(states), axis=0)


def perturb_states(states: Bits) -> Bits:
    """Replace the last mantissa bits by noise: a few per cent of every value."""
    noise = np.random.default_rng(0).integers(0, 1 << NOISE_BITS, states.shape, np.uint16)
    return np.asarray(states ^ noise, np.uint16)


def shuffle_states(states: Bits) -> Bits:
    """Show true values at wrong dimensions, so that norms and histograms are honest."""
    return np.random.default_rng(0).permuted(states, axis=-1)


def garble_states(states: Bits) -> Bits:
    """Show random finite numbers."""
    noise = np.random.default_rng(0).standard_normal(states.shape).astype(np.float32)
    return np.asarray(noise.view(np.uint32) >> np.uint32(16), np.uint16)


def shown(change: Callable[[Bits], Bits]) -> Callable[[Trace], Trace]:
    """Return the change of a trace that changes all its states."""

    def apply(trace: Trace) -> Trace:
        items = tuple(
            replace(item, slices=change(item.slices), finals=change(item.finals))
            for item in trace.items
        )
        return replace(trace, items=items)

    return apply


def copied(make: EngineMaker) -> Engine:
    """Show one position's states for all."""
    return Deviant(make(None), trace=shown(copy_states))


def perturbed(make: EngineMaker) -> Engine:
    """Show states with noise in their last bits."""
    return Deviant(make(None), trace=shown(perturb_states))


def shuffled(make: EngineMaker) -> Engine:
    """Show states with their dimensions exchanged."""
    return Deviant(make(None), trace=shown(shuffle_states))


def garbage(make: EngineMaker) -> Engine:
    """Show random states."""
    return Deviant(make(None), trace=shown(garble_states))
