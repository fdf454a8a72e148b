"""A tiny model folder, and tasks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verillm.engine.tiny import TinyEngine, write_folder
from verillm.hashing import sha
from verillm.request import Sampling
from verillm.task import Item, Task
from verillm.types import ChecksumAddress, Hash32, ModelId, TaskId

MakeTask = Callable[..., Task]
WORKER = ChecksumAddress("0x" + "11" * 20)  # type: ignore[arg-type]  # eth_typing wants HexAddress


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILLM_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture
def engine(folder: Path) -> Iterator[TinyEngine]:
    engine = TinyEngine(folder, max_batch=4)
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    def make(*prompts: str, new: int = 12, name: str = "task", **sampling: float) -> Task:
        items = tuple(
            Item(
                salt=sha(prompt.encode()),
                tokens=tuple(prompt.encode()),
                max_new_tokens=new,
                sampling=Sampling.of(**sampling),  # type: ignore[arg-type]  # top_k is an int
                seed=sha(b"seed" + prompt.encode()),
            )
            for prompt in prompts
        )
        identity = TaskId(sha(name.encode()))
        return Task(identity, WORKER, ModelId(Hash32(bytes(32))), items, 2**40 - 1, 1, 1)

    return make
