"""The build that contract_mutants asks: a tree of its own with every mutant of a stage woven in."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.mutant_weaver import MUTANT, Finder, Mutant, Node, children, woven

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "artifacts" / "mutants"
ENVIRONMENT = {"FOUNDRY_PROFILE": "coverage", "FOUNDRY_DENY": "never", "FOUNDRY_FUZZ_RUNS": "16"}
SECONDS = 240  # a mutant that makes a loop endless runs out of gas before

# By stage, the tests that are asked and the files that are changed, what holds money first.
SUITES: Mapping[str, Sequence[str]] = {
    "libraries": (
        "contracts/test/libraries/VerdictLib.t.sol",
        "contracts/test/libraries/DrawLib.t.sol",
        "contracts/test/libraries/StatisticsLib.t.sol",
        "contracts/test/libraries/Vectors.t.sol",
    ),
    "network": ("contracts/test/parts/*.t.sol", "contracts/test/Adjudicator.t.sol"),
}
STAGES: Mapping[str, Sequence[str]] = {
    "libraries": (
        "libraries/VerdictLib.sol",
        "libraries/DrawLib.sol",
        "libraries/StatisticsLib.sol",
    ),
    "network": (
        "parts/Ledger.sol",
        "parts/Jobs.sol",
        "parts/Rulings.sol",
        "parts/Disputes.sol",
        "parts/Convictions.sol",
        "parts/Docket.sol",
        "libraries/JobLib.sol",
        "libraries/TermsLib.sol",
    ),
}

COMPILER = """#!/bin/sh
here=$(dirname "$0")
[ "$1" = --version ] && exec cat "$here/version"
exec node "$here/solc.js" "$@"
"""
WOVEN = re.compile(rb"Mutant\.on\((\d+)\)")


def forge(stage: str, *arguments: str, number: int = 0) -> subprocess.CompletedProcess[str]:
    """Forge in the tree of a stage, with the mutant of this number on."""
    return subprocess.run(
        ["tools/forge", *arguments],
        cwd=FOLDER / stage,
        env=environment(number),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS * 5,
    )


def environment(number: int) -> dict[str, str]:
    """What has forge choose the mutant of this number."""
    return {**os.environ, **ENVIRONMENT, "FOUNDRY_BLOCK_PREVRANDAO": f"0x{number:064x}"}


def _copy(stage: str) -> None:
    """What the suites need, and no more: all of it is compiled with all mutants in it."""
    folder = FOLDER / stage
    shutil.rmtree(folder / "contracts", ignore_errors=True)
    shutil.copytree(ROOT / "contracts", folder / "contracts")
    _compiler(folder / "tools")
    shutil.copytree(ROOT / "tests" / "vectors", folder / "tests" / "vectors", dirs_exist_ok=True)
    shutil.copy(ROOT / "foundry.toml", folder)
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to((ROOT / "node_modules").resolve())
    (folder / "contracts" / "src" / "Mutant.sol").write_bytes(MUTANT)
    wanted = {folder / suite for suite in suites(stage)}
    helpers = ("*.sol",) if stage == "network" else ("Test.sol", "Trees.sol")
    for pattern in helpers:
        found = (folder / "contracts" / "test").glob(pattern)
        wanted |= {path for path in found if not path.name.endswith(".t.sol")}
    apart = ["contracts/src/Prover.sol"]
    if stage == "libraries":
        apart = ["contracts/src/[!M]*.sol", "contracts/src/parts/*.sol", "contracts/src/dev/*.sol"]
    unwanted = {path for pattern in apart for path in folder.glob(pattern)}
    unwanted |= set((folder / "contracts" / "test").glob("**/*.sol")) - wanted
    for path in unwanted:
        path.unlink()


def _compiler(tools: Path) -> None:
    """Ours, but for its version, which every forge asks for and which takes long to load."""
    tools.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tools" / "forge", tools)
    shutil.copy(ROOT / "tools" / "solc", tools / "solc.js")
    told = subprocess.run([ROOT / "tools" / "solc", "--version"], capture_output=True, check=True)
    (tools / "version").write_bytes(told.stdout)
    (tools / "solc").write_text(COMPILER)
    (tools / "solc").chmod(0o755)


def suites(stage: str) -> list[str]:
    """The files of tests that are asked about the mutants of a stage."""
    paths = (path for pattern in SUITES[stage] for path in ROOT.glob(pattern))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _sources(folder: Path) -> dict[str, dict[str, str]]:
    """The contracts and all that they import, by the names that the compiler knows."""
    found: dict[str, dict[str, str]] = {}
    left = [str(path.relative_to(folder)) for path in (folder / "contracts/src").glob("**/*.sol")]
    while left:
        name = left.pop()
        if name in found:
            continue
        text = (folder / name.replace("@openzeppelin", "node_modules/@openzeppelin", 1)).read_text()
        found[name] = {"content": text}
        for target in re.findall(r'^(?:import|\}) [^;]*?"([^"]+)";', text, re.MULTILINE):
            relative = target.startswith(".")
            left.append(os.path.normpath(Path(name).parent / target) if relative else target)
    return found


def _analysed(stage: str) -> dict[str, Any]:
    """What the compiler says of the tree, up to its types: its code would take a minute."""
    settings = {"evmVersion": "prague", "outputSelection": {"*": {"": ["ast"]}}}
    sources = _sources(FOLDER / stage)
    request = {"language": "Solidity", "sources": sources, "settings": settings}
    told = subprocess.run(
        ["tools/solc"],
        cwd=FOLDER / stage,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def _enums(node: Node, names: dict[str, list[str]]) -> None:
    if node["nodeType"] == "EnumDefinition":
        names[node["canonicalName"]] = [member["name"] for member in node["members"]]
    for value in node.values():
        for child in children(value):
            _enums(child, names)


def _found(stage: str) -> list[Mutant]:
    trees = {path: each["ast"] for path, each in _analysed(stage)["sources"].items()}
    names: dict[str, list[str]] = {}
    for tree in trees.values():
        _enums(tree, names)
    mutants: list[Mutant] = []
    for file in STAGES[stage]:
        path = f"contracts/src/{file}"
        finder = Finder(path, (ROOT / path).read_bytes(), names)
        finder.walk(trees[path])
        mutants += finder.found
    return mutants


def _weave(stage: str, mutants: Mapping[int, Mutant]) -> None:
    for path in {mutant.file for mutant in mutants.values()}:
        own = {number: each for number, each in mutants.items() if each.file == path}
        (FOLDER / stage / path).write_bytes(woven((ROOT / path).read_bytes(), own))


def _refused(stage: str, mutants: Mapping[int, Mutant]) -> set[int]:
    """Those on the lines that the compiler does not take: changes that have no type."""
    numbers: set[int] = set()
    for error in _analysed(stage).get("errors", []):
        if error["severity"] != "error":
            continue
        place = error["sourceLocation"]
        source = (FOLDER / stage / place["file"]).read_bytes()
        start, end = place["start"], place["end"]
        line = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end)
        for first, last in ((start, end), line):
            on_line = {int(each) for each in WOVEN.findall(source[first:last])} & mutants.keys()
            if on_line:
                break
        else:
            raise SystemExit(error["formattedMessage"])
        numbers |= on_line
    return numbers


def prepare(stage: str) -> dict[int, Mutant]:
    """One build with every mutant that compiles; the numbers are the random numbers that choose."""
    _copy(stage)
    mutants = {number + 1: mutant for number, mutant in enumerate(_found(stage))}
    print(f"{stage}: {len(mutants)} mutants", flush=True)
    while True:
        _weave(stage, mutants)
        refused = _refused(stage, mutants)
        if not refused:
            break
        print(f"{len(refused)} without a type", flush=True)
        mutants = {number: each for number, each in mutants.items() if number not in refused}
    built = forge(stage, "build")
    if built.returncode != 0:
        raise SystemExit(built.stdout + built.stderr)
    kept = [asdict(each) for each in mutants.values()]
    (FOLDER / f"{stage}.json").write_text(json.dumps(kept))
    return mutants
