"""The demonstration: jobs until the cheater has served one, was caught and slashed; then an audit.

It holds nothing that a client does not hold: it buys through the SDK, and learns everything else
from the chain and from the bundles that the scheduler has to show.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from verillm import api
from verillm.chain.events import JobHistory, Paid, Slashed, job_history
from verillm.client import Client, JobHandle
from verillm.codec import bundle_hash
from verillm.errors import ChainError, ConfigError, RemoteError, Timeout, VeriLLMError, WorkerFailed
from verillm.files import write_atomically
from verillm.head import HeadRows
from verillm.types import JobId, Outcome, Reason
from verillm.verdict import Verdict
from verillm_node.devnet import UNIT, Network, Worker
from verillm_node.display import Display
from verillm_node.judging import Case, verdict_of

T = TypeVar("T")

MOST_JOBS: Final = 10
PATIENCE_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.3
LINE: Final = 76
DEPOSIT: Final = 1_000 * UNIT
PROMPTS: Final = (
    "Explain in a few sentences why the sky is blue.",
    "Give me three tips for learning to play the piano.",
    "What is the difference between a comet and an asteroid?",
    "Write a short story about a lighthouse keeper and a whale.",
    "How do vaccines work?",
    "Describe a market in the early morning.",
    "Why do we dream?",
    "What makes bread rise?",
)
AUDITS_AT_ONCE: Final = 2
AUDIT_EXIT: Final = {Outcome.ACCEPT: 0, Outcome.REFUND: 1, Outcome.SLASH: 1}


@dataclass(slots=True)
class Purchase:
    """One job of the demonstration, and what became of it."""

    number: int
    handle: JobHandle
    shown: set[str] = field(default_factory=set)
    history: JobHistory | None = None

    @property
    def job_id(self) -> JobId:
        """Its id."""
        return self.handle.job_id

    @property
    def outcome(self) -> Outcome | None:
        """How it ended on the chain."""
        final = None if self.history is None else self.history.finalized
        return None if final is None else final.event.outcome


def demonstrate(network: Network, display: Display) -> int:
    """Runs the demonstration; 0 only if all honest jobs were paid and only the cheater lost."""
    demo = Demo(network, display)
    try:
        return demo.run()
    finally:
        demo.close()


class Demo:
    """One demonstration on a running network."""

    def __init__(self, network: Network, display: Display) -> None:
        self._network, self._display = network, display
        self._client = Client(
            network.anvil.url,
            network.deployment,
            network.client,
            scheduler=network.scheduler_url,
            cache=network.plan.folder / "tokenizers",
            patience=PATIENCE_SECONDS,
        )
        self._head = HeadRows(network.model)
        self._chain = network.chain()
        self._purchases: list[Purchase] = []
        self._watchers: list[threading.Thread] = []

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
        self._chain.close()

    def run(self) -> int:
        """Buys, waits, checks, audits."""
        network, display = self._network, self._display
        cheater = next((worker for worker in network.workers if worker.cheats), None)
        if cheater is None:
            raise ConfigError("a demonstration needs a cheater among the workers")
        display.say(f"{cheater.name} serves int4 weights and says nothing of it", "yellow")
        before = self._balances()
        self._show_balances("Stakes before", before, before)
        patiently(lambda: self._client.deposit(network.scheduler, DEPOSIT))
        served: set[bool] = set()
        for number in range(1, MOST_JOBS + 1):
            if number > len(network.workers):  # someone was passed over: a worker that died is
                self._watchers[-1].join(SETTLE_SECONDS)  # asked last for a while, so take time
            served.add(self._buy(number) == cheater.operator)
            if len(served) == 2:  # an honest worker's job and the cheater's
                break
        for watcher in self._watchers:
            watcher.join(SETTLE_SECONDS)
        after = self._balances()
        self._show_balances("Stakes after", before, after)
        faults = self._faults(cheater, before, after)
        faults += self._audit()
        for fault in faults:
            display.say(f"WRONG: {fault}", "bold red")
        if not faults:
            display.say(
                f"every honest job was paid; {cheater.name}, and only {cheater.name}, lost stake",
                "bold green",
            )
        return int(bool(faults))

    # ── Buying ───────────────────────────────────────────────────────────────────────────────────
    def _buy(self, number: int) -> str:
        """Buys one job, shows its tokens, leaves its settlement to a thread; who served it."""
        prompt = PROMPTS[(number - 1) % len(PROMPTS)]
        self._display.say(f"job {number}: {prompt}", "bold")
        handle = patiently(lambda: self._submit(prompt))
        purchase = Purchase(number, handle)
        self._purchases.append(purchase)
        self._stream(purchase)
        served = self._served_by(purchase)
        self._display.say(f"job {number}: served by {self._name(served)}")
        watcher = threading.Thread(target=self._settle, args=(purchase,), daemon=True)
        watcher.start()
        self._watchers.append(watcher)
        return served

    def _submit(self, prompt: str) -> JobHandle:
        return self._client.submit(
            messages=[{"role": "user", "content": prompt}],
            max_new_tokens=self._network.plan.tokens,
            temperature=0.8,
            top_p=0.95,
        )

    def _stream(self, purchase: Purchase) -> None:
        began, line, count = time.monotonic(), "", 0
        tokens = purchase.handle.tokens()
        while True:
            try:
                token = next(tokens, None)
            except WorkerFailed as error:  # another worker took over and differs: it counts now
                self._display.say(f"job {purchase.number}: {error}", "yellow")
                tokens = purchase.handle.tokens()
                continue
            if token is None:
                break
            count += 1
            line += token.text.replace("\n", " ")
            if len(line) >= LINE:
                self._display.say(f"job {purchase.number} │ {line}", "cyan")
                line = ""
        if line:
            self._display.say(f"job {purchase.number} │ {line}", "cyan")
        rate = count / max(time.monotonic() - began, 1e-9)
        self._display.say(f"job {purchase.number}: {count} tokens, {rate:.1f} a second")

    def _served_by(self, purchase: Purchase) -> str:
        history = self._wait(purchase, lambda found: found.posted is not None)
        if history.posted is None:
            raise Timeout(f"job {purchase.number} was not posted")
        return str(history.posted.event.posting.worker)

    # ── Settlement ───────────────────────────────────────────────────────────────────────────────
    def _settle(self, purchase: Purchase) -> None:
        """Follows a job on the chain to its end, and says each stage once."""

        def look(history: JobHistory) -> bool:
            self._say_stages(purchase, history)
            return history.finalized is not None

        try:
            self._wait(purchase, look)
        except VeriLLMError as error:
            self._display.say(f"job {purchase.number}: {error}", "red")

    def _wait(self, purchase: Purchase, done: Callable[[JobHistory], bool]) -> JobHistory:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                history = job_history(self._chain, purchase.job_id)
                if done(history):
                    purchase.history = history
                    return history
            except ChainError:
                pass  # Anvil may be restarting
            time.sleep(POLL_SECONDS)
        raise Timeout(f"job {purchase.number} is not settled after {SETTLE_SECONDS:.0f} s")

    def _say_stages(self, purchase: Purchase, history: JobHistory) -> None:
        for stage, line in self._stages(purchase, history):
            if stage not in purchase.shown:
                purchase.shown.add(stage)
                for each in line():
                    self._display.say(f"job {purchase.number}: {each}")

    def _stages(
        self, purchase: Purchase, history: JobHistory
    ) -> list[tuple[str, Callable[[], list[str]]]]:
        stages: list[tuple[str, Callable[[], list[str]]]] = []
        if history.posted is not None:
            stages.append(("posted", lambda: self._posted(history)))
        if history.sealed is not None:
            stages.append(("sealed", lambda: self._sealed(history)))
        if history.claimed is not None:
            stages.append(("claimed", lambda: self._claimed(purchase, history)))
        if history.finalized is not None:
            stages.append(("final", lambda: self._final(history)))
        return stages

    def _posted(self, history: JobHistory) -> list[str]:
        posted = _at(history.posted)
        commitment = api.to_hex(posted.event.posting.commitment)[:14]
        return [f"posted in block {posted.block_number}, commitment {commitment}…; drawing"]

    def _sealed(self, history: JobHistory) -> list[str]:
        sealed = _at(history.sealed)
        names = ", ".join(self._name(member.owner) for member in sealed.event.sealing.committee)
        return [
            f"sealed in block {sealed.block_number}: committee {names}; "
            f"fee {money(sealed.event.sealing.fee)}"
        ]

    def _claimed(self, purchase: Purchase, history: JobHistory) -> list[str]:
        claiming = _at(history.claimed).event.claiming
        said = [f"claimed: {claiming.outcome.name.lower()} ({claiming.reason.name.lower()})"]
        try:
            verdict = self._verdict(purchase, history)
        except (httpx.HTTPError, VeriLLMError) as error:
            return [*said, f"no bundle to look at: {error}"]
        return said + [f"  {line}" for line in statistics_of(verdict)]

    def _final(self, history: JobHistory) -> list[str]:
        final = _at(history.finalized).event
        said = [f"final: {final.outcome.name.lower()} ({final.reason.name.lower()})"]
        for loss in history.all(Slashed):
            said.append(f"  {self._name(loss.event.operator)} lost {money(loss.event.amount)}")
        for gain in history.all(Paid):
            said.append(f"  {self._name(gain.event.account)} got {money(gain.event.amount)}")
        return said

    def _verdict(self, purchase: Purchase, history: JobHistory) -> Verdict:
        """The verdict of the published bundle, recomputed here; the bundle stays for the audit."""
        url = self._network.scheduler_url + api.job_path(purchase.job_id, "bundle")
        data = httpx.get(url, timeout=30, trust_env=False).raise_for_status().content
        if bundle_hash(data) != _at(history.claimed).event.claiming.bundle:
            raise RemoteError("bundle", "the scheduler shows another bundle than claimed", "")
        write_atomically(self._bundle_file(purchase), data)
        sealed = _at(history.sealed)
        case = Case(
            _at(history.posted).event.posting,
            sealed.event.sealing,
            self._network.spec,
            self._network.deployment.domain,
            sealed.block_hash,
        )
        return verdict_of(data, case, self._head)

    def _bundle_file(self, purchase: Purchase) -> Path:
        return self._network.plan.folder / "bundles" / f"{purchase.job_id.hex()}.vlb1"

    # ── Money ────────────────────────────────────────────────────────────────────────────────────
    def _balances(self) -> dict[str, tuple[int, int]]:
        """Balance and what is locked of it, by operator."""
        operators = [self._network.scheduler, *(w.operator for w in self._network.workers)]
        accounts = {
            each: patiently(lambda each=each: self._chain.account_of(each))  # type: ignore[misc]
            for each in operators
        }
        return {each: (account.balance, account.locked) for each, account in accounts.items()}

    def _show_balances(
        self, title: str, before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]
    ) -> None:
        rows = [
            (
                self._name(operator),
                money(balance),
                money(locked),
                f"{(balance - before[operator][0]) / UNIT:+.4f}",
            )
            for operator, (balance, locked) in now.items()
        ]
        self._display.table(title, ("operator", "stake", "locked", "change"), rows)

    def _faults(
        self,
        cheater: Worker,
        before: dict[str, tuple[int, int]],
        after: dict[str, tuple[int, int]],
    ) -> list[str]:
        """Everything that did not end as it should."""
        faults = []
        for purchase in self._purchases:
            served = None if purchase.history is None else _at(purchase.history.posted)
            worker = None if served is None else served.event.posting.worker
            expected = Outcome.SLASH if worker == cheater.operator else Outcome.ACCEPT
            if purchase.outcome is not expected:
                faults.append(f"job {purchase.number} of {worker} ended {purchase.outcome!r}")
        for operator, (balance, locked) in after.items():
            lost = balance < before[operator][0]
            if lost != (operator == cheater.operator):
                faults.append(f"{self._name(operator)} has {money(balance)}")
            if locked:
                faults.append(f"{self._name(operator)} has {money(locked)} still locked")
        return faults

    # ── Audit ────────────────────────────────────────────────────────────────────────────────────
    def _audit(self) -> list[str]:
        """A separate process judges every job from chain and bundle alone."""
        faults = []
        ended = [purchase for purchase in self._purchases if purchase.outcome is not None]
        with ThreadPoolExecutor(AUDITS_AT_ONCE) as pool:
            for purchase, (code, said) in zip(ended, pool.map(self._run_audit, ended), strict=True):
                expected = AUDIT_EXIT.get(purchase.outcome or Outcome.NONE, 2)
                agrees = "agrees" if code == expected else f"DISAGREES (exit code {code})"
                self._display.say(f"audit of job {purchase.number}, a process of its own: {agrees}")
                if code != expected:
                    faults.append(f"the audit of job {purchase.number} says {code}: {said[-500:]}")
        return faults

    def _run_audit(self, purchase: Purchase) -> tuple[int, str]:
        words = [sys.executable, "-m", "verillm_verifier", "verify", api.to_hex(purchase.job_id)]
        words += ["--rpc", self._network.anvil.url]
        words += ["--deployment", str(self._network.deployment_file)]
        words += ["--bundle", str(self._bundle_file(purchase))]
        words += ["--model", str(self._network.model)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    def _name(self, address: Any) -> str:
        return self._network.name_of(address)


def statistics_of(verdict: Verdict) -> list[str]:
    """What a verdict rests on, in a few lines."""
    lines = []
    for (first, second), pair in sorted(verdict.details.pairs.items()):
        if first == 0:
            lines.append(
                f"inferencer against verifier {second}: mean distance {pair.mean / 1e6:.2f} of the "
                f"honest median, {pair.over} positions over the cap"
            )
    if verdict.details.tokens is not None:
        margins = verdict.details.tokens.margins
        lines.append(
            f"tokens: {len(margins)} judged by the verifiers' states, mean margin "
            f"{sum(margins) / len(margins) / 1e6:.4f}, greatest {max(margins) / 1e6:.4f}, "
            f"outside the nucleus {len(verdict.details.tokens.outside)}"
        )
    said = f"verdict {verdict.outcome.name.lower()}"
    if verdict.reason is not Reason.NONE:
        said += f", because {verdict.reason.name.lower()}"
    if verdict.suspects:
        said += f"; verifiers that agree with nobody: {', '.join(map(str, verdict.suspects))}"
    return [*lines, said]


def patiently(action: Callable[[], T]) -> T:
    """Does something that a restarting chain or scheduler may refuse, again until it works."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return action()
        except (ChainError, RemoteError) as error:
            passing = isinstance(error, ChainError) or error.code in _PASSING
            if not passing or time.monotonic() > deadline:
                raise
            time.sleep(1)


_PASSING: Final = ("scheduler_unreachable", "no_workers", "chain_unreachable", "timeout")


def money(amount: int) -> str:
    """Token units as tokens."""
    return f"{amount / UNIT:.4f}"


def _at(found: Any) -> Any:
    if found is None:
        raise LookupError("the chain does not show this stage")
    return found
