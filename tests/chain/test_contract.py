"""Every entry point and read of the deployed contract, with our own hashes, signatures, draws."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from eth_account import Account
from eth_keys.constants import SECPK1_N
from web3 import HTTPProvider

from tests.chain.conftest import Net
from tests.chain.world import PRICE, STAKE, Running, World
from tests.unit.verillm.builders import SPEC
from verillm.chain import artifacts
from verillm.chain.anvil import dev_account
from verillm.chain.beacon import beacon
from verillm.chain.contract import Chain, Status
from verillm.chain.deploy import deploy
from verillm.chain.deployment import UNIT, Config, Deployment
from verillm.chain.events import Finalized, Paid, SeatJoined, events_of, job_history, stream
from verillm.draw import checked_requests, draw, draw_seats, position_seed, positions
from verillm.errors import (
    BeaconLost,
    ChainUnreachable,
    ConfigError,
    DeadlinePassedError,
    DepositTooSmall,
    QuoteExpiredError,
    ReplayError,
    SignatureError,
    TransactionFailed,
    UnknownModel,
    VeriLLMError,
    WrongChain,
)
from verillm.hashing import keccak
from verillm.model import model_id
from verillm.records import record_hash
from verillm.signing import job_id, sign
from verillm.types import Hash32, ModelId, Outcome, Reason


@pytest.fixture
def chain(world: World) -> Chain:
    return world.chain(world.client)


# ── Deployment ───────────────────────────────────────────────────────────────────────────────────
def test_a_deployment_keeps_its_configuration(net: Net) -> None:
    found = net.chain(dev_account(0)).config()
    at = net.deployment
    expected = replace(net.config, token=at.token, adjudicator=at.adjudicator, prover=at.prover)
    assert found == replace(expected, recourse=found.recourse)


@pytest.mark.parametrize("name", ["contract", "adjudicator", "prover", "recourse"])
def test_contracts_stay_under_the_code_size_limit(net: Net, name: str) -> None:
    config = net.chain(dev_account(0)).config()
    address = config.recourse if name == "recourse" else getattr(net.deployment, name)
    code = str(net.rpc("eth_getCode", address, "latest"))
    assert 0 < len(code) // 2 - 1 <= 24_576


def test_an_unsafe_configuration_is_refused_by_name(net: Net) -> None:
    unsafe = replace(Config.devnet(), inferencer_bps=0)
    with pytest.raises(TransactionFailed) as refused:
        deploy(net.provider, dev_account(0), unsafe)
    assert refused.value.error == "ConfigUnsafe"


def test_the_token_may_be_one_that_exists(net: Net) -> None:
    config = replace(Config.devnet(), token=net.deployment.token)
    assert deploy(net.provider, dev_account(0), config).token == net.deployment.token


# ── Reads ────────────────────────────────────────────────────────────────────────────────────────
def test_a_job_has_the_id_that_the_contract_gives_it(world: World, chain: Chain) -> None:
    run = world.draft(nonce=2**256 - 1, max_fee=2**95 - 1, requests=64)
    assert chain.job_id_of(run.job) == job_id(world.domain, run.job)


def test_a_registered_model_reads_back_from_its_event(world: World, chain: Chain) -> None:
    assert chain.model(world.model) == SPEC and model_id(SPEC) == world.model


def test_an_unregistered_model_is_unknown(chain: Chain) -> None:
    with pytest.raises(UnknownModel):
        chain.model(ModelId(Hash32(bytes(32))))


def test_operators_seats_and_deposits_read_back(world: World, chain: Chain) -> None:
    worker = world.workers[1]
    account, seat = chain.account_of(worker.address), chain.seat_of(world.model, 1)
    assert (account.balance, account.staked) == (STAKE, SPEC.seat_stake)
    assert account.hot_key == worker.hot.address
    assert chain.operator_of(worker.hot.address) == worker.address
    assert (seat.owner, seat.price, seat.left_at) == (worker.address, PRICE, 0)
    assert chain.slots_of(world.model) == (5, 5)
    assert chain.deposit_of(world.client.address, world.scheduler.address).amount == STAKE // 2
    joined = [each.event for each in stream(chain, (SeatJoined,))]
    assert [event.owner for event in joined] == [each.address for each in world.workers]


# ── A job's life ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("requests", [1, 7])
def test_a_happy_job_ends_accepted_and_pays_everyone(
    world: World, chain: Chain, requests: int
) -> None:
    before = chain.account_of(world.workers[0].address).balance
    run = world.finalize(world.claim(world.seal(world.post(requests))))
    identity = world.id_of(run)

    assert chain.job_state(identity).status is Status.FINAL
    history = job_history(chain, identity)
    assert history.posted and history.sealed and history.claimed and history.finalized
    assert history.finalized.event == Finalized(identity, Outcome.ACCEPT, Reason.NONE)
    assert [at.transaction for at in (history.posted, history.sealed, history.claimed)] == [
        mined.transaction for mined in run.mined[:3]
    ]
    assert history.posted.block_hash == chain.block(history.posted.block_number).hash
    fee = run.sealing.fee
    assert fee == PRICE * 7 * requests
    paid = chain.account_of(world.workers[0].address).balance - before
    assert paid == fee * world.net.config.inferencer_bps // 10_000
    spent = STAKE // 2 - chain.deposit_of(world.client.address, world.scheduler.address).amount
    assert spent == fee
    assert all(isinstance(each, Finalized | Paid) for each in events_of(run.mined[-1]))


def test_the_record_is_the_hash_that_we_compute_at_each_stage(world: World, chain: Chain) -> None:
    run = world.post()
    identity = world.id_of(run)
    assert chain.job_state(identity).record == record_hash(run.posting)
    world.seal(run)
    assert chain.job_state(identity).record == record_hash(run.posting, run.sealing)
    world.claim(run)
    assert chain.job_state(identity).record == record_hash(run.posting, run.sealing, run.claiming)


@pytest.mark.parametrize("requests", [1, 2, 3, 40])
@pytest.mark.parametrize("inferencer", range(3))
def test_the_draw_is_the_one_that_we_compute(
    world: World, chain: Chain, requests: int, inferencer: int
) -> None:
    run = world.post(requests, inferencer=inferencer)
    hash_ = beacon(chain, run.posting.posted_block)
    seed = draw(run.secret, run.posting.commitment, hash_)
    seats = {slot: chain.seat_of(world.model, slot).owner for slot in range(run.posting.slots)}
    owner = world.workers[inferencer].address
    ours = draw_seats(seed, run.posting.slots, seats.get, owner, SPEC.committee)

    theirs = chain.draw_of(run.posting, run.secret, hash_)

    assert list(zip(theirs.seats, theirs.owners, strict=True)) == ours
    assert theirs.checked == checked_requests(seed, requests, SPEC.checked_requests)
    world.seal(run)
    assert run.sealing.owners == theirs.owners and run.sealing.beacon == hash_


@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (1, 2), (3, 4), (64, 256), (4096, 1024)])
def test_the_challenged_positions_are_those_that_we_compute(
    chain: Chain, prompt: int, new: int
) -> None:
    record, hash_ = keccak(b"record"), keccak(b"beacon")
    seed = position_seed(record, hash_)
    for request in (0, 3):
        ours = positions(seed, request, prompt, new, 8)
        assert chain.positions_of(record, hash_, request, prompt, new, 8) == ours


def test_a_job_that_nobody_seals_is_refunded_by_anyone(world: World, chain: Chain) -> None:
    run = world.post()
    with pytest.raises(TransactionFailed) as early:
        world.send(world.auditor.account, world.calls.refund(run.posting))
    assert early.value.error == "DeadlineNotReached"
    world.net.pass_time(world.net.config.seal_window + 1)
    world.send(world.auditor.account, world.calls.refund(run.posting))
    assert chain.job_state(world.id_of(run)).status is Status.FINAL
    assert chain.deposit_of(world.client.address, world.scheduler.address).amount == STAKE // 2


def test_a_kept_beacon_lets_a_late_seal_through(world: World, chain: Chain) -> None:
    run = world.post()
    block = run.posting.posted_block
    inners, signatures = world.committed(run)
    world.send(world.auditor.account, world.calls.keep(block))
    world.net.rpc("anvil_mine", hex(300), "0x0")
    with pytest.raises(BeaconLost):
        beacon(chain, block)
    call = world.calls.seal(run.posting, run.secret, run.inner, inners, signatures)
    assert world.send(world.scheduler.account, call).ok


def test_a_beacon_that_the_chain_does_not_know_is_named(world: World) -> None:
    with pytest.raises(BeaconLost) as lost:
        world.send(world.auditor.account, world.calls.keep(10**9))
    assert lost.value.block == 10**9


# ── Refusals, each by its own error ──────────────────────────────────────────────────────────────
def malleable(signature: bytes) -> bytes:
    """The other signature of the same key over the same digest."""
    s = SECPK1_N - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([signature[64] ^ 7])


def stranger(world: World, run: Running) -> bytes:
    return sign(world.domain, run.job, Account.create())


@pytest.mark.parametrize("party", ["client", "worker"])
@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(malleable, id="malleable"),
        pytest.param(lambda s: s[:64], id="64 bytes"),
        pytest.param(lambda s: s + b"\0", id="66 bytes"),
        pytest.param(lambda s: b"", id="none"),
        pytest.param(lambda s: s[:64] + b"\0", id="v 0"),
        pytest.param(lambda s: bytes(65), id="zeros"),
        pytest.param(lambda s: s[:20] + bytes([s[20] ^ 1]) + s[21:], id="one bit"),
    ],
)
def test_a_forged_or_malleable_signature_is_refused(
    world: World, party: str, forge: Callable[[bytes], bytes]
) -> None:
    run = world.draft()
    field = f"{party}_signature"
    setattr(run, field, forge(getattr(run, field)))
    with pytest.raises(SignatureError):
        world.send(world.scheduler.account, world.post_call(run))


def test_a_job_cannot_be_posted_twice(world: World) -> None:
    run = world.post()
    with pytest.raises(ReplayError):
        world.send(world.scheduler.account, world.post_call(run))


def test_a_nonce_counts_once_for_all_jobs_of_a_client_with_a_scheduler(
    world: World, chain: Chain
) -> None:
    world.post(nonce=77)
    assert chain.nonce_used(world.client.address, world.scheduler.address, 77)
    assert not chain.nonce_used(world.client.address, world.auditor.address, 77)
    with pytest.raises(ReplayError):
        world.send(world.scheduler.account, world.post_call(world.draft(nonce=77)))


def test_another_deployments_signature_does_not_count(world: World) -> None:
    run = world.draft()
    other = replace(world.domain, contract=world.net.deployment.token)
    run.client_signature = sign(other, run.job, world.client)
    with pytest.raises(SignatureError):
        world.send(world.scheduler.account, world.post_call(run))


@pytest.mark.parametrize(
    ("error", "changes"),
    [(DepositTooSmall, {"max_fee": STAKE}), (DeadlinePassedError, {"deadline": 1})],
    ids=["deposit", "deadline"],
)
def test_a_post_that_cannot_be_honoured_is_refused(
    world: World, error: type[VeriLLMError], changes: dict[str, int]
) -> None:
    run = world.draft(**changes)
    with pytest.raises(error):
        world.send(world.scheduler.account, world.post_call(run))


def test_an_expired_quote_is_refused(world: World) -> None:
    run = world.draft(deadline=world.chain(world.client).now() + 590)
    world.net.pass_time(301)
    with pytest.raises(QuoteExpiredError):
        world.send(world.scheduler.account, world.post_call(run))


def refused(world: World, run: Running, **changes: object) -> TransactionFailed:
    for name, value in changes.items():
        setattr(run, name, value)
    with pytest.raises(TransactionFailed) as failed:
        world.send(world.scheduler.account, world.post_call(run))
    return failed.value


def test_each_wrong_part_of_a_post_has_its_own_error(world: World) -> None:
    draft = world.draft
    assert refused(world, draft(), lock=1).error == "LockTooSmall"
    other = world.draft().quote
    assert refused(world, draft(), quote=other).error == "QuoteMismatch"
    far = world.chain(world.client).now() + 10 * world.net.config.job_window
    assert refused(world, draft(deadline=far)).error == "DeadlineTooFar"
    with pytest.raises(TransactionFailed) as failed:
        world.send(world.auditor.account, world.post_call(draft()))
    assert failed.value.error == "NotOperator"
    assert failed.value.arguments == (world.auditor.address,)


def test_each_wrong_part_of_a_seal_has_its_own_error(world: World) -> None:
    run = world.post()
    inners, signatures = world.committed(run)

    def attempt(**changes: object) -> VeriLLMError:
        parts = {
            "posting": run.posting,
            "secret": run.secret,
            "inner": run.inner,
            "inners": inners,
            "signatures": signatures,
        } | changes
        with pytest.raises(VeriLLMError) as failed:
            world.send(world.scheduler.account, world.calls.seal(**parts))
        return failed.value

    def name(error: VeriLLMError) -> str:
        assert isinstance(error, TransactionFailed)
        return error.error

    assert name(attempt(secret=keccak(b"another"))) == "DrawCommitMismatch"
    assert name(attempt(inner=replace(run.inner, new_tokens=5))) == "CommitmentMismatch"
    assert name(attempt(posting=replace(run.posting, lock=1))) == "RecordMismatch"
    assert name(attempt(inners=inners[:2], signatures=signatures[:2])) == "CommitteeSizeWrong"
    assert isinstance(attempt(inners=inners[::-1]), SignatureError)
    assert isinstance(attempt(signatures=[malleable(s) for s in signatures]), SignatureError)
    assert world.seal(run).sealing.fee == PRICE * 7


def test_a_token_reject_needs_a_majority_of_the_committee(world: World) -> None:
    run = world.seal(world.post())
    signed = world.attestations(run, Outcome.REFUND, Reason.MARGIN_MEAN)
    with pytest.raises(TransactionFailed) as failed:
        world.claim(run, Outcome.REFUND, Reason.MARGIN_MEAN, [signed[0], b"", b""])
    assert failed.value.error == "AttestationsInsufficient"
    world.claim(run, Outcome.REFUND, Reason.MARGIN_MEAN, [signed[0], b"", signed[2]])
    world.finalize(run)
    (final,) = (each for each in events_of(run.mined[-1]) if isinstance(each, Finalized))
    assert (final.outcome, final.reason) == (Outcome.REFUND, Reason.MARGIN_MEAN)


def test_a_withdrawal_waits_its_delay_and_then_pays(world: World, chain: Chain) -> None:
    scheduler, calls = world.scheduler.address, world.calls
    world.send(world.client, calls.request_unlock(scheduler, UNIT))
    with pytest.raises(TransactionFailed) as early:
        world.send(world.client, calls.withdraw_deposit(scheduler))
    assert early.value.error == "NotYetAvailable"
    world.net.pass_time(world.net.config.unlock_delay + 1)
    before = chain.token_balance(world.client.address)
    world.send(world.client, calls.withdraw_deposit(scheduler))
    assert chain.token_balance(world.client.address) - before == UNIT


# ── The server ───────────────────────────────────────────────────────────────────────────────────
def test_another_chain_is_noticed_before_anything_is_said(net: Net) -> None:
    wrong = replace(net.deployment, chain_id=1)
    with pytest.raises(WrongChain) as noticed:
        Chain(net.provider, wrong, dev_account(1)).config()
    assert (noticed.value.expected, noticed.value.actual) == (1, net.deployment.chain_id)


def test_an_address_without_contract_is_noticed(net: Net) -> None:
    wrong = replace(net.deployment, contract=Account.create().address)
    with pytest.raises(ConfigError, match="no contract"):
        Chain(net.provider, wrong).config()


def test_an_absent_server_is_unreachable_with_a_remedy(net: Net) -> None:
    chain = Chain("http://127.0.0.1:9", net.deployment)
    with pytest.raises(ChainUnreachable) as failed:
        chain.config()
    chain.close()
    assert failed.value.remedy


def test_a_refusal_is_the_contracts_word_and_no_servers_silence(chain: Chain, net: Net) -> None:
    latest = chain.block().number
    assert chain.refusal(chain.calls.keep(latest - 1)) is None
    assert isinstance(chain.refusal(chain.calls.keep(latest + 10)), BeaconLost)
    assert isinstance(chain.refusal(chain.calls.withdraw_stake()), TransactionFailed)
    absent = Chain("http://127.0.0.1:9", net.deployment, chain.account)
    with pytest.raises(ChainUnreachable):
        absent.refusal(chain.calls.withdraw_stake())
    absent.close()


def test_web3s_own_provider_serves_as_well(net: Net) -> None:
    provider = HTTPProvider(net.anvil.url)
    assert Chain(provider, net.deployment).config() == net.chain(dev_account(0)).config()


def test_every_custom_error_of_the_contracts_can_be_named() -> None:
    names = {entry.name for entry in artifacts.errors().values()}
    assert {"DepositInsufficient", "OpeningInvalid", "ERC20InsufficientBalance"} <= names


def test_a_deployment_file_reads_back(net: Net, tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    net.deployment.save(path)
    assert Deployment.load(path) == net.deployment
    path.write_text("{}")
    with pytest.raises(ConfigError):
        Deployment.load(path)
