"""Copy ABI and bytecode of the contracts from Hardhat's artifacts into the package.

`verillm/chain/abi/*.json` ship in the wheel: no user needs a compiler. `--check` compares only.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARTIFACTS = ROOT / "artifacts" / "hardhat" / "contracts" / "src"
TARGET = ROOT / "verillm" / "chain" / "abi"
CONTRACTS = (
    "VeriLLM",
    "Recourse",
    "Summons",
    "Wages",
    "Appeals",
    "Adjudicator",
    "Prover",
    "DevToken",
)


def exported(name: str) -> str:
    """The file that ships, as text."""
    found = list(ARTIFACTS.glob(f"**/{name}.sol/{name}.json"))
    if len(found) != 1:
        raise SystemExit(f"{len(found)} artifacts of {name} under {ARTIFACTS}: run `make build`")
    artifact = json.loads(found[0].read_text())
    entries = ",\n  ".join(json.dumps(entry) for entry in artifact["abi"])
    return (
        f'{{\n "contractName": {json.dumps(name)},\n "abi": [\n  {entries}\n ],\n'
        f' "bytecode": {json.dumps(artifact["bytecode"])}\n}}\n'
    )


def main() -> int:
    """Write, or with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if stale")
    check = parser.parse_args().check
    stale = []
    for name in CONTRACTS:
        path, text = TARGET / f"{name}.json", exported(name)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            TARGET.mkdir(exist_ok=True)
            path.write_text(text)
    if stale and check:
        print(f"stale: {', '.join(stale)}; run `make build` and commit", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
