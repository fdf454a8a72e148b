"""A devnet's traffic as its workers saw it: conversations of many users, and every task's arrival.

What is written down is what a worker has: its task log, the public chain, and, from its log of the
time afterwards, which role each task had. `verillm-audit lab --game` guesses from it.
"""

import contextlib
import json
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from verillm import api
from verillm.chain.deployment import Config
from verillm.chain.events import Finalized, Posted, Sealed, stream
from verillm.client import Client
from verillm.engine.tiny import write_folder
from verillm.errors import VeriLLMError
from verillm.files import write_atomically
from verillm_node.demo import patiently
from verillm_node.devnet import CLIENT_TOKENS, UNIT, Network, Plan, running
from verillm_node.display import Display

END_TOKENS: Final = 48
"""Of the tiny model's 256 tokens: its answers end by themselves, most after less than 40 tokens."""
CONTEXT: Final = 1024
WORKERS: Final = 5
AT_ONCE: Final = 24
SETTLE_SECONDS: Final = 420.0
WORDS: Final = (
    "a the of to in is that it for on with as at by from or an be this which one you all can"
    " have time year people way day man thing woman life child world school state family student"
    " group country problem hand part place case week company system program question work number"
    " night point home water room mother area money story fact month lot right study book eye job"
)
Kind = Literal["conversations", "questions"]


@dataclass(frozen=True, slots=True)
class Load:
    """What the users do: `rate` jobs a second in all, until there were `jobs`."""

    kind: Kind
    jobs: int
    rate: float
    shuffle_seconds: float
    fair_turns: bool
    seed: int = 1


@dataclass(slots=True)
class Conversation:
    """One user's: what was said so far, and whether it waits for an answer."""

    messages: list[dict[str, str]] = field(default_factory=list)
    most: int = 128

    @property
    def size(self) -> int:
        """Bytes, which are tokens of the tiny model."""
        return sum(len(message["content"].encode()) + 12 for message in self.messages)


def record(load: Load, folder: Path, out: Path, display: Display) -> None:
    """Runs a devnet under a load and writes down what its workers saw."""
    model = _model(folder.parent / "traffic-model")
    plan = Plan(
        folder=folder,
        engine="tiny",
        model=model,
        workers=WORKERS,
        cheater=0,
        unit_price=UNIT // 1000,
        terms=Config.devnet(dispute_window=1),
        shuffle_seconds=load.shuffle_seconds,
        fair_turns=load.fair_turns,
        poll_seconds=4.0,
        max_jobs=4 * AT_ONCE + load.jobs,
        watch=False,
        keeps_chain=False,
    )
    with running(plan, display) as network:
        began = time.time()
        _Users(network, load, display).run()
        chain = _chain_log(network)
        names = {worker.name: str(worker.operator) for worker in network.workers}
    workers = [_task_log(plan.folder, name, operator) for name, operator in names.items()]
    found = {
        "load": {"kind": load.kind, "jobs": load.jobs, "rate": load.rate, "seed": load.seed},
        "shuffleSeconds": load.shuffle_seconds,
        "fairTurns": load.fair_turns,
        "unitPrice": str(plan.unit_price),
        "began": began,
        "model": str(model),
        "workers": workers,
        "chain": chain,
    }
    write_atomically(out, (json.dumps(found) + "\n").encode())
    tasks = sum(len(each["tasks"]) for each in workers)
    display.say(f"{tasks} tasks of {load.jobs} jobs written to {out}")


def _model(folder: Path) -> Path:
    """The tiny model with more ways to end an answer, and room for long conversations."""
    write_folder(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config |= {"eos_token_id": list(range(END_TOKENS)), "max_position_embeddings": CONTEXT}
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    return folder


# ── The users ────────────────────────────────────────────────────────────────────────────────────
class _Users:
    """Jobs arrive like those of many independent people, at random times."""

    def __init__(self, network: Network, load: Load, display: Display) -> None:
        self._network, self._load, self._display = network, load, display
        self._random = random.Random(load.seed)
        self._idle: list[Conversation] = []
        self._lock = threading.Lock()
        self._own = threading.local()
        self._clients: list[Client] = []
        self._failed = 0

    def run(self) -> None:
        """Sends every job, then waits until all that were posted are final."""
        try:
            patiently(
                lambda: self._client.deposit(self._network.scheduler, CLIENT_TOKENS * 9 // 10)
            )
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for number in range(self._load.jobs):
                    time.sleep(self._random.expovariate(self._load.rate))
                    pool.submit(self._turn, self._next())
                    if number % 50 == 49:
                        self._display.say(f"{number + 1} jobs sent, {self._failed} failed")
            self._settle()
        finally:
            for client in self._clients:
                client.close()

    @property
    def _client(self) -> Client:
        """This thread's own."""
        if not hasattr(self._own, "client"):
            network = self._network
            self._own.client = Client(
                network.anvil.url,
                network.deployment,
                network.client,
                scheduler=network.scheduler_url,
                cache=network.plan.folder / "tokenizers",
            )
            with self._lock:
                self._clients.append(self._own.client)
        client: Client = self._own.client
        return client

    def _next(self) -> Conversation:
        with self._lock:
            if self._load.kind == "questions":
                talk = Conversation()
            elif self._idle and self._random.random() < 0.75:
                talk = self._idle.pop(self._random.randrange(len(self._idle)))
            else:
                talk = Conversation([self._say("system", self._random.randint(5, 300))])
            talk.most = self._random.choice((96, 128, 192, 256))
            talk.messages.append(self._say("user", self._random.randint(8, 60)))
        return talk

    def _say(self, role: str, size: int) -> dict[str, str]:
        words = self._random.choices(WORDS.split(), k=size)
        return {"role": role, "content": " ".join(words)[:size]}

    def _turn(self, talk: Conversation) -> None:
        try:
            handle = self._client.submit(
                messages=talk.messages, max_new_tokens=talk.most, temperature=1.0, top_p=0.95
            )
            handle.read()
        except VeriLLMError as error:
            self._failed += 1
            self._display.say(f"a job failed: {error}", "yellow")
            return
        talk.messages.append({"role": "assistant", "content": handle.text()})
        if talk.size < CONTEXT - 400:
            with self._lock:
                self._idle.append(talk)

    def _settle(self) -> None:
        """Waits until what was posted is final; what is not by then is left out."""
        deadline, chain = time.monotonic() + SETTLE_SECONDS, self._network.chain()
        posted = final = 0
        with contextlib.closing(chain):
            while time.monotonic() < deadline:
                posted = sum(1 for _ in stream(chain, (Posted,)))
                final = sum(1 for _ in stream(chain, (Finalized,)))
                if final >= posted and posted + self._failed >= self._load.jobs:
                    return
                time.sleep(2)
        self._display.say(f"{posted - final} jobs are not final yet", "yellow")


# ── What the workers saw ─────────────────────────────────────────────────────────────────────────
def _chain_log(network: Network) -> list[dict[str, Any]]:
    """What anyone sees of each job: when it was posted and sealed, by whom, for how much."""
    chain = network.chain()
    found = [_event(each) for each in stream(chain, (Posted, Sealed))]
    chain.close()
    return found


def _event(at: Any) -> dict[str, Any]:
    common = {"time": at.timestamp, "job": api.to_hex(at.event.job_id)}
    if isinstance(at.event, Sealed):
        return common | {"event": "sealed"}
    posting = at.event.posting
    return common | {
        "event": "posted",
        "worker": str(posting.worker),
        "fee": str(posting.job.max_fee),
        "lock": str(posting.lock),
        "deadline": posting.job.deadline,
    }


def _task_log(folder: Path, name: str, operator: str) -> dict[str, Any]:
    """A worker's tasks by arrival; its log knows when each was done."""
    seconds = dict(_durations(folder / "logs" / f"{name}.log"))
    store = sqlite3.connect(folder / "home" / name / "worker.sqlite")
    rows = store.execute(
        "SELECT created, wire, party, job_id, task_id FROM tasks"
        " WHERE party IS NOT NULL ORDER BY created"
    ).fetchall()
    store.close()
    tasks = [
        {
            "arrived": created,
            "seconds": seconds.get("0x" + bytes(task).hex(), 0.0),
            "party": party,
            "job": "0x" + bytes(job).hex(),
            "task": json.loads(wire)["task"],
        }
        for created, wire, party, job, task in rows
    ]
    return {"name": name, "operator": operator, "tasks": tasks}


def _durations(log: Path) -> Iterator[tuple[str, float]]:
    for line in log.read_text("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "task_ended":
            yield event["task"], float(event["s"])
