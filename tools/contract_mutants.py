"""Mutation check of the contracts that judge, draw and pay: which changes does no test see?

All mutants of a stage are woven into one build, so that forge chooses one with an environment
variable: to compile each by itself costs ten times what its tests do. One run first notes which
tests come past which mutant; only those are asked about it, the likeliest first.

    python -m tools.contract_mutants [--minutes N] [STAGE...]   go on where the last run stopped
    python -m tools.contract_mutants --report                   what the runs found

The stage `libraries` asks the tests of the libraries alone, `network` those of whole jobs.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.mutant_weaver import EVERY, MUTANT, Finder, Mutant, Node, children, woven

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "artifacts" / "mutants"
REASONS = ROOT / "contracts" / "mutants.json"
ENVIRONMENT = {"FOUNDRY_PROFILE": "coverage", "FOUNDRY_DENY": "never", "FOUNDRY_FUZZ_RUNS": "16"}
SECONDS = 240  # a mutant that makes a loop endless runs out of gas before
AT_ONCE = 2  # forges beside each other
GUESSES = 4  # tests that are asked before all others

DEAR = 50_000_000  # gas of a test: half a second

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

TRACED = "contracts/test/parts/"  # the others would take ten gigabytes

COMPILER = """#!/bin/sh
here=$(dirname "$0")
[ "$1" = --version ] && exec cat "$here/version"
exec node "$here/solc.js" "$@"
"""
STATES = ("killed", "explained", "survived", "not run")

WOVEN = re.compile(rb"Mutant\.on\((\d+)\)")
SUITE = re.compile(r"^Ran \d+ tests? for (\S+):\w+")
RESULT = re.compile(r"^\[(PASS|FAIL)[^\n]*?\] (\w+)\(.*?(?:gas|μ): (\d+)")
PASSED = re.compile(r"^\[PASS\] (\w+)\(", re.MULTILINE)
FAILED = re.compile(r"^\[FAIL[^\n]*\] (\w+)\(", re.MULTILINE)
REACHED = re.compile(rf"\b0x0*{EVERY:08x}([0-9a-f]{{8}})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A test, by the file that it stands in."""

    suite: str
    name: str


@dataclass(slots=True)
class Reach:
    """What comes past which mutant, as far as a run without mutants shows."""

    cost: dict[Asked, int] = field(default_factory=dict)
    passes: dict[int, set[Asked]] = field(default_factory=dict)
    always: set[Asked] = field(default_factory=set)  # of fuzz runs only the last one shows

    def of(self, number: int) -> list[Asked]:
        """The tests that may tell the mutant from none, the cheapest first."""
        passed = self.passes.get(
            number
        )  # nothing: at most where a test is set up, which no trace shows
        tests = self.cost.keys() if passed is None else passed | self.always
        return sorted(tests, key=lambda each: self.cost[each])


# ── A tree of its own ───────────────────────────────────────────────────────────────────────────


def _forge(stage: str, *arguments: str, number: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tools/forge", *arguments],
        cwd=FOLDER / stage,
        env=_environment(number),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS * 5,
    )


def _environment(number: int) -> dict[str, str]:
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
    wanted = {folder / suite for suite in _suites(stage)}
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


def _suites(stage: str) -> list[str]:
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
    built = _forge(stage, "build")
    if built.returncode != 0:
        raise SystemExit(built.stdout + built.stderr)
    kept = [asdict(each) for each in mutants.values()]
    (FOLDER / f"{stage}.json").write_text(json.dumps(kept))
    return mutants


# ── Which tests ─────────────────────────────────────────────────────────────────────────────────


def _reach(stage: str) -> Reach:
    """Runs every test without a mutant, then once more so that each shows up in its trace."""
    reach = Reach()
    for suite in _suites(stage):
        asked = ("test", "--match-path", suite, "--no-match-contract", "Gas")
        told = _forge(stage, *asked)
        if told.returncode != 0:
            raise SystemExit(f"the tests fail without a mutant: {told.stdout}")
        plain = Reach()
        note(suite, told.stdout.splitlines(), plain)
        reach.cost |= plain.cost
        if not suite.startswith(TRACED):
            reach.always |= plain.cost.keys()
            continue
        with subprocess.Popen(
            ["tools/forge", *asked, "-vvvv"],
            cwd=FOLDER / stage,
            env=_environment(EVERY),
            stdout=subprocess.PIPE,
            text=True,
        ) as traced:
            note(suite, traced.stdout or (), reach)
    return reach


def note(suite: str, lines: Iterable[str], reach: Reach) -> None:
    """Takes what forge prints about the tests of a file, line by line."""
    test: Asked | None = None
    for line in lines:
        if (result := RESULT.match(line)) is not None:
            test = Asked(suite, result[2])
            reach.cost.setdefault(test, int(result[3]))
            # Where a cheatcode waits for the next call, that to a mutant is in its way.
            if result[1] == "FAIL" or "(runs:" in line:
                reach.always.add(test)
        elif test is not None:
            for number in REACHED.findall(line):
                reach.passes.setdefault(int(number, 16), set()).add(test)


class Killers:
    """Which tests killed what lies near: they are asked first."""

    def __init__(self) -> None:
        self._found: list[tuple[Mutant, str]] = []

    def add(self, mutant: Mutant, name: str) -> None:
        """A test that told a mutant from none."""
        self._found.append((mutant, name))

    def near(self, mutant: Mutant, tests: Sequence[Asked]) -> list[Asked]:
        """The first to ask of `tests`."""
        own = [
            (abs(each.line - mutant.line), name)
            for each, name in self._found
            if each.file == mutant.file
        ]
        ranked = list(dict.fromkeys(name for _, name in sorted(own)))[:GUESSES]
        guesses = [each for each in tests if each.name in ranked]
        return guesses or list(tests[:GUESSES])


# ── Running ─────────────────────────────────────────────────────────────────────────────────────


def _dies(stage: str, number: int, tests: Sequence[Asked]) -> str | None:
    """Which of these tests killed the mutant, if one did."""
    if not tests:
        return None
    suites = ",".join(sorted({each.suite for each in tests}))
    names = {each.name for each in tests}
    try:
        told = _forge(
            stage,
            "test",
            "--fail-fast",
            "--match-path",
            f"{{{suites}}}",
            "--match-test",
            rf"^({'|'.join(sorted(names))})\b",
            "--no-match-contract",
            "Gas",
            number=number,
        )
    except subprocess.TimeoutExpired:
        return "time"
    if (failed := FAILED.search(told.stdout)) is not None:
        return failed[1]
    if told.returncode != 0 or not names <= set(PASSED.findall(told.stdout)):
        raise SystemExit(told.stdout + told.stderr)
    return None


def run(stage: str, until: float) -> None:
    """Judges what no earlier run has, then once more what survived, and keeps each result.

    The few tests that cost as much as all others together are asked at the end, about what is left.
    """
    mutants = prepare(stage)
    results, reasons = _results(), _reasons()
    reach = _reach(stage)
    print(f"{stage}: {len(reach.cost)} tests", flush=True)
    killers = Killers()

    def judge(number: int, dear: bool) -> bool:
        """Whether it lives, as far as that has been asked."""
        if time.time() > until:
            return False
        mutant = mutants[number]
        tests = [each for each in reach.of(number) if (reach.cost[each] >= DEAR) == dear]
        guesses = killers.near(mutant, tests)
        others = [each for each in tests if each not in guesses]
        killer = _dies(stage, number, guesses) or _dies(stage, number, others)
        if killer is not None:
            killers.add(mutant, killer)
        if killer is not None or dear:
            row = {"key": mutant.key, "by": killer, "asked": len(reach.of(number))}
            with (FOLDER / "results.jsonl").open("a") as out:
                out.write(json.dumps(row) + "\n")
        said = killer or ("SURVIVED" if dear else "lives")
        print(f"{number}/{max(mutants)} {mutant.file}:{mutant.line} {said}", flush=True)
        return killer is None

    left = [
        number
        for number, mutant in mutants.items()
        if not results.get(mutant.key) and mutant.key not in reasons
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for dear in (False, True):
            alive = pool.map(judge, left, [dear] * len(left))
            left = [number for number, lives in zip(left, alive, strict=True) if lives]


def _results() -> dict[str, str | None]:
    """By mutant, the test that killed it, if one did."""
    path = FOLDER / "results.jsonl"
    rows = path.read_text().splitlines() if path.exists() else ()
    return {row["key"]: row["by"] for row in map(json.loads, rows)}


def _reasons() -> dict[str, str]:
    reasons: dict[str, str] = json.loads(REASONS.read_text())
    return reasons


def report() -> bool:
    """Prints the table, and what survives without a reason; whether nothing does or has not run."""
    results, reasons = _results(), _reasons()
    kept = [path for stage in STAGES if (path := FOLDER / f"{stage}.json").exists()]
    mutants = [Mutant(**each) for path in kept for each in json.loads(path.read_text())]
    table: dict[str, Counter[str]] = defaultdict(Counter)
    lines = []
    for mutant in mutants:
        state = "killed" if results.get(mutant.key) else "explained"
        if not results.get(mutant.key) and mutant.key not in reasons:
            state = "survived" if mutant.key in results else "not run"
        if state == "survived":
            lines.append(f"{mutant.file}:{mutant.line}: {mutant.key}")
        table[mutant.file.removeprefix("contracts/src/")][state] += 1
    print(f"| file | {' | '.join(STATES)} |\n|---|{'---|' * len(STATES)}")
    for file, row in sorted(table.items()):
        print(f"| `{file}` | {' | '.join(str(row[state]) for state in STATES)} |")
    if len(kept) == len(STAGES):
        idle = reasons.keys() - {mutant.key for mutant in mutants}
        lines += [f"explained, but no mutant: {key}" for key in sorted(idle)]
    print("\n".join(lines))
    run = all(row["not run"] == 0 for row in table.values())
    return bool(mutants) and run and not lines


def main() -> int:
    """Prepare, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="libraries, network; both")
    parser.add_argument("--report", action="store_true", help="only what earlier runs found")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after as many")
    arguments = parser.parse_args()
    until = time.time() + 60 * arguments.minutes
    for stage in () if arguments.report else arguments.stages or STAGES:
        run(stage, until)
    return 0 if report() else 1


if __name__ == "__main__":
    sys.exit(main())
