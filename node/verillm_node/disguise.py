"""What a verification task asks for beside its prefill, so that it looks like a job's own request.

Every field follows from the longer prompt by the rule that made the inferencer's from the shorter
one. What this cannot hide, and by how much a worker guesses better than chance, is measured:
docs/game.md. Nothing else rests on the hiding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from verillm.request import Job, Request
from verillm.settlement import least_lock
from verillm.task import verification_prompt

GRID_SECONDS: Final = 60
"""Deadlines of tasks lie on whole minutes, so that seconds do not tell when a job began."""
BLUR: Final = 4
"""Fees of tasks lie up to a fourth above what they follow from: else the chain's fees of posted
jobs would tell which task is the verification of which."""
FEE_FACTOR: Final = 3
"""A task names less than this times the job's highest fee, and so locks less."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a verification task that a scheduler chooses; new tokens by checked request."""

    new_tokens: tuple[int, ...]
    fee: int


def asked(
    job: Job,
    requests: Sequence[Request],
    outputs: Mapping[int, Sequence[int]],
    context: int,
    end_tokens: Sequence[int],
    unit_price: int,
    dummy_tokens: int,
) -> Asked:
    """The fields for the checked requests, which are those that `outputs` holds, in its order."""
    lengths = [len(verification_prompt(requests[n], output)) for n, output in outputs.items()]
    wanted = [requests[number].max_new_tokens for number in outputs]
    if sum(lengths) + sum(wanted) > context:
        # A worker that can run the job can run this: no token more than the requests had left.
        wanted = [
            each - len(output) + 1 for each, output in zip(wanted, outputs.values(), strict=True)
        ]
    new_tokens = tuple(
        count if output[-1] in end_tokens else min(count, dummy_tokens)
        for count, output in zip(wanted, outputs.values(), strict=True)
    )
    needed = unit_price * sum(len(each.tokens) + each.max_new_tokens for each in requests)
    fee = job.max_fee - needed + unit_price * (sum(lengths) + sum(new_tokens))
    return Asked(new_tokens, max(fee, job.max_fee))


def blurred(fee: int, secret: bytes, k: int) -> int:
    """A fee as task k of a job names it; only who knows the job's secret can undo it."""
    mark = int.from_bytes(sha256(b"blur" + secret + bytes([k])).digest()[:4], "big")
    return fee + fee * mark // (BLUR << 32)


def most_lock(max_fee: int, kappa_bps: int) -> int:
    """The most that an inferencer's task may lock."""
    return least_lock(max_fee + max_fee // BLUR, kappa_bps)


def on_grid(deadline: int) -> int:
    """The whole minute before a deadline."""
    return deadline - deadline % GRID_SECONDS
