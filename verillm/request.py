"""What a client asks for and signs: requests, quote, job, receipt (docs/protocol.md §2 and §3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verillm.errors import InputError, PromptTooLong, SamplingError, TokensOutOfBounds
from verillm.hashing import sha, tokens_bytes, u32, word
from verillm.merkle import LeafKind, Tree, leaf_hash, verify_proof
from verillm.schema import solidity
from verillm.types import PPM, ChecksumAddress, Hash32, JobId, ModelId, TaskId

PIECE = 32
"""Tokens in one piece of the tokens tree."""
MAX_REQUESTS = 4096
MAX_TEMPERATURE = 2 * PPM
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "temperature": (0, MAX_TEMPERATURE),
    "top_k": (0, 2**32 - 1),
    "top_p": (1, PPM),
    "min_p": (0, PPM),
}
"""Of sampling parameters, both ends included."""


@solidity("Sampling(uint32 temperature,uint32 topK,uint32 topP,uint32 minP)")
@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen; ppm, except top_k. Off: top_k 0, top_p 1e6, min_p 0."""

    temperature: int = PPM
    top_k: int = 0
    top_p: int = PPM
    min_p: int = 0

    @classmethod
    def of(
        cls, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
    ) -> "Sampling":
        """From the usual floats, rounded to ppm; SamplingError if not finite or out of range."""
        sampling = cls(
            temperature=_ppm("temperature", temperature),
            top_k=top_k,
            top_p=_ppm("top_p", top_p),
            min_p=_ppm("min_p", min_p),
        )
        check_sampling(sampling)
        return sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt of a job, salted so that its leaf tells nothing about it."""

    salt: bytes
    tokens: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class PieceProof:
    """One piece of a prompt under its tokens root, showing nothing of the other pieces."""

    piece: int
    piece_salt: Hash32
    tokens: tuple[int, ...]
    path: tuple[Hash32, ...]


@solidity(
    "Quote(address scheduler,bytes32 modelId,uint96 unitPrice,bytes32 drawCommit,uint40 expiry)"
)
@dataclass(frozen=True, slots=True)
class Quote:
    """A scheduler's offer: a price per token, and the hash of the job's secret."""

    scheduler: ChecksumAddress
    model_id: ModelId
    unit_price: int
    draw_commit: Hash32
    expiry: int


@solidity(
    "Job(address client,bytes32 quote,bytes32 requestsRoot,uint16 requests,uint96 maxFee,"
    "uint40 deadline,uint256 nonce)"
)
@dataclass(frozen=True, slots=True)
class Job:
    """What the client signs; `quote` is the struct hash of the quote it accepts."""

    client: ChecksumAddress
    quote: Hash32
    requests_root: Hash32
    requests: int
    max_fee: int
    deadline: int
    nonce: int


@solidity("Receipt(bytes32 jobId,bytes32 taskId,uint32 request,bytes32 outputHash)")
@dataclass(frozen=True, slots=True)
class Receipt:
    """What the scheduler signs for the client with the last token of a request."""

    job_id: JobId
    task_id: TaskId
    request: int
    output_hash: Hash32


def check_sampling(sampling: Sampling) -> None:
    """Hold sampling parameters to the protocol's bounds; SamplingError names the first outside."""
    for parameter, (low, high) in BOUNDS.items():
        value = getattr(sampling, parameter)
        if type(value) is not int or not low <= value <= high:
            raise SamplingError(parameter, value)


def check_request(request: Request, context: int, vocabulary: int) -> None:
    """Hold one request to the protocol's bounds; raises the InputError that says what is wrong."""
    word(request.salt, "salt")
    check_sampling(request.sampling)
    if request.max_new_tokens < 1:
        raise TokensOutOfBounds("max_new_tokens must be at least 1")
    if not request.tokens:
        raise TokensOutOfBounds("the prompt is empty")
    if len(request.tokens) + request.max_new_tokens > context:
        raise PromptTooLong(len(request.tokens), request.max_new_tokens, context)
    if not 0 <= min(request.tokens) <= max(request.tokens) < vocabulary:
        raise TokensOutOfBounds(f"a token id is not below the vocabulary of {vocabulary}")


def broken_bound(sampling: Sampling, length: int, max_new_tokens: int, context: int) -> str | None:
    """The first bound that u32s are outside of, by the contracts' name for it (BoundsLib)."""
    for parameter, name in (("temperature", "temperature"), ("top_p", "topP"), ("min_p", "minP")):
        low, high = BOUNDS[parameter]
        if not low <= getattr(sampling, parameter) <= high:
            return name
    if length < 1:
        return "length"
    if max_new_tokens < 1:
        return "maxNewTokens"
    return "context" if length + max_new_tokens > context else None


def tokens_root(salt: bytes, tokens: Sequence[int]) -> Hash32:
    """The root over salted pieces of 32 tokens; at least one token."""
    return _tokens_tree(salt, tokens).root


def piece_proof(salt: bytes, tokens: Sequence[int], piece: int) -> PieceProof:
    """Show one piece of a prompt without making the others guessable."""
    path = _tokens_tree(salt, tokens).proof(piece)
    shown = tuple(tokens[piece * PIECE : (piece + 1) * PIECE])
    return PieceProof(piece, _piece_salt(salt, piece), shown, path)


def verify_piece(root: Hash32, length: int, proof: PieceProof) -> bool:
    """Whether a piece is part of the prompt of `length` tokens under `root`."""
    pieces = -(-length // PIECE)
    expected = min(PIECE, length - proof.piece * PIECE)
    leaf = leaf_hash(LeafKind.TOKENS, proof.piece_salt + tokens_bytes(proof.tokens))
    return len(proof.tokens) == expected and verify_proof(
        root, leaf, proof.piece, pieces, proof.path
    )


def request_leaf(request: Request) -> Hash32:
    """The leaf of a request under the job's requests root."""
    sampling = request.sampling
    numbers = (
        len(request.tokens),
        request.max_new_tokens,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
    )
    root = tokens_root(request.salt, request.tokens)
    return leaf_hash(LeafKind.REQUEST, root + b"".join(map(u32, numbers)))


def requests_tree(requests: Sequence[Request]) -> Tree:
    """The tree under a job's requests root; 1 to 4096 requests."""
    if not 1 <= len(requests) <= MAX_REQUESTS:
        raise InputError(f"a job has 1 to {MAX_REQUESTS} requests, not {len(requests)}")
    return Tree([request_leaf(request) for request in requests])


def requests_root(requests: Sequence[Request]) -> Hash32:
    """What a job names its requests by."""
    return requests_tree(requests).root


def _tokens_tree(salt: bytes, tokens: Sequence[int]) -> Tree:
    word(salt, "salt")
    data = tokens_bytes(tokens)
    pieces = (data[start : start + 4 * PIECE] for start in range(0, len(data), 4 * PIECE))
    return Tree(
        [
            leaf_hash(LeafKind.TOKENS, _piece_salt(salt, number) + piece)
            for number, piece in enumerate(pieces)
        ]
    )


def _piece_salt(salt: bytes, piece: int) -> Hash32:
    return sha(salt + u32(piece))


def _ppm(parameter: str, value: float) -> int:
    if isinstance(value, bool) or not math.isfinite(value):
        raise SamplingError(parameter, value)
    return round(value * PPM)
