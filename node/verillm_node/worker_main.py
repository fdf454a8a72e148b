"""`verillm-node worker`: folder → engine → seat on the chain → HTTP."""

import asyncio
import logging
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verillm import __version__, api
from verillm.api import Info, TaskSubmission
from verillm.chain.contract import Chain
from verillm.chain.deployment import Config
from verillm.chain.wallet import Outbox
from verillm.engine import Engine, load_transform, open_engine
from verillm.engine.describe import check_folder
from verillm.errors import ConfigError, ModelMismatch
from verillm.head import HeadRows
from verillm.model import ModelSpec, model_id, spec_from_json
from verillm.proofs.rivals import ProvenHead
from verillm_node import join
from verillm_node.admission import Serving, Standing
from verillm_node.answer import Answering
from verillm_node.api import worker_app
from verillm_node.attest import Attester
from verillm_node.config import EngineSettings, WorkerSettings
from verillm_node.daemon import open_chain, open_keys, repeat, run_daemon
from verillm_node.defend import Watch
from verillm_node.drawn import Drawn, drawn
from verillm_node.errors import EngineTooSmall, NotDrawn
from verillm_node.follow import Follower
from verillm_node.http import listen, serve
from verillm_node.keys import KeyPair
from verillm_node.link import Link
from verillm_node.plead import Pleader, Pleas
from verillm_node.prosecute import Prosecutor
from verillm_node.registry import Registry, free_stake, hot_key_of, staying_stake
from verillm_node.reverify import Reverifier
from verillm_node.store import Database, OutboxStore, Traces
from verillm_node.tasks import TaskBook, TaskRecord
from verillm_node.threads import blocking
from verillm_node.view import look
from verillm_node.wages import Wages
from verillm_node.words import Words
from verillm_node.worker import Identity, Worker

log = logging.getLogger(__name__)

SWEEP_SECONDS = 600.0
LINK_STALL_SECONDS = 30.0
OUTBOX_SECONDS = 60.0


def read_spec(path: Path) -> ModelSpec:
    """A model's spec from its JSON file; raises `ConfigError`."""
    try:
        value = api.loads(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"cannot read the model's spec {path}: {error.strerror}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a model's spec")
    return spec_from_json(value)


def make_engine(settings: EngineSettings, devnet: bool, home: Path | None = None) -> Engine:
    """The engine of a model folder, not started yet; `home` takes states that outgrow memory."""
    if settings.model is None:
        raise ConfigError("engine.model names no folder")
    if settings.transform is not None and not devnet:
        raise ConfigError("engine.transform changes the model: only a devnet may do that")
    transform = None if settings.transform is None else load_transform(settings.transform)
    options: dict[str, Any] = {"max_batch": settings.max_batch, "max_tokens": settings.max_tokens}
    if settings.kind != "tiny":
        options["attention"] = settings.attention
    if settings.kind == "torch" and settings.threads:
        options["threads"] = settings.threads
    if settings.kind == "vllm":
        options |= {
            "compiled": settings.compiled,
            "devices": settings.devices,
            "stages": settings.stages,
            "states_memory": settings.states_memory_mib << 20,
            "states_disk": settings.states_disk_mib << 20,
            "states_folder": home,
        }
    return open_engine(
        settings.model, kind=settings.kind, dtype=settings.dtype, transform=transform, **options
    )


def check_room(settings: EngineSettings, spec: ModelSpec) -> None:
    """Raises `EngineTooSmall` where an item that this worker cannot decline would not fit."""
    if settings.max_tokens < spec.context:
        raise EngineTooSmall(settings.max_tokens, spec.context)


@dataclass(frozen=True, slots=True)
class ChainDesk:
    """What a worker asks the chain."""

    chain: Chain
    follower: Follower
    spec: ModelSpec
    terms: Config

    def standing(self, submission: TaskSubmission) -> Standing:
        """Both sides' standing now."""
        chain, own = self.chain, submission.task.worker
        return Standing(
            scheduler_hot_key=hot_key_of(chain, submission.scheduler),
            scheduler_stake=staying_stake(chain.account_of(submission.scheduler)),
            own_free=free_stake(chain.account_of(own)),
            now=chain.now(),
            job_window=self.terms.job_window,
            seal_window=self.terms.seal_window,
        )

    async def look(self) -> None:
        """Reads the chain's newest events now."""
        await blocking(self.follower.poll)

    def drawn(self, own: TaskRecord, item: int) -> Drawn:
        """What of an own sealed item is to be opened, as the chain stands now."""
        if own.job_id is None:
            raise NotDrawn(item)
        return drawn(look(self.chain, own.job_id), self.spec, own, item)


def run_worker(settings: WorkerSettings, follow_stdin: bool = False) -> None:
    """Runs until stopped; raises what keeps it from starting."""
    keys = open_keys(settings.keys)
    # The port first: a second worker on it must fail before it loads a model.
    listener = listen(settings.http.host, settings.http.port)
    try:
        spec = read_spec(settings.spec)
        engine = make_engine(settings.engine, settings.devnet, settings.home)
        _check_model(settings, engine, spec)
        operator_chain, chain = open_chain(settings.chain, keys)
        database = Database(settings.home / "worker.sqlite")
        stopping = threading.Event()

        async def body(group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
            await _serve(settings, keys, spec, engine, chain, database, listener, group, stop)

        log.info("loading", extra={"model": spec.name})
        engine.start()
        _join(settings, keys, spec, operator_chain)
        asyncio.run(run_daemon(body, stopping, follow_stdin))
        engine.close()
        database.close()
    finally:
        listener.close()


def _check_model(settings: WorkerSettings, engine: Engine, spec: ModelSpec) -> None:
    """Refuses to serve anything but the model that the spec names."""
    folder = settings.engine.model
    if folder is None:
        raise ConfigError("engine.model names no folder")
    check_folder(folder, spec)
    check_room(settings.engine, spec)
    if engine.spec_shape != spec.shape:
        raise ModelMismatch(f"the engine commits {engine.spec_shape}, the spec asks {spec.shape}")


def _join(settings: WorkerSettings, keys: KeyPair, spec: ModelSpec, chain: Chain) -> None:
    wanted = join.Seats(model_id(spec), spec, settings.seats, settings.price)
    reserve = settings.chain.gas_reserve_wei
    join.present(chain, keys.hot.address, settings.http.url, reserve)
    seats = join.take_seats(chain, wanted)
    log.info("joined", extra={"operator": keys.operator.address, "seats": seats})


async def _serve(
    settings: WorkerSettings,
    keys: KeyPair,
    spec: ModelSpec,
    engine: Engine,
    chain: Chain,
    database: Database,
    listener: socket.socket,
    group: asyncio.TaskGroup,
    stop: asyncio.Event,
) -> None:
    terms = await blocking(chain.config)
    identity = Identity(keys.operator.address, keys.hot, chain.deployment.domain)
    book, traces = TaskBook(database), Traces(settings.home / "traces", settings.trace_ttl_seconds)
    serving = _serving(settings, identity, spec, engine)
    worker = Worker(identity, serving, engine, book, traces, group, settings.max_tasks)
    follower = Follower(chain, database, book)
    head = None if settings.engine.model is None else HeadRows(settings.engine.model)
    attest = Attester(chain, identity, spec, head, book)
    link = Link(LINK_STALL_SECONDS)
    registry = Registry(chain, terms.reserve_bps)
    words = Words(chain, spec, identity, registry, link, head)
    proven = None if head is None else ProvenHead(head)
    defend = settings.defend
    prosecutor = Prosecutor(chain, spec, identity.domain, proven) if defend.prove else None
    outbox = Outbox(chain, OutboxStore(database), timeout=OUTBOX_SECONDS)
    pleader = Pleader(chain, terms, identity.operator, Pleas(database), outbox, defend)
    every = terms.forced_every
    watch = Watch(chain, spec, worker, book, registry, link, words, prosecutor, pleader, every)
    reverifier = Reverifier(chain, spec, worker, book, head)
    answering = Answering(chain, worker)
    seats = await blocking(join.held_seats, chain, model_id(spec), identity.operator)
    wages = Wages(chain, terms, worker, book, tuple(seats))

    async def see() -> None:
        await blocking(follower.poll)

    async def sweep() -> None:
        await blocking(traces.sweep)

    worker.resume(await blocking(chain.now))
    desk = ChainDesk(chain, follower, spec, terms)
    app = worker_app(worker, desk, attest, _info(identity, spec, chain))
    log.info("serving", extra={"url": settings.http.url, "operator": identity.operator})
    async with asyncio.TaskGroup() as loops:
        loops.create_task(repeat(settings.chain.poll_seconds, see, stop))
        loops.create_task(repeat(SWEEP_SECONDS, sweep, stop))
        if settings.watch:
            loops.create_task(repeat(settings.watch_seconds, watch.round, stop))
            loops.create_task(repeat(settings.watch_seconds, reverifier.round, stop))
            loops.create_task(repeat(settings.watch_seconds, answering.round, stop))
            loops.create_task(repeat(settings.watch_seconds, wages.round, stop))
        loops.create_task(serve(app, listener, stop))
    await link.close()


def _serving(
    settings: WorkerSettings, identity: Identity, spec: ModelSpec, engine: Engine
) -> Serving:
    return Serving(
        worker=identity.operator,
        model_id=model_id(spec),
        context=engine.context,
        vocabulary=engine.vocabulary,
        max_tokens=settings.engine.max_tokens,
        price=settings.price,
    )


def _info(identity: Identity, spec: ModelSpec, chain: Chain) -> Info:
    return Info(
        role="worker",
        operator=identity.operator,
        hot_key=identity.hot.address,
        chain_id=chain.deployment.chain_id,
        contract=chain.deployment.contract,
        version=__version__,
        models=(model_id(spec),),
    )
