"""What a verification task asks for beside its prefill, so that it looks like a job's own request.

Every field follows from the longer prompt by the rule that made the inferencer's from the shorter
one. What this cannot hide, and by how much a worker guesses better than chance, is measured:
docs/game.md. Nothing else rests on the hiding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verillm.model import ModelSpec
from verillm.request import Job, Request
from verillm.settlement import least_lock
from verillm.task import verification_prompt

GRID_SECONDS: Final = 60
"""Deadlines of tasks lie on whole minutes, so that seconds do not tell when a job began."""
FEE_FACTOR: Final = 2
"""A verification task names less than this times the job's highest fee, and so locks less."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a verification task that a scheduler chooses; new tokens by checked request."""

    new_tokens: tuple[int, ...]
    fee: int
    lock: int


def asked(
    job: Job,
    requests: Sequence[Request],
    outputs: Mapping[int, Sequence[int]],
    spec: ModelSpec,
    unit_price: int,
    kappa_bps: int,
    dummy_tokens: int,
) -> Asked:
    """The fields for the checked requests, which are those that `outputs` holds, in its order."""
    lengths = [len(verification_prompt(requests[n], output)) for n, output in outputs.items()]
    wanted = [requests[number].max_new_tokens for number in outputs]
    if sum(lengths) + sum(wanted) > spec.context:
        # A worker that can run the job can run this: no token more than the requests had left.
        wanted = [
            each - len(output) + 1 for each, output in zip(wanted, outputs.values(), strict=True)
        ]
    new_tokens = tuple(
        count if output[-1] in spec.end_tokens else min(count, dummy_tokens)
        for count, output in zip(wanted, outputs.values(), strict=True)
    )
    needed = unit_price * sum(len(each.tokens) + each.max_new_tokens for each in requests)
    fee = job.max_fee - needed + unit_price * (sum(lengths) + sum(new_tokens))
    fee = max(fee, job.max_fee)
    return Asked(new_tokens, fee, least_lock(fee, kappa_bps))


def on_grid(deadline: int) -> int:
    """The whole minute before a deadline."""
    return deadline - deadline % GRID_SECONDS
