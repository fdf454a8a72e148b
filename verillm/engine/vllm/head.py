"""Exact logits of few entries or of all, and how far the engine's own are from them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from verillm.errors import ModelNotTraceable
from verillm.types import Bits, Floats, Ints

ROUNDING = 2.0**-8
"""Rounding to bfloat16 moves a value by no more than this share of it."""
LEAST_SHARE = 2.0**-14
MOST_SHARE = 2.0**-6
"""Bounds of the share of a row's greatest magnitude that the engine's sums may be off beside."""
SAFETY = 4
"""The slack is so many times what was seen."""
BLOCK = 1024
"""Head rows that are float32 at once: they stay in a core's own cache."""


class Head(Protocol):
    """Exact logits of committed final states; a row is a state's index in `finals`."""

    def some(self, finals: Bits, rows: Ints, ids: Ints) -> Floats:
        """Return those of pairs (row, id)."""
        ...

    def all(self, final: Bits) -> Floats:
        """Return those [vocabulary] of one state."""
        ...


class HeadRows:
    """`Head` over bfloat16 rows [vocabulary, hidden] on any device."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def some(self, finals: Bits, rows: Ints, ids: Ints) -> Floats:
        """Multiply the picked rows only."""
        import torch

        device = self._rows.device
        picked = self._rows[torch.from_numpy(ids).to(device)].float()
        states = self._wide(finals)[torch.from_numpy(rows).to(device)]
        found: Floats = (picked * states).sum(-1).cpu().numpy()
        return found

    def all(self, final: Bits) -> Floats:
        """Multiply all rows, a block at a time: no second copy of the head in float32."""
        import torch

        state = self._wide(final)
        starts = range(0, len(self._rows), BLOCK)
        parts = [self._rows[start : start + BLOCK].float() @ state for start in starts]
        found: Floats = torch.cat(parts).cpu().numpy()
        return found

    def _wide(self, finals: Bits) -> Any:
        import torch

        states = torch.from_numpy(np.ascontiguousarray(finals).view(np.int16))
        return states.view(torch.bfloat16).to(self._rows.device).float()


def margin(logits: Any, sums: float) -> Any:
    """Return how far exact logits may be from the engine's, if those were off by `sums` before they
    were rounded.
    """
    return np.abs(logits) * ROUNDING + sums


def measure_slack(head: Head, finals: Bits, logits: Floats) -> float:
    """Return the share of a row's greatest magnitude that the engine's sums may be off.

    logits : the engine's own, rounded to bfloat16. Raises `ModelNotTraceable` if they are something
    else than final states times head rows.
    """
    share = LEAST_SHARE
    for final, rough in zip(finals, logits, strict=True):
        over = np.abs(head.all(final) - rough) - margin(rough, 0)
        share = max(share, SAFETY * float(over.max() / np.abs(rough).max()))
    if not share <= MOST_SHARE:
        raise ModelNotTraceable(
            "the engine's logits are not final states times head rows: beyond rounding they differ "
            f"by {share / SAFETY:.4f} of the greatest"
        )
    return share
