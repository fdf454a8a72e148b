"""Whether a scheduler takes a job: everything is checked before anything is spent."""

from dataclasses import dataclass

from eth_abi.abi import encode
from eth_typing import ChecksumAddress

from verillm.api import JobSubmission, SignedQuote
from verillm.chain.contract import Call, Chain
from verillm.errors import (
    DeadlinePassedError,
    DepositTooSmall,
    FeeTooLow,
    InputError,
    QuoteExpiredError,
    ReplayError,
    SignatureError,
    TokensOutOfBounds,
    TransactionFailed,
)
from verillm.model import ModelSpec
from verillm.request import Job, Request, check_request, requests_root
from verillm.signing import Domain, digest, struct_hash, verify
from verillm_node.errors import ContractWallet

_IS_VALID = bytes.fromhex("1626ba7e")
"""Selector of ERC-1271's isValidSignature, and what it answers when it is."""
LEAST_SECONDS = 15
"""A job whose deadline is nearer cannot be served and posted in time."""


@dataclass(frozen=True, slots=True)
class ClientStanding:
    """What the chain and our open jobs say of a client; token units, chain time."""

    available: int
    """Deposit that no open job of ours will take."""
    nonce_used: bool
    now: int
    job_window: int


def check_quote(
    signed: SignedQuote,
    job: Job,
    domain: Domain,
    scheduler: ChecksumAddress,
    hot_key: ChecksumAddress,
) -> None:
    """The quote is ours and the job accepts it; raises `SignatureError` or `InputError`."""
    quote = signed.quote
    if quote.scheduler != scheduler:
        raise InputError(f"this quote is of scheduler {quote.scheduler}, not of {scheduler}")
    if struct_hash(quote) != job.quote:
        raise InputError("the job accepts another quote than the one beside it")
    verify(domain, quote, signed.signature, hot_key)


def check_signature(chain: Chain, job: Job, signature: bytes, contract_wallets: bool) -> None:
    """The client signed, as `post` will ask now; raises `SignatureError` or `ContractWallet`.

    `post` asks an account that has code by ERC-1271, even where it has a key too (EIP-7702), and
    such an account can say no after it said yes. A key's signature holds for good.
    """
    domain = chain.deployment.domain
    if chain.request("eth_getCode", job.client, "latest") == "0x":
        return verify(domain, job, signature, job.client)
    if not contract_wallets:
        raise ContractWallet(job.client)
    data = _IS_VALID + encode(["bytes32", "bytes"], [digest(domain, job), signature])
    try:
        answer = chain.simulate(Call("isValidSignature", job.client, data))
    except TransactionFailed as error:
        raise SignatureError(f"contract {job.client} refuses the signature: {error}") from error
    if answer[:4] != _IS_VALID:
        raise SignatureError(f"contract {job.client} did not sign this job")


def check_requests(job: Job, requests: tuple[Request, ...], spec: ModelSpec) -> None:
    """The requests are those that were signed, and within bounds; raises `InputError`."""
    if job.requests != len(requests):
        raise InputError(f"the job names {job.requests} requests, {len(requests)} came with it")
    for request in requests:
        check_request(request, spec.context, spec.vocabulary)
    if requests_root(requests) != job.requests_root:
        raise InputError("the requests are not the ones that the job was signed for")


def check_positions(requests: tuple[Request, ...], spec: ModelSpec) -> None:
    """Whatever requests are drawn, they can have as many positions as a verdict needs.

    A job below that ends inconclusive: nobody is paid for serving it. Raises `TokensOutOfBounds`.
    """
    possible = sorted(
        min(len(request.tokens) + request.max_new_tokens - 2, spec.positions)
        for request in requests
    )
    least = sum(possible[: spec.checked_requests])
    if least < spec.profile.min_positions:
        raise TokensOutOfBounds(
            f"these requests have as few as {least} positions to check, and this model needs "
            f"{spec.profile.min_positions}: send longer prompts or ask for more tokens"
        )


def check_fee(job: Job, requests: tuple[Request, ...], unit_price: int) -> None:
    """The highest fee covers every token that may come; raises `FeeTooLow`."""
    most = sum(len(request.tokens) + request.max_new_tokens for request in requests)
    if job.max_fee < unit_price * most:
        raise FeeTooLow(job.max_fee, unit_price * most)


def check_times(submission: JobSubmission, now: int, job_window: int) -> None:
    """Quote and deadline leave enough time, and not too much; raises what is over."""
    quote, job = submission.quote.quote, submission.job
    if quote.expiry < now + LEAST_SECONDS:
        raise QuoteExpiredError(quote.expiry)
    if job.deadline < now + LEAST_SECONDS:
        raise DeadlinePassedError(job.deadline)
    if job.deadline > now + job_window:
        raise InputError(f"the deadline is more than {job_window} s away")


def check_client(job: Job, standing: ClientStanding) -> None:
    """The client can pay, once; raises `DepositTooSmall` or `ReplayError`."""
    if standing.nonce_used:
        raise ReplayError("a job with this nonce was posted before")
    if standing.available < job.max_fee:
        raise DepositTooSmall(standing.available, job.max_fee)


def check_job(
    submission: JobSubmission,
    spec: ModelSpec,
    domain: Domain,
    scheduler: ChecksumAddress,
    hot_key: ChecksumAddress,
) -> None:
    """All that needs no chain, in the order in which a client can mend it."""
    check_requests(submission.job, submission.requests, spec)
    check_positions(submission.requests, spec)
    check_quote(submission.quote, submission.job, domain, scheduler, hot_key)
    check_fee(submission.job, submission.requests, submission.quote.quote.unit_price)
