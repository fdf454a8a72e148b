"""`verillm-node doctor`: what is missing here, and what to do about it."""

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from verillm.chain.anvil import find_anvil
from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.engine.describe import check_folder
from verillm.engine.prepare import default_folder, is_prepared
from verillm.errors import ConfigError, VeriLLMError
from verillm_node import keys
from verillm_node.config import (
    ChainSettings,
    HttpSettings,
    KeySettings,
    SchedulerSettings,
    WorkerSettings,
    load,
)
from verillm_node.http import listen
from verillm_node.join import endpoint_of

Check = tuple[str, Callable[[], str]]
"""A name, and a function that says what it found or raises what is wrong."""


Say = Callable[[str], None]


def examine(config: Path | None, say: Say) -> int:
    """Says one line per check; 1 if any failed."""
    checks = list(_machine())
    if config is not None:
        checks += _daemon(config)
    return int(not all([_report(name, check, say) for name, check in checks]))


def _report(name: str, check: Callable[[], str], say: Say) -> bool:
    try:
        say(f"ok    {name}: {check()}")
    except VeriLLMError as error:
        say(f"FAIL  {name}: {error}\n      {error.remedy}")
        return False
    return True


def _machine() -> Iterator[Check]:
    yield "Python", lambda: ".".join(map(str, sys.version_info[:3]))
    yield "Anvil (devnet only)", lambda: str(find_anvil())
    yield "default model", _default_model


def _default_model() -> str:
    folder = default_folder()
    if not is_prepared(folder, full=False):
        raise ConfigError(f"{folder} is not prepared; run: python -m verillm.engine.prepare")
    return str(folder)


def _daemon(path: Path) -> list[Check]:
    settings = _settings(path)
    if settings is None:
        return [("settings", lambda: _unreadable(path))]
    chain, listening = settings.chain, settings.http
    checks: list[Check] = [
        ("keystores", lambda: _keystores(settings.keys)),
        ("contract", lambda: _contract(chain)),
        ("hot key", lambda: _hot_key(chain, settings.keys)),
        ("port", lambda: _port(listening)),
        ("endpoint", lambda: _endpoint(chain, settings.keys, listening)),
    ]
    if isinstance(settings, WorkerSettings):
        checks.append(("model folder", lambda: _folder(settings)))
    return checks


def _settings(path: Path) -> WorkerSettings | SchedulerSettings | None:
    with contextlib.suppress(ConfigError):
        return load(path, WorkerSettings)
    with contextlib.suppress(ConfigError):
        return load(path, SchedulerSettings)
    return None


def _unreadable(path: Path) -> str:
    load(path, WorkerSettings)
    return "ok"


def _keystores(settings: KeySettings) -> str:
    for path in (settings.operator, settings.hot):
        keys.address(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            raise ConfigError(f"others can read {path}; run: chmod 600 {path}")
    return f"operator {keys.address(settings.operator)}, hot key {keys.address(settings.hot)}"


def _chain(settings: ChainSettings) -> Chain:
    return Chain(settings.rpc, Deployment.load(settings.deployment))


def _contract(settings: ChainSettings) -> str:
    chain = _chain(settings)
    return f"{chain.deployment.contract} at block {chain.block().number}"


def _hot_key(settings: ChainSettings, files: KeySettings) -> str:
    chain, hot = _chain(settings), keys.address(files.hot)
    if chain.account_of(keys.address(files.operator)).hot_key != hot:
        raise ConfigError(f"the chain does not know {hot} as this operator's hot key; start it")
    if chain.balance(hot) < settings.gas_reserve_wei:
        raise ConfigError(f"{hot} has too little gas; send it some")
    return "named on the chain, with gas"


def _port(settings: HttpSettings) -> str:
    listen(settings.host, settings.port).close()
    return f"{settings.host}:{settings.port} is free (the daemon is not running)"


def _endpoint(chain: ChainSettings, files: KeySettings, settings: HttpSettings) -> str:
    published = endpoint_of(_chain(chain), keys.address(files.operator))
    if published != settings.url:
        raise ConfigError(f"the chain names {published}, the settings {settings.url}; start it")
    try:
        status = httpx.get(published + "/healthz", timeout=5, trust_env=False).status_code
    except httpx.HTTPError as error:
        raise ConfigError(f"{published} does not answer: {error}") from error
    return f"{published} answers {status}"


def _folder(settings: WorkerSettings) -> str:
    from verillm_node.worker_main import check_room, read_spec

    if settings.engine.model is None:
        raise ConfigError("engine.model names no folder")
    spec = read_spec(settings.spec)
    check_folder(settings.engine.model, spec)
    check_room(settings.engine, spec)
    return f"{settings.engine.model} is what the spec names"
