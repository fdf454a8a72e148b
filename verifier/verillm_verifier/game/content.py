"""What the prompt itself tells, and what the model says of it: an adversary that runs its prefill.

A verifier's prompt ends with the answer of this very model under the seed that stands in the task.
Whoever runs the prefill can draw each of its last tokens again and compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from verillm.engine import Engine, open_engine
from verillm.engine.bits import from_bits
from verillm.head import HeadRows
from verillm.request import Sampling
from verillm.sampling import probabilities, select
from verillm.types import Hash32
from verillm_verifier.game.features import Matrix
from verillm_verifier.game.traffic import Sample, Traffic
from verillm_verifier.replay import Run, prefill

LAST: Final = 12
"""Tokens at the end of a prompt that are looked at."""


def content(traffic: Traffic) -> Matrix:
    """Return the last tokens, how they fit the seed and the model, and what was seen before."""
    engine = open_engine(traffic.model, kind="tiny")
    engine.start()
    try:
        rows = _rows(traffic, engine, HeadRows(traffic.model))
    finally:
        engine.close()
    return np.array(rows)


def _rows(traffic: Traffic, engine: Engine, head: HeadRows) -> list[list[float]]:
    rows = []
    seen: dict[str, list[tuple[int, ...]]] = {}
    for each in traffic.arrivals:
        sample = each.items[0]
        earlier = seen.setdefault(each.worker, [])
        rows.append([*_ending(sample), *_drawn(sample, engine, head), _known(sample, earlier)])
        earlier.append(sample.tokens)
    return rows


def _ending(sample: Sample) -> list[float]:
    """The last tokens themselves: a template ends every request in the same way."""
    last = sample.tokens[-LAST:]
    return [-1.0] * (LAST - len(last)) + [float(token) for token in last]


def _drawn(sample: Sample, engine: Engine, head: HeadRows) -> tuple[float, float]:
    """How many of the last tokens the seed draws again, and how likely they are."""
    trace = prefill(engine, [Run((*sample.tokens, 0), Hash32(sample.seed))]).items[0]
    temperature, top_k, top_p, min_p = sample.sampling
    rule = Sampling(temperature, top_k, top_p, min_p)
    again, likely = [], []
    for at in range(max(0, len(sample.tokens) - 1 - LAST), len(sample.tokens) - 1):
        logits = head.logits(from_bits(trace.finals[at]))
        token = sample.tokens[at + 1]
        again.append(select(logits, rule, Hash32(sample.seed), at) == token)
        likely.append(float(np.log(max(probabilities(logits, rule)[token], 1e-12))))
    return float(np.mean(again or [False])), float(np.mean(likely or [0.0]))


def _known(sample: Sample, earlier: Sequence[tuple[int, ...]]) -> float:
    """The longest beginning that this worker has seen before, as a share of the prompt."""
    longest = 0
    for other in earlier:
        same = 0
        for one, two in zip(sample.tokens, other, strict=False):
            if one != two:
                break
            same += 1
        longest = max(longest, same)
    return longest / len(sample.tokens)
