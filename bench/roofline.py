"""What a check costs against inferring, predicted from a device's memory and arithmetic.

    python bench/roofline.py [--measured FIGURES.json]

A pass reads every weight once, reads the caches of its rows and multiplies each token with each
weight: its time is the greater of bytes ÷ bandwidth and operations ÷ peak, plus a fixed part.
Decoding one row is bound by bytes; a prefill of hundreds of tokens by operations. So

    check ÷ infer ≈ (P+N)·t_token / (P·t_token + N·t_step(B)/B)

for P prompt and N new tokens in a batch of B, where t_token is a token's time within a prefill. The
first table is the model for devices nobody measured here. `--measured` takes what
`bench/serving.py --out` wrote, fits bandwidth and peaks (of products with weights, of attention) to
its *times at one row of the shortest and the longest size*, and predicts all others with them.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from shapes import SHAPES, Shape

BYTES = 2
SIZES = ((512, 128), (128, 512), (2048, 256))
BATCHES = (1, 8, 64)
ONE_PERCENT = 0.01


@dataclass(frozen=True, slots=True)
class Device:
    """Bytes and operations a second that are reached in practice, and seconds a pass takes beside.

    Data sheets' figures times 0.7 (memory) and 0.5 (bfloat16 arithmetic without sparsity).
    `attention` is what attention reaches.
    """

    name: str
    bandwidth: float
    peak: float
    attention: float
    fixed: float


def from_sheet(name: str, terabytes: float, teraflops: float) -> Device:
    """Return a device by its data sheet."""
    return Device(name, 0.7e12 * terabytes, 0.5e12 * teraflops, 0.5e12 * teraflops, 50e-6)


DEVICES = (
    from_sheet("RTX 4090", 1.008, 165),
    from_sheet("A100 80G", 2.04, 312),
    from_sheet("H100 SXM", 3.35, 989),
    from_sheet("H200", 4.8, 989),
)


def pass_seconds(device: Device, shape: Shape, tokens: int, logits: int, cached: int) -> float:
    """Return a forward pass's seconds: tokens in all, tokens with logits, positions in caches."""
    weights = shape.matrix_weights + shape.head_weights
    moved = BYTES * (weights + shape.cache_values * (cached + tokens))
    products = 2 * (shape.matrix_weights * tokens + shape.head_weights * logits)
    attention = attention_operations(shape, tokens, cached)
    computing = products / device.peak + attention / device.attention
    return max(moved / device.bandwidth, computing) + device.fixed


def attention_operations(shape: Shape, tokens: int, cached: int) -> float:
    """Return a pass's operations between positions: each token looks at all before it.

    A prefill (nothing cached) looks at half of its tokens on average, a step's rows at `cached` in
    all.
    """
    pairs = cached if cached else tokens * tokens / 2
    return 4 * shape.layers * shape.heads * shape.head_size * pairs


def prefill_seconds(device: Device, shape: Shape, tokens: int) -> float:
    """Return the seconds of one row's prefill."""
    return pass_seconds(device, shape, tokens, 1, 0)


def infer_seconds(device: Device, shape: Shape, prompt: int, new: int, rows: int) -> float:
    """Return the seconds of a batch: its prefills, then its steps at the mean length."""
    step = pass_seconds(device, shape, rows, rows, rows * (prompt + new // 2))
    return rows * prefill_seconds(device, shape, prompt) + (new - 1) * step


def ratio(device: Device, shape: Shape, prompt: int, new: int, rows: int) -> float:
    """Return check ÷ infer of one verifier, for a batch of rows each."""
    check = rows * prefill_seconds(device, shape, prompt + new - 1)
    return check / infer_seconds(device, shape, prompt, new, rows)


def largest_batch(device: Device, shape: Shape, prompt: int, new: int) -> int:
    """Return the largest batch at which a check stays within one percent; 0 if none."""
    rows = 0
    while rows < 4096 and ratio(device, shape, prompt, new, rows + 1) <= ONE_PERCENT:
        rows += 1
    return rows


def fitted(figures: dict[str, Any], shape: Shape) -> Device:
    """Return the device that gives the times of the shortest and the longest size at one row."""
    alone = sorted((line for line in figures["checking"] if line["rows"] == 1), key=total)
    first, last = alone[0], alone[-1]
    endless = Device("measured here", 1e30, 1e30, 1e30, 0.0)
    one = replace(endless, peak=1.0), replace(endless, attention=1.0)
    work = [[prefill_seconds(part, shape, total(line)) for part in one] for line in (first, last)]
    seconds = [first["check"], last["check"]]
    per = np.linalg.lstsq(np.array(work), np.array(seconds), rcond=None)[0]
    if len(alone) == 1 or min(per) <= 0:  # one peak for both
        per = np.full(2, first["check"] / sum(work[0]))
    device = replace(endless, peak=1 / per[0], attention=1 / per[1])
    decode = first["infer"] - prefill_seconds(device, shape, first["prompt"])
    step = decode / (first["new"] - 1)
    length = first["prompt"] + first["new"] // 2
    moved = pass_seconds(replace(endless, bandwidth=1.0), shape, 1, 1, length)
    return replace(device, bandwidth=moved / step)


def total(line: dict[str, Any]) -> int:
    """Return the tokens of a check of one row."""
    return int(line["prompt"] + line["new"] - 1)


def compare(figures: dict[str, Any], shape: Shape) -> None:
    """Print predicted beside measured."""
    device = fitted(figures, shape)
    print(f"fitted: {device.bandwidth / 1e9:.2f} GB/s, {device.peak / 1e9:.0f} GFLOP/s, "
          f"in attention {device.attention / 1e9:.0f}")  # fmt: skip
    print("prompt+new  rows  measured  predicted  predicted÷measured")
    for line in figures["checking"]:
        size = (line["prompt"], line["new"], line["rows"])
        found = ratio(device, shape, *size)
        name = f"{line['prompt']}+{line['new']}"
        print(f"{name:>10}{line['rows']:6}{line['ratio']:10.4f}{found:11.4f}"
              f"{found / line['ratio']:16.2f}")  # fmt: skip


def table() -> None:
    """Print the model's ratios for devices, models and batches."""
    heads = "".join(f"{f'{prompt}+{new}':>24}" for prompt, new in SIZES)
    print(f"predicted, not measured; check÷infer at {', '.join(map(str, BATCHES))} rows, and the")
    print("largest batch within 1 %")
    print(f"{'device':10}{'model':7}{heads}")
    for device in DEVICES:
        for name in ("0.5B", "8B", "70B"):
            cells = ""
            for prompt, new in SIZES:
                found = [ratio(device, SHAPES[name], prompt, new, rows) for rows in BATCHES]
                cells += "".join(f"{value:6.3f}" for value in found)
                cells += f"{largest_batch(device, SHAPES[name], prompt, new):>6}"
            print(f"{device.name:10}{name:7}{cells}")


def main() -> None:
    """Print the table, or what was measured beside what the model says."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--measured", type=Path)
    options.add_argument("--shape", choices=tuple(SHAPES), default="135M")
    chosen = options.parse_args()
    if chosen.measured:
        compare(json.loads(chosen.measured.read_text()), SHAPES[chosen.shape])
    else:
        table()


if __name__ == "__main__":
    main()
