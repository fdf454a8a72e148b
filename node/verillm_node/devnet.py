"""A whole network on one machine: Anvil, contracts, a scheduler, workers, one of them a cheater.

Everything lies under one run folder: the chain's state, keystores, settings, stores, logs. Each
process has its own keys and its own store, and finds the others through the chain alone.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import httpx
from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress

from verillm import api, keystore
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.contract import Chain
from verillm.chain.deploy import deploy
from verillm.chain.deployment import Config, Deployment
from verillm.engine.describe import describe, shipped_profile
from verillm.engine.prepare import default_folder, is_prepared
from verillm.engine.tiny import write_folder
from verillm.errors import ConfigError, Timeout
from verillm.files import write_atomically
from verillm.model import ModelSpec, spec_to_json
from verillm_node.display import Display
from verillm_node.supervise import Child, Supervisor

UNIT: Final = 10**18
SEAT_STAKE: Final = 1_000 * UNIT
UNIT_PRICE: Final = UNIT // 100
CLIENT_TOKENS: Final = 10_000 * UNIT
ETHER: Final = 100 * 10**18
GAS_RESERVE: Final = 10 * 10**18
DEVNET_ROUNDS: Final = 4096
"""scrypt's cost: the passwords lie beside the keystores, so a second a key buys nothing."""
CHEAT: Final = "verillm_verifier.attacks:int4"
MARK: Final = "devnet.lock"
READY_SECONDS: Final = 240.0
BLOCK_SECONDS: Final = 1
AT_ONCE: Final = 2
"""Workers that load at the same time: more would only fight for the cores."""
COMMITTEE: Final = 3
DEFAULT_MODEL: Final = "smollm2-135m-instruct"
MIXED_PROFILE: Final = "smollm2-135m-instruct-mixed"
"""Calibrated with vLLM too; wider than the one for torch alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start."""

    folder: Path
    engine: Literal["torch", "tiny"] = "torch"
    model: Path | None = None
    workers: int = 5
    committee: int = COMMITTEE
    cheater: int = 3
    demo: bool = False
    tokens: int = 48
    scheduler_port: int = 0
    rpc_port: int = 0
    terms: Config | None = None
    patience_seconds: float = 60.0
    stall_seconds: float = 30.0
    shuffle_seconds: float = 0.0
    fair_turns: bool = True
    """A demonstration wants everybody's turn to come; a network does not, see `disguise`."""
    only_inferencer: int = 0
    """The only worker whose price lets it infer; 0: all of them."""
    keeps_chain: bool = True
    """Anvil's state is on disk, so that it can be killed; costs more the more it holds."""
    unit_price: int = UNIT_PRICE
    poll_seconds: float | None = None
    max_jobs: int = 64
    watch: bool = True
    vllm_workers: int = 0
    """The last so many workers serve on vLLM."""
    vllm_python: Path | None = None
    """The interpreter of an environment with vLLM; none is this one."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker of the network; `cheats` says whether it serves something else than the model."""

    name: str
    operator: ChecksumAddress
    config: Path
    port: int
    cheats: bool
    is_on_vllm: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """A network that runs."""

    plan: Plan
    anvil: Anvil
    deployment: Deployment
    model: Path
    spec: ModelSpec
    supervisor: Supervisor
    scheduler: ChecksumAddress
    scheduler_url: str
    workers: tuple[Worker, ...]
    client: LocalAccount

    @property
    def deployment_file(self) -> Path:
        """The addresses file that everyone reads."""
        return self.plan.folder / "deployment.json"

    def chain(self) -> Chain:
        """The chain, for reading."""
        return Chain(self.anvil.url, self.deployment)

    def name_of(self, address: ChecksumAddress) -> str:
        """What the display calls an operator."""
        names = {worker.operator: worker.name for worker in self.workers}
        names |= {self.scheduler: "scheduler", self.client.address: "client"}
        return names.get(address, address)


def run_devnet(plan: Plan) -> int:
    """Runs a network until Ctrl-C, or a demonstration to its end; 0 if all went as it should."""
    from verillm_node.demo import demonstrate

    display = Display()
    with _terminated_as_interrupt(), running(plan, display) as network:
        if plan.demo:
            return demonstrate(network, display)
        display.say(f"scheduler {network.scheduler_url}")
        display.say(f"rpc {network.anvil.url}, deployment {network.deployment_file}")
        display.say(f"client's keystore {plan.folder / 'keys' / 'client' / 'key.json'}")
        display.say("Ctrl-C stops everything")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
    return 0


@contextlib.contextmanager
def running(plan: Plan, display: Display) -> Iterator[Network]:
    """A network from start to stop; nothing of it runs afterwards, however this ends."""
    with _locked(plan.folder):
        anvil = Anvil(
            plan.folder / "chain",
            port=plan.rpc_port,
            keep_state=plan.keeps_chain,
            block_time=BLOCK_SECONDS,
        )
        supervisor = Supervisor(display.say)
        try:
            yield _start(plan, anvil, supervisor, display)
        finally:
            with _uninterrupted():
                supervisor.stop()
                anvil.stop()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """An empty run folder that is ours alone; what an earlier run left in it is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / MARK
    if any(folder.iterdir()) and not mark.exists():
        raise ConfigError(f"{folder} is not empty, and not a devnet's; choose another --dir")
    with mark.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"another devnet runs in {folder}; choose another --dir") from error
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        yield


# ── Setting up ───────────────────────────────────────────────────────────────────────────────────
def _start(plan: Plan, anvil: Anvil, supervisor: Supervisor, display: Display) -> Network:
    if plan.workers < plan.committee + 1:
        raise ConfigError(f"this devnet needs at least {plan.committee + 1} workers")
    model = _model(plan)
    with display.task("reading the model's weights"):
        spec = _spec(plan, model)
    with display.task("starting Anvil, deploying the contracts"):
        anvil.start()
        supervisor.keep(anvil)
        deployment = _deploy(plan, anvil, spec)
    password = _password(plan.folder)
    scheduler, workers = _actors(plan, password)
    key_file = plan.folder / "keys" / "client" / "key.json"
    client = keystore.create(key_file, password, rounds=DEVNET_ROUNDS)
    with display.task("funding everyone"):
        _fund(anvil, deployment, scheduler.operator, workers, client)
    _write_configs(plan, anvil, model, scheduler, workers)
    _start_processes(plan, supervisor, scheduler, workers, display)
    url = f"http://127.0.0.1:{scheduler.port}"
    return Network(
        plan=plan,
        anvil=anvil,
        deployment=deployment,
        model=model,
        spec=spec,
        supervisor=supervisor,
        scheduler=scheduler.operator,
        scheduler_url=url,
        workers=workers,
        client=client,
    )


def _model(plan: Plan) -> Path:
    if plan.engine == "tiny":
        return plan.model or write_folder(plan.folder / "model")
    folder = plan.model or default_folder()
    if plan.model is None and not is_prepared(folder, full=False):
        raise ConfigError(f"{folder} is not prepared; run: make model")
    return folder


def _spec(plan: Plan, model: Path) -> ModelSpec:
    name = "tiny" if plan.engine == "tiny" else DEFAULT_MODEL
    calibrated = shipped_profile(MIXED_PROFILE if plan.vllm_workers else name)
    terms = replace(calibrated.terms, seat_stake=SEAT_STAKE, committee=plan.committee)
    spec = describe(model, calibrated.profile, name=name, terms=terms)
    _write_json(plan.folder / "spec.json", spec_to_json(spec))
    return spec


def _deploy(plan: Plan, anvil: Anvil, spec: ModelSpec) -> Deployment:
    deployer = dev_account(0)
    deployment = deploy(anvil.url, deployer, plan.terms or Config.devnet())
    deployment.save(plan.folder / "deployment.json")
    with contextlib.closing(Chain(anvil.url, deployment, deployer)) as chain:
        chain.send(chain.calls.register_model(spec))
    return deployment


def _password(folder: Path) -> str:
    password = secrets.token_urlsafe(24)
    write_atomically(folder / "password", password.encode(), 0o600)
    return password


def _actors(plan: Plan, password: str) -> tuple[Worker, tuple[Worker, ...]]:
    scheduler = _actor(plan, "scheduler", password, plan.scheduler_port, False)
    workers = tuple(
        replace(
            _actor(plan, f"worker{number}", password, 0, number == plan.cheater),
            is_on_vllm=number > plan.workers - plan.vllm_workers,
        )
        for number in range(1, plan.workers + 1)
    )
    return scheduler, workers


def _actor(plan: Plan, name: str, password: str, port: int, cheats: bool) -> Worker:
    folder = plan.folder / "keys" / name
    operator = keystore.create(folder / "operator.json", password, rounds=DEVNET_ROUNDS).address
    keystore.create(folder / "hot.json", password, rounds=DEVNET_ROUNDS)
    config = plan.folder / f"{name}.toml"
    return Worker(name, operator, config, port or free_port(), cheats)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _fund(
    anvil: Anvil,
    deployment: Deployment,
    scheduler: ChecksumAddress,
    workers: tuple[Worker, ...],
    client: LocalAccount,
) -> None:
    operators = [scheduler, *(worker.operator for worker in workers)]
    with contextlib.closing(Chain(anvil.url, deployment, dev_account(0))) as chain:
        for address in (*operators, client.address):
            chain.request("anvil_setBalance", address, hex(ETHER))
        for address in operators:
            chain.send(chain.calls.transfer(address, 3 * SEAT_STAKE))
        chain.send(chain.calls.transfer(client.address, CLIENT_TOKENS))


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────
def _write_configs(
    plan: Plan, anvil: Anvil, model: Path, scheduler: Worker, workers: tuple[Worker, ...]
) -> None:
    for actor in (scheduler, *workers):
        common: dict[str, object] = {
            "home": str(plan.folder / "home" / actor.name),
            "chain": {
                "rpc": anvil.url,
                "deployment": "deployment.json",
                "poll_seconds": plan.poll_seconds or (0.5 if plan.engine == "torch" else 0.2),
                "gas_reserve_wei": GAS_RESERVE,
            },
            "keys": {
                "operator": f"keys/{actor.name}/operator.json",
                "hot": f"keys/{actor.name}/hot.json",
                "password_file": "password",
            },
            "http": {"host": "127.0.0.1", "port": actor.port},
        }
        own = _scheduler(plan, model) if actor is scheduler else _worker(plan, model, actor)
        write_atomically(actor.config, to_toml(common | own).encode())


def _scheduler(plan: Plan, model: Path) -> dict[str, object]:
    return {
        "stake": 2 * SEAT_STAKE,
        "stall_seconds": plan.stall_seconds,
        "patience_seconds": plan.patience_seconds,
        "shuffle_seconds": plan.shuffle_seconds,
        "fair_turns": plan.fair_turns,
        "max_jobs": plan.max_jobs,
        "models": [{"spec": "spec.json", "folder": str(model), "unit_price": plan.unit_price}],
    }


def _worker(plan: Plan, model: Path, worker: Worker) -> dict[str, object]:
    engine: dict[str, object] = {
        "kind": "vllm" if worker.is_on_vllm else plan.engine,
        "model": str(model),
        "threads": max(1, (os.cpu_count() or 2) // 2),
    }
    if worker.cheats:
        engine["transform"] = CHEAT
    return {
        "spec": "spec.json",
        "price": plan.unit_price + int(plan.only_inferencer not in (0, _number(worker))),
        "devnet": True,
        "watch": plan.watch,
        "engine": engine,
    }


def _number(worker: Worker) -> int:
    return int(worker.name.removeprefix("worker"))


def to_toml(table: dict[str, object], prefix: str = "") -> str:
    """TOML of nested tables, strings, numbers and lists of tables: JSON's scalars are TOML's."""
    lines, tables = [], []
    for name, value in table.items():
        if isinstance(value, dict):
            tables.append(f"\n[{prefix}{name}]\n" + to_toml(value, f"{prefix}{name}."))
        elif isinstance(value, list):
            tables += [f"\n[[{prefix}{name}]]\n" + to_toml(each) for each in value]
        else:
            lines.append(f"{name} = {json.dumps(value)}\n")
    return "".join(lines + tables)


def _write_json(path: Path, value: object) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


# ── Processes ────────────────────────────────────────────────────────────────────────────────────
def _start_processes(
    plan: Plan,
    supervisor: Supervisor,
    scheduler: Worker,
    workers: tuple[Worker, ...],
    display: Display,
) -> None:
    with display.task("starting the scheduler"):
        supervisor.start(child(plan, scheduler, "scheduler"))
        wait_ready(scheduler)
    for first in range(0, len(workers), AT_ONCE):
        batch = workers[first : first + AT_ONCE]
        names = ", ".join(worker.name for worker in batch)
        with display.task(f"starting {names}: load the model, take a seat"):
            for worker in batch:
                supervisor.start(child(plan, worker, "worker"))
            for worker in batch:
                wait_ready(worker)


def child(plan: Plan, actor: Worker, command: str) -> Child:
    """One daemon as a process."""
    threads = str(max(1, (os.cpu_count() or 2) // 2))
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
    }
    python = plan.vllm_python if actor.is_on_vllm and plan.vllm_python else Path(sys.executable)
    words = [str(python), "-m", "verillm_node.cli", command]
    words += ["--config", str(actor.config), "--follow-stdin"]
    return Child(actor.name, words, plan.folder / "logs" / f"{actor.name}.log", environment)


def wait_ready(actor: Worker, within: float = READY_SECONDS) -> None:
    """Waits until a daemon answers; raises `Timeout`."""
    deadline = time.monotonic() + within
    url = f"http://127.0.0.1:{actor.port}{api.INFO}"
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.1)
    raise Timeout(f"{actor.name} did not answer within {within:.0f} s; see its log")


# ── Signals ──────────────────────────────────────────────────────────────────────────────────────
@contextlib.contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM stops a devnet as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Lets no second Ctrl-C leave processes behind while the first one stops them."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
