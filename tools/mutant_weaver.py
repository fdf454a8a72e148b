"""Finds what can be changed in a contract, and weaves all changes into one text.

Each place asks `Mutant.on(number)`, which compares the block's random number, so that one
compilation serves every mutant.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

EVERY = 0x4D757461  # in place of a number: none is on, and each that is asked about is called
MUTANT = b"""// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

library Mutant {
    uint256 private constant EVERY = 0x4d757461;

    function on(uint256 which) internal pure returns (bool) {
        function(uint256) internal view returns (bool) read = _chosen;
        function(uint256) internal pure returns (bool) pretend;
        assembly ("memory-safe") {
            pretend := read
        }
        return pretend(which);
    }

    function _chosen(uint256 which) private view returns (bool) {
        uint256 chosen = block.prevrandao;
        if (chosen == EVERY) {
            assembly ("memory-safe") {
                pop(staticcall(0, or(shl(32, EVERY), which), 0, 0, 0, 0))
            }
        }
        return chosen == which;
    }
}
"""

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


def children(value: Any) -> Iterator[Node]:
    """The nodes right below a part of a tree."""
    if isinstance(value, dict):
        if "nodeType" in value:
            yield value
        else:
            for each in value.values():
                yield from children(each)
    elif isinstance(value, list):
        for each in value:
            yield from children(each)


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
            for child in children(value):
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
