"""Mutation check of the code that decides: each mutant is killed by a fast test, or explained.

mutmut makes the mutants (`[tool.mutmut]` in pyproject.toml) and can show them. They run here, one
module after the other, each in a pytest session that has collected that module's own tests and
forks for each mutant: to start pytest anew for each costs many times what its tests do. Results are
kept in mutants/, so that a run goes on where the last one stopped: what is killed stays so until
its function changes, all else runs again.

    python tools/mutants.py [PATTERN...]      such as 'verillm.draw.*'; without, all of them
    python tools/mutants.py --report          what the last runs found
    mutmut show MUTANT                        what one changes
"""

import json
import os
import re
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from difflib import unified_diff
from fnmatch import fnmatch
from pathlib import Path

import pytest
from mutmut.__main__ import create_file_mutants
from mutmut.mutation.data import MutantLineSpans, SourceFileMutationData as Results
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.file_utils import (
    copy_also_copy_files,
    copy_src_dir,
    setup_source_paths,
    walk_mutatable_files,
    walk_source_files,
)
from mutmut.utils.format_utils import mangled_name_from_mutant_name as function_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "mutants"
SETTINGS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))
# A traceback would have pytest parse the module with all of its mutants, ten times what tests cost.
OPTIONS = ["-q", "--tb=no", "--rootdir=.", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
KILLED, SURVIVED, UNTESTED, TIMEOUT = 1, 0, 33, 36  # as mutmut records them
SENTENCE = re.compile(r'f?"[^"]* [^"]*"')


@dataclass
class Session:
    """A pytest plugin that runs a module's mutants in place of the tests."""

    results: Results
    wanted: Sequence[str]
    say: Callable[[str], None]
    failed: bool = False
    items: list[pytest.Item] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which tests reach which function, then run each mutant against its own."""
        self.items = session.items
        if forked(self._learn, 3600) != SURVIVED:
            raise pytest.UsageError("the tests fail without any mutant")
        seconds, reached = json.loads(self._note("reached").read_text("utf-8"))
        killers: dict[str, Counter[int]] = defaultdict(Counter)
        for mutant in self.wanted:
            killed = killers[function_of(mutant)]
            tests = sorted(
                reached.get(function_of(mutant), ()),
                key=lambda each: seconds[each] / (1 + 9 * killed[each]),
            )
            limit = 5 + 10 * sum(seconds[each] for each in tests)
            code = forked(lambda m=mutant, t=tests: self._kills(m, t), limit) if tests else UNTESTED
            if code == KILLED:
                killed[int(self._note("killer").read_text("utf-8"))] += 1
            self.results.exit_code_by_key[mutant] = code
            self.results.save()
            if code in (SURVIVED, UNTESTED):
                self.say(mutant)
        return True

    def _note(self, what: str) -> Path:
        """Where a child leaves what it found."""
        return self.results.meta_path.with_suffix(f".{what}")

    def _learn(self) -> int:
        set_mutant_under_test("stats")
        seconds, reached = [], defaultdict(list)
        for number in range(len(self.items)):
            start = time.process_time()
            self._run([number])
            seconds.append(time.process_time() - start)
            for function in state()._stats:
                reached[function].append(number)
            state()._stats.clear()
        self._note("reached").write_text(json.dumps([seconds, reached]), "utf-8")
        return KILLED if self.failed else SURVIVED

    def _kills(self, mutant: str, tests: Sequence[int]) -> int:
        set_mutant_under_test(mutant)
        self._run(tests)
        return KILLED if self.failed else SURVIVED

    def _run(self, tests: Sequence[int]) -> None:
        """Run tests in this order, up to the first failure, and note which it was."""
        for number, following in zip(tests, [*tests[1:], None], strict=True):
            item = self.items[number]
            nextitem = None if following is None else self.items[following]
            self._note("killer").write_text(str(number), "utf-8")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            if self.failed:
                return


def forked(work: Callable[[], int], seconds: float) -> int:
    """What work says in a child of its own, which is killed after so many seconds of computing."""
    child = os.fork()
    if child == 0:
        code = KILLED
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            code = work()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGPROF:
        return TIMEOUT
    return SURVIVED if code == SURVIVED else KILLED


def generate() -> list[Results]:
    """Write anew what was changed since the last run, and take what results still hold."""
    set_mutant_under_test("mutant_generation")
    FOLDER.mkdir(exist_ok=True)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        copy_src_dir()
        copy_also_copy_files()
        for path in walk_source_files():
            made = create_file_mutants(path)
            if made.error:
                raise made.error
    found = []
    for path in sorted(walk_mutatable_files()):
        results = Results(path=path)
        results.load()
        results.meta_path = ROOT / results.meta_path
        if results.exit_code_by_key:
            found.append(results)
    return found


def run(results: Results, wanted: Sequence[str]) -> int:
    """Run mutants of one module in this process, which is good for nothing else thereafter."""
    terminal = os.fdopen(os.dup(1), "w", buffering=1)
    setup_source_paths()
    tests = [f"tests/unit/{each}" for each in SETTINGS["tests"][str(results.path)]]
    session = Session(results, wanted, lambda line: print("lives:", line, file=terminal))
    os.chdir(FOLDER)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = pytest.main([*OPTIONS, *tests], plugins=[session])
    if code != pytest.ExitCode.OK:
        print(f"pytest {' '.join(tests)}: {code!r}", file=terminal)
    return int(code)


def change_of(results: Results, mutant: str) -> str:
    """What a mutant changes, in one line: old → new."""
    spans = MutantLineSpans.load(results.path)
    if spans is None:
        raise SystemExit(f"{results.path}: made by another mutmut; delete {FOLDER}")
    name = mutant.rpartition(".")[2]
    original = f"{function_of(name)}__mutmut_orig"
    before, after = (
        source.replace(each, name).splitlines()
        for each, source in zip(
            (original, name), spans.read_function_sources([original, name]), strict=True
        )
    )
    sides: dict[str, list[str]] = {"-": [], "+": []}
    for line in list(unified_diff(before, after, n=0))[2:]:
        if line[0] in sides:
            sides[line[0]].append(line[1:].strip())
    return f"{' '.join(sides['-'])} → {' '.join(sides['+'])}"


def report(found: Iterable[Results]) -> int:
    """Print a row per module and all that survives unexplained; how many are that or not run."""
    left: list[str] = []
    used: set[tuple[str, str]] = set()
    columns = ("killed", "words only", "equivalent", "left", "not run")
    print(f"| module | mutants | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    total: Counter[str] = Counter()
    for results in found:
        row: Counter[str] = Counter()
        for mutant, code in results.exit_code_by_key.items():
            if code is None or code in (KILLED, TIMEOUT):
                row["not run" if code is None else "killed"] += 1
                continue
            function, change = function_of(mutant), change_of(results, mutant)
            kind = _kind(function, change, code)
            row[kind] += 1
            if kind == "equivalent":
                used.add((function, change))
            if kind == "left":
                left.append(f"{mutant} ({code}): {change}")
        _print_row(f"`{results.path}`", row, columns)
        total += row
    _print_row("all", total, columns)
    print(*left, sep="\n")
    for function, changes in SETTINGS["equivalent"].items():
        for change in changes:
            if (function, change) not in used and not total["not run"]:
                print(f"no such survivor: {function}: {change}")
    return total["left"] + total["not run"]


def _kind(function: str, change: str, code: int) -> str:
    if change in SETTINGS["equivalent"].get(function, {}):
        return "equivalent"
    before, after = (SENTENCE.sub('""', side) for side in change.split(" → ", 1))
    return "words only" if code == SURVIVED and before == after else "left"


def _print_row(name: str, row: Counter[str], columns: Sequence[str]) -> None:
    counts = [sum(row.values()), *(row[column] for column in columns)]
    print(f"| {name} | {' | '.join(map(str, counts))} |")


def main(arguments: Sequence[str]) -> int:
    """Run what is wanted and not killed yet; 1 where anything survives unexplained."""
    os.chdir(ROOT)
    found = generate()
    for results in found if "--report" not in arguments else ():
        wanted = [
            mutant
            for mutant, code in results.exit_code_by_key.items()
            if code not in (KILLED, TIMEOUT)
            and (not arguments or any(fnmatch(mutant, pattern) for pattern in arguments))
        ]
        if wanted and forked(lambda r=results, w=wanted: run(r, w), 36_000) != 0:
            return 2
        results.load()
    return min(1, report(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
