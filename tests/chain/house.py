"""The workers of a played job as real nodes on a real chain: watch, books and engines.

HTTP between them is a router in this process; everything else is what a daemon runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import Net
from tests.chain.test_audit import OnChain
from tests.unit.verifier.lab import (
    CLIENT,
    HOT,
    SCHEDULER,
    WORKERS,
    Engines,
    Played,
    Story,
    account,
    play,
    spec_of,
    worker_of,
)
from verillm import api
from verillm.api import CommitmentEvent, TaskSubmission
from verillm.chain.anvil import dev_account
from verillm.chain.contract import Chain, Status
from verillm.chain.deploy import deploy
from verillm.chain.deployment import Config
from verillm.chain.events import JobHistory, job_history
from verillm.chain.wallet import Outbox
from verillm.codec import encode_trace
from verillm.evidence import Bundle, PartyEvidence
from verillm.head import HeadRows
from verillm.model import model_id
from verillm.proofs.rivals import ProvenHead
from verillm.signing import job_id, task_hash
from verillm.trace import commitment_hash
from verillm.types import JobId
from verillm_node.admission import Serving
from verillm_node.api import worker_app
from verillm_node.attest import Attester
from verillm_node.config import DefendSettings
from verillm_node.defend import Watch
from verillm_node.follow import Follower
from verillm_node.link import Link
from verillm_node.plead import Pleader, Pleas
from verillm_node.prosecute import Prosecutor
from verillm_node.registry import Registry
from verillm_node.reverify import Reverifier
from verillm_node.store import Database, OutboxStore, Traces
from verillm_node.tasks import TaskBook
from verillm_node.words import Words
from verillm_node.worker import Identity, Worker
from verillm_node.worker_main import ChainDesk

STEPS, SECONDS = 60, 3
HOT_KEYS = {worker.address: account(f"hot key {n}") for n, worker in enumerate(WORKERS)}


@contextmanager
def deployed_with(net: Net, **terms: Any) -> Iterator[Net]:
    """Another deployment on the same chain."""
    config: Config = replace(Config.devnet(), **terms)
    yield replace(net, deployment=deploy(net.provider, dev_account(0), config), config=config)


@dataclass
class Node:
    """One worker's daemon, less its HTTP server."""

    operator: LocalAccount
    watch: Watch
    reverifier: Reverifier
    app: httpx.ASGITransport
    database: Database

    async def round(self) -> None:
        """What its loops do once."""
        await self.watch.round()
        await self.reverifier.round()


@dataclass
class House:
    """A job on chain with the nodes of all workers; `settings` by worker, None keeps one away."""

    net: Net
    engines: Engines
    folder: Path
    home: Path
    story: Story
    committee: int = 3
    settings: Callable[[str], DefendSettings | None] = field(
        default=lambda _address: DefendSettings()
    )
    shows_bundle: bool = True
    lies: Bundle | None = None
    """What the scheduler shows in place of the job's bundle."""

    def __post_init__(self) -> None:
        spec = spec_of(self.folder, committee=self.committee, positions=5)
        self.ground = OnChain(self.net, spec)
        self.played: Played = play(self.engines, spec, self.story, self.ground)
        for worker in WORKERS:
            hot = HOT_KEYS[worker.address]
            self.net.rpc("anvil_setBalance", hot.address, hex(10**20))
            self.ground.send(worker, _naming(hot))
            self.ground.send(worker, _listening(worker))

    @property
    def job(self) -> JobId:
        return job_id(self.ground.domain, self.played.posting.job)

    @property
    def shown(self) -> Played:
        """The job with the bundle that its scheduler shows, and claims with."""
        return self.played if self.lies is None else replace(self.played, bundle=self.lies)

    @property
    def chain(self) -> Chain:
        return self.net.chain(CLIENT)

    def history(self) -> JobHistory:
        return job_history(self.chain, self.job)

    def balance(self, who: LocalAccount | str) -> int:
        address = who if isinstance(who, str) else who.address
        return self.chain.account_of(address).balance  # type: ignore[arg-type]

    def member(self, k: int) -> LocalAccount:
        return worker_of(self.played.sealing.committee[k - 1].owner)

    # ── Running ─────────────────────────────────────────────────────────────────────────────────
    def run(self, work: Callable[[list[Node]], Awaitable[None]]) -> None:
        """Starts every node, does some work with them, stops them."""
        asyncio.run(self._run(work))

    def carry(self) -> JobHistory:
        """Lets all nodes work until the job is final."""

        async def until_final(nodes: list[Node]) -> None:
            for _ in range(STEPS):
                for node in nodes:
                    await node.round()
                if self.chain.job_state(self.job).status is Status.FINAL:
                    for node in nodes:  # what is due after the end
                        await node.round()
                    return
                self.net.pass_time(SECONDS)
                self._end_what_is_due()
            raise AssertionError("not final")

        self.run(until_final)
        return self.history()

    def _end_what_is_due(self) -> None:
        """What the scheduler's node would do: settle by what nobody spoke against."""
        chain, state = self.net.chain(HOT), self.chain.job_state(self.job)
        if self.chain.now() < state.deadline:
            return
        history = self.history()
        if state.status is Status.CLAIMED and history.claimed is not None:
            claiming = history.claimed.event.claiming
            record = (self.played.posting, self.played.sealing, claiming)
            chain.send(chain.calls.finalize(*record))

    async def _run(self, work: Callable[[list[Node]], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            router = Router(self.shown.raw if self.shows_bundle else None)
            link = Link(5.0, router)
            nodes = [
                self.node(worker, group, link, settings)
                for worker in WORKERS
                if (settings := self.settings(worker.address)) is not None
            ]
            router.apps |= {_host(node.operator): node.app for node in nodes}
            try:
                await work(nodes)
            finally:
                await link.close()
                for node in nodes:
                    node.database.close()

    def node(
        self,
        operator: LocalAccount,
        group: asyncio.TaskGroup,
        link: Link,
        settings: DefendSettings,
    ) -> Node:
        """One node, with what it knows of the job; made again it is its own restart."""
        spec, config = self.ground.spec, self.net.config
        chain = self.net.chain(HOT_KEYS[operator.address])
        home = self.home / operator.address
        database = Database(home / "worker.sqlite")
        book, traces = TaskBook(database), Traces(home / "traces", 10**6)
        parties = [
            each for each in self.played.bundle.parties if each.task.worker == operator.address
        ]
        cheat = next((self.story.cheats.get(each.party) for each in parties), None)
        for each in parties:
            self._remember(each, book, traces)
        identity = Identity(operator.address, HOT_KEYS[operator.address], self.ground.domain)
        serving = Serving(operator.address, model_id(spec), spec.context, spec.vocabulary, 4096, 1)
        engine = self.engines.engine(cheat)
        worker = Worker(identity, serving, engine, book, traces, group)
        head = HeadRows(self.folder)
        registry = Registry(chain, config.reserve_bps, 0.0)
        words = Words(chain, spec, identity, registry, link, head)
        prosecutor = Prosecutor(chain, spec, identity.domain, ProvenHead(head))
        outbox = Outbox(chain, OutboxStore(database), timeout=10.0, poll=0.01)
        pleader = Pleader(chain, config, operator.address, Pleas(database), outbox, settings)
        proves = prosecutor if settings.prove else None
        watch = Watch(
            chain, spec, worker, book, registry, link, words, proves, pleader, config.forced_every
        )
        reverifier = Reverifier(chain, spec, worker, book, head)
        desk = ChainDesk(chain, Follower(chain, database, book), spec, config)
        attester = Attester(chain, identity, spec, head, book)
        info = api.Info(
            "worker", operator.address, operator.address, 31337, operator.address, "0", ()
        )
        app = httpx.ASGITransport(worker_app(worker, desk, attester, info))
        return Node(operator, watch, reverifier, app, database)

    def _remember(self, each: PartyEvidence, book: TaskBook, traces: Traces) -> None:
        task = each.task
        if book.find(task.task_id) is not None:
            return
        made = self.engines.run(task, self.story.cheats.get(each.party))
        book.open(TaskSubmission(task, SCHEDULER.address, each.task_signature), task_hash(task))
        traces.put(task.task_id, encode_trace(made.trace))
        event = CommitmentEvent(made.inner, made.leaves, each.commitment_signature)
        book.committed(task.task_id, event, commitment_hash(made.commitment))
        book.sealed(task.task_id, self.job, each.party)


@dataclass
class Router(httpx.AsyncBaseTransport):
    """HTTP without sockets: each worker's own app by its host, and a scheduler with a bundle."""

    bundle: bytes | None
    apps: dict[str, httpx.ASGITransport] = field(default_factory=dict)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/bundle"):
            return httpx.Response(404 if self.bundle is None else 200, content=self.bundle or b"")
        app = self.apps.get(request.url.host)
        return httpx.Response(404) if app is None else await app.handle_async_request(request)


def _host(worker: LocalAccount) -> str:
    return f"{worker.address.lower()}.test"


def _naming(hot: LocalAccount) -> Callable[[Chain], Any]:
    return lambda chain: chain.calls.set_hot_key(hot.address)


def _listening(worker: LocalAccount) -> Callable[[Chain], Any]:
    return lambda chain: chain.calls.set_endpoint(f"http://{_host(worker)}")
