"""What both daemons share: keys, chain, signals, one task group that owns every loop."""

import asyncio
import contextlib
import getpass
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.errors import ConfigError, VeriLLMError
from verillm.keystore import read_password
from verillm_node.config import ChainSettings, KeySettings
from verillm_node.keys import KeyPair, load_pair

log = logging.getLogger(__name__)

PASSWORD_VARIABLE = "VERILLM_PASSWORD"
THREADS = 96


def open_keys(settings: KeySettings) -> KeyPair:
    """Both keys; the password comes from the file, the environment, or the terminal."""
    return load_pair(settings.operator, settings.hot, password_of(settings.password_file))


def password_of(file: Path | None) -> str:
    """A password, from wherever the operator keeps it."""
    if file is not None:
        return read_password(file)
    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        raise ConfigError(f"no password: set keys.password_file or {PASSWORD_VARIABLE}")
    return getpass.getpass("Keystore password: ")


def open_chain(settings: ChainSettings, keys: KeyPair) -> tuple[Chain, Chain]:
    """The chain for the operator's key and for the hot key; raises unless the contract is there."""
    chain = Chain(settings.rpc, Deployment.load(settings.deployment), keys.operator)
    chain.block()
    return chain, chain.with_account(keys.hot)


async def run_daemon(
    body: Callable[[asyncio.TaskGroup, asyncio.Event], Coroutine[None, None, None]],
    stopping: threading.Event,
    follow_stdin: bool,
) -> None:
    """Runs a daemon until SIGINT, SIGTERM, or (devnet) until the parent's end of stdin closes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Waiting for the chain takes a thread for each open job: the default of a few would starve us.
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="blocking"))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if follow_stdin:
        _follow_stdin(loop, stop)
    async with asyncio.TaskGroup() as group:
        main = group.create_task(body(group, stop), name="main")
        await _first(stop.wait(), main)
        log.info("stopping")
        stopping.set()
        stop.set()
        await main
        # What still runs is in the store and goes on at the next start.
        for task in asyncio.all_tasks() - {asyncio.current_task(), main}:
            task.cancel()


async def _first(stopped: Coroutine[None, None, bool], main: "asyncio.Task[None]") -> None:
    waiter = asyncio.ensure_future(stopped)
    await asyncio.wait({waiter, main}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()


def _follow_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Ends with the parent, however it ended: its end of our stdin closes with it."""

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


async def repeat(every: float, action: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Does something again and again until `stop`; what is expected to fail is tried again."""
    while not stop.is_set():
        try:
            await action()
        except VeriLLMError as error:
            log.warning("trouble", extra={"code": error.code, "error": str(error)})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await stop.wait()
