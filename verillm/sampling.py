"""Seeded sampling: a token is a pure function of logits, parameters, seed and position (§4).

The readable reference in numpy. Philox and the fixed-point Gumbel are also on chain.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verillm.errors import NonFiniteLogits
from verillm.hashing import word
from verillm.request import Sampling
from verillm.types import PPM, Floats, Hash32, Ints, Mask, Words

LN2_Q64 = 12786308645202655659
"""floor(ln 2 · 2^64)."""

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_ROUNDS = 10


def philox4x32_10(counter: NDArray[Any], key: NDArray[Any]) -> Words:
    """Philox4x32-10 (Salmon et al., SC'11); counters [..., 4] and keys [..., 2] as uint32."""
    x0, x1, x2, x3 = np.moveaxis(np.asarray(counter, dtype=np.uint32), -1, 0)
    keys = np.asarray(key, dtype=np.uint32).astype(np.uint64)
    for number in range(_ROUNDS):
        bumped = ((keys + np.uint64(number) * _WEYL) & _LOW).astype(np.uint32)
        product0 = x0.astype(np.uint64) * _MULTIPLIERS[0]
        product1 = x2.astype(np.uint64) * _MULTIPLIERS[1]
        high0, low0 = (product0 >> np.uint64(32)).astype(np.uint32), product0.astype(np.uint32)
        high1, low1 = (product1 >> np.uint64(32)).astype(np.uint32), product1.astype(np.uint32)
        x0, x1, x2, x3 = high1 ^ x1 ^ bumped[..., 0], low1, high0 ^ x3 ^ bumped[..., 1], low0
    return np.stack(np.broadcast_arrays(x0, x1, x2, x3), axis=-1)


def words(seed: Hash32, position: int, ids: NDArray[Any]) -> Words:
    """The random word of each vocabulary entry `ids` for the state at an absolute position."""
    k0, k1, c2, c3 = _numbers(word(seed, "seed")[:16])
    return _stream((k0, k1), position, (c2, c3), np.asarray(ids))


def gumbel(random: Words) -> Floats:
    """Gumbel noise of words: float64 inside, rounded once to float32; never infinite."""
    k = (random >> np.uint32(9)).astype(np.float64)
    u = (2.0 * k + 1.0) * 2.0**-24
    return (-np.log(-np.log(u))).astype(np.float32)


def gumbel_q64(random: int) -> int:
    """Gumbel noise of one word in signed Q64 fixed point: what the chain computes (§4.1)."""
    odd = 2 * (random >> 9) + 1
    return -_ln_q64(24 * LN2_Q64 - _ln_q64(odd << 64))


def kept(logits: Floats, sampling: Sampling) -> Mask:
    """Which entries top-k, top-p and min-p leave; one softmax over the whole vocabulary for all."""
    everything = np.ones(len(logits), dtype=np.bool_)
    if not truncates(sampling):
        return everything
    order = np.argsort(-logits, kind="stable")
    mass = probabilities(logits[order], sampling)
    above = np.cumsum(mass) - mass
    left = everything
    if sampling.top_k:
        left &= np.arange(len(order)) < sampling.top_k
    if sampling.top_p < PPM:
        left &= above < sampling.top_p / PPM
    if sampling.min_p:
        left &= mass >= (sampling.min_p / PPM) * mass[0]
    left[0] = True
    mask = np.empty_like(left)
    mask[order] = left
    return mask


def truncates(sampling: Sampling) -> bool:
    """Whether any entry can be left out; never at temperature 0."""
    off = not sampling.top_k and sampling.top_p == PPM and not sampling.min_p
    return sampling.temperature > 0 and not off


def probabilities(logits: Floats, sampling: Sampling) -> NDArray[np.float64]:
    """softmax(logits / T) in float64, over the last axis; T over 0."""
    scaled = logits.astype(np.float64) * (PPM / sampling.temperature)
    grown = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    mass: NDArray[np.float64] = grown / grown.sum(axis=-1, keepdims=True)
    return mass


def scores(logits: Floats, sampling: Sampling, seed: Hash32, position: int) -> Floats:
    """`logit + T·g` in float32 for every entry of the vocabulary."""
    if sampling.temperature == 0:
        return logits
    noise = gumbel(words(seed, position, np.arange(len(logits))))
    return logits + np.float32(sampling.temperature / PPM) * noise


def select(logits: Floats, sampling: Sampling, seed: Hash32, position: int) -> int:
    """The token after the state at `position`: the best score among the kept, ties to the lower id.

    logits : float32 [vocabulary]. Raises NonFiniteLogits.
    """
    if not np.isfinite(logits).all():
        raise NonFiniteLogits(f"logits at position {position} are not finite")
    ranked = scores(logits, sampling, seed, position)
    return int(np.argmax(np.where(kept(logits, sampling), ranked, np.float32(-np.inf))))


def slice_dimensions(seed: Hash32, layer: int, hidden: int, count: int) -> Ints:
    """The `count` dimensions of committed layer `layer` (from 0) that a trace holds, ascending."""
    k0, k1, c2, c3 = _numbers(word(seed, "seed")[16:])
    drawn = _stream((k0, k1), layer, (c2, c3), np.arange(hidden))
    return np.sort(np.argsort(drawn, kind="stable")[:count]).astype(np.int64)


def _stream(key: tuple[int, int], second: int, rest: tuple[int, int], ids: NDArray[Any]) -> Words:
    """Words at `ids`: word `id mod 4` of the block with counter (⌊id/4⌋, second, *rest)."""
    blocks, where = np.unique(ids >> 2, return_inverse=True)
    counter = np.empty((len(blocks), 4), dtype=np.uint32)
    counter[:, 0] = blocks
    counter[:, 1:] = np.array((second, *rest), dtype=np.uint32)
    drawn = philox4x32_10(counter, np.array(key, dtype=np.uint32))
    found: Words = drawn[where, ids & 3]
    return found


def _numbers(data: bytes) -> tuple[int, int, int, int]:
    a, b, c, d = (int.from_bytes(data[start : start + 4], "big") for start in range(0, 16, 4))
    return a, b, c, d


def _ln_q64(x: int) -> int:
    """ln of x ≥ 1 read as Q64, in signed Q64."""
    return (_log2_q64(x) * LN2_Q64) >> 64


def _log2_q64(x: int) -> int:
    """log2 of x ≥ 1 read as Q64, in signed Q64: the fraction bit by bit, by squaring."""
    top = x.bit_length() - 1
    mantissa = x << (127 - top) if top <= 127 else x >> (top - 127)
    fraction = 0
    for _ in range(64):
        mantissa = (mantissa * mantissa) >> 127
        bit = mantissa >> 128
        mantissa >>= bit
        fraction = fraction << 1 | bit
    return ((top - 64) << 64) + fraction
