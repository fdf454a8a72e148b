"""The token of `verillm.sampling.select` for many rows at once, from few exact logits.

The protocol's logits are float32 products of the committed bfloat16 state and bfloat16 head rows.
A serving engine computes its own, rounded to bfloat16, for a fraction of the price. They differ
from the exact ones by less than `slack`, so what is decided by more than that needs no exact ones:
they are computed for the few entries that can still win. `check_slack` holds the bound against the
model's own head before it serves.

Noise is drawn for the few that can win at all. Truncation (top-k, top-p, min-p) compares masses:
exact logits of all entries near the best one bound the nucleus from both sides, and only if an
entry between the bounds wins are all logits computed, and the reference decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verillm.engine.sampler import G_MAX, choose
from verillm.errors import ModelNotTraceable, NonFiniteLogits
from verillm.hashing import word
from verillm.request import Sampling
from verillm.sampling import gumbel, philox4x32_10, truncates
from verillm.types import PPM, Bits, Floats, Hash32, Ints, Mask, Words

SLACK = 2.0**-6
"""Of the greatest magnitude in a row: eight times what rounding to bfloat16 can lose."""
LIKELY = 3.0
"""Within so many temperatures of the best logit the first look draws noise."""
FIRST_LOOK = 256
"""Entries of the first look at most: any few will do."""
ROUNDING = 1e-4
"""More than float32 loses where a score is added up."""
DENSE = 8
"""From a share of one in so many on, all words of a row are drawn: four cost what one does."""
REACH = 12.0
"""Within so many temperatures of the best logit entries have exact logits under truncation."""
CLOSE = 1e-9
"""Relative difference of two masses that float64 may order either way."""
BLOCK = 8192
"""Head rows that are float32 at once."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What decides one row's token beside its logits; `position` is that of the state."""

    sampling: Sampling
    seed: Hash32
    position: int


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


def choose_batch(
    head: Head, finals: Bits, logits: Floats, choices: Sequence[Choice]
) -> list[int | NonFiniteLogits]:
    """Return each row's token, or why there is none.

    finals : uint16 [rows, hidden]. logits : float32 [rows, vocabulary], the engine's own.
    """
    lowest, highest = logits.min(axis=-1), logits.max(axis=-1)
    found: list[int | NonFiniteLogits] = []
    plain = []
    for row, choice in enumerate(choices):
        found.append(0)
        if not (np.isfinite(lowest[row]) and np.isfinite(highest[row])):
            place = f"logits at position {choice.position} are not finite"
            found[row] = NonFiniteLogits(place)
        elif truncates(choice.sampling):
            found[row] = _choose_truncated(head, finals[row], logits[row], choice)
        else:
            plain.append(row)
    if plain:
        picked = [choices[row] for row in plain]
        tokens = _choose_plain(head, finals[plain], logits[plain], picked)
        for row, token in zip(plain, tokens, strict=True):
            found[row] = token
    return found


def _choose_plain(head: Head, finals: Bits, logits: Floats, choices: Sequence[Choice]) -> list[int]:
    """Choose without truncation."""
    temperatures = np.array([c.sampling.temperature / PPM for c in choices], np.float32)
    best = logits.max(axis=-1)
    slack = np.abs(logits).max(axis=-1) * np.float32(SLACK)
    reached = best - slack
    found = []
    for row, choice in enumerate(choices):
        ids, noise = _contenders(logits[row], float(slack[row]), float(best[row]), choice)
        found.append((np.full(len(ids), row), ids, temperatures[row] * noise))
    rows, ids, noise = (np.concatenate(part) for part in zip(*found, strict=True))
    rough = logits[rows, ids] + noise
    top = reached.copy()
    np.maximum.at(top, rows, rough)
    close = rough + slack[rows] >= (top - slack)[rows]
    rows, ids, noise = rows[close], ids[close], noise[close]
    scores = head.some(finals, rows, ids) + noise
    tokens = np.zeros(len(choices), np.intp)
    order = np.lexsort((-ids, scores, rows))  # the best of a row last, among equals the lower id
    tokens[rows[order]] = ids[order]
    return [int(token) for token in tokens]


def _contenders(logits: Floats, slack: float, best: float, choice: Choice) -> tuple[Ints, Floats]:
    """Return the ids of one row that may win, and their noise.

    Whoever wins has a score that some likely token surely reaches: a logit within the greatest
    noise of it, and a noise that makes up for what the best logit lacks. The second bound is one on
    random words, and leaves a few of a hundred, so that noise itself is computed for few.
    """
    temperature = choice.sampling.temperature / PPM
    if temperature == 0:
        ids = np.flatnonzero(logits >= best - 2 * slack)
        return ids, np.zeros(len(ids), np.float32)
    likely = np.flatnonzero(logits >= best - LIKELY * temperature)[:FIRST_LOOK]
    noise = gumbel(_words(choice, likely))
    reached = float((logits[likely] + np.float32(temperature) * noise).max()) - slack - ROUNDING
    near = logits >= reached - slack - temperature * float(G_MAX)
    least = _least_word((reached - best - slack) / temperature)
    if np.count_nonzero(near) * DENSE > len(logits):
        drawn = _blocks(choice, np.arange(-(-len(logits) // 4))).ravel()[: len(logits)]
        ids = np.flatnonzero(near & (drawn >= least))
        return ids, gumbel(drawn[ids])
    ids = np.flatnonzero(near)
    drawn = _words(choice, ids)
    heavy = drawn >= least
    return ids[heavy], gumbel(drawn[heavy])


def _least_word(noise: float) -> np.uint32:
    """Return a word below which Gumbel values are less than `noise`."""
    share = np.exp(-np.exp(-noise))
    return np.uint32(max(0, int((share * 2.0**24 - 1) / 2) - 1) << 9)


def _choose_truncated(head: Head, final: Bits, logits: Floats, choice: Choice) -> int:
    """Choose one row's token under truncation."""
    temperature = np.float32(choice.sampling.temperature / PPM)
    slack = float(np.abs(logits).max()) * SLACK
    floor = float(logits.max()) - REACH * float(temperature)
    is_near = logits >= floor - slack
    ids = np.flatnonzero(is_near)
    exact = head.some(final[None], np.zeros(len(ids), np.intp), ids)
    bounds = _nucleus(exact, logits[~is_near], floor, slack, choice.sampling)
    if bounds is not None:
        surely, perhaps = bounds
        ids, exact, surely = ids[perhaps], exact[perhaps], surely[perhaps]
        noise = gumbel(_words(choice, ids))
        winner = np.argmax(exact + temperature * noise)
        if surely[winner]:
            return int(ids[winner])
    return choose(head.all(final), choice.sampling, choice.seed, choice.position)


def _nucleus(
    exact: Floats, rest: Floats, floor: float, slack: float, sampling: Sampling
) -> tuple[Mask, Mask] | None:
    """Return which entries with exact logits are kept surely and which perhaps; None if entries of
    `rest` may be kept too.

    No entry of `rest` exceeds `floor`, nor is any more than `slack` from its exact logit.
    """
    scale = PPM / sampling.temperature
    best = float(exact.max())
    order = np.argsort(-exact, kind="stable")
    order = order[exact[order] > floor]  # beyond, an entry of the rest may lie between
    weights = np.exp((exact.astype(np.float64) - best) * scale)
    shifted = np.exp((rest.astype(np.float64) - best) * scale).sum()
    spread = np.exp(slack * scale)
    least, most = weights.sum() + shifted / spread, weights.sum() + shifted * spread
    ranked = weights[order]
    through = np.cumsum(ranked)
    ratio = ranked / ranked[0]
    top_p, min_p = sampling.top_p / PPM, sampling.min_p / PPM
    ends = [
        bool(sampling.top_k) and len(order) >= sampling.top_k,
        through[-1] / most >= top_p + CLOSE,
        np.exp((floor - best) * scale) < min_p - CLOSE,
    ]
    if not any(ends):
        return None
    is_top = np.arange(len(order)) < (sampling.top_k or len(order))
    is_off = sampling.top_p == PPM
    above = through - ranked
    surely = is_top & (is_off | (above / least < top_p - CLOSE)) & (ratio >= min_p + CLOSE)
    perhaps = is_top & (is_off | (above / most < top_p + CLOSE)) & (ratio >= min_p - CLOSE)
    surely[0] = perhaps[0] = True
    masks = np.zeros((2, len(exact)), np.bool_)
    masks[0, order[surely]] = masks[1, order[perhaps]] = True
    return masks[0], masks[1]


def _words(choice: Choice, ids: Ints) -> Words:
    """Return the random word of each id, as `verillm.sampling.words` draws it."""
    found: Words = _blocks(choice, ids >> 2)[np.arange(len(ids)), ids & 3]
    return found


def _blocks(choice: Choice, blocks: Ints) -> Words:
    """Return [n, 4]: the words of the four ids of each block."""
    keys = np.array(_numbers(choice.seed), np.uint32)
    counter = np.empty((len(blocks), 4), np.uint32)
    counter[:, 0] = blocks
    counter[:, 1:] = (choice.position, keys[2], keys[3])
    return philox4x32_10(counter, keys[:2])


def _numbers(seed: Hash32) -> tuple[int, ...]:
    data = word(seed, "seed")[:16]
    return tuple(int.from_bytes(data[start : start + 4], "big") for start in range(0, 16, 4))


def check_slack(head: Head, finals: Bits, logits: NDArray[np.float32]) -> None:
    """Raise `ModelNotTraceable` unless the engine's logits are within half a slack of the exact."""
    for final, rough in zip(finals, logits, strict=True):
        difference = np.abs(head.all(final) - rough).max()
        if not difference <= np.abs(rough).max() * SLACK / 2:
            raise ModelNotTraceable(
                "the engine's logits are not final states times head rows: "
                f"they differ by up to {difference:.3f}"
            )
