"""Mutation check of the contracts that judge, draw and pay: which changes does no test see?

All mutants of all files are woven into one build: each place asks `Mutant.on(number)`, which
compares the block's random number, so that one compilation serves every mutant and forge chooses
one with an environment variable. To compile each by itself costs ten times what its tests do.

    python tools/contract_mutants.py [--minutes N] [STAGE...]   go on where the last run stopped
    python tools/contract_mutants.py --report                  what the runs found

The stage `libraries` asks the tests of the libraries alone, which cost little; `network` asks
those of whole jobs about what survived there and about all else.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "artifacts" / "mutants"
REASONS = ROOT / "contracts" / "mutants.json"
ENVIRONMENT = {"FOUNDRY_PROFILE": "coverage", "FOUNDRY_DENY": "never", "FOUNDRY_FUZZ_RUNS": "32"}
SECONDS = 240  # a mutant that makes a loop endless runs out of gas before

PARTS = "contracts/test/parts/"
ROUNDS = (
    "contracts/test/Adjudicator*.t.sol",
    PARTS + "Disputes.t.sol",
    PARTS + "Reverification*.t.sol",
    PARTS + "Appealed.t.sol",
)
MONEY = (
    PARTS + "Jobs.t.sol",
    PARTS + "Convictions.t.sol",
    PARTS + "Demands.t.sol",
    PARTS + "Summonses.t.sol",
    PARTS + "TaskClaims.t.sol",
)
LIBRARIES = (
    "contracts/test/libraries/VerdictLib.t.sol",
    "contracts/test/libraries/DrawLib.t.sol",
    "contracts/test/libraries/Vectors.t.sol",
)

# By stage and file, the tests that are asked, the narrowest first: most mutants die there.
STAGES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "libraries": {
        "libraries/VerdictLib.sol": (LIBRARIES[0], LIBRARIES[2]),
        "libraries/DrawLib.sol": (LIBRARIES[1], LIBRARIES[2]),
        "libraries/StatisticsLib.sol": (LIBRARIES[2],),
    },
    "network": {
        "libraries/VerdictLib.sol": (*ROUNDS, *MONEY),
        "libraries/DrawLib.sol": (*ROUNDS, *MONEY),
        "libraries/StatisticsLib.sol": ROUNDS,
        "libraries/TermsLib.sol": (PARTS + "Terms.t.sol", *MONEY),
        "libraries/JobLib.sol": (*MONEY, *ROUNDS),
        "parts/Rulings.sol": (PARTS + "Disputes.t.sol", *ROUNDS, PARTS + "Convictions.t.sol"),
        "parts/Disputes.sol": (PARTS + "Disputes.t.sol", *ROUNDS, PARTS + "Convictions.t.sol"),
        "parts/Convictions.sol": (PARTS + "Convictions.t.sol", *ROUNDS, *MONEY),
        "parts/Ledger.sol": (PARTS + "Accounts.t.sol", *MONEY, *ROUNDS),
        "parts/Docket.sol": (*MONEY, *ROUNDS),
        "parts/Jobs.sol": (*MONEY, *ROUNDS),
    },
}

OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "&": "|",
    "|": "&",
    "^": "&",
    "<<": ">>",
    ">>": "<<",
}
ASSIGNMENTS = {"+=": "-=", "-=": "+=", "|=": "=", "&=": "=", "*=": "=", ">>=": "<<=", "<<=": ">>="}

MUTANT = b"""// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

library Mutant {
    function on(uint256 number) internal pure returns (bool) {
        function() internal view returns (uint256) read = _chosen;
        function() internal pure returns (uint256) pretend;
        assembly ("memory-safe") {
            pretend := read
        }
        return pretend() == number;
    }

    function _chosen() private view returns (uint256) {
        return block.prevrandao;
    }
}
"""

WOVEN = re.compile(rb"Mutant\.on\((\d+)\)")

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place; `start` and `end` count bytes of the file."""

    key: str  # what stays the same as long as the place does, wherever it moves
    file: str
    line: int
    start: int
    end: int
    statement: bool
    original: str
    changed: str
    cast: str = ""


# ── Finding ─────────────────────────────────────────────────────────────────────────────────────


def _children(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        if "nodeType" in value:
            yield value
        else:
            for each in value.values():
                yield from _children(each)
    elif isinstance(value, list):
        for each in value:
            yield from _children(each)


def _span(node: Node) -> tuple[int, int]:
    start, length, _ = (int(part) for part in node["src"].split(":"))
    return start, start + length


def _type(node: Node) -> str:
    return str(node.get("typeDescriptions", {}).get("typeString", ""))


class Finder:
    """Walks the functions of a file and writes down what can be changed in them."""

    def __init__(self, file: str, source: bytes, names: Mapping[str, Sequence[str]]) -> None:
        """`names`: the members of each enum, in order."""
        self.file = file
        self.source = source
        self.names = names
        self.found: list[Mutant] = []
        self.function = ""
        self.seen: Counter[str] = Counter()

    def walk(self, node: Node, inside: bool = False) -> None:
        """Collects the mutants of a node and of all below it."""
        kind = node["nodeType"]
        inside = inside or kind == "Block"
        if kind == "FunctionDefinition":
            self.function = node["name"] or node["kind"]
        if kind == "InlineAssembly" or kind.endswith("TypeName"):
            return
        if inside and (handle := getattr(self, f"_{kind}", None)) is not None:
            handle(node)
        for key, value in node.items():
            # A loop that does not advance tells nothing, and costs its whole gas.
            if key == "loopExpression":
                continue
            for child in _children(value):
                self.walk(child, inside)

    def _text(self, node: Node) -> str:
        start, end = _span(node)
        return self.source[start:end].decode()

    def _add(self, node: Node, changed: str, statement: bool = False, cast: str = "") -> None:
        start, end = _span(node)
        if statement and self.source[end : end + 1] == b";":
            end += 1
        line = self.source[:start].count(b"\n") + 1
        original = self.source[start:end].decode()
        name = f"{Path(self.file).stem}.{self.function}: {original} -> {changed}"
        name = " ".join(name.split())
        self.seen[name] += 1
        key = name if self.seen[name] == 1 else f"{name} ({self.seen[name]})"
        self.found.append(
            Mutant(key, self.file, line, start, end, statement, original, changed, cast)
        )

    def _between(self, node: Node, left: Node, right: Node, operator: str) -> str:
        middle = self.source[_span(left)[1] : _span(right)[0]].decode()
        swapped = middle.replace(node["operator"], operator, 1)
        head = self.source[_span(node)[0] : _span(left)[1]].decode()
        tail = self.source[_span(right)[0] : _span(node)[1]].decode()
        return head + swapped + tail

    def _BinaryOperation(self, node: Node) -> None:
        left, right = node["leftExpression"], node["rightExpression"]
        if _type(node).startswith(("int_const", "rational_const")):
            return
        operator = OPERATORS.get(node["operator"])
        if operator is not None:
            self._add(node, self._between(node, left, right, operator))
        for literal, other in ((left, right), (right, left)):
            if literal["nodeType"] != "Literal" or literal.get("kind") != "number":
                continue
            cast = "uint256" if node["operator"] in ("<<", ">>", "**") else _type(other)
            if re.fullmatch(r"u?int\d+", cast):
                self._add(literal, f"{self._text(literal)} + 1", cast=cast)

    def _UnaryOperation(self, node: Node) -> None:
        if node["operator"] in ("!", "~") and node["prefix"]:
            self._add(node, self._text(node["subExpression"]))

    def _Conditional(self, node: Node) -> None:
        condition, true, false = (
            self._text(node[f"{part}Expression"]) if part != "condition" else self._text(node[part])
            for part in ("condition", "true", "false")
        )
        self._add(node, f"{condition} ? {false} : {true}")

    def _MemberAccess(self, node: Node) -> None:
        names = self.names.get(_type(node).removeprefix("enum "))
        owner = _type(node["expression"])
        if names is None or not owner.startswith("type(enum"):
            return
        position = names.index(node["memberName"])
        other = names[(position + 1) % len(names)]
        self._add(node, f"{self._text(node['expression'])}.{other}")

    def _IfStatement(self, node: Node) -> None:
        for constant in ("true", "false"):
            self._add(node["condition"], constant)

    def _ExpressionStatement(self, node: Node) -> None:
        self._add(node, "{}", statement=True)
        expression = node["expression"]
        if expression["nodeType"] == "Assignment" and expression["operator"] in ASSIGNMENTS:
            changed = self._between(
                expression,
                expression["leftHandSide"],
                expression["rightHandSide"],
                ASSIGNMENTS[expression["operator"]],
            )
            self._add(node, changed + ";", statement=True)

    def _EmitStatement(self, node: Node) -> None:
        self._add(node, "{}", statement=True)

    def _Continue(self, node: Node) -> None:
        self._add(node, "{}", statement=True)


# ── Weaving ─────────────────────────────────────────────────────────────────────────────────────


def woven(source: bytes, mutants: Mapping[int, Mutant]) -> bytes:
    """The file with all its mutants in it, each behind its number."""
    spans: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, mutant in mutants.items():
        spans[mutant.start, mutant.end].append(number)
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))

    def render(start: int, end: int, within: Sequence[tuple[int, int]]) -> bytes:
        out, at = b"", start
        while within:
            (first, last), rest = within[0], within[1:]
            inner = [span for span in rest if span[1] <= last]
            out += source[at:first] + wrap((first, last), render(first, last, inner))
            at, within = last, rest[len(inner) :]
        return out + source[at:end]

    def wrap(span: tuple[int, int], body: bytes) -> bytes:
        statement = any(mutants[number].statement for number in spans[span])
        cast = next((mutants[n].cast for n in spans[span] if mutants[n].cast), "")
        head = ""
        for number in spans[span]:
            condition, changed = f"Mutant.on({number})", mutants[number].changed
            head += (
                f"if ({condition}) {changed} else " if statement else f"{condition} ? {changed} : "
            )
        if statement:
            return b"{ " + head.encode() + body + b" }"
        return cast.encode() + b"(" + head.encode() + b"(" + body + b"))"

    text = render(0, len(source), ordered)
    first = text.index(b"\n", text.index(b"pragma")) + 1
    return text[:first] + b'import {Mutant} from "contracts/src/Mutant.sol";\n' + text[first:]


# ── A tree of its own ───────────────────────────────────────────────────────────────────────────


def _forge(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tools/forge", *arguments],
        cwd=FOLDER,
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS * 5,
    )


def _copy(stage: str) -> None:
    """What the suites need, and no more: all of it is compiled with all mutants in it."""
    shutil.rmtree(FOLDER / "contracts", ignore_errors=True)
    shutil.copytree(ROOT / "contracts", FOLDER / "contracts")
    shutil.copytree(ROOT / "tools", FOLDER / "tools", dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests" / "vectors", FOLDER / "tests" / "vectors", dirs_exist_ok=True)
    shutil.copy(ROOT / "foundry.toml", FOLDER)
    if not (FOLDER / "node_modules").exists():
        (FOLDER / "node_modules").symlink_to((ROOT / "node_modules").resolve())
    (FOLDER / "contracts" / "src" / "Mutant.sol").write_bytes(MUTANT)
    patterns = {pattern for suites in STAGES[stage].values() for pattern in suites}
    wanted = {path for pattern in patterns for path in FOLDER.glob(pattern)}
    helpers = ("*.sol",) if stage == "network" else ("Test.sol", "Trees.sol")
    for pattern in helpers:
        found = (FOLDER / "contracts" / "test").glob(pattern)
        wanted |= {path for path in found if not path.name.endswith(".t.sol")}
    apart = ["contracts/src/Prover.sol"]
    if stage == "libraries":
        apart = ["contracts/src/[!M]*.sol", "contracts/src/parts/*.sol", "contracts/src/dev/*.sol"]
    unwanted = {path for pattern in apart for path in FOLDER.glob(pattern)}
    unwanted |= set((FOLDER / "contracts" / "test").glob("**/*.sol")) - wanted
    for path in unwanted:
        path.unlink()


def _sources() -> dict[str, dict[str, str]]:
    """The contracts and all that they import, by the names that the compiler knows."""
    found: dict[str, dict[str, str]] = {}
    left = [str(path.relative_to(FOLDER)) for path in (FOLDER / "contracts/src").glob("**/*.sol")]
    while left:
        name = left.pop()
        if name in found:
            continue
        text = (FOLDER / name.replace("@openzeppelin", "node_modules/@openzeppelin", 1)).read_text()
        found[name] = {"content": text}
        for target in re.findall(r'^(?:import|\}) [^;]*?"([^"]+)";', text, re.MULTILINE):
            relative = target.startswith(".")
            left.append(os.path.normpath(Path(name).parent / target) if relative else target)
    return found


def _analysed() -> dict[str, Any]:
    """What the compiler says of the tree, up to its types: its code would take a minute."""
    settings = {"evmVersion": "prague", "outputSelection": {"*": {"": ["ast"]}}}
    request = {"language": "Solidity", "sources": _sources(), "settings": settings}
    told = subprocess.run(
        ["tools/solc"],
        cwd=FOLDER,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def _trees(stage: str) -> tuple[dict[str, Node], dict[str, list[str]]]:
    """The syntax tree of each mutated file, and the members of every enum."""
    names: dict[str, list[str]] = {}
    trees = {path: each["ast"] for path, each in _analysed()["sources"].items()}
    for tree in trees.values():
        _enums(tree, names)
    wanted = {f"contracts/src/{file}" for file in STAGES[stage]}
    return {file: tree for file, tree in trees.items() if file in wanted}, names


def _enums(node: Node, names: dict[str, list[str]]) -> None:
    if node["nodeType"] == "EnumDefinition":
        names[node["canonicalName"]] = [member["name"] for member in node["members"]]
    for value in node.values():
        for child in _children(value):
            _enums(child, names)


def _found(stage: str) -> list[Mutant]:
    trees, names = _trees(stage)
    mutants: list[Mutant] = []
    for path, tree in sorted(trees.items()):
        finder = Finder(path, (ROOT / path).read_bytes(), names)
        finder.walk(tree)
        mutants += finder.found
    return mutants


def _weave(mutants: Mapping[int, Mutant]) -> None:
    for path in {mutant.file for mutant in mutants.values()}:
        own = {number: each for number, each in mutants.items() if each.file == path}
        (FOLDER / path).write_bytes(woven((ROOT / path).read_bytes(), own))


def _refused(mutants: Mapping[int, Mutant]) -> set[int]:
    """Those on the lines that the compiler does not take: changes that have no type."""
    numbers: set[int] = set()
    for error in _analysed().get("errors", []):
        if error["severity"] != "error":
            continue
        place = error["sourceLocation"]
        source = (FOLDER / place["file"]).read_bytes()
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
    print(f"{len(mutants)} mutants", flush=True)
    while True:
        _weave(mutants)
        refused = _refused(mutants)
        if not refused:
            break
        print(f"{len(refused)} without a type", flush=True)
        mutants = {number: each for number, each in mutants.items() if number not in refused}
    built = _forge("build")
    if built.returncode != 0:
        raise SystemExit(built.stdout + built.stderr)
    (FOLDER / f"{stage}.json").write_text(json.dumps([asdict(each) for each in mutants.values()]))
    for suite in sorted({suite for suites in STAGES[stage].values() for suite in suites}):
        if (killer := _dies(0, suite)) is not None:
            raise SystemExit(f"the tests fail without a mutant: {killer}")
    return mutants


# ── Running ─────────────────────────────────────────────────────────────────────────────────────


def _dies(number: int, suite: str) -> str | None:
    """What killed the mutant in these tests, if anything did."""
    try:
        told = _forge(
            "test",
            "--fail-fast",
            "--match-path",
            suite,
            "--no-match-contract",
            "Gas",
            FOUNDRY_BLOCK_PREVRANDAO=f"0x{number:064x}",
        )
    except subprocess.TimeoutExpired:
        return f"{suite}: time"
    if told.returncode == 0:
        return None
    failed = re.search(r"\[FAIL[^\n]*\] (\w+)", told.stdout)
    if failed is None:
        raise SystemExit(told.stdout + told.stderr)
    return f"{suite}: {failed[1]}"


def run(stage: str, until: float, say: Callable[[str], None]) -> None:
    """Judges what no earlier run has; the results are kept line by line."""
    mutants = prepare(stage)
    results = _results()
    with (FOLDER / "results.jsonl").open("a") as out:
        for number, mutant in mutants.items():
            known = results.get(mutant.key, {})
            if time.time() > until or stage in known or any(known.values()):
                continue
            killer = None
            for suite in STAGES[stage][mutant.file.removeprefix("contracts/src/")]:
                killer = _dies(number, suite)
                if killer is not None:
                    break
            row = {"key": mutant.key, "stage": stage, "by": killer}
            out.write(json.dumps(row) + "\n")
            out.flush()
            say(f"{number}/{max(mutants)} {mutant.file}:{mutant.line} {killer or 'SURVIVED'}")


def _results() -> dict[str, dict[str, str | None]]:
    """By mutant and stage, the test that killed it, if one did."""
    path = FOLDER / "results.jsonl"
    found: dict[str, dict[str, str | None]] = defaultdict(dict)
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        found[row["key"]][row["stage"]] = row["by"]
    return found


def report() -> bool:
    """Prints the table and what survives without a reason; whether nothing does."""
    results = _results()
    reasons: dict[str, str] = json.loads(REASONS.read_text()) if REASONS.exists() else {}
    kept = [path for stage in STAGES if (path := FOLDER / f"{stage}.json").exists()]
    mutants = {
        each["key"]: Mutant(**each) for path in kept for each in json.loads(path.read_text())
    }
    table: dict[str, Counter[str]] = defaultdict(Counter)
    survivors: list[Mutant] = []
    for key, mutant in mutants.items():
        found = results.get(key, {})
        state = "not run"
        if any(found.values()):
            state = "killed"
        elif key in reasons:
            state = "explained"
        elif found:
            state = "survived"
            survivors.append(mutant)
        table[mutant.file.removeprefix("contracts/src/")][state] += 1
    columns = ("killed", "explained", "survived", "not run")
    print(f"| file | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for file, row in sorted(table.items()):
        print(f"| `{file}` | {' | '.join(str(row[column]) for column in columns)} |")
    for mutant in survivors:
        print(f"{mutant.file}:{mutant.line}: {mutant.key}")
    return not survivors


def main() -> int:
    """Prepare, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="libraries, network; both")
    parser.add_argument("--report", action="store_true", help="only what earlier runs found")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after as many")
    arguments = parser.parse_args()
    until = time.time() + 60 * arguments.minutes
    for stage in () if arguments.report else arguments.stages or STAGES:
        run(stage, until, lambda line: print(line, flush=True))
    return 0 if report() else 1


if __name__ == "__main__":
    sys.exit(main())
