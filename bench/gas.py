"""Gas of each call: of a job on the happy path, of a public round, and of all others.

    python bench/gas.py

On a private Anvil. Warm balances: the second job of its size is measured, so that no account is
touched first. The public round is measured at the default model's width.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import unhappy
from machine import machine_line

from tests.chain.conftest import Net
from tests.chain.rounds import OpenWorld, widened
from tests.chain.world import World
from tests.unit.verillm.builders import SPEC
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.deploy import deploy
from verillm.chain.deployment import DAY, HOUR, Config
from verillm.chain.rpc import HttpProvider

SIZES = (1, 256)
CALLS = ("post", "seal", "claim", "finalize")
TARGETS = {1: 450_000, 256: 3_000 * 256}
"""Gas of a whole job, warm: the project's own targets."""
CALL_LIMIT = 15_000_000
"""No call may need more."""
PATIENT = replace(Config.devnet(), opening_window=4 * HOUR, unbonding=20 * DAY)
"""Each block is a second here, and the larger committee's round takes hundreds."""


@contextmanager
def network(config: Config) -> Iterator[Net]:
    """A chain with our contracts."""
    with tempfile.TemporaryDirectory() as folder, Anvil(Path(folder), accounts=20) as anvil:
        provider = HttpProvider(anvil.url)
        try:
            yield Net(anvil, provider, deploy(provider, dev_account(0), config), config)
        finally:
            provider.close()


def happy_path(world: World, requests: int) -> tuple[int, ...]:
    """Gas of post, seal, claim and finalize of one accepted job."""
    run = world.finalize(world.claim(world.seal(world.post(requests))))
    return tuple(mined.gas_used for mined in run.mined)


def public_round(net: Net) -> dict[str, list[int]]:
    """Gas of each call of a whole challenge, by name."""
    world = OpenWorld(net, widened(SPEC, hidden=576, slice_dims=256, depth=30))
    world.output = tuple(range(5, 37))
    steps = world.challenge(world.claim(world.seal(world.post(3))))
    used: dict[str, list[int]] = {}
    for step in steps:
        used.setdefault(step.name, []).append(step.mined.gas_used)
    return used


def print_round(used: dict[str, list[int]]) -> None:
    """One line a kind of call."""
    print(f"\n{'call':>12}{'calls':>7}{'gas, most':>12}{'gas, all':>12}")
    for name, gas in used.items():
        print(f"{name:>12}{len(gas):>7}{max(gas):>12}{sum(gas):>12}")
    print(f"{'round':>12}{'':>7}{'':>12}{sum(map(sum, used.values())):>12}")


def print_others(used: dict[str, list[int]]) -> None:
    """One line a kind of call off the happy path, as the page has it."""
    print("\n| call | calls | gas of the largest |\n|---|---|---|")
    for name, gas in sorted(used.items()):
        print(f"| {name} | {len(gas)} | {max(gas):_} |".replace("_", " "))


def main() -> int:
    """Print the tables; 1 if a target is missed."""
    missed = 0
    print(machine_line("web3"))
    print(f"{'requests':>9}" + "".join(f"{call:>10}" for call in CALLS) + f"{'job':>10}{'each':>9}")
    with network(Config.devnet()) as net:
        world = World(net)
        for requests in SIZES:
            happy_path(world, requests)
            gas = happy_path(world, requests)
            total = sum(gas)
            row = "".join(f"{each:>10}" for each in gas)
            print(f"{requests:>9}{row}{total:>10}{total // requests:>9}")
            if total > TARGETS[requests]:
                print(f"over the target of {TARGETS[requests]}")
                missed += 1
    with network(Config.devnet()) as net:
        used = public_round(net)
    print_round(used)
    with network(PATIENT) as net:
        others = unhappy.measure(net)
    print_others(others)
    if max(max(gas) for gas in (*used.values(), *others.values())) > CALL_LIMIT:
        print(f"a call over {CALL_LIMIT}")
        missed += 1
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
