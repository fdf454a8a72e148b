"""A whole network of separate processes on the tiny model, with short windows."""

import contextlib
import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from verillm.chain.contract import Status
from verillm.chain.deployment import Config
from verillm.chain.events import JobHistory, job_history
from verillm.client import Client, JobHandle
from verillm.errors import ChainError
from verillm_node.demo import patiently
from verillm_node.devnet import UNIT, Network, Plan, running
from verillm_node.display import Display

TERMS = replace(
    Config.devnet(dispute_window=6), claim_window=24, opening_window=60, seal_window=120
)
WAIT = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.anvil)


class Town:
    """A running network, a client with money, and the power to kill."""

    def __init__(self, network: Network, said: io.StringIO) -> None:
        self.network, self.said = network, said
        self.chain = network.chain()
        self.client = Client(
            network.anvil.url,
            network.deployment,
            network.client,
            scheduler=network.scheduler_url,
            cache=network.plan.folder / "tokenizers",
        )

    def close(self) -> None:
        self.client.close()
        self.chain.close()

    def buy(self, tokens: int = 24, prompt: str = "Tell me a story.") -> JobHandle:
        return patiently(lambda: self.client.submit(prompt, max_new_tokens=tokens))

    def history(
        self, handle: JobHandle, done: Callable[[JobHistory], object], within: float = WAIT
    ) -> JobHistory:
        """A job's history once it is `done`; a chain that is away is waited for."""
        deadline = time.monotonic() + within
        while True:
            with contextlib.suppress(ChainError):
                found = job_history(self.chain, handle.job_id)
                if done(found):
                    return found
            assert time.monotonic() < deadline, f"not in {within} s:\n{self.logs()}"
            time.sleep(0.1)

    def final(self, handle: JobHandle, within: float = WAIT) -> JobHistory:
        return self.history(handle, lambda found: found.finalized, within)

    def status(self, handle: JobHandle) -> Status:
        return self.chain.job_state(handle.job_id).status

    def pid(self, name: str) -> int:
        if name == "anvil":
            assert self.network.anvil.pid is not None
            return self.network.anvil.pid
        process = self.network.supervisor.children[name].process
        assert process is not None
        return process.pid

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """A process that does not answer, and does not know that time passes."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def name_of(self, address: str) -> str:
        return self.network.name_of(address)  # type: ignore[arg-type]

    def balances(self) -> dict[str, int]:
        operators = [self.network.scheduler, *(w.operator for w in self.network.workers)]
        return {self.name_of(each): self.chain.account_of(each).balance for each in operators}

    def logs(self) -> str:
        """The last words of everyone, for whoever reads a failure."""
        folder = self.network.plan.folder / "logs"
        tails = [f"== {p.name}\n" + p.read_text()[-1500:] for p in sorted(folder.iterdir())]
        return "\n".join([self.said.getvalue()[-2000:], *tails])


@contextlib.contextmanager
def town(
    folder: Path, cheater: int = 0, workers: int = 4, terms: Config = TERMS, **more: Any
) -> Iterator[Town]:
    said = io.StringIO()
    options: dict[str, Any] = {"engine": "tiny", "stall_seconds": 5.0, "patience_seconds": 10.0}
    options |= more
    plan = Plan(folder=folder, workers=workers, cheater=cheater, terms=terms, **options)
    display = Display(Console(file=said, width=200))
    with running(plan, display) as network:
        made = Town(network, said)
        try:
            made.client.deposit(network.scheduler, 1000 * UNIT)
            yield made
        finally:
            made.close()


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERILLM_HOME", str(tmp_path_factory.getbasetemp() / "home"))
        yield


@pytest.fixture(scope="module")
def honest_town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town") / "net") as made:
        yield made
