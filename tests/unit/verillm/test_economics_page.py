"""docs/economics.md against the code that it speaks of; simulated tables are bench's own check."""

import re
from pathlib import Path

import pytest

from bench import economics
from verillm.economics.rules import UnsafeParameters

PAGE = (Path(__file__).parents[3] / "docs" / "economics.md").read_text()


@pytest.mark.parametrize("name", ["recommendations", "published", "batches"])
def test_exact_tables_of_the_page_are_those_of_the_code(name: str) -> None:
    assert f"<!-- table: {name} -->\n{economics.markdown(economics.TABLES[name]())}\n" in PAGE


def test_the_page_has_a_place_for_every_table_and_picture() -> None:
    assert set(re.findall(r"<!-- table: (\w+) -->", PAGE)) == set(economics.TABLES)
    shown = re.findall(r"!\[[^]]+\]\((img/[^)]+)\)", PAGE)
    assert sorted(shown) == ["img/economics-collusion.svg", "img/economics-detection.svg"]
    assert all((economics.PAGE.parent / path).is_file() for path in shown)


def test_the_page_names_the_code_of_a_refusal_and_real_functions() -> None:
    assert f"`{UnsafeParameters.code}`" in PAGE


def test_break_even_of_a_coalition_is_what_the_page_says() -> None:
    assert economics.break_even(6) == pytest.approx(35, abs=1.5)
    assert economics.break_even(10) == pytest.approx(9, abs=0.5)
    assert "about 35 fees for a fifth of the owners, 9 for a third" in PAGE
