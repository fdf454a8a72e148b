"""What the calls about a silent member take, right or wrong in one place."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from eth_account.signers.local import LocalAccount

from tests.chain.casework import Case, Casework, posted
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.request import Sampling
from verillm.signing import sign
from verillm.task import Item, Task
from verillm.types import ChecksumAddress, Hash32, ModelId, TaskId

NOTHING: Final = Hash32(bytes(32))
ITEMS: Final[Mapping[str, Callable[[Item], Item]]] = {
    "long": lambda item: replace(item, max_new_tokens=240),  # an honest worker's time is bounded
    "temperature": lambda item: replace(item, sampling=Sampling(temperature=2_000_001)),
    "topP": lambda item: replace(item, sampling=Sampling(top_p=0)),
    "topP over 1": lambda item: replace(item, sampling=Sampling(top_p=1_000_001)),
    "minP": lambda item: replace(item, sampling=Sampling(min_p=1_000_001)),
    "maxNewTokens": lambda item: replace(item, max_new_tokens=0),
    "context": lambda item: replace(item, max_new_tokens=257 - item.length),
    "vocabulary": lambda item: replace(item, tokens=(*item.tokens[:-1], 96)),
}
TASKS: Final[Mapping[str, Callable[[Task], Task]]] = {
    "number": lambda task: replace(task, task_id=TaskId(NOTHING)),
    "worker": lambda task: replace(task, worker=ZERO_ADDRESS),
    "model": lambda task: replace(task, model_id=ModelId(NOTHING)),
    "items": lambda task: replace(task, items=task.items[1:]),
    "more": lambda task: replace(task, items=(*task.items, task.items[0])),
}
FLAWS: Final = [*ITEMS, *TASKS, "secret", "inner", "spec", "signer", "record", "place"]


def summons(work: Casework, case: Case, index: int, flaw: str = "") -> list[Any]:
    """The arguments of `summon` for a place."""
    task, _ = work.member(case, min(index, len(work.members(case)) - 1) + 1)
    if flaw in ITEMS:
        task = replace(task, items=tuple(ITEMS[flaw](item) for item in task.items))
    task = TASKS[flaw](task) if flaw in TASKS else task
    signer = case.worker if flaw == "signer" else case.scheduler
    posting, secret, inner, spec = posted(case), case.secret, case.runs[0].inner, work.spec
    if flaw == "secret":
        secret = NOTHING
    elif flaw == "inner":
        inner = replace(inner, new_tokens=inner.new_tokens + 1)
    elif flaw == "spec":
        spec = replace(spec, context=spec.context + 1)
    elif flaw == "record":
        posting = replace(posting, lock=posting.lock + 1)
    elif flaw == "place":
        index += len(work.members(case))
    return [posting, secret, inner, index, spec, task, sign(work.domain, task, signer)]


def answer(
    work: Casework, case: Case, index: int, signer: LocalAccount, flaw: str = ""
) -> list[Any]:
    """The arguments of `answer` for a place."""
    _, run = work.member(case, min(index, len(work.members(case)) - 1) + 1)
    inner, commitment = run.inner, run.commitment
    if flaw == "task":
        inner = replace(inner, task_hash=NOTHING)
    elif flaw == "inner":
        inner = replace(inner, items_root=NOTHING)
    elif flaw == "place":
        index += len(work.members(case))
    return [work.id_of(case), index, inner, sign(work.domain, commitment, signer)]


def seal(
    work: Casework, case: Case, keys: Mapping[ChecksumAddress, LocalAccount], flaw: str = ""
) -> list[Any]:
    """The arguments of `seal_summoned`; of who answered on chain nothing is needed."""
    posting, _, inner, inners, signatures = work.seal(case, keys)
    places = work.reference.state.panels[work.id_of(case)].places
    for index, place in enumerate(places):
        if any(place.inner):
            inners[index], signatures[index] = NOTHING, b""
    if flaw == "inner":
        inner = replace(inner, prompt_tokens=inner.prompt_tokens + 1)
    elif flaw == "inners":
        inners = inners[1:]
    elif flaw == "signatures":
        signatures = [*signatures, b""]
    elif flaw == "signer":
        signatures = [bytes(65)] * len(signatures)
    elif flaw == "record":
        posting = replace(posting, seat=posting.seat + 1)
    return [posting, inner, inners, signatures]
