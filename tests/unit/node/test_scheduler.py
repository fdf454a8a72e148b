"""What one job, one client or one worker can do to a scheduler: nothing to the others."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from verillm.api import TaskSubmission
from verillm.errors import SignatureError, Timeout
from verillm.types import Hash32, JobId
from verillm_node import inference, settlement
from verillm_node.committee import commitment_from
from verillm_node.errors import ContractWallet
from verillm_node.flow import Text
from verillm_node.jobs import FAILED
from verillm_node.scheduler import Scheduler

from ..verillm.builders import SPEC

JOB = JobId(Hash32(b"j" * 32))


def _submission(nonce: int = 7, client: str = "alice") -> Any:
    quote = SimpleNamespace(quote=SimpleNamespace(model_id=b"m" * 32, expiry=0))
    job = SimpleNamespace(client=client, nonce=nonce, max_fee=10, deadline=0)
    return SimpleNamespace(job=job, quote=quote, requests=())


def _scheduler(group: Any, **context: object) -> Any:
    settings = SimpleNamespace(chain=SimpleNamespace(poll_seconds=0.001), fair_turns=False)
    return Scheduler(SimpleNamespace(settings=settings, **context), b"", group)  # type: ignore[arg-type]


# ── A client ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("nonce", "client", "used"), [(7, "alice", True), (8, "alice", False), (7, "bob", False)]
)
def test_a_nonce_of_an_open_job_is_used(nonce: int, client: str, used: bool) -> None:
    # Two jobs under one nonce: only one could be posted, and the other would be served for nothing.
    chain = SimpleNamespace(
        deposit_of=lambda *_: SimpleNamespace(amount=1000, unlocking=0),
        nonce_used=lambda *_: False,
        now=lambda: 0,
    )
    identity = SimpleNamespace(operator="scheduler")
    terms = SimpleNamespace(job_window=1)
    scheduler = _scheduler(None, chain=chain, identity=identity, terms=terms)
    scheduler._flows[JOB] = SimpleNamespace(submission=_submission(), stages=set())
    assert scheduler._client_standing(_submission(nonce, client)).nonce_used is used


class Reached(Exception):
    """Something came to pass that must not."""


async def _reach(*_: object) -> None:
    raise Reached


async def test_a_client_that_takes_its_signature_back_costs_one_worker_and_no_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check_client(_submission: object) -> None:
        raise SignatureError("not any more")

    party = SimpleNamespace(commitment="something")
    context: Any = SimpleNamespace(
        check_client=check_client, book=SimpleNamespace(parties=lambda _: [party]), transact=_reach
    )
    flow: Any = SimpleNamespace(job_id=JOB, submission=_submission())
    # Hopeless: not the worker's failure, after which the next one would be asked.
    with pytest.raises(inference.Hopeless):
        await inference._rehearse(context, flow, None)  # type: ignore[arg-type]
    monkeypatch.setattr("verillm_node.settlement.give_receipts", _reach)
    with pytest.raises(SignatureError):
        await settlement.post(context, flow)


async def test_a_job_whose_client_no_longer_signs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(*_: object) -> None:
        raise ContractWallet("0x")

    said: list[Any] = []

    async def emit(*events: object, last: bool = False) -> None:
        said.extend(events)

    monkeypatch.setattr(settlement, "post", post)
    closed: list[object] = []
    book = SimpleNamespace(close=lambda *args: closed.append(args))
    scheduler = _scheduler(None, book=book)
    assert await scheduler._post(SimpleNamespace(job_id=JOB, emit=emit, claimed=None))
    assert said[0].error.code == "contract_wallet"
    assert closed == [(JOB, FAILED)]


async def test_two_copies_of_a_job_at_once_are_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verillm_node.scheduler.check_job", lambda *_: None)
    opened: list[object] = []

    async def check_client(_submission: object) -> None:
        await asyncio.sleep(0)

    async def check_funds(_submission: object) -> None:
        assert not opened, "its own first copy holds the nonce"

    async def emit(*_: object) -> None:
        pass

    hot = SimpleNamespace(address="hot")
    scheduler = _scheduler(
        None,
        identity=SimpleNamespace(domain=None, operator="scheduler", hot=hot),
        check_client=check_client,
        offer=lambda _: SimpleNamespace(spec=None),
        book=SimpleNamespace(
            state=lambda _: "open" if opened else None, open=lambda *args: opened.append(args)
        ),
    )
    scheduler.context.settings.max_jobs = 2
    scheduler._check_funds = check_funds
    scheduler._flow = lambda *_: SimpleNamespace(emit=emit)
    scheduler._drive = lambda _: None
    await asyncio.gather(*(scheduler._take(JOB, _submission()) for _ in range(2)))
    assert len(opened) == 1


# ── A job ────────────────────────────────────────────────────────────────────────────────────────
async def test_an_unforeseen_fault_of_one_job_ends_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.TaskGroup() as group:
        scheduler, turns = _scheduler(group), itertools.count()

        async def advance(_flow: object) -> bool:
            if next(turns) == 0:
                raise RuntimeError("never thought of")
            return True

        scheduler._advance = advance
        monkeypatch.setattr("verillm_node.scheduler.LONGEST_BACKOFF", 0.001)
        scheduler._drive(SimpleNamespace(job_id=JOB))
    assert next(turns) == 2 and "step_crashed" in caplog.text


# ── A worker ─────────────────────────────────────────────────────────────────────────────────────
class Dripping:
    """A worker that says something every moment, and never what it is asked for."""

    async def run(self, endpoint: str, submission: TaskSubmission) -> AsyncIterator[list[Any]]:
        while True:
            await asyncio.sleep(0.01)
            yield []


async def _as_inferencer(context: Any, submission: Any) -> None:
    async def emit(*events: object) -> None:
        pass

    flow = SimpleNamespace(submission=_submission(), text=Text([]), emit=emit)
    member = SimpleNamespace(endpoint="http://worker")
    await inference._stream(context, flow, member, submission)  # type: ignore[arg-type]


async def _as_verifier(context: Any, submission: Any) -> None:
    await commitment_from(context, "http://worker", submission)


@pytest.mark.parametrize("ask", [_as_inferencer, _as_verifier])
async def test_a_worker_that_keeps_talking_is_left_at_its_deadline(
    ask: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is not dead by any silence, so without this the job would wait for it for ever.
    monkeypatch.setattr("time.time", lambda: 1000.0)
    context = SimpleNamespace(link=Dripping(), offer=lambda _: SimpleNamespace(spec=SPEC))
    submission = SimpleNamespace(task=SimpleNamespace(deadline=1000))
    with pytest.raises(Timeout):
        await asyncio.wait_for(ask(context, submission), 5)
