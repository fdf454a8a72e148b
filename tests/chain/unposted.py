"""What the calls about a task that was never posted take, right or wrong in one place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eth_account.signers.local import LocalAccount

from tests.chain.casework import Case, Casework, posted
from verillm.api import CommitmentEvent, TaskSubmission
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.records import Claiming, Sealing
from verillm.signing import sign, struct_hash
from verillm.task import Inner, ItemLeaf, Task
from verillm.trace import CommittedTrace
from verillm.types import Hash32, Outcome, Reason

ZERO: Final = Hash32(bytes(32))
UNCLAIMED: Final = Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, ZERO, ZERO)
UNSEALED: Final = Sealing(ZERO, ZERO, Inner(ZERO, ZERO, 0, 0, 0), 0, 0, ())
LEAVES: Final[Mapping[str, Callable[[ItemLeaf], ItemLeaf]]] = {
    "item": lambda leaf: replace(leaf, item=leaf.item + 1),
    "prompt": lambda leaf: replace(leaf, prompt_tokens=leaf.prompt_tokens + 1),
    "new": lambda leaf: replace(leaf, new_tokens=leaf.new_tokens - 1),
    "trace": lambda leaf: replace(leaf, trace_root=ZERO),
    "output": lambda leaf: replace(leaf, output_hash=ZERO),
}
INNERS: Final[Mapping[str, Callable[[Inner], Inner]]] = {
    "items": lambda inner: replace(inner, items=inner.items + 1),
    "prompts": lambda inner: replace(inner, prompt_tokens=inner.prompt_tokens + 1),
    "tokens": lambda inner: replace(inner, new_tokens=inner.new_tokens + 1),
    "task": lambda inner: replace(inner, task_hash=ZERO),
}
FLAWS: Final = [*LEAVES, *INNERS, "leaves", "outputs", "text", "scheduler", "worker", "seat"]


@dataclass(frozen=True)
class Work:
    """A task with what its worker made of it."""

    task: Task
    run: CommittedTrace
    outputs: tuple[tuple[int, ...], ...]

    @property
    def commitment(self) -> Hash32:
        """What a claim is found by."""
        return struct_hash(self.run.commitment)


def done(work: Casework, case: Case, party: int) -> Work:
    """What a party of the job was given and made."""
    task, run = work.member(case, party)
    output = (1, 1) if party else case.plan.output
    return Work(task, run, (output,) * len(task.items))


def done_by(
    work: Casework, case: Case, own: Work, worker: LocalAccount, output: tuple[int, ...] | None
) -> Work:
    """The same task in another's hands; with another output, if there is one."""
    task = replace(own.task, worker=worker.address)
    outputs = own.outputs if output is None else (output,) * len(task.items)
    return Work(task, work.run(case.plan, 0, task, outputs), outputs)


def done_for_another(work: Casework, case: Case, other: Case, worker: LocalAccount) -> Work:
    """Other requests under the task id of a job that is over."""
    own = done(work, other, 0)
    task = replace(own.task, worker=worker.address, task_id=done(work, case, 0).task.task_id)
    return Work(task, work.run(other.plan, 0, task, own.outputs), own.outputs)


def claim(
    work: Casework,
    made: Work,
    seat: int,
    scheduler: LocalAccount,
    worker: LocalAccount,
    flaw: str = "",
) -> list[Any]:
    """The arguments of `claim_task`."""
    inner, leaves, outputs = made.run.inner, made.run.leaves, made.outputs
    if flaw in LEAVES:
        leaves = (*leaves[:-1], LEAVES[flaw](leaves[-1]))
    if flaw in INNERS:
        inner = INNERS[flaw](inner)
    if flaw == "leaves":
        leaves = (*leaves, leaves[-1])
    elif flaw == "outputs":
        outputs = outputs[1:]
    elif flaw == "text":
        outputs = (*outputs[:-1], (*outputs[-1][:-1], 77))
    given = sign(work.domain, made.task, worker if flaw == "scheduler" else scheduler)
    signer = scheduler if flaw == "worker" else worker
    signed = sign(work.domain, made.run.commitment, signer)
    submission = TaskSubmission(made.task, scheduler.address, given)
    event = CommitmentEvent(inner, leaves, signed)
    return [submission, seat + (flaw == "seat"), event, outputs]


def contest(case: Case, commitment: Hash32) -> list[Any]:
    """The arguments of `contest_task`: as far as the job has come."""
    return [commitment, posted(case), case.sealing or UNSEALED, case.claiming or UNCLAIMED]
