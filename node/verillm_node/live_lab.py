"""The attack lab on a running network: real processes, one of them a named cheat, real money.

Four workers: the first is the only one whose price lets it infer, the other three are the committee
of every job. So each cheat sits where it should, in one job, and everyone else is honest.
"""

import contextlib
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from verillm.chain.deployment import Config
from verillm.chain.events import JobHistory, Paid, Slashed, job_history
from verillm.client import Client, JobHandle
from verillm.errors import ChainError, Timeout, VeriLLMError
from verillm.files import write_atomically
from verillm.types import Outcome, Reason
from verillm_node.demo import DEPOSIT, PROMPTS, patiently
from verillm_node.devnet import DEFAULT_MODEL, UNIT, Network, Plan, Worker, running, wait_ready
from verillm_node.display import Display

Seat = Literal["nobody", "inferencer", "verifier"]
SEATS: Final[dict[Seat, int]] = {"nobody": 0, "inferencer": 1, "verifier": 4}
WORKERS: Final = 4
TERMS: Final = replace(
    Config.devnet(dispute_window=6), claim_window=90, opening_window=120, seal_window=300
)
SETTLE_SECONDS: Final = 600.0
MODULE: Final = "verillm_verifier.attacks"
SYSTEM: Final = (
    "You are a patient teacher. Answer in plain words, with one example from daily life, and say "
    "first what the answer depends on."
)


@dataclass(frozen=True, slots=True)
class Cheat:
    """One deviation: whose, and by which engine; without one the worker falls silent in time."""

    title: str
    seat: Seat
    attack: str | None


CHEATS: Final = {
    "honest": Cheat("none", "nobody", None),
    "int4": Cheat("int4 weights, groups of 32", "inferencer", "int4"),
    "int8_row": Cheat("int8 weights, one scale per row", "inferencer", "int8_row"),
    "skipped": Cheat("two layers skipped", "inferencer", "skipped"),
    "prefilled": Cheat("int4 decodes, the true model prefills", "inferencer", "prefilled"),
    "own_seed": Cheat("another seed (best of n)", "inferencer", "own_seed"),
    "swapped": Cheat("one token swapped", "inferencer", "swapped"),
    "windowed": Cheat("context cut to 4 + 32 positions", "inferencer", "windowed"),
    "temperature": Cheat("temperature 0.7 for 1.0", "inferencer", "temperature"),
    "copied": Cheat("one position's states for all", "inferencer", "copied"),
    "withheld": Cheat("openings withheld", "inferencer", None),
    "garbage_verifier": Cheat("random states", "verifier", "garbage"),
    "copied_verifier": Cheat("one position's states for all", "verifier", "copied"),
    "int8_verifier": Cheat("int8 weights, one scale per row", "verifier", "int8_row"),
    "silent_verifier": Cheat("openings withheld", "verifier", None),
}


@dataclass(frozen=True, slots=True)
class Row:
    """How one cheat's job ended; money in token units, of the cheat."""

    cheat: Cheat
    outcome: Outcome
    reason: Reason
    slashed: int
    paid: int
    others_slashed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Setup:
    """What the network runs, and how much a job asks for."""

    folder: Path
    engine: Literal["torch", "tiny"] = "torch"
    model: Path | None = None
    tokens: int = 64


def run(setup: Setup, names: Sequence[str], display: Display) -> Iterator[Row]:
    """Plays the named cheats one after the other; each costs the restart of one worker.

    One whose job does not end in time is said to the display, and has no row.
    """
    plan = Plan(
        folder=setup.folder,
        engine=setup.engine,
        model=setup.model,
        workers=WORKERS,
        cheater=0,
        only_inferencer=SEATS["inferencer"],
        terms=TERMS,
        patience_seconds=30.0,
    )
    with (
        running(plan, display) as network,
        contextlib.closing(_Lab(network, setup, display)) as lab,
    ):
        for number, name in enumerate(names):
            try:
                yield lab.play(number, CHEATS[name])
            except VeriLLMError as error:
                display.say(f"{name}: {error}", "bold red")


class _Lab:
    """A client that buys one job of each cheat, and the power over the cheat's process."""

    def __init__(self, network: Network, setup: Setup, display: Display) -> None:
        self._network, self._setup, self._display = network, setup, display
        self._chain = network.chain()
        self._client = Client(
            network.anvil.url,
            network.deployment,
            network.client,
            scheduler=network.scheduler_url,
            cache=network.plan.folder / "tokenizers",
            patience=SETTLE_SECONDS,
        )
        patiently(lambda: self._client.deposit(network.scheduler, DEPOSIT))

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
        self._chain.close()

    def play(self, number: int, cheat: Cheat) -> Row:
        """One cheat's job from start to end; the cheat is honest again afterwards."""
        self._display.say(f"{cheat.title} ({cheat.seat})", "bold")
        began = time.monotonic()
        cheater = self._worker(cheat)
        with self._serving(cheater, cheat.attack):
            handle = patiently(lambda: self._buy(number))
            handle.read()
            with self._silent(cheater, cheat, handle):
                history = self._wait(handle, lambda found: found.finalized is not None)
        row = _row(cheat, cheater, history, time.monotonic() - began)
        self._display.say(
            f"  {row.outcome.name.lower()} ({row.reason.name.lower()}), "
            f"slashed {row.slashed / UNIT:.4f}, paid {row.paid / UNIT:.4f}"
        )
        return row

    def _buy(self, number: int) -> JobHandle:
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": PROMPTS[number % len(PROMPTS)]},
        ]
        return self._client.submit(messages=messages, max_new_tokens=self._setup.tokens)

    def _worker(self, cheat: Cheat) -> Worker | None:
        seat = SEATS[cheat.seat]
        return self._network.workers[seat - 1] if seat else None

    # ── Power over a process ─────────────────────────────────────────────────────────────────────
    @contextlib.contextmanager
    def _serving(self, worker: Worker | None, attack: str | None) -> Iterator[None]:
        """A worker that serves an attack's engine, and the honest one afterwards."""
        if worker is None or attack is None:
            yield
            return
        honest = worker.config.read_bytes()
        line = f'transform = "{MODULE}:{attack}"\n'  # `engine` is the last table of the file
        try:
            self._restart(worker, honest + line.encode())
            yield
        finally:
            self._restart(worker, honest)

    def _restart(self, worker: Worker, config: bytes) -> None:
        write_atomically(worker.config, config)
        child = self._network.supervisor.children[worker.name]
        before = child.process
        child.signal(signal.SIGTERM)
        deadline = time.monotonic() + SETTLE_SECONDS
        while child.process is before:
            if time.monotonic() > deadline:
                raise Timeout(f"{worker.name} was not started again")
            time.sleep(0.1)
        wait_ready(worker, SETTLE_SECONDS)

    @contextlib.contextmanager
    def _silent(self, worker: Worker | None, cheat: Cheat, handle: JobHandle) -> Iterator[None]:
        """A worker that does nothing any more once it has committed, until the job has ended."""
        if worker is None or cheat.attack is not None:
            yield
            return
        stage = "sealed" if cheat.seat == "verifier" else "posted"
        self._wait(handle, lambda found: getattr(found, stage) is not None)
        process = self._network.supervisor.children[worker.name].process
        if process is None:
            raise Timeout(f"{worker.name} does not run")
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def _wait(self, handle: JobHandle, done: Callable[[JobHistory], bool]) -> JobHistory:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(ChainError):
                history = job_history(self._chain, handle.job_id)
                if done(history):
                    return history
            time.sleep(0.3)
        raise Timeout(f"a job is not as far after {SETTLE_SECONDS:.0f} s")


def _row(cheat: Cheat, cheater: Worker | None, history: JobHistory, seconds: float) -> Row:
    final = history.finalized
    if final is None:
        raise Timeout("this job did not end")
    losses = [(each.event.operator, each.event.amount) for each in history.all(Slashed)]
    own = None if cheater is None else cheater.operator
    return Row(
        cheat=cheat,
        outcome=final.event.outcome,
        reason=final.event.reason,
        slashed=sum(amount for operator, amount in losses if operator == own),
        paid=sum(each.event.amount for each in history.all(Paid) if each.event.account == own),
        others_slashed=sum(amount for operator, amount in losses if operator != own),
        seconds=seconds,
    )


# ── The page ─────────────────────────────────────────────────────────────────────────────────────
PAGE: Final = """# The attack lab, live

Written by `make lab-live` (`verillm-node devnet --lab`). Measured {about}.

Each row is one job on a devnet of real processes: Anvil, a scheduler, four workers. The inferencer
is always the first worker, the committee always the other three; one of them is the cheat, all
others are honest. Jobs ask for {tokens} tokens at temperature 1; a seat is staked with 1000 tokens,
of which a job locks twice its highest fee. *passed*: this one job was accepted. How often each
cheat is caught over many jobs is in [detection.md](detection.md). Who withholds is frozen: an
inferencer once its job is posted, a verifier once it is sealed.

{table}

{faults}
"""


def page(rows: Sequence[Row], setup: Setup, asked: int) -> str:
    """`docs/live-lab.md`; `asked` cheats were to be played."""
    head = ("cheat", "by", "outcome", "reason", "slashed", "paid to it", "seconds")
    lines = [head, ("---",) * len(head), *map(_line, rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    wrong = faults(rows)
    said = "No honest party lost anything." if not wrong else "**" + "; ".join(wrong) + "**"
    if len(rows) < asked:
        said += f" **{asked - len(rows)} jobs did not end in time, or not at all.**"
    return PAGE.format(about=_about(setup), tokens=setup.tokens, table=table, faults=said)


def _about(setup: Setup) -> str:
    model = "the tiny model" if setup.engine == "tiny" else DEFAULT_MODEL
    name = model if setup.model is None else setup.model.name
    when, cores = datetime.now(UTC).date().isoformat(), os.cpu_count()
    machine = f"{cores} cores {platform.machine()}, Python {platform.python_version()}"
    return f"{when}, {machine}, on {name} in bfloat16"


def _line(row: Row) -> tuple[str, ...]:
    passed = row.cheat.seat == "inferencer" and row.outcome is Outcome.ACCEPT
    return (
        row.cheat.title,
        row.cheat.seat,
        row.outcome.name.lower() + (", *passed*" if passed else ""),
        "none" if row.reason is Reason.NONE else f"`{row.reason.name.lower()}`",
        f"{row.slashed / UNIT:.4f}",
        f"{row.paid / UNIT:.4f}",
        f"{row.seconds:.0f}",
    )


def faults(rows: Sequence[Row]) -> list[str]:
    """What must never be: honest work that is not accepted, or honest stake that is lost."""
    found = []
    for row in rows:
        if row.others_slashed:
            found.append(f"{row.cheat.title} ({row.cheat.seat}): an honest party lost stake")
        if row.cheat.seat != "inferencer" and row.outcome is not Outcome.ACCEPT:
            found.append(f"{row.cheat.title} ({row.cheat.seat}): honest work was not accepted")
    return found
