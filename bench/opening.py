"""What an auditor without the model spends on one challenged position of one party, in numpy.

python bench/opening.py

An opening of 32 positions of a 64 + 64 token job, in the sizes of the default model and of one of
width 4096: parse the bytes, rebuild each leaf and follow its path to the sealed root, then compare
the states with another party's. Processor time, the best of many rounds: other work on the machine
does not count.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

from verillm.codec import decode_opening, encode_opening
from verillm.model import CheckProfile, LayerProfile, Shape
from verillm.request import Sampling
from verillm.signing import task_hash
from verillm.statistics import States, compare
from verillm.task import Item, inner_hash
from verillm.trace import (
    CommittedTrace,
    Opening,
    Trace,
    TraceItem,
    check_opening,
    commit,
    open_positions,
)
from verillm.types import Hash32
from verillm_verifier.replay import local_task

PROMPT, NEW, OPENED = 64, 64, 32
SHAPES = {
    "30 layers of 576 (the default model)": Shape(3, 256, 576),
    "32 layers of 4096": Shape(4, 256, 4096),
}
ROUNDS = 20


def committed(shape: Shape, random: np.random.Generator) -> CommittedTrace:
    """Return a trace of one request with random states."""
    item = Item(bytes(32), tuple(range(PROMPT)), NEW, Sampling(), Hash32(bytes(32)))
    task = local_task((item,))
    count = PROMPT + NEW - 1
    slices = random.standard_normal((count, shape.layers, shape.slice_dims), np.float32)
    finals = random.standard_normal((count, shape.hidden), np.float32)
    bits = [(each.view(np.uint32) >> 16).astype(np.uint16) for each in (slices, finals)]
    shown = TraceItem(0, PROMPT, tuple(range(PROMPT + NEW)), *bits)
    return commit(Trace(task_hash(task), (shown,)), task)


def states(opening: Opening) -> States:
    """Return the opened states as the verdict compares them."""
    entries = opening.entries
    slices = np.stack([each.slices for each in entries if each.slices is not None])
    finals = np.stack([each.final for each in entries])
    return States(tuple(each.position for each in entries), slices, finals)


def profile(shape: Shape) -> CheckProfile:
    """Return any profile of this shape: the figures do not depend on it."""
    layer = LayerProfile(-13, (10_000,) * 3, (50_000,) * 3)
    return CheckProfile(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, (layer,) * (shape.layers + 1))


def microseconds(work: Callable[[], object]) -> float:
    """Return processor time per position: the best of the rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times) / OPENED * 1e6


def measure(shape: Shape) -> tuple[float, float, float]:
    """Return µs per position: to parse, to check the paths, to compare with another party."""
    random = np.random.default_rng(1)
    where = [int(each) + 1 for each in random.permutation(PROMPT + NEW - 2)[:OPENED]]
    run, other = committed(shape, random), committed(shape, random)
    opening, theirs = open_positions(run, 0, where), states(open_positions(other, 0, where))
    raw, inner = encode_opening(opening), inner_hash(run.inner)
    mine, limits = states(opening), profile(shape)
    return (
        microseconds(lambda: decode_opening(raw)),
        microseconds(lambda: check_opening(opening, inner, shape)),
        microseconds(lambda: compare([mine], [theirs], limits, [PROMPT])),
    )


def main() -> None:
    """Print the table."""
    print(machine_line("numpy"))
    print(f"{'µs per position':38}{'parse':>8}{'paths':>8}{'compare':>9}{'together':>10}")
    for name, shape in SHAPES.items():
        found = measure(shape)
        parse, paths, apart = found
        print(f"{name:38}{parse:8.0f}{paths:8.0f}{apart:9.0f}{sum(found):10.0f}")


if __name__ == "__main__":
    main()
