"""Hold slither's findings against `contracts/triage.json`: each is there with its reason, or fails.

Slither and halmos stand in an environment of their own (`make analyse`): they pin other versions of
web3 than the package. Slither reads Hardhat's build, so what is analysed is what is deployed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TRIAGE = ROOT / "contracts" / "triage.json"
COMMAND = (
    "slither", ".", "--compile-force-framework", "hardhat", "--hardhat-ignore-compile",
    "--hardhat-artifacts-directory", "artifacts/hardhat", "--filter-paths", "node_modules",
)  # fmt: skip


def findings(binaries: Path) -> dict[str, set[str]]:
    """Per check the places that slither names."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(binaries / COMMAND[0]), *COMMAND[1:], "--json", str(report)]
        path = f"{ROOT / 'tools'}:{binaries}:/usr/local/bin:/usr/bin:/bin"
        done = subprocess.run(command, cwd=ROOT, env={"PATH": path}, capture_output=True, text=True)
        if not report.exists():
            raise SystemExit(f"slither did not run:\n{done.stderr[-2000:]}")
        results = json.loads(report.read_text())
    if not results["success"]:
        raise SystemExit(f"slither failed: {results['error']}")
    found: dict[str, set[str]] = {}
    for finding in results["results"].get("detectors", ()):
        found.setdefault(finding["check"], set()).add(place(finding["elements"][0]))
    return found


def place(element: dict[str, Any]) -> str:
    """`Contract.function.variable`, without parameters and lines, which move."""
    parent = element.get("type_specific_fields", {}).get("parent")
    name = str(element["name"])
    if not parent or parent["type"] not in ("contract", "function"):
        return name
    return f"{place(parent)}.{name}"


def main() -> int:
    """Compare; print what is new and what is stale."""
    binaries = Path(sys.argv[1])
    triage = json.loads(TRIAGE.read_text())
    found = findings(binaries)
    known = {check: set(entry["places"]) for check, entry in triage.items()}
    whole = {check for check, entry in triage.items() if entry["places"] == ["*"]}
    new = {
        f"{check}: {where}"
        for check, places in found.items()
        if check not in whole
        for where in places - known.get(check, set())
    }
    stale = {
        f"{check}: {where}"
        for check, places in known.items()
        for where in (places - found.get(check, set()) if check not in whole else ())
    }
    stale |= {f"{check}: *" for check in whole - set(found)}
    for line in sorted(new):
        print(f"not triaged  {line}")
    for line in sorted(stale):
        print(f"stale        {line}")
    total = sum(map(len, found.values()))
    print(f"slither: {total} findings, {len(new)} not triaged, {len(stale)} stale entries")
    return 1 if new or stale else 0


if __name__ == "__main__":
    sys.exit(main())
