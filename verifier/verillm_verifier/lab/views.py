"""States that a liar shows in place of its own, made from what honest parties have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from verillm.engine.bits import to_bits
from verillm.sampling import scores
from verillm.statistics import to_floats
from verillm.task import Item
from verillm.tokens import Head
from verillm.types import Bits, Floats
from verillm_verifier.attacks.states import (
    copy_states,
    garble_states,
    perturb_states,
    shuffle_states,
)
from verillm_verifier.lab.cases import View

FAR_OFF = np.uint16(0x4180)
"""16 in bf16."""
PATCHED_SHARE = 0.2
PUSHES = 12
PUSH_GROWTH = 1.3


def changed(view: View, change: Callable[[Bits], Bits]) -> View:
    """Return a view with all its states changed."""
    return View(change(view.slices), change(view.finals))


def forged(view: View, other: View) -> dict[str, View]:
    """Return every way to lie about states at hand; `other` is another job's view."""
    return {
        "copied": changed(view, copy_states),
        "perturbed": changed(view, perturb_states),
        "shuffled": changed(view, shuffle_states),
        "garbage": changed(view, garble_states),
        "replayed": replayed(view, other),
        "patched": patched(view, replayed(view, other)),
    }


def shifted(view: View, prompt_tokens: int) -> View:
    """Return a view whose final state is far off where one token in the middle was chosen."""
    finals = view.finals.copy()
    finals[(prompt_tokens - 1 + len(finals)) // 2] = FAR_OFF
    return View(view.slices, finals)


def replayed(view: View, other: View) -> View:
    """Return another job's states in this one's length."""
    return View(_stretch(other.slices, view), _stretch(other.finals, view))


def patched(view: View, other: View) -> View:
    """Return a view with another's states at one position in five."""
    where = np.random.default_rng(0).random(len(view.finals)) < PATCHED_SHARE
    slices, finals = view.slices.copy(), view.finals.copy()
    slices[where], finals[where] = other.slices[where], other.finals[where]
    return View(slices, finals)


def nudged(view: View, item: Item, output: Sequence[int], head: Head, rows: Floats) -> View:
    """Return a view whose final states are moved, as little as it takes, until every token wins.

    `rows` are the head's, float32 [vocabulary, hidden]; a state moves along the difference of its
    token's row and its best rival's.
    """
    finals = view.finals.copy()
    first = len(item.tokens) - 1
    for at, token in enumerate(output, first):
        finals[at] = _nudge(finals[at], token, item, at, head, rows)
    return View(view.slices, finals)


def _nudge(state: Bits, token: int, item: Item, at: int, head: Head, rows: Floats) -> Bits:
    wide = to_floats(state)
    for _ in range(PUSHES):
        ranked = scores(
            head.logits(to_floats(to_bits(wide))[None])[0], item.sampling, item.seed, at
        )
        rival = int(np.argmax(ranked))
        if rival == token:
            break
        direction = rows[token] - rows[rival]
        lacking = float(ranked[rival] - ranked[token]) + 1e-3
        wide = wide + direction * np.float32(PUSH_GROWTH * lacking / float(direction @ direction))
    return np.asarray(to_bits(wide), np.uint16)


def _stretch(states: Bits, view: View) -> Bits:
    """Return another job's states in this one's length, repeated if they are too few."""
    count = len(view.finals)
    return np.resize(states, (count, *states.shape[1:]))
