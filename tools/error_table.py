"""Write the table of error codes in docs/operators.md from the error classes themselves.

`python tools/error_table.py` rewrites the page; `tests/unit/test_docs.py` holds it to this.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import verillm.chain.refused
import verillm.economics.rules
import verillm_node.errors
import verillm_verifier.errors
from verillm import api, errors

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
HEAD = "| code | HTTP | it means | remedy |\n|---|---|---|---|\n"
MODULES = (
    errors,
    verillm.chain.refused,
    verillm.economics.rules,
    verillm_node.errors,
    verillm_verifier.errors,
)


def kinds(
    root: type[errors.VeriLLMError] = errors.VeriLLMError,
) -> Iterator[type[errors.VeriLLMError]]:
    """An error class and all below it, parents first; by module, whichever was imported first."""
    yield root
    names = [module.__name__ for module in MODULES]
    children = [child for child in root.__subclasses__() if child.__module__ in names]
    for child in sorted(children, key=lambda child: names.index(child.__module__)):
        yield from kinds(child)


def table() -> str:
    """One row a code, by the class that names it first."""
    rows: dict[str, str] = {}
    for kind in kinds():
        meaning = (inspect.getdoc(kind) or "").splitlines()[0]
        status = api.status_of(kind.code)
        rows.setdefault(kind.code, f"| `{kind.code}` | {status} | {meaning} | {kind.remedy} |\n")
    del rows[errors.VeriLLMError.code]
    return HEAD + "".join(rows.values())


def page(text: str) -> str:
    """The page with its table of error codes as it should be; the table ends the page."""
    before, found, _ = text.partition(HEAD)
    if not found:
        raise SystemExit(f"{PAGE} has no table of error codes")
    return before + table()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
