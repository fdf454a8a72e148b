"""`verillm-node`: worker, scheduler, devnet, keys, doctor."""

import argparse
import getpass
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verillm import __version__, keystore
from verillm.engine import cache_home
from verillm.errors import ConfigError, VeriLLMError
from verillm.files import make_room, write_atomically
from verillm_node import keys, log
from verillm_node.config import SchedulerSettings, WorkerSettings, load
from verillm_node.daemon import PASSWORD_VARIABLE, password_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 if it did what it should, 1 for an expected error, 130 for Ctrl-C."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except VeriLLMError as error:
        return fail(error)
    except BaseExceptionGroup as group:
        expected, rest = group.split(VeriLLMError)
        if expected is None or rest is not None:
            raise
        return max(map(fail, leaves(expected)))
    except KeyboardInterrupt:
        return 130


def leaves(group: BaseExceptionGroup[VeriLLMError]) -> list[VeriLLMError]:
    """The errors that a task group gathered."""
    found: list[VeriLLMError] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def fail(error: VeriLLMError) -> int:
    """Says what is wrong and what to do."""
    print(f"error [{error.code}]: {error}\n  {error.remedy}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="verillm-node", description="A node of a VeriLLM network.")
    top.add_argument("--version", action="version", version=f"verillm-node {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _daemon(commands.add_parser("worker", help="serve a model"), _worker)
    _daemon(commands.add_parser("scheduler", help="sell tokens and settle jobs"), _scheduler)
    _devnet(commands.add_parser("devnet", help="a whole network on this machine"))
    _traffic(commands.add_parser("traffic", help="a devnet under load; what its workers saw"))
    _keys(commands.add_parser("keys", help="make keystores, or show their addresses"))
    doctor = commands.add_parser("doctor", help="say what is missing on this machine")
    doctor.add_argument("--config", type=Path, help="also check the daemon of this file")
    doctor.set_defaults(run=_doctor)
    return top


def _daemon(command: argparse.ArgumentParser, run: object) -> None:
    command.add_argument("--config", type=Path, required=True, help="TOML file with its settings")
    command.add_argument(
        "--follow-stdin", action="store_true", help="stop when standard input ends (devnet)"
    )
    command.set_defaults(run=run)


def _worker(options: argparse.Namespace) -> None:
    from verillm_node.worker_main import run_worker

    settings = load(options.config, WorkerSettings)
    log.configure(settings.log_level)
    run_worker(settings, options.follow_stdin)


def _scheduler(options: argparse.Namespace) -> None:
    from verillm_node.scheduler_main import run_scheduler

    settings = load(options.config, SchedulerSettings)
    log.configure(settings.log_level)
    run_scheduler(settings, options.follow_stdin)


def _devnet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--demo", action="store_true", help="buy tokens until the cheater is caught, then stop"
    )
    command.add_argument(
        "--lab", action="store_true", help="play named cheats one by one, say how each job ended"
    )
    command.add_argument("--lab-only", nargs="*", metavar="NAME", help="these cheats only")
    command.add_argument("--lab-out", type=Path, help="write the page here")
    command.add_argument("--dir", type=Path, default=cache_home() / "devnet", help="run folder")
    command.add_argument("--engine", choices=("torch", "tiny"), default="torch")
    command.add_argument("--model", type=Path, help="model folder (default: prepared SmolLM2)")
    command.add_argument("--workers", type=int, default=5)
    command.add_argument("--cheater", type=int, default=3, help="which worker cheats; 0 for none")
    command.add_argument("--vllm-workers", type=int, default=0, help="how many, the last, run vLLM")
    command.add_argument("--vllm-python", type=Path, help="their interpreter (default: this one)")
    command.add_argument("--tokens", type=int, default=48, help="new tokens of each demo job")
    command.add_argument(
        "--dispute-seconds", type=int, default=10, help="how long a claim may be challenged"
    )
    command.add_argument("--port", type=int, default=0, help="scheduler's port (default: any)")
    command.add_argument("--rpc-port", type=int, default=0, help="Anvil's port (default: any)")
    command.set_defaults(run=_run_devnet)


def _run_devnet(options: argparse.Namespace) -> int:
    from verillm.chain.deployment import Config
    from verillm_node.devnet import Plan, run_devnet

    if options.lab:
        return _run_lab(options)
    plan = Plan(
        folder=options.dir.resolve(),
        engine=options.engine,
        model=options.model,
        workers=options.workers,
        cheater=options.cheater,
        demo=options.demo,
        tokens=options.tokens,
        vllm_workers=options.vllm_workers,
        vllm_python=options.vllm_python and options.vllm_python.absolute(),
        terms=Config.devnet(dispute_window=options.dispute_seconds),
        scheduler_port=options.port,
        rpc_port=options.rpc_port,
    )
    return run_devnet(plan)


def _run_lab(options: argparse.Namespace) -> int:
    from verillm_node import live_lab
    from verillm_node.display import Display

    setup = live_lab.Setup(options.dir.resolve(), options.engine, options.model, options.tokens)
    names, rows = options.lab_only or list(live_lab.CHEATS), []
    if options.lab_out is not None:
        make_room(options.lab_out)
    for row in live_lab.run(setup, names, Display()):
        rows.append(row)
        if options.lab_out is not None:  # as far as it has come: a run takes long
            write_atomically(options.lab_out, live_lab.page(rows, setup, len(names)).encode())
    if options.lab_out is None:
        print(live_lab.page(rows, setup, len(names)))
    return int(bool(live_lab.faults(rows)) or len(rows) < len(names))


def _traffic(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", type=int, default=600)
    command.add_argument("--rate", type=float, default=1.0, help="jobs a second")
    command.add_argument("--kind", choices=("conversations", "questions"), default="conversations")
    command.add_argument("--shuffle-seconds", type=float, default=120.0)
    command.add_argument("--fair-turns", action="store_true", help="jobs go round in turn")
    command.add_argument("--paper", action="store_true", help="reckon it, run no network")
    command.add_argument("--dir", type=Path, default=cache_home() / "traffic", help="run folder")
    command.add_argument("--out", type=Path, default=Path("traffic.json"))
    command.set_defaults(run=_run_traffic)


def _run_traffic(options: argparse.Namespace) -> None:
    from verillm_node.display import Display
    from verillm_node.paper import Paper
    from verillm_node.traffic import WORKERS, Load, record

    make_room(options.out)
    if options.paper:
        found = Paper(options.jobs, options.rate, options.shuffle_seconds, WORKERS, 1).record()
        write_atomically(options.out, (json.dumps(found) + "\n").encode())
        return
    load = Load(
        kind=options.kind,
        jobs=options.jobs,
        rate=options.rate,
        shuffle_seconds=options.shuffle_seconds,
        fair_turns=options.fair_turns,
    )
    record(load, options.dir.resolve(), options.out, Display())


def _keys(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("new", "show"))
    command.add_argument("--dir", type=Path, default=Path("keys"), help="folder of both keystores")
    command.add_argument("--password-file", type=Path)
    command.set_defaults(run=_run_keys)


def _run_keys(options: argparse.Namespace) -> None:
    if options.action == "new":
        password = _new_password(options.password_file)
        for name in ("operator", "hot"):
            keystore.create(options.dir / f"{name}.json", password)
    for name in ("operator", "hot"):
        path = options.dir / f"{name}.json"
        print(f"{name:9} {keys.address(path)}  {path}")


def _new_password(file: Path | None) -> str:
    if file is not None or PASSWORD_VARIABLE in os.environ or not sys.stdin.isatty():
        password = password_of(file)
    else:
        password = getpass.getpass("New password for both keystores: ")
        if password != getpass.getpass("Again: "):
            raise ConfigError("the two passwords differ")
    if len(password) < 8:
        raise ConfigError("a keystore's password needs at least 8 characters")
    return password


def _doctor(options: argparse.Namespace) -> int:
    from verillm_node.doctor import examine

    return examine(options.config, print)


if __name__ == "__main__":
    sys.exit(main())
