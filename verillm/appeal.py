"""Re-verification: what a larger committee is asked, in the open (docs/protocol.md §6.1).

Everything is a function of the chain: the contents that the requester supplied, the secret that the
seal showed, the draw. Nobody hands out tasks, so what stands for a task's hash is bound to the
member, and nobody can commit to another's states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from verillm.errors import InputError, MalformedError
from verillm.hashing import keccak, keccak_words, tokens_bytes, tokens_of, u256
from verillm.merkle import verify_proof
from verillm.model import ModelSpec
from verillm.records import Claiming, Member, Sealing
from verillm.request import Request, Sampling, broken_bound, request_leaf, requests_tree
from verillm.task import (
    Item,
    Task,
    output_hash,
    output_leaf,
    outputs_tree,
    seed,
    task_id,
    verification_prompt,
)
from verillm.trace import CommittedTrace, Trace, hashed
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, Outcome, Reason, TaskId

MOST: Final = 7
"""Members of a new committee: parties of the adjudicator's round are 0..7, the first one behind."""
_TASK: Final = keccak(b"AppealTask(bytes32 jobId,uint256 index,address owner)")
_DRAW: Final = keccak(b"VeriLLM appeal")
_NOBODY: Final = ChecksumAddress("0x" + "00" * 20)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Content:
    """A checked request with its output, as `reverify` and `supply` take it; tokens as u32."""

    salt: bytes
    tokens: bytes
    max_new_tokens: int
    sampling: Sampling
    path: tuple[Hash32, ...]
    output: bytes
    output_path: tuple[Hash32, ...]

    @property
    def request(self) -> Request:
        """What was asked."""
        tokens = _tokens(self.tokens, "content.tokens")
        return Request(self.salt, tokens, self.max_new_tokens, self.sampling)

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """What was answered."""
        return _tokens(self.output, "content.output")


def _tokens(data: bytes, field: str) -> tuple[int, ...]:
    if not data or len(data) % 4:
        raise MalformedError(field, "not one or more u32")
    return tokens_of(data)


def contents_of(
    requests: Sequence[Request],
    outputs: Sequence[Sequence[int]],
    task: TaskId,
    checked: Sequence[int],
) -> tuple[Content, ...]:
    """The contents of a whole job's checked requests, for whoever has all of it."""
    if len(requests) != len(outputs):
        raise InputError("every request has an output")
    asked = requests_tree(requests)
    given = outputs_tree([output_hash(task, output) for output in outputs])
    return tuple(
        content(requests[each], asked.proof(each), outputs[each], given.proof(each))
        for each in checked
    )


def content(
    request: Request, path: Sequence[Hash32], output: Sequence[int], output_path: Sequence[Hash32]
) -> Content:
    """One content from one request and its output, such as a bundle holds them."""
    return Content(
        request.salt,
        tokens_bytes(request.tokens),
        request.max_new_tokens,
        request.sampling,
        tuple(path),
        tokens_bytes(output),
        tuple(output_path),
    )


def holds(
    shown: Content,
    requests_root: Hash32,
    outputs_root: Hash32,
    task: TaskId,
    number: int,
    count: int,
) -> bool:
    """Whether a content lies under both roots of a job, as the contract checks it."""
    asked, output = request_leaf(shown.request), output_hash(task, shown.new_tokens)
    under = verify_proof(requests_root, asked, number, count, shown.path)
    given = output_leaf(number, output)
    return under and verify_proof(outputs_root, given, number, count, shown.output_path)


def out_of_bounds(shown: Content, spec: ModelSpec) -> str | None:
    """Why no worker can run a content, by the contract's name for it (ContentLib), or None."""
    prompt, output = shown.request.tokens, shown.new_tokens
    if not all(token < spec.vocabulary for token in (*prompt, *output)):
        return "vocabulary"
    if len(output) > shown.max_new_tokens:
        return "newTokens"
    return broken_bound(shown.sampling, len(prompt), shown.max_new_tokens, spec.context)


# ── The new committee ────────────────────────────────────────────────────────────────────────────
def size_of(committee: int) -> int:
    """Members of the new committee: twice the first one and one more, at most what fits a round."""
    return min(2 * committee + 1, MOST)


def appeal_draw(job_id: JobId, beacon: bytes) -> Hash32:
    """The draw of the new committee; `beacon` is of the block that completed the contents."""
    return keccak_words([_DRAW, job_id, beacon])


def appeal_task(job_id: JobId, index: int, owner: ChecksumAddress) -> Hash32:
    """What stands for the task's hash of member `index`, counted from 0."""
    word = bytes(12) + bytes.fromhex(owner.removeprefix("0x"))
    return keccak_words([_TASK, job_id, u256(index), word])


def work(
    secret: bytes,
    job_id: JobId,
    index: int,
    owner: ChecksumAddress,
    model_id: ModelId,
    contents: Sequence[tuple[int, Content]],
    deadline: int,
) -> Task:
    """What member `index` runs: prompt‖output of each checked request, and one token more.

    Under the inferencer's own seeds, so that all commit to the same dimensions.
    """
    items = tuple(_item(secret, number, shown) for number, shown in contents)
    task = TaskId(appeal_task(job_id, index, owner))
    return Task(task, owner, model_id, items, deadline, 0, 0)


def _item(secret: bytes, number: int, shown: Content) -> Item:
    request = shown.request
    prompt = verification_prompt(request, shown.new_tokens)
    own = seed(secret, request_leaf(request), number)
    return Item(request.salt, prompt, 1, request.sampling, own)


def recommitted(trace: Trace, task: Task) -> CommittedTrace:
    """A trace of that work as its member commits to it: under the hash that is its own."""
    return hashed(replace(trace, task_hash=Hash32(task.task_id)), task.task_id)


# ── The round ────────────────────────────────────────────────────────────────────────────────────
def second_sealing(sealing: Sealing, members: Sequence[Member], block: int) -> Sealing:
    """The values that the adjudicator's round runs over: the first committee behind the new one."""
    return replace(sealing, committee=(*members, *sealing.committee), sealed_block=block)


def second_claiming(beacon: Hash32) -> Claiming:
    """The empty claim of that round."""
    nothing = Hash32(bytes(32))
    return Claiming(_NOBODY, Outcome.NONE, Reason.NONE, 0, nothing, beacon)


def inferencer_task(secret: bytes, job_id: JobId) -> TaskId:
    """Whose id binds the outputs."""
    return task_id(secret, job_id, 0)
