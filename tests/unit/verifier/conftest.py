"""The tiny model, its engines, and one honest job that many tests start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.verifier.lab import Engines, Played, play, spec_of
from verillm.engine.tiny import write_folder
from verillm.head import HeadRows
from verillm.model import ModelSpec


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def spec(folder: Path) -> ModelSpec:
    return spec_of(folder)


@pytest.fixture(scope="session")
def engines(folder: Path) -> Iterator[Engines]:
    running = Engines(folder)
    yield running
    running.close()


@pytest.fixture(scope="session")
def head(folder: Path) -> HeadRows:
    return HeadRows(folder)


@pytest.fixture(scope="session")
def honest(engines: Engines, spec: ModelSpec) -> Played:
    return play(engines, spec)
