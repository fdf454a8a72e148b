"""The SDK for blocking callers."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from verillm.chain.contract import DepositState, Mined, Status
from verillm.chain.events import JobHistory
from verillm.client.face import TIMEOUT, Face
from verillm.client.handle import Handle
from verillm.client.proofs import SentProof
from verillm.client.receipts import ReceiptCheck, Settlement
from verillm.client.steps import Ask, Close, Done, Flow, Open, Read, Sleep, Source, Step, resume
from verillm.client.terms import Prompt, Scheduler, Terms, prompts_of
from verillm.errors import InputError
from verillm.prompt import Message
from verillm.stream import Token
from verillm.types import ChecksumAddress, JobId, ModelId

T = TypeVar("T")


class JobHandle(Handle):
    """A submitted job, for blocking callers. Iterating gives text; a broken stream is resumed.

    Errors while streaming: RemoteError (the job failed, or the scheduler is gone), WorkerFailed
    (another worker took over and disagrees with what was delivered: iterate again for the rest).
    """

    def tokens(self) -> Iterator[Token]:
        """New tokens of all requests as they come, each once; ends when all outputs are whole."""
        while self._wants_tokens:
            yield from self._run(self._pull())
        self.close()

    def __iter__(self) -> Iterator[str]:
        if len(self.requests) != 1:
            raise InputError("a job of several requests: use tokens()")
        for token in self.tokens():
            if token.text:
                yield token.text
        if rest := self._rest(0):
            yield rest

    def read(self) -> str:
        """Wait for all outputs; returns the first one's text."""
        for _ in self.tokens():
            pass
        return self.text()

    def wait(self, stage: str = "final", *, within: float = 600.0, poll: float = 0.2) -> Status:
        """Wait until the chain has the job `posted`, `sealed`, `claimed` or `final`.

        Raises Timeout, and DeadlinePassedError for a job that can no longer be posted: it costs
        nothing.
        """
        return Status(self._run(self._wait(stage, within, poll)))

    def outcome(self) -> Settlement | None:
        """How the job ended on chain, None while it has not."""
        found: Settlement | None = self._run(self._settlement())
        return found

    def verify_receipt(self, request: int = 0) -> ReceiptCheck:
        """Check a receipt against the tokens seen and, as far as it goes, the chain.

        Raises SignatureError, EvidenceError.
        """
        checked: ReceiptCheck = self._run(self._verify(request))
        return checked

    def prove(self) -> SentProof | None:
        """Hold the sealed job to what was streamed; sends the proof that convicts the scheduler.

        `wait` does it by itself, unless the client was made with `proves=False`. None where nothing
        differs, or where nobody shows the posted output. Raises ChainError.
        """
        found: SentProof | None = self._run(self._prove())
        return found

    def close(self) -> None:
        """Leave the stream; the job goes on, and `tokens` would resume it."""
        self._run(self.disconnect())


class Client(Face):
    """The SDK for blocking callers.

    Parameters
    ----------
    rpc : address of an Ethereum RPC server, or a provider of web3's.
    deployment : the deployment, or the path of its addresses file.
    account : who pays and signs.
    scheduler : address of the scheduler's API, unless each `submit` names one.
    cache : folder for tokenizers; they are checked whenever they are read.
    patience : seconds without any event after which a stream is given up.
    proves : whether `wait` sends the proof where a job was posted otherwise than streamed; it costs
        gas, and earns at most the job's fee.
    """

    def __init__(self, *args: Any, transport: httpx.BaseTransport | None = None, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._http = httpx.Client(timeout=TIMEOUT, transport=transport, trust_env=False)

    def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        error: BaseException | None = None
        while not isinstance(step := resume(flow, answer, error), Done):
            answer = error = None
            try:
                answer = self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised
        return step.value

    def _do(self, step: Step) -> Any:
        match step:
            case Ask(question):
                return question()
            case Sleep(seconds):
                return time.sleep(seconds)
            case Open(method, url, body, headers):
                request = self._http.build_request(method, url, content=body, headers=headers)
                response = self._http.send(request, stream=True)
                return Source(response, response.iter_bytes())
            case Read(source):
                return next(source.pieces, None)
            case Close(source):
                return source.response.close()

    def submit(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        requests: Sequence[Prompt] | None = None,
        model: ModelId | str | None = None,
        scheduler: str | None = None,
        max_fee: int | None = None,
        max_unit_price: int | None = None,
        deadline_in: int | None = None,
        **options: Any,
    ) -> JobHandle:
        """Ask for one completion, or with `requests` for many in one job; returns once accepted.

        Parameters
        ----------
        model : id (0x…) or name; may be left out if the scheduler has only one. An id is the
            pin: weights, tokenizer and thresholds are what it hashes.
        max_fee : most that the job may cost; by default what the quote makes of all its tokens.
        options : fields of Prompt (max_new_tokens, temperature, top_p, top_k, min_p).

        Raises
        ------
        InputError and below it SamplingError, PromptTooLong, TokensOutOfBounds, FeeTooLow,
        DepositTooSmall, QuoteExpiredError; UnknownModel, ModelMismatch; SignatureError;
        ChainError; RemoteError. All before anything is signed, but for the scheduler's refusal.
        """
        prompts = prompts_of(prompt, messages, tokens, requests, options)
        terms = Terms(scheduler, model, max_fee, max_unit_price, deadline_in)
        draft = self._run(self._flows.submit(prompts, terms))
        handle = JobHandle(self._flows, draft, self._patience, self._run)
        self._run(handle._start())
        return handle

    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Mined:
        """Put tokens at a scheduler's disposal for jobs that this account signs."""
        return self._run(self._flows.deposit(scheduler, amount))

    def unlock(self, scheduler: ChecksumAddress, amount: int | None = None) -> DepositState:
        """Ask for a deposit back, all of it by default; `available_at` says from when."""
        return self._run(self._flows.unlock(scheduler, amount))

    def withdraw(self, scheduler: ChecksumAddress) -> Mined:
        """Take what was unlocked; raises TransactionFailed(NotYetAvailable) before its time."""
        return self._run(self._flows.withdraw(scheduler))

    def deposit_of(self, scheduler: ChecksumAddress) -> DepositState:
        """This account's deposit at a scheduler."""
        return self._run(self._flows.deposit_state(scheduler))

    def balance(self) -> int:
        """Tokens that the account holds itself."""
        return self._run(self._flows.token_balance())

    def schedulers_offer(self, scheduler: str | None = None) -> Scheduler:
        """Who a scheduler is and what it sells."""
        return self._run(self._flows.scheduler(scheduler))

    def history(self, job_id: JobId) -> JobHistory:
        """All that the chain says of a job."""
        return self._run(self._flows.history(job_id))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        self.chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
