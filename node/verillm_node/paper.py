"""The traffic of a network that nobody runs: arrivals by the real rules, no engine and no chain.

A small machine cannot run thousands of jobs at a steady pace; here there are as many as a narrow
interval needs. Whatever a scheduler chooses comes from the functions that it calls itself. Prompts
have lengths, and nothing in them.
"""

import math
import random
from typing import Any, Final

from verillm.request import Job, Request, Sampling
from verillm.settlement import least_lock
from verillm.task import verification_prompt
from verillm.types import ChecksumAddress, Hash32
from verillm_node.disguise import asked, blurred, on_grid

PRICE: Final = 10**15
KAPPA_BPS: Final = 20_000
CONTEXT: Final = 8192
COMMITTEE: Final = 3
DUMMY_TOKENS: Final = 8
LEFT_SECONDS, SEAL_SECONDS = 750, 300
"""What the devnet's clients and terms leave to a job, and of that to its seal."""
TOKEN, END = 5, 0
CLIENT: Final = ChecksumAddress("0x" + "c1" * 20)  # type: ignore[arg-type]  # eth_typing: HexAddress
SAMPLING: Final = Sampling.of(1.0, 0, 0.95, 0.0)


class Paper:
    """A network's clients, its scheduler and its chain; all chance from one seed."""

    def __init__(self, jobs: int, rate: float, shuffle_seconds: float, workers: int, seed: int):
        self._jobs, self._rate, self._shuffle = jobs, rate, shuffle_seconds
        self._workers = [f"worker{number}" for number in range(1, workers + 1)]
        self._dice = random.Random(seed)
        self._tasks: dict[str, list[dict[str, Any]]] = {name: [] for name in self._workers}
        self._chain: list[dict[str, Any]] = []

    def record(self) -> dict[str, Any]:
        """The same document as `verillm_node.traffic` writes."""
        now = 1_000_000.0
        for number in range(self._jobs):
            now += self._dice.expovariate(self._rate)
            self._job(f"0x{number + 1:064x}", now)
        for tasks in self._tasks.values():
            tasks.sort(key=_arrived)
        workers = [
            {"name": name, "operator": name, "tasks": tasks} for name, tasks in self._tasks.items()
        ]
        return {
            "load": {"kind": "on paper", "jobs": self._jobs, "rate": self._rate},
            "shuffleSeconds": self._shuffle,
            "fairTurns": False,
            "unitPrice": str(PRICE),
            "model": "",
            "workers": workers,
            "chain": self._chain,
        }

    def _job(self, name: str, now: float) -> None:
        dice = self._dice
        request, answer = self._request(), self._answer()
        answer = answer[: request.max_new_tokens]
        first, *others = dice.sample(self._workers, 1 + COMMITTEE)
        secret = dice.randbytes(32)
        fee = PRICE * (len(request.tokens) + request.max_new_tokens)
        self._send(first, name, 0, now, request.tokens, request.max_new_tokens, fee, secret)
        posted = math.ceil(now + 0.5 + dice.random())
        self._chain.append(_event(name, "posted", posted) | {
            "worker": first, "fee": str(fee), "lock": str(least_lock(fee, KAPPA_BPS)),
            "deadline": int(now) + LEFT_SECONDS - SEAL_SECONDS,
        })  # fmt: skip
        job = Job(CLIENT, Hash32(bytes(32)), Hash32(bytes(32)), 1, fee, 0, 0)
        found = asked(job, [request], {0: answer}, CONTEXT, (END,), PRICE, DUMMY_TOKENS)
        prompt = verification_prompt(request, answer)
        seen = posted + dice.random()  # a scheduler looks at the chain now and then
        times = [seen + dice.random() * self._shuffle for _ in others]
        for k, (worker, at) in enumerate(zip(others, times, strict=True), 1):
            self._send(worker, name, k, at, prompt, found.new_tokens[0], found.fee, secret)
        self._chain.append(_event(name, "sealed", math.ceil(max(times) + 1.5)))

    def _request(self) -> Request:
        """A turn of a conversation: long ones are common, for each holds all turns before it."""
        length = self._dice.randint(20, 1000)
        most = self._dice.choice((96, 128, 192, 256))
        return Request(bytes(32), (TOKEN,) * length, most, SAMPLING)

    def _answer(self) -> tuple[int, ...]:
        """It ends by itself after 24 tokens on average."""
        return (TOKEN,) * int(self._dice.expovariate(1 / 24)) + (END,)

    def _send(
        self, worker: str, job: str, k: int, at: float, tokens: tuple[int, ...], most: int,
        fee: int, secret: bytes,
    ) -> None:  # fmt: skip
        named = blurred(fee, secret, k)
        item = {
            "tokens": list(tokens),
            "maxNewTokens": most,
            "sampling": {"temperature": 10**6, "topK": 0, "topP": 950_000, "minP": 0},
            "seed": "0x" + "00" * 32,
        }
        task = {
            "deadline": on_grid(int(at) + LEFT_SECONDS),
            "fee": str(named),
            "lock": str(least_lock(named, KAPPA_BPS)),
            "items": [item],
        }
        seconds = 0.3 + 0.02 * self._dice.random()
        where = {"arrived": at, "seconds": seconds, "party": k, "job": job}
        self._tasks[worker].append(where | {"task": task})


def _event(job: str, event: str, time: float) -> dict[str, Any]:
    return {"event": event, "job": job, "time": time}


def _arrived(task: dict[str, Any]) -> float:
    return float(task["arrived"])
