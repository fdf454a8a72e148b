"""A worker's app in this process, on the tiny model; what it asks the chain is answered here."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount

from verillm.api import Info, SignedAttestation, TaskSubmission
from verillm.engine.tiny import TinyEngine, tiny_spec, write_folder
from verillm.errors import NotFound
from verillm.hashing import sha
from verillm.model import ModelSpec, model_id
from verillm.request import Sampling
from verillm.signing import Domain, sign
from verillm.task import Item, Task
from verillm.types import ChecksumAddress, JobId, TaskId
from verillm_node.admission import Serving, Standing
from verillm_node.api import worker_app
from verillm_node.drawn import Drawn
from verillm_node.store import Database, Traces
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.worker import Identity, Worker

NOW = int(time.time())
FOREVER = NOW + 3600
DRAWN = Drawn(frozenset({1, 3, 10}), range(4, 9))


@dataclass
class Desk:
    """The chain's part of a worker's HTTP face, with the answers that a test sets."""

    standing_now: Standing
    looks: int = 0
    on_look: Callable[[], None] = field(default=lambda: None)
    what: Drawn = DRAWN

    def standing(self, submission: TaskSubmission) -> Standing:
        return self.standing_now

    async def look(self) -> None:
        self.looks += 1
        self.on_look()

    def drawn(self, own: TaskRecord, item: int) -> Drawn:
        return self.what


@dataclass
class NoCommittee:
    """A worker that sits on one committee at most, and says nothing there."""

    job: JobId | None = None
    read: list[int] = field(default_factory=list)

    def room(self, job_id: JobId) -> int:
        if job_id != self.job:
            raise NotFound("no job here")
        return 1000

    async def attest(self, job_id: JobId, data: bytes) -> SignedAttestation:
        self.read.append(len(data))
        raise NotFound("nothing to say")


@dataclass
class Bench:
    """One worker, its scheduler's key, and an HTTP client on its app."""

    worker: Worker
    desk: Desk
    committee: NoCommittee
    book: TaskBook
    http: httpx.AsyncClient
    scheduler: LocalAccount
    spec: ModelSpec
    domain: Domain

    def task(self, name: str = "task", prompt: str = "hello there", new: int = 6) -> Task:
        item = Item(
            salt=sha(prompt.encode()),
            tokens=tuple(prompt.encode()),
            max_new_tokens=new,
            sampling=Sampling.of(),
            seed=sha(b"seed" + prompt.encode()),
        )
        return Task(
            task_id=TaskId(sha(name.encode())),
            worker=self.worker.identity.operator,
            model_id=model_id(self.spec),
            items=(item,),
            deadline=FOREVER,
            lock=100,
            fee=10**6,
        )

    def signed(self, task: Task) -> TaskSubmission:
        signature = sign(self.domain, task, self.scheduler)
        return TaskSubmission(task, self.scheduler.address, signature)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILLM_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny")


OpenBench = Callable[[], "contextlib.AbstractAsyncContextManager[Bench]"]


@pytest.fixture
def open_bench(folder: Path, tmp_path: Path) -> OpenBench:
    """Opens the one worker of a test; opening it again is its restart."""
    return lambda: _bench(folder, tmp_path)


@contextlib.asynccontextmanager
async def _bench(folder: Path, home: Path) -> AsyncIterator[Bench]:
    operator, hot, scheduler = (Account.from_key(name * 32) for name in (b"o", b"h", b"s"))
    domain = Domain(31337, Account.from_key(b"c" * 32).address)
    spec = tiny_spec(folder)
    engine = TinyEngine(folder)
    engine.start()
    database = Database(home / "worker.sqlite")
    book = TaskBook(database)
    serving = Serving(operator.address, model_id(spec), spec.context, spec.vocabulary, 1024, 2)
    desk = Desk(Standing(scheduler.address, 10**9, 10**9, NOW, 3600, 600))
    try:
        async with asyncio.TaskGroup() as group:
            identity = Identity(operator.address, hot, domain)
            worker = Worker(
                identity, serving, engine, book, Traces(home / "traces", 60), group, max_tasks=4
            )
            worker.resume(NOW)
            committee = NoCommittee()
            transport = httpx.ASGITransport(worker_app(worker, desk, committee, _info(spec)))
            async with httpx.AsyncClient(transport=transport, base_url="http://worker") as http:
                yield Bench(worker, desk, committee, book, http, scheduler, spec, domain)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
    finally:
        engine.close()
        database.close()


def _info(spec: ModelSpec) -> Info:
    address = ChecksumAddress(Account.from_key(b"o" * 32).address)
    return Info("worker", address, address, 31337, address, "0", (model_id(spec),))
