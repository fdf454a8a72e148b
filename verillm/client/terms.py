"""What a job asks and may cost, and with whom: all that is checked before money can move."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from verillm import api
from verillm.errors import FeeTooLow, InputError, MalformedError, QuoteExpiredError, UnknownModel
from verillm.model import ModelSpec
from verillm.prompt import Message, PromptFormat
from verillm.request import Request, Sampling
from verillm.signing import Domain, verify
from verillm.types import ChecksumAddress, JobId, ModelId

QUOTE_MARGIN: Final = 5
"""Seconds that a quote must still be good for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a job: exactly one of prompt, messages and tokens; the rest by their names."""

    prompt: str | None = None
    messages: Sequence[Message] | None = None
    tokens: Sequence[int] | None = None
    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def sampling(self) -> Sampling:
        """In ppm; raises SamplingError."""
        return Sampling.of(self.temperature, self.top_k, self.top_p, self.min_p)

    def encode(self, format_: PromptFormat | None) -> tuple[int, ...]:
        """Its tokens."""
        if self.tokens is not None:
            return tuple(self.tokens)
        if format_ is None:
            raise InputError("give exactly one of prompt, messages and tokens")
        if self.messages is not None:
            return format_.encode_chat(self.messages)
        return format_.encode(self.prompt or "")

    def check(self) -> None:
        """Everything that can be wrong before any model is known."""
        given = sum(part is not None for part in (self.prompt, self.messages, self.tokens))
        if given != 1:
            raise InputError("give exactly one of prompt, messages and tokens")
        self.sampling  # noqa: B018 - raises
        if type(self.max_new_tokens) is not int or not 0 < self.max_new_tokens < 1 << 32:
            raise InputError(f"max_new_tokens {self.max_new_tokens!r} is not a count of tokens")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler that showed its models: where it listens, who it is, which key signs for it."""

    url: str
    address: ChecksumAddress
    hot_key: ChecksumAddress
    offers: tuple[api.ModelOffer, ...]

    def offer(self, model: ModelId | str | None) -> api.ModelOffer:
        """The offer of a model by id or name, or of the only one; raises UnknownModel."""
        wanted = _model_id(model) if isinstance(model, str) else model
        found = [
            offer
            for offer in self.offers
            if model is None or offer.model_id == wanted or offer.spec.name == model
        ]
        if len(found) != 1:
            names = ", ".join(offer.spec.name for offer in self.offers) or "none"
            asked = api.to_hex(model) if isinstance(model, bytes) else model
            raise UnknownModel(f"{asked or '(none named)'}; this scheduler has: {names}")
        return found[0]


def _model_id(text: str) -> ModelId | None:
    is_id = len(text) == 66 and text.startswith("0x")
    return ModelId(api.parse_hash(text, "model")) if is_id else None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a submission may cost, and with whom."""

    scheduler: str | None
    model: ModelId | str | None
    max_fee: int | None
    max_unit_price: int | None
    deadline_in: int | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A signed job that is not sent yet."""

    scheduler: Scheduler
    submission: api.JobSubmission
    job_id: JobId
    spec: ModelSpec
    format: PromptFormat


def prompts_of(
    prompt: str | None,
    messages: Sequence[Message] | None,
    tokens: Sequence[int] | None,
    requests: Sequence[Prompt] | None,
    options: Mapping[str, Any],
) -> tuple[Prompt, ...]:
    """The prompts of `submit`'s arguments: one, or those of `requests`."""
    if requests is None:
        return (Prompt(prompt, messages, tokens, **options),)
    if not (prompt is None and messages is None and tokens is None and not options):
        raise InputError("with requests, give prompts and sampling in each Prompt")
    return tuple(requests)


def request_of(prompt: Prompt, format_: PromptFormat) -> Request:
    """What is asked, under a fresh salt."""
    tokens = prompt.encode(format_)
    salt = secrets.token_bytes(32)
    return Request(salt, tokens, prompt.max_new_tokens, prompt.sampling)


def check_quote(
    signed: api.SignedQuote, scheduler: Scheduler, model: ModelId, terms: Terms, domain: Domain
) -> None:
    """A quote of this scheduler for this model, still good and not too dear; raises otherwise."""
    quote = signed.quote
    verify(domain, quote, signed.signature, scheduler.hot_key)
    if quote.scheduler != scheduler.address or quote.model_id != model:
        raise MalformedError("quote", "for another scheduler or model than was asked")
    if quote.expiry < time.time() + QUOTE_MARGIN:
        raise QuoteExpiredError(quote.expiry)
    if terms.max_unit_price is not None and quote.unit_price > terms.max_unit_price:
        raise FeeTooLow(terms.max_unit_price, quote.unit_price)


def max_fee_of(terms: Terms, unit_price: int, requests: Sequence[Request]) -> int:
    """Most that the job may cost; raises FeeTooLow if the terms allow less than it could."""
    tokens = sum(len(request.tokens) + request.max_new_tokens for request in requests)
    required = unit_price * tokens
    max_fee = required if terms.max_fee is None else terms.max_fee
    if max_fee < required or not 0 < max_fee < 1 << 96:
        raise FeeTooLow(max_fee, required)
    return max_fee
