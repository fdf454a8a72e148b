"""The SDK on a real chain: money, what it refuses before signing, broken streams, receipts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from tests.chain.conftest import Net
from tests.chain.scheduler import SECRET, Scripted
from tests.chain.world import PRICE, STAKE, World
from tests.unit.verillm.builders import SPEC
from tests.unit.verillm.test_prompt import FILE, TEMPLATE
from verillm import api
from verillm.chain.beacon import beacon
from verillm.chain.contract import Status
from verillm.chain.deployment import UNIT
from verillm.chain.events import Posted, Sealed, events_of
from verillm.client import AsyncClient, Client, Prompt
from verillm.client.handle import Handle
from verillm.codec import encode_bundle
from verillm.errors import (
    ConfigError,
    DeadlinePassedError,
    DepositTooSmall,
    EvidenceError,
    FeeTooLow,
    InputError,
    MalformedError,
    ModelMismatch,
    NoWorkers,
    PromptTooLong,
    QuoteExpiredError,
    RemoteError,
    SamplingError,
    SignatureError,
    Timeout,
    TokensOutOfBounds,
    TransactionFailed,
    UnknownModel,
    VeriLLMError,
    WorkerFailed,
)
from verillm.evidence import Bundle, CheckedOutput, PartyEvidence
from verillm.hashing import keccak, sha
from verillm.request import Quote, requests_tree
from verillm.signing import sign, struct_hash
from verillm.task import (
    Commitment,
    Inner,
    ItemLeaf,
    inference_task,
    inner_hash,
    items_tree,
    output_hash,
    outputs_root,
    outputs_tree,
    task_id,
)
from verillm.trace import Opening
from verillm.types import Hash32, Outcome, Reason

URL = "http://scheduler.test"
SPEC_HERE = replace(
    SPEC, vocabulary=300, tokenizer_hash=sha(FILE), template_hash=sha(TEMPLATE.encode())
)


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator[World]:
    snapshot = deployed.rpc("evm_snapshot")
    yield World(deployed, SPEC_HERE)
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: World) -> Iterator[World]:
    snapshot = furnished.net.rpc("evm_snapshot")
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)


@pytest.fixture
def far(world: World) -> Scripted:
    return Scripted(world, FILE, TEMPLATE.encode())


@contextmanager
def client_of(far: Scripted, cache: Path, **options: Any) -> Iterator[Client]:
    world = far.world
    settings = {"scheduler": URL, "cache": cache, "patience": 5.0} | options
    arguments = (world.net.provider, world.net.deployment, world.client)
    with Client(*arguments, transport=far.transport, **settings) as client:
        yield client


@pytest.fixture
def client(far: Scripted, tmp_path: Path) -> Iterator[Client]:
    with client_of(far, tmp_path) as found:
        yield found


# ── Money ────────────────────────────────────────────────────────────────────────────────────────
def test_deposit_unlock_and_withdraw(world: World, client: Client) -> None:
    scheduler = world.scheduler.address
    before = client.balance()
    client.deposit(scheduler, UNIT)
    assert client.deposit_of(scheduler).amount == STAKE // 2 + UNIT
    state = client.unlock(scheduler, UNIT)
    assert state.unlocking == UNIT
    with pytest.raises(TransactionFailed, match="NotYetAvailable"):
        client.withdraw(scheduler)
    world.net.pass_time(world.net.config.unlock_delay + 1)
    client.withdraw(scheduler)
    assert client.balance() == before


def test_a_deposit_beyond_the_wallet_is_refused_unsent(world: World, client: Client) -> None:
    nonce = client.chain.nonce(world.client.address)
    with pytest.raises(DepositTooSmall):
        client.deposit(world.scheduler.address, 10 * STAKE)
    with pytest.raises(InputError):
        client.deposit(world.scheduler.address, 0)
    assert client.chain.nonce(world.client.address) == nonce


# ── A job ────────────────────────────────────────────────────────────────────────────────────────
def test_a_prompt_streams_its_text_and_holds_a_receipt(client: Client, far: Scripted) -> None:
    handle = client.submit("hi", max_new_tokens=8, temperature=0.7)
    pieces = list(handle)
    assert "".join(pieces) == handle.text() and handle.outputs == (far.output,)
    assert handle.complete and handle.receipt is not None
    assert handle.job.max_fee == PRICE * (3 + 8)
    check = handle.verify_receipt()
    assert not check.posted and not check.sealed


def test_each_request_of_a_job_streams_once(client: Client, far: Scripted) -> None:
    asked = [Prompt("a", max_new_tokens=4), Prompt(tokens=(5, 6), max_new_tokens=3)]
    handle = client.submit(requests=asked)
    got = list(handle.tokens())
    assert [(t.request, t.index) for t in got] == [(r, i) for r in (0, 1) for i in range(3)]
    assert list(handle.tokens()) == []
    assert handle.verify_receipt(1).receipt.request == 1
    with pytest.raises(InputError, match="several"):
        next(iter(handle))


@pytest.mark.parametrize("step", [1, 7, 50])
def test_a_stream_that_breaks_anywhere_is_resumed_without_loss(
    world: World, far: Scripted, tmp_path: Path, step: int
) -> None:
    with client_of(far, tmp_path) as whole:
        whole.submit("hi", max_new_tokens=8).read()
    size = len(b"".join(api.encode_event(1, e).encode() for e in far.script()))
    for cut in range(0, size, 211 if step == 1 else 97):
        far.cuts = [cut, step, None]
        with client_of(far, tmp_path) as client:
            handle = client.submit("hi", max_new_tokens=8)
            got = [token.id for token in handle.tokens()]
        assert tuple(got) == far.output, cut


def test_a_silent_scheduler_is_given_up_with_a_remedy(far: Scripted, tmp_path: Path) -> None:
    far.cuts = [0] * 1000
    with client_of(far, tmp_path, patience=0.3) as client, pytest.raises(RemoteError) as failed:
        client.submit("hi", max_new_tokens=8)
    assert failed.value.to_dict()["code"] == "scheduler_unreachable"


def test_a_refusal_keeps_the_schedulers_code_and_remedy(client: Client, far: Scripted) -> None:
    far.refusal = NoWorkers("none free")
    with pytest.raises(RemoteError) as failed:
        client.submit("hi", max_new_tokens=8)
    assert failed.value.to_dict() == far.refusal.to_dict()


def test_a_worker_that_takes_over_and_differs_is_told(client: Client, far: Scripted) -> None:
    far.events = [api.TokenEvent(0, 0, 99), api.RestartEvent(1, "worker died")]
    handle = client.submit("hi", max_new_tokens=8)
    with pytest.raises(WorkerFailed):
        list(handle)
    assert [token.id for token in handle.tokens()] == list(far.output[1:])
    assert handle.outputs == (far.output,)
    assert handle.verify_receipt().receipt == handle.receipt


def test_secrets_appear_in_no_log(
    client: Client, caplog: pytest.LogCaptureFixture, far: Scripted
) -> None:
    caplog.set_level("DEBUG")
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    said = caplog.text
    secrets = [handle.requests[0].salt.hex(), far.world.client.key.hex(), handle.text()]
    assert not [secret for secret in secrets if secret in said]


def test_tokenizers_are_fetched_once_and_checked_when_read(far: Scripted, tmp_path: Path) -> None:
    with client_of(far, tmp_path) as client:
        client.submit("hi", max_new_tokens=8)
    with client_of(far, tmp_path) as client:
        client.submit("hi", max_new_tokens=8)
    assert sum(path.endswith("/tokenizer") for path in far.paths) == 1
    (tmp_path / sha(FILE).hex()).write_bytes(b"tampered")
    with client_of(far, tmp_path) as client:
        client.submit("hi", max_new_tokens=8)
    assert sum(path.endswith("/tokenizer") for path in far.paths) == 2


async def test_the_async_client_does_the_same(far: Scripted, tmp_path: Path) -> None:
    world = far.world
    arguments = (world.net.provider, world.net.deployment, world.client)
    far.cuts = [300, 100]
    async with AsyncClient(
        *arguments, transport=far.transport, scheduler=URL, cache=tmp_path
    ) as client:
        handles = await asyncio.gather(*[client.submit("hi", max_new_tokens=8) for _ in range(1)])
        pieces = [piece async for piece in handles[0]]
        assert "".join(pieces) == handles[0].text() and handles[0].outputs == (far.output,)
        assert not (await handles[0].verify_receipt()).posted
        with pytest.raises(Timeout):
            await handles[0].wait("posted", within=0.2, poll=0.05)
        assert await handles[0].outcome() is None
        assert (await client.deposit_of(world.scheduler.address)).amount == STAKE // 2


# ── Refused before anything is signed ────────────────────────────────────────────────────────────
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (SamplingError, {"temperature": NAN}),
        (SamplingError, {"temperature": INF}),
        (SamplingError, {"temperature": -0.1}),
        (SamplingError, {"temperature": 2.1}),
        (SamplingError, {"top_p": 0.0}),
        (SamplingError, {"top_p": NAN}),
        (SamplingError, {"min_p": 1.5}),
        (SamplingError, {"top_k": -1}),
        (InputError, {"max_new_tokens": 0}),
        (InputError, {"max_new_tokens": -1}),
        (InputError, {"max_new_tokens": 1 << 32}),
        (PromptTooLong, {"max_new_tokens": 4096}),
        (PromptTooLong, {"prompt": "x" * 250}),
        (TokensOutOfBounds, {"prompt": None, "tokens": (300,)}),
        (TokensOutOfBounds, {"prompt": None, "tokens": ()}),
        (InputError, {"prompt": None}),
        (InputError, {"tokens": (1,)}),
        (InputError, {"prompt": None, "messages": []}),
        (FeeTooLow, {"max_fee": 1}),
        (FeeTooLow, {"max_unit_price": 1}),
        (DepositTooSmall, {"max_fee": STAKE}),
        (UnknownModel, {"model": "gpt-unknown"}),
        (UnknownModel, {"model": "0x" + "00" * 32}),
        (InputError, {"deadline_in": 10**6}),
        (ConfigError, {"scheduler": "scheduler.test"}),
    ],
)
def test_bad_input_is_refused_before_a_job_exists(
    client: Client, far: Scripted, error: type[VeriLLMError], asked: dict[str, Any]
) -> None:
    with pytest.raises(error) as refused:
        client.submit(**{"prompt": "hi", "max_new_tokens": 8, **asked})
    assert refused.value.remedy and refused.value.code
    assert f"POST {api.JOBS}" not in far.paths


def test_a_job_of_no_or_too_many_requests_is_refused(client: Client) -> None:
    with pytest.raises(InputError, match="1 to 4096"):
        client.submit(requests=[])
    with pytest.raises(InputError, match="1 to 4096"):
        client.submit(requests=[Prompt("a")] * 4097)


def test_a_tokenizer_that_is_not_the_models_is_refused(client: Client, far: Scripted) -> None:
    far.tokenizer += b" "
    with pytest.raises(ModelMismatch):
        client.submit("hi", max_new_tokens=8)


def test_a_quote_by_another_key_is_refused(client: Client, far: Scripted) -> None:
    good = far.quote

    def forged() -> api.SignedQuote:
        return replace(good(), signature=sign(far.world.domain, good().quote, Account.create()))

    far.quote = forged  # type: ignore[method-assign]
    with pytest.raises(SignatureError):
        client.submit("hi", max_new_tokens=8)


def test_a_quote_for_another_model_is_refused(client: Client, far: Scripted) -> None:
    world = far.world

    def other() -> api.SignedQuote:
        commit = Hash32(bytes(32))
        quote = Quote(world.scheduler.address, SPEC_HERE.parent, 1, commit, 2**40 - 1)
        return api.SignedQuote(quote, sign(world.domain, quote, world.scheduler.hot))

    far.quote = other  # type: ignore[method-assign]
    with pytest.raises(MalformedError, match="quote"):
        client.submit("hi", max_new_tokens=8)


def test_an_expired_quote_is_refused(client: Client, far: Scripted) -> None:
    far.expiry_in = -100_000
    with pytest.raises(QuoteExpiredError):
        client.submit("hi", max_new_tokens=8)


def test_a_scheduler_of_another_contract_is_refused(
    far: Scripted, tmp_path: Path, world: World
) -> None:
    other = replace(world.net.deployment, contract=Account.create().address)
    arguments = (world.net.provider, other, world.client)
    client = Client(*arguments, transport=far.transport, scheduler=URL, cache=tmp_path)
    with client, pytest.raises(ConfigError, match="contract"):
        client.submit("hi", max_new_tokens=8)


# ── The chain's word ─────────────────────────────────────────────────────────────────────────────
def post(
    far: Scripted, handle: Handle, outputs: tuple[int, ...], lengths: tuple[int, int] = (3, 3)
) -> Any:
    """What the scheduler would post for a job, with these outputs."""
    world, submission = far.world, far.submission
    assert submission is not None
    task, count = task_id(SECRET, handle.job_id, 0), len(handle.requests)
    prompt, new = lengths
    leaf = ItemLeaf(0, prompt, new, keccak(b"trace"), output_hash(task, outputs))
    inner = Inner(keccak(b"task"), items_tree([leaf]).root, count, prompt, new)
    commitment = Commitment(task, inner_hash(inner))
    worker, root = world.workers[0], outputs_root([output_hash(task, outputs)] * count)
    signature = sign(world.domain, commitment, worker.hot)
    call = world.calls.post(
        submission.job, submission.quote.quote, worker.seat, struct_hash(commitment), root,
        2 * handle.job.max_fee, submission.signature, signature,
    )  # fmt: skip
    mined = world.send(world.scheduler.account, call)
    (posted,) = (each for each in events_of(mined) if isinstance(each, Posted))
    return posted.posting, inner


def test_what_is_posted_is_waited_for_and_bears_the_receipt_out(
    client: Client, far: Scripted
) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    post(far, handle, far.output)
    assert handle.wait("posted", within=5) is Status.POSTED
    assert handle.verify_receipt().posted


def test_other_outputs_than_were_streamed_are_evidence(client: Client, far: Scripted) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    post(far, handle, (1, 2, 3))
    with pytest.raises(EvidenceError, match="other outputs"):
        handle.verify_receipt()


def seal(far: Scripted, handle: Handle, posting: Any, inner: Inner) -> Any:
    """The job as the chain seals it, with whom it draws."""
    world = far.world
    chain = world.chain(world.client)
    owners = chain.draw_of(posting, SECRET, beacon(chain, posting.posted_block)).owners
    members = [next(each for each in world.workers if each.address == owner) for owner in owners]
    inners = [keccak(b"inner %d" % k) for k in range(len(members))]
    signatures = [
        sign(world.domain, Commitment(task_id(SECRET, handle.job_id, k), own), member.hot)
        for k, (own, member) in enumerate(zip(inners, members, strict=True), 1)
    ]
    call = world.calls.seal(posting, SECRET, inner, inners, signatures)
    mined = world.send(world.scheduler.account, call)
    return next(each for each in events_of(mined) if isinstance(each, Sealed)).sealing


def show(far: Scripted, handle: Handle, outputs: tuple[int, ...], *parties: Any) -> None:
    """The bundle that the scheduler serves, with the output that it posted."""
    submission = far.submission
    assert submission is not None
    task = task_id(SECRET, handle.job_id, 0)
    tree, asked = outputs_tree([output_hash(task, outputs)]), requests_tree(submission.requests)
    shown = CheckedOutput(0, submission.requests[0], asked.proof(0), outputs, tree.proof(0))
    quote = submission.quote.quote
    bundle = Bundle(submission.job, quote, submission.signature, (shown,), parties)
    far.bundle = encode_bundle(bundle)


def test_a_scheduler_that_posts_another_output_than_it_streamed_is_convicted_by_its_client(
    client: Client, far: Scripted, world: World
) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    posting, inner = post(far, handle, (1, 2, 3))
    seal(far, handle, posting, inner)
    show(far, handle, (1, 2, 3))
    before = client.chain.account_of(world.scheduler.address).balance
    assert handle.wait("final", within=10) is Status.FINAL
    assert handle.proof is not None
    assert handle.proof.name == "receiptDiffers"
    outcome = handle.outcome()
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == (Outcome.REFUND, Reason.RECEIPT_DIFFERS)
    assert before - client.chain.account_of(world.scheduler.address).balance == posting.bond
    assert handle.prove() == handle.proof


def test_a_scheduler_that_posts_lengths_that_nobody_asked_for_is_convicted_by_its_client(
    client: Client, far: Scripted
) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    posting, inner = post(far, handle, far.output, lengths=(4, 3))
    seal(far, handle, posting, inner)
    leaf = ItemLeaf(
        0, 4, 3, keccak(b"trace"), output_hash(task_id(SECRET, handle.job_id, 0), far.output)
    )
    opening = Opening(inner.task_hash, inner, leaf, (), (), SPEC_HERE.shape)
    show(far, handle, far.output, party_of(far, handle, opening))
    handle.wait("sealed", within=10)
    assert handle.proof is not None
    assert handle.proof.name == "leafDiffers"


def party_of(far: Scripted, handle: Handle, opening: Opening) -> PartyEvidence:
    """An inferencer's evidence that opens nothing but its leaf."""
    world, submission = far.world, far.submission
    assert submission is not None
    task = inference_task(
        SECRET, handle.job_id, submission.requests, world.workers[0].address, world.model,
        handle.job.deadline, 1, 1,
    )  # fmt: skip
    return PartyEvidence(0, task, bytes(65), bytes(65), {0: opening})


@pytest.mark.parametrize("shown", [True, False])
def test_power_an_honest_scheduler_is_convicted_of_nothing(
    client: Client, far: Scripted, shown: bool
) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    posting, inner = post(far, handle, far.output)
    seal(far, handle, posting, inner)
    if shown:
        show(far, handle, far.output)
    handle.wait("sealed", within=10)
    assert handle.proof is None and handle.prove() is None
    assert f"GET {api.job_path(handle.job_id, 'bundle')}" not in far.paths


def test_power_a_client_that_is_told_not_to_proves_nothing(far: Scripted, tmp_path: Path) -> None:
    with client_of(far, tmp_path, proves=False) as client:
        handle = client.submit("hi", max_new_tokens=8)
        handle.read()
        posting, inner = post(far, handle, (1, 2, 3))
        seal(far, handle, posting, inner)
        show(far, handle, (1, 2, 3))
        assert handle.wait("sealed", within=10) is Status.SEALED
        assert handle.proof is None


def test_a_bundle_that_nobody_shows_is_asked_for_again(client: Client, far: Scripted) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    posting, inner = post(far, handle, (1, 2, 3))
    seal(far, handle, posting, inner)
    assert handle.wait("sealed", within=10) is Status.SEALED
    assert handle.proof is None
    show(far, handle, (1, 2, 3))
    assert handle.prove() is not None


def test_coroutines_prove_too(far: Scripted, tmp_path: Path) -> None:
    async def bought() -> str:
        world = far.world
        arguments = (world.net.provider, world.net.deployment, world.client)
        options: dict[str, Any] = {"scheduler": URL, "cache": tmp_path}
        async with AsyncClient(*arguments, transport=far.transport, **options) as client:
            handle = await client.submit("hi", max_new_tokens=8)
            await handle.read()
            posting, inner = post(far, handle, (1, 2, 3))
            seal(far, handle, posting, inner)
            show(far, handle, (1, 2, 3))
            found = await handle.prove()
            assert found == handle.proof and found is not None
            return found.name

    assert asyncio.run(bought()) == "receiptDiffers"


def test_a_receipt_by_another_key_is_refused(client: Client, far: Scripted) -> None:
    good = far.receipt
    far.receipt = lambda item: replace(  # type: ignore[method-assign]
        good(item), signature=sign(far.world.domain, good(item).receipt, Account.create())
    )
    handle = client.submit("hi", max_new_tokens=8)
    handle.read()
    with pytest.raises(SignatureError):
        handle.verify_receipt()


def test_a_job_that_can_no_longer_be_posted_is_named(client: Client, far: Scripted) -> None:
    handle = client.submit("hi", max_new_tokens=8, deadline_in=30)
    far.world.net.pass_time(handle.job.deadline + 1 - client.chain.now())
    with pytest.raises(DeadlinePassedError):
        handle.wait("posted", within=5)


def test_stages_have_names(client: Client) -> None:
    handle = client.submit("hi", max_new_tokens=8)
    with pytest.raises(InputError, match="stage"):
        handle.wait("done")
