"""The documentation, executed: what a page tells a reader to type or to import works."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([README, *(ROOT / "docs").glob("*.md")])
MAX_README_LINES = 150
SHELL = ("console", "sh", "bash", "shell")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_OPTION = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])


def commands(language: tuple[str, ...] = SHELL) -> Iterator[tuple[Block, list[str]]]:
    """Every command of every shell block, split as a shell would."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in language:
                joined = block.text.replace("\\\n", " ")
                for line in joined.splitlines():
                    words = shlex.split(line, comments=True)
                    if words:
                        yield block, words


COMMANDS = [
    pytest.param(block, words, id=f"{block}: {' '.join(words)}") for block, words in commands()
]
PYTHON = [
    pytest.param(block, id=str(block))
    for page in PAGES
    for block in blocks(page)
    if block.language == "python"
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_readme_is_at_most_150_lines() -> None:
    assert len(README.read_text().splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_names_a_heading(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if anchor and not path.startswith("http"):
            there = page.parent / path if path else page
            assert anchor in anchors(there), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_is_plain_about_this_machine(page: Path) -> None:
    assert not re.search(r"/(home|root|work|Users)/", page.read_text())


@pytest.mark.parametrize(("block", "words"), COMMANDS)
def test_every_command_of_a_shell_block_exists(block: Block, words: list[str]) -> None:
    """`make` targets dry-run; our commands know the subcommand and every option shown."""
    program, *arguments = words
    if program == "make":
        dry = run("make", "--dry-run", *arguments)
        assert dry.returncode == 0, dry.stderr
    elif program in SCRIPTS:
        check_script(program, arguments)
    elif program.endswith("python") and arguments[0] == "-m":
        check_module(arguments[1], arguments[2:])
    elif program.endswith("python"):
        assert (ROOT / arguments[0]).is_file(), f"{block}: {arguments[0]}"
    elif words[:3] == ["npx", "hardhat", "run"]:
        assert (ROOT / arguments[2]).is_file(), f"{block}: {arguments[2]}"
    else:
        assert program in FOREIGN, f"{block}: nobody checks `{program}`"


FOREIGN = {"curl", "cast", "sha256sum"}
"""Programs of others that a page may show; each use is of a documented, stable option."""


@cache
def help_of(*words: str) -> str:
    shown = run(*words, "--help")
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def check_script(program: str, arguments: list[str]) -> None:
    subcommand = [word for word in arguments[:1] if not word.startswith("-")]
    check_options(arguments, help_of(str(Path(sys.executable).parent / program), *subcommand))


def check_module(module: str, arguments: list[str]) -> None:
    check_options(arguments, help_of(sys.executable, "-m", module))


def check_options(arguments: list[str], text: str) -> None:
    known = set(_OPTION.findall(text))
    unknown = {word.partition("=")[0] for word in arguments if word.startswith("--")} - known
    assert not unknown, f"--help knows {sorted(known)}"


def test_no_command_of_ours_goes_unmentioned() -> None:
    assert {words[0] for _, words in commands()} >= set(SCRIPTS)


@pytest.mark.parametrize("block", PYTHON)
def test_every_python_block_compiles(block: Block) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compile(block.text, str(block), "exec", flags=flags | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("block", PYTHON)
def test_every_name_that_a_python_block_imports_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("verillm"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block}: {node.module}.{alias.name}"
