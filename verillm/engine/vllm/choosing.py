"""The token of `verillm.sampling.select` for many rows at once, from few exact logits.

The protocol's logits are float32 products of the committed bfloat16 state and bfloat16 head rows.
A serving engine computes its own, rounded to bfloat16, for a fraction of the price. They differ
from the exact ones by rounding and by how they were summed (`verillm.engine.vllm.head.margin`), so
what is decided by more than that needs no exact ones: they are computed for the few entries that
can still win. A row where they turn out to differ by more is decided by exact logits alone.

Truncation (top-k, top-p, min-p) needs no list of what is kept: only whether the best entry is. The
mass above it has bounds; where these do not decide, the likeliest few get exact logits, and if that
is not enough the whole row does, and the reference decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verillm.engine.sampler import choose
from verillm.engine.vllm.head import Head, margin
from verillm.engine.vllm.noise import Bounds, contenders
from verillm.engine.vllm.nucleus import Doubles, Nucleus, around, around_but
from verillm.errors import NonFiniteLogits
from verillm.request import Sampling
from verillm.sampling import gumbel, truncates
from verillm.types import PPM, Bits, Floats, Hash32, Ints

LIKELIEST = 512
"""So many entries get exact logits where bounds on the engine's do not decide what is kept."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What decides one row's token beside its logits; `position` is that of the state."""

    sampling: Sampling
    seed: Hash32
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The engine's logits of one state: `best` and what `sums` may be off, of all entries `widest`.

    Entries from `surely` on are kept by truncation, those below `perhaps` are not; of those between
    `nucleus` says more by their exact logits.
    """

    logits: Floats
    choice: Choice
    best: float
    sums: float
    widest: float
    nucleus: Nucleus | None = None
    surely: float = -np.inf
    perhaps: float = -np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The entries of a row that may win, ascending, and what noise adds to their logits."""

    ids: Ints
    noise: Floats


EMPTY = Pool(np.zeros(0, np.intp), np.zeros(0, np.float32))


def choose_batch(
    head: Head, finals: Bits, logits: Sequence[Floats], choices: Sequence[Choice], slack: float
) -> list[int | NonFiniteLogits]:
    """Return each row's token, or why there is none.

    finals : uint16 [rows, hidden]. logits : float32 [vocabulary] of each row, the engine's own,
    rounded to bfloat16. slack : what `measure_slack` found.
    """
    if not choices:
        return []
    rows = [_read(own, choice, slack) for own, choice in zip(logits, choices, strict=True)]
    pools = [_pool(row) if isinstance(row, Row) else EMPTY for row in rows]
    counts = [len(pool.ids) for pool in pools]
    pairs = np.repeat(np.arange(len(rows)), counts), np.concatenate([pool.ids for pool in pools])
    exact = np.split(head.some(finals, *pairs), np.cumsum(counts)[:-1])
    return [
        _decide(head, final, row, pool, part) if isinstance(row, Row) else row
        for final, row, pool, part in zip(finals, rows, pools, exact, strict=True)
    ]


def _read(logits: Floats, choice: Choice, slack: float) -> Row | NonFiniteLogits:
    lowest, best = float(logits.min()), float(logits.max())
    greatest = max(-lowest, best)
    if not (np.isfinite(lowest) and np.isfinite(best)):
        return NonFiniteLogits(f"logits at position {choice.position} are not finite")
    sums = slack * greatest
    widest = float(margin(greatest, sums))
    if not truncates(choice.sampling):
        return Row(logits, choice, best, sums, widest)
    nucleus = Nucleus(around(logits, sums), choice.sampling)
    return Row(logits, choice, best, sums, widest, nucleus, *nucleus.cuts())


def _pool(row: Row) -> Pool:
    """Return the entries of one row that may win: few."""
    logits, factor = row.logits, row.choice.sampling.temperature / PPM
    if factor == 0:
        ids = np.flatnonzero(logits >= row.best - 2 * row.widest)
        return Pool(ids, np.zeros(len(ids), np.float32))
    bounds = Bounds(factor, row.sums, row.surely, row.perhaps)
    ids, drawn = contenders(row.choice.seed, row.choice.position, logits, bounds)
    return Pool(ids, np.float32(factor) * gumbel(drawn))


def _decide(head: Head, final: Bits, row: Row, pool: Pool, exact: Floats) -> int:
    """Choose by the exact logits of the pool, of a few more, or of all."""
    rough = row.logits[pool.ids].astype(np.float64)
    apart = margin(rough, row.sums)
    token = None
    if np.all(np.abs(exact - rough) <= apart):
        token = _winner(pool, exact, row.nucleus, rough + apart)
        if token is None:
            token = _look_closer(head, final, row, pool)
    if token is None:
        token = choose(head.all(final), row.choice.sampling, row.choice.seed, row.choice.position)
    return token


def _winner(pool: Pool, exact: Floats, nucleus: Nucleus | None, known: Doubles) -> int | None:
    """Return the best of a pool that is kept; None if that is open.

    `known` are the greatest logits by which `nucleus` knows the pool.
    """
    best_first = np.lexsort((pool.ids, -(exact + pool.noise)))
    if nucleus is None:
        return int(pool.ids[best_first[0]])
    wide = exact.astype(np.float64)
    surely, perhaps = nucleus.judge(wide, wide, known)
    at = next((at for at in best_first if perhaps[at]), None)
    return int(pool.ids[at]) if at is not None and surely[at] else None


def _look_closer(head: Head, final: Bits, row: Row, pool: Pool) -> int | None:
    """Choose by the exact logits of the likeliest too."""
    count = min(LIKELIEST, len(row.logits))
    likeliest = np.argpartition(row.logits, -count)[-count:]
    ids = np.union1d(likeliest, pool.ids)
    exact = head.some(final[None], np.zeros(len(ids), np.intp), ids)
    nucleus = Nucleus(around_but(row.logits, row.sums, ids, exact), row.choice.sampling)
    mine = exact[np.searchsorted(ids, pool.ids)]
    return _winner(pool, mine, nucleus, mine.astype(np.float64))
