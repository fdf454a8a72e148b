"""The SDK for coroutines: as `blocking`, with `await` and `async for`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
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


class AsyncJobHandle(Handle):
    """A submitted job, for coroutines: JobHandle with `await` and `async for`."""

    async def tokens(self) -> AsyncIterator[Token]:
        """New tokens of all requests as they come, each once; ends when all outputs are whole."""
        while self._wants_tokens:
            for token in await self._run(self._pull()):
                yield token
        await self.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        if len(self.requests) != 1:
            raise InputError("a job of several requests: use tokens()")
        async for token in self.tokens():
            if token.text:
                yield token.text
        if rest := self._rest(0):
            yield rest

    async def read(self) -> str:
        """Wait for all outputs; returns the first one's text."""
        async for _ in self.tokens():
            pass
        return self.text()

    async def wait(
        self, stage: str = "final", *, within: float = 600.0, poll: float = 0.2
    ) -> Status:
        """As JobHandle.wait."""
        return Status(await self._run(self._wait(stage, within, poll)))

    async def outcome(self) -> Settlement | None:
        """How the job ended on chain, None while it has not."""
        found: Settlement | None = await self._run(self._settlement())
        return found

    async def verify_receipt(self, request: int = 0) -> ReceiptCheck:
        """As JobHandle.verify_receipt."""
        checked: ReceiptCheck = await self._run(self._verify(request))
        return checked

    async def prove(self) -> SentProof | None:
        """As JobHandle.prove."""
        found: SentProof | None = await self._run(self._prove())
        return found

    async def close(self) -> None:
        """Leave the stream; the job goes on, and `tokens` would resume it."""
        await self._run(self.disconnect())


class AsyncClient(Face):
    """The SDK for coroutines: as Client; questions to the chain run in threads."""

    def __init__(
        self, *args: Any, transport: httpx.AsyncBaseTransport | None = None, **kw: Any
    ) -> None:
        super().__init__(*args, **kw)
        self._http = httpx.AsyncClient(timeout=TIMEOUT, transport=transport, trust_env=False)

    async def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        error: BaseException | None = None
        while not isinstance(step := resume(flow, answer, error), Done):
            answer = error = None
            try:
                answer = await self._do(step)
            except BaseException as raised:  # noqa: BLE001 - the flow decides
                error = raised
        return step.value

    async def _do(self, step: Step) -> Any:
        match step:
            case Ask(question):
                return await asyncio.to_thread(question)
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case Open(method, url, body, headers):
                request = self._http.build_request(method, url, content=body, headers=headers)
                response = await self._http.send(request, stream=True)
                return Source(response, response.aiter_bytes())
            case Read(source):
                return await anext(source.pieces, None)
            case Close(source):
                return await source.response.aclose()

    async def submit(
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
    ) -> AsyncJobHandle:
        """As Client.submit."""
        prompts = prompts_of(prompt, messages, tokens, requests, options)
        terms = Terms(scheduler, model, max_fee, max_unit_price, deadline_in)
        draft = await self._run(self._flows.submit(prompts, terms))
        handle = AsyncJobHandle(self._flows, draft, self._patience, self._run)
        await self._run(handle._start())
        return handle

    async def deposit(self, scheduler: ChecksumAddress, amount: int) -> Mined:
        """As Client.deposit."""
        return await self._run(self._flows.deposit(scheduler, amount))

    async def unlock(self, scheduler: ChecksumAddress, amount: int | None = None) -> DepositState:
        """As Client.unlock."""
        return await self._run(self._flows.unlock(scheduler, amount))

    async def withdraw(self, scheduler: ChecksumAddress) -> Mined:
        """As Client.withdraw."""
        return await self._run(self._flows.withdraw(scheduler))

    async def deposit_of(self, scheduler: ChecksumAddress) -> DepositState:
        """As Client.deposit_of."""
        return await self._run(self._flows.deposit_state(scheduler))

    async def balance(self) -> int:
        """As Client.balance."""
        return await self._run(self._flows.token_balance())

    async def schedulers_offer(self, scheduler: str | None = None) -> Scheduler:
        """As Client.schedulers_offer."""
        return await self._run(self._flows.scheduler(scheduler))

    async def history(self, job_id: JobId) -> JobHistory:
        """As Client.history."""
        return await self._run(self._flows.history(job_id))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        self.chain.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
