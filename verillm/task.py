"""What a worker is given and commits to: tasks, items, commitments (docs/protocol.md §3)."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from verillm.errors import InputError, TokensOutOfBounds
from verillm.hashing import keccak, keccak_words, sha, tokens_bytes, u32, u256, word
from verillm.merkle import LeafKind, Tree, leaf_hash
from verillm.request import Request, Sampling, request_leaf, tokens_root
from verillm.schema import abi_encode, solidity
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, TaskId

MAX_REPLACED = 8
"""Members of one committee that may be replaced because they keep silent."""


@solidity(
    "Item(bytes32 salt,bytes32 tokensRoot,uint32 length,uint32 maxNewTokens,Sampling sampling,"
    "bytes32 seed)"
)
@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a task, with the seed that binds its sampling and its slices."""

    salt: bytes
    tokens: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    seed: Hash32

    @property
    def tokens_root(self) -> Hash32:
        """The salted root of the prompt: all that is hashed of it."""
        return tokens_root(self.salt, self.tokens)

    @property
    def length(self) -> int:
        """Prompt tokens."""
        return len(self.tokens)

    @property
    def request(self) -> Request:
        """The request that this item asks a worker to run."""
        return Request(self.salt, self.tokens, self.max_new_tokens, self.sampling)


@solidity(
    "Task(bytes32 taskId,address worker,bytes32 modelId,Item[] items,uint40 deadline,uint96 lock,"
    "uint96 fee)"
)
@dataclass(frozen=True, slots=True)
class Task:
    """Everything that a worker sees; the same fields whether it infers or verifies."""

    task_id: TaskId
    worker: ChecksumAddress
    model_id: ModelId
    items: tuple[Item, ...]
    deadline: int
    lock: int
    fee: int


@solidity(
    "ItemLeaf(uint32 item,uint32 promptTokens,uint32 newTokens,bytes32 traceRoot,"
    "bytes32 outputHash)"
)
@dataclass(frozen=True, slots=True)
class ItemLeaf:
    """What a worker commits to for one item."""

    item: int
    prompt_tokens: int
    new_tokens: int
    trace_root: Hash32
    output_hash: Hash32


@solidity(
    "Inner(bytes32 taskHash,bytes32 itemsRoot,uint32 items,uint64 promptTokens,uint64 newTokens)"
)
@dataclass(frozen=True, slots=True)
class Inner:
    """What a worker committed to, less the task id; token counts are sums over the items."""

    task_hash: Hash32
    items_root: Hash32
    items: int
    prompt_tokens: int
    new_tokens: int


@solidity("Commitment(bytes32 taskId,bytes32 inner)")
@dataclass(frozen=True, slots=True)
class Commitment:
    """What a worker's hot key signs; its struct hash is what `post` and `seal` handle."""

    task_id: TaskId
    inner: Hash32


def derive_secret(master: bytes, nonce: bytes) -> Hash32:
    """One job's secret from the scheduler's one stored secret, so that a restart loses no draw."""
    return Hash32(hmac.new(master, b"verillm job secret" + nonce, sha256).digest())


def draw_commit(secret: bytes) -> Hash32:
    """What a quote says of its secret."""
    return keccak_words([secret])


def task_id(secret: bytes, job_id: JobId, k: int) -> TaskId:
    """The id of task k: 0 the inferencer's, 1..m the committee's; secret until `seal`."""
    return TaskId(keccak_words([secret, job_id, u256(k)]))


def task_numbers(party: int, committee: int) -> tuple[int, ...]:
    """The numbers that a party's task may have: its own, or that of whoever replaced a member."""
    if party == 0:
        return (0,)
    return (party, *range(committee + 1, committee + 1 + MAX_REPLACED))


def seed(secret: bytes, leaf: Hash32, request: int) -> Hash32:
    """The seed of a request: neither client nor scheduler alone chooses it."""
    return keccak_words([secret, leaf, u256(request)])


def output_hash(task: TaskId, tokens: Sequence[int]) -> Hash32:
    """The new tokens of an item, bound to its task."""
    return sha(word(task, "taskId") + tokens_bytes(tokens))


def item_leaf_hash(leaf: ItemLeaf) -> Hash32:
    """The leaf of one item under the items root."""
    counts = u32(leaf.item) + u32(leaf.prompt_tokens) + u32(leaf.new_tokens)
    return leaf_hash(LeafKind.ITEM, counts + leaf.trace_root + leaf.output_hash)


def items_tree(leaves: Sequence[ItemLeaf]) -> Tree:
    """The tree under `Inner.items_root`."""
    return Tree([item_leaf_hash(leaf) for leaf in leaves])


def outputs_tree(hashes: Sequence[Hash32]) -> Tree:
    """The tree under a posting's outputs root; `hashes` in the order of the job's requests."""
    return Tree([output_leaf(request, digest) for request, digest in enumerate(hashes)])


def output_leaf(request: int, digest: Hash32) -> Hash32:
    """The leaf of one output."""
    return leaf_hash(LeafKind.OUTPUT, u32(request) + digest)


def outputs_root(hashes: Sequence[Hash32]) -> Hash32:
    """What a posting names the outputs by."""
    return outputs_tree(hashes).root


def inner_hash(inner: Inner) -> Hash32:
    """`keccak(abi(Inner))`."""
    return keccak(abi_encode(inner))


def inference_task(
    secret: bytes,
    job_id: JobId,
    requests: Sequence[Request],
    worker: ChecksumAddress,
    model_id: ModelId,
    deadline: int,
    lock: int,
    fee: int,
) -> Task:
    """The inferencer's task: all requests of the job, in order."""
    items = tuple(
        _item(secret, number, request, request.tokens, request.max_new_tokens)
        for number, request in enumerate(requests)
    )
    return Task(task_id(secret, job_id, 0), worker, model_id, items, deadline, lock, fee)


def verification_task(
    secret: bytes,
    job_id: JobId,
    k: int,
    requests: Sequence[tuple[int, Request]],
    outputs: Sequence[Sequence[int]],
    worker: ChecksumAddress,
    model_id: ModelId,
    deadline: int,
    lock: int,
    fee: int,
    new_tokens: Sequence[int],
) -> Task:
    """The task of committee member k ≥ 1: the checked requests in their order.

    A prompt is prompt‖output without the last token, so that it ends like any other prompt; the
    seed is the inferencer's, so that both commit to the same dimensions.
    """
    if k < 1:
        raise InputError("a committee member has number 1 or more")
    items = tuple(
        _item(secret, number, request, verification_prompt(request, output), count)
        for (number, request), output, count in zip(requests, outputs, new_tokens, strict=True)
    )
    return Task(task_id(secret, job_id, k), worker, model_id, items, deadline, lock, fee)


def verification_prompt(request: Request, output: Sequence[int]) -> tuple[int, ...]:
    """Prompt‖output without the last token."""
    if not output:
        raise TokensOutOfBounds("an output has at least one token")
    return request.tokens + tuple(output[:-1])


def _item(
    secret: bytes, number: int, request: Request, tokens: tuple[int, ...], max_new_tokens: int
) -> Item:
    chosen = seed(secret, request_leaf(request), number)
    return Item(request.salt, tokens, max_new_tokens, request.sampling, chosen)
