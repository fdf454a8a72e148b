"""`verillm-node scheduler`: keys → stake on the chain → offers → HTTP."""

import asyncio
import logging
import socket
import threading

from verillm import __version__
from verillm.api import Info
from verillm.chain.contract import Chain
from verillm.chain.wallet import Outbox
from verillm.engine.describe import check_folder
from verillm.head import HeadRows
from verillm.model import model_id
from verillm_node import join
from verillm_node.config import ModelSettings, SchedulerSettings
from verillm_node.contests import Contests
from verillm_node.context import Context, Offer
from verillm_node.daemon import open_chain, open_keys, repeat, run_daemon
from verillm_node.http import listen, serve
from verillm_node.jobs import JobBook
from verillm_node.keys import KeyPair
from verillm_node.link import Link
from verillm_node.registry import Registry
from verillm_node.scheduler import Scheduler
from verillm_node.scheduler_api import scheduler_app
from verillm_node.store import Database, OutboxStore, master_secret
from verillm_node.worker import Identity
from verillm_node.worker_main import read_spec

log = logging.getLogger(__name__)

OUTBOX_SECONDS = 90.0
CONTEST_SECONDS = 5.0


def make_offer(settings: ModelSettings) -> Offer:
    """A model on sale; its folder, where there is one, must be the one that the spec names."""
    spec = read_spec(settings.spec)
    head = None
    if settings.folder is not None:
        check_folder(settings.folder, spec)
        head = HeadRows(settings.folder)
    return Offer(model_id(spec), spec, settings.unit_price, settings.folder, head)


def run_scheduler(settings: SchedulerSettings, follow_stdin: bool = False) -> None:
    """Runs until stopped; raises what keeps it from starting."""
    keys = open_keys(settings.keys)
    listener = listen(settings.http.host, settings.http.port)
    try:
        offers = {offer.model_id: offer for offer in map(make_offer, settings.models)}
        operator_chain, chain = open_chain(settings.chain, keys)
        database = Database(settings.home / "scheduler.sqlite")
        stopping = threading.Event()
        _join(settings, keys, operator_chain)

        async def body(group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
            context = Context(
                identity=Identity(keys.operator.address, keys.hot, chain.deployment.domain),
                settings=settings,
                chain=chain,
                terms=chain.config(),
                outbox=Outbox(chain, OutboxStore(database), timeout=OUTBOX_SECONDS),
                book=JobBook(database),
                registry=Registry(chain, chain.config().reserve_bps),
                link=Link(settings.stall_seconds),
                offers=offers,
                bundles=settings.home / "bundles",
                stopping=stopping,
            )
            await _serve(context, listener, group, stop)

        asyncio.run(run_daemon(body, stopping, follow_stdin))
        database.close()
    finally:
        listener.close()


def _join(settings: SchedulerSettings, keys: KeyPair, chain: Chain) -> None:
    join.present(chain, keys.hot.address, settings.http.url, settings.chain.gas_reserve_wei)
    join.stake_up(chain, settings.stake)
    for model in settings.models:
        registered = chain.model(model_id(read_spec(model.spec)))
        log.info("model_on_sale", extra={"model": registered.name})


async def _serve(
    context: Context, listener: socket.socket, group: asyncio.TaskGroup, stop: asyncio.Event
) -> None:
    master = master_secret(context.settings.home / "draw.secret")
    scheduler = Scheduler(context, master, group)
    scheduler.resume()
    identity, deployment = context.identity, context.chain.deployment
    info = Info(
        role="scheduler",
        operator=identity.operator,
        hot_key=identity.hot.address,
        chain_id=deployment.chain_id,
        contract=deployment.contract,
        version=__version__,
        models=tuple(context.offers),
    )
    log.info("serving", extra={"url": context.settings.http.url, "operator": identity.operator})
    contests = Contests(context, master, scheduler.take_up)
    async with asyncio.TaskGroup() as loops:
        loops.create_task(repeat(CONTEST_SECONDS, contests.round, stop))
        loops.create_task(serve(scheduler_app(scheduler, info), listener, stop))
    await context.link.close()
