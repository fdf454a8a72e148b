"""An auditor's own look: one prefill over prompt‖output, through the same engine as everyone's."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from verillm.engine import Engine
from verillm.evidence import CheckedRequest, PartyStates
from verillm.request import Sampling
from verillm.statistics import States
from verillm.task import Item, Task
from verillm.trace import Trace
from verillm.types import Bits, ChecksumAddress, Hash32, ModelId, TaskId

NOBODY = ChecksumAddress("0x" + "00" * 20)  # type: ignore[arg-type]  # eth_typing wants HexAddress
NO_LIMIT = 2**40 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Tokens to run through a model once, and the seed that chooses what is kept of them."""

    tokens: tuple[int, ...]
    seed: Hash32


def prefill(engine: Engine, sequences: Sequence[Run]) -> Trace:
    """Return the states of each sequence's tokens but the last, whose state chooses nothing."""
    items = tuple(
        Item(bytes(32), each.tokens[:-1], 1, Sampling(temperature=0), each.seed)
        for each in sequences
    )
    task = local_task(items)
    return engine.submit(task, lambda _item, _index, _token: None).result()


def local_task(items: tuple[Item, ...]) -> Task:
    """Return a task that nobody signed and nobody pays: to run an engine for oneself."""
    identity = TaskId(Hash32(secrets.token_bytes(32)))
    return Task(identity, NOBODY, ModelId(Hash32(bytes(32))), items, NO_LIMIT, 0, 0)


def replay(engine: Engine, checked: Sequence[CheckedRequest]) -> PartyStates:
    """Return what an honest verifier would have shown of the checked requests."""
    trace = prefill(engine, [Run(each.tokens, each.seed) for each in checked])
    states, generated = [], list[Bits | None]()
    for each, item in zip(checked, trace.items, strict=True):
        positions = sorted(each.positions)
        states.append(States(tuple(positions), item.slices[positions], item.finals[positions]))
        generated.append(item.finals[each.generated.start : each.generated.stop])
    return PartyStates(tuple(states), tuple(generated))
