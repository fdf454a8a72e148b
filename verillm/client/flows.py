"""The operations of a client, as flows."""

import hashlib
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eth_account.signers.local import LocalAccount

from verillm import api
from verillm.chain.contract import Chain, DepositState, Mined
from verillm.chain.events import JobHistory, job_history
from verillm.client.steps import Flow, ask, fetch
from verillm.client.terms import (
    Draft,
    Prompt,
    Scheduler,
    Terms,
    check_quote,
    max_fee_of,
    request_of,
)
from verillm.client.tokenizers import cache_folder, read_cached, write_cached
from verillm.errors import ConfigError, DepositTooSmall, InputError, ModelMismatch, WrongChain
from verillm.model import ModelSpec, model_id as id_of
from verillm.prompt import PromptFormat
from verillm.request import MAX_REQUESTS, Job, Request, check_request, requests_root
from verillm.signing import job_id as job_id_of, sign, struct_hash
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId


class Flows:
    """Everything that a client does, for either driver."""

    def __init__(
        self,
        chain: Chain,
        account: LocalAccount,
        scheduler: str | None,
        cache: Path | None,
        proves: bool = True,
    ) -> None:
        self.chain, self.account, self.default = chain, account, scheduler
        self.proves = proves
        self._cache = cache or cache_folder()
        self._formats: dict[ModelId, PromptFormat] = {}

    # Money
    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Flow[Mined]:
        """Put tokens at a scheduler's disposal; approves the contract first, if it must."""
        if amount <= 0:
            raise InputError("the amount is not positive")
        owner = self.account.address
        held = yield from ask(lambda: self.chain.token_balance(owner))
        if held < amount:
            raise DepositTooSmall(held, amount)
        allowed = yield from ask(lambda: self.chain.allowance(owner))
        if allowed < amount:
            yield from self._send(self.chain.calls.approve(amount))
        mined = yield from self._send(self.chain.calls.deposit(scheduler, amount))
        return mined

    def unlock(self, scheduler: ChecksumAddress, amount: int | None) -> Flow[DepositState]:
        """Ask for a deposit back, all of it by default."""
        state = yield from self.deposit_state(scheduler)
        wanted = state.amount if amount is None else amount
        if not 0 < wanted <= state.amount:
            raise DepositTooSmall(state.amount, wanted)
        yield from self._send(self.chain.calls.request_unlock(scheduler, wanted))
        after = yield from self.deposit_state(scheduler)
        return after

    def withdraw(self, scheduler: ChecksumAddress) -> Flow[Mined]:
        """Take an unlocked deposit."""
        mined = yield from self._send(self.chain.calls.withdraw_deposit(scheduler))
        return mined

    def deposit_state(self, scheduler: ChecksumAddress) -> Flow[DepositState]:
        """The account's deposit at a scheduler."""
        return (yield from ask(lambda: self.chain.deposit_of(self.account.address, scheduler)))

    def token_balance(self) -> Flow[int]:
        """Tokens that the account holds itself."""
        return (yield from ask(lambda: self.chain.token_balance(self.account.address)))

    def _send(self, call: Any) -> Flow[Mined]:
        return (yield from ask(lambda: self.chain.send(call)))

    # Scheduler and model
    def scheduler(self, url: str | None) -> Flow[Scheduler]:
        """Who listens at `url`; raises WrongChain or ConfigError if it serves another contract."""
        url = (url or self.default or "").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ConfigError("no scheduler: give its http(s) address")
        answer = yield from fetch("GET", url + api.INFO)
        info = api.Info.from_json(api.loads(answer))
        deployment = self.chain.deployment
        if info.chain_id != deployment.chain_id:
            raise WrongChain(deployment.chain_id, info.chain_id)
        if info.contract != deployment.contract:
            raise ConfigError(f"the scheduler serves the contract {info.contract}")
        # Who signs for it is the chain's word, not its own.
        account = yield from ask(lambda: self.chain.account_of(info.operator))
        answer = yield from fetch("GET", url + api.MODELS)
        models = api.Models.from_json(api.loads(answer)).models
        return Scheduler(url, info.operator, account.hot_key, models)

    def model(self, offer: api.ModelOffer) -> Flow[ModelSpec]:
        """The offered model's spec as the chain has it; raises UnknownModel, ModelMismatch."""
        if id_of(offer.spec) != offer.model_id:
            raise ModelMismatch(f"{offer.spec.name} is offered under another model's id")
        return (yield from ask(lambda: self.chain.model(offer.model_id)))

    def format(self, url: str, model: ModelId, spec: ModelSpec) -> Flow[PromptFormat]:
        """Tokenizer and template, from the cache or the scheduler, checked by their hashes."""
        if model not in self._formats:
            tokenizer = yield from self._file(spec.tokenizer_hash, url + api.tokenizer_path(model))
            template = yield from self._file(spec.template_hash, url + api.template_path(model))
            self._formats[model] = PromptFormat.of(spec, tokenizer, template)
        return self._formats[model]

    def _file(self, digest: Hash32, url: str) -> Flow[bytes]:
        path = self._cache / digest.hex()
        found = yield from ask(lambda: read_cached(path, digest))
        if found is None:
            found = yield from fetch("GET", url)
            if hashlib.sha256(found).digest() != digest:
                raise ModelMismatch(f"{url} does not serve what the model's id names")
            content = found
            yield from ask(lambda: write_cached(path, content))
        return found

    # A job
    def submit(self, prompts: Sequence[Prompt], terms: Terms) -> Flow[Draft]:
        """Everything up to the signature; raises whatever is wrong before money can move."""
        if not 1 <= len(prompts) <= MAX_REQUESTS:
            raise InputError(f"a job has 1 to {MAX_REQUESTS} requests, not {len(prompts)}")
        for prompt in prompts:
            prompt.check()
        scheduler = yield from self.scheduler(terms.scheduler)
        offer = scheduler.offer(terms.model)
        spec = yield from self.model(offer)
        format_ = yield from self.format(scheduler.url, offer.model_id, spec)
        requests = tuple(request_of(prompt, format_) for prompt in prompts)
        for request in requests:
            check_request(request, spec.context, spec.vocabulary)
        signed = yield from self._quote(scheduler, offer.model_id, terms)
        max_fee = yield from self._fee(scheduler, signed.quote.unit_price, requests, terms)
        deadline = yield from self._deadline(terms)
        job = Job(
            client=self.account.address,
            quote=struct_hash(signed.quote),
            requests_root=requests_root(requests),
            requests=len(requests),
            max_fee=max_fee,
            deadline=deadline,
            nonce=secrets.randbits(256),
        )
        domain = self.chain.deployment.domain
        submission = api.JobSubmission(signed, job, sign(domain, job, self.account), requests)
        return Draft(scheduler, submission, job_id_of(domain, job), spec, format_)

    def _quote(self, scheduler: Scheduler, model: ModelId, terms: Terms) -> Flow[api.SignedQuote]:
        body = api.dumps(api.QuoteRequest(model).to_json()).encode()
        answer = yield from fetch("POST", scheduler.url + api.QUOTES, body)
        signed = api.SignedQuote.from_json(api.loads(answer))
        check_quote(signed, scheduler, model, terms, self.chain.deployment.domain)
        return signed

    def _fee(
        self, scheduler: Scheduler, unit_price: int, requests: Sequence[Request], terms: Terms
    ) -> Flow[int]:
        max_fee = max_fee_of(terms, unit_price, requests)
        deposit = yield from self.deposit_state(scheduler.address)
        if deposit.amount < max_fee:
            raise DepositTooSmall(deposit.amount, max_fee)
        return max_fee

    def _deadline(self, terms: Terms) -> Flow[int]:
        config = yield from ask(self.chain.config)
        now = yield from ask(self.chain.now)
        # An idle chain's newest block may be old, and its next one will be of now.
        now = max(now, int(time.time()))
        window = config.job_window * 3 // 4 if terms.deadline_in is None else terms.deadline_in
        if not 0 < window <= config.job_window:
            raise InputError(f"deadline_in is 1 to {config.job_window} seconds here")
        return now + window

    def history(self, job_id: JobId) -> Flow[JobHistory]:
        """All that the chain says of a job."""
        return (yield from ask(lambda: job_history(self.chain, job_id)))
