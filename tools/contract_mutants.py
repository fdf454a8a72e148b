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
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tools.mutant_build import FOLDER, ROOT, STAGES, environment, forge, prepare, suites
from tools.mutant_weaver import EVERY, Mutant

REASONS = ROOT / "contracts" / "mutants.json"
AT_ONCE = 2  # forges beside each other
GUESSES = 4  # tests that are asked before all others

DEAR = 50_000_000  # gas of a test: half a second

TRACED = "contracts/test/parts/"  # the others would take ten gigabytes

STATES = ("killed", "explained", "survived", "not run")

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


# ── Which tests ─────────────────────────────────────────────────────────────────────────────────


def _reach(stage: str) -> Reach:
    """Runs every test without a mutant, then once more so that each shows up in its trace."""
    reach = Reach()
    for suite in suites(stage):
        asked = ("test", "--match-path", suite, "--no-match-contract", "Gas")
        told = forge(stage, *asked)
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
            env=environment(EVERY),
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
        told = forge(
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
