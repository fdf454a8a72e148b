"""Deploying by a command: it looks, says, sends, and goes on where it was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import ROOT, Net
from tests.unit.verillm.builders import SPEC
from verillm import cli, keystore
from verillm.chain import deploy as module
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.contract import Call, Chain
from verillm.chain.deploy import Deployer, bare_chain, deploy_token, prepare
from verillm.chain.deployment import Config, Deployment
from verillm.chain.journal import Journal
from verillm.chain.plan import created_address, make_plan
from verillm.chain.refused import (
    AlreadyDeployed,
    DeploymentDiffers,
    FeatureMissing,
    FundsTooLow,
    NonceTaken,
    NotAToken,
    PlanChanged,
)
from verillm.chain.standing import differences
from verillm.chain.survey import HISTORY, code_at, expected_codes, survey
from verillm.errors import ChainUnreachable, InputError, TransactionFailed
from verillm.hashing import keccak
from verillm.model import model_id, spec_to_json
from verillm_node.join import Seats, take_seats

DEPLOYER = dev_account(17)
STEPS = 9
LIVE = 11_155_111
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def chain(net: Net) -> Iterator[Chain]:
    """The deployer's chain, on which nothing of its own stands yet."""
    made = bare_chain(net.provider, DEPLOYER)
    made.poll = 0.01
    yield made
    made.close()


def deployer(chain: Chain, journal: Journal, **options: float) -> Deployer:
    """Planned anew, as every start of the command does."""
    plan = prepare(chain, Config.devnet(), journal)
    journal.plan(plan)
    return Deployer(chain, plan, expected_codes(chain, plan.steps), journal, **options)  # type: ignore[arg-type]


def environment(url: str, folder: Path, chain_id: int, account: LocalAccount) -> dict[str, str]:
    return {
        "VERILLM_RPC": url,
        "VERILLM_CHAIN_ID": str(chain_id),
        "VERILLM_DEPLOYER_KEY": account.key.hex(),
        "VERILLM_DEPLOYMENT": str(folder / "deployment.json"),
        "COLUMNS": "200",
    }


def command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, str],
) -> Run:
    for name in ("KEY", "PASSWORD", "PASSWORD_FILE", "TERMS", "TOKEN"):
        monkeypatch.delenv(f"VERILLM_{name}", raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> tuple[int, str]:
        code = cli.main(words)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def run(
    net: Net,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """`verillm` on the dev chain, with the deployer's key in the environment."""
    values = environment(net.anvil.url, tmp_path, 31_337, DEPLOYER)
    return command(monkeypatch, capsys, values)


# ── Looking ──────────────────────────────────────────────────────────────────────────────────────
def test_a_dry_run_says_every_step_and_sends_nothing(
    run: Run, chain: Chain, tmp_path: Path
) -> None:
    block, balance = chain.block().number, chain.balance(DEPLOYER.address)
    code, said = run("deploy", "--devnet")
    assert code == 0 and "nothing was sent" in said
    for step in make_plan(31_337, DEPLOYER.address, 0, Config.devnet()).steps:
        assert step.name in said and (step.address or "") in said
    assert (chain.block().number, chain.nonce(DEPLOYER.address, "pending")) == (block, 0)
    assert chain.balance(DEPLOYER.address) == balance
    assert not (tmp_path / "deployment.json").exists()


@pytest.mark.parametrize("nonce", [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 2**32])
def test_an_address_is_where_the_chain_puts_it(chain: Chain, nonce: int) -> None:
    chain.request("anvil_setNonce", DEPLOYER.address, hex(nonce))
    mined = chain.send(Call("empty", None, b"\x00"))
    assert mined.contract == created_address(DEPLOYER.address, nonce)


def test_the_cost_is_what_is_then_paid(chain: Chain) -> None:
    journal = Journal()
    found = survey(chain, prepare(chain, Config.devnet(), journal))
    before = chain.balance(DEPLOYER.address)
    deployer(chain, journal).run()
    paid = before - chain.balance(DEPLOYER.address)
    assert paid <= found.reserve
    assert sum(found.gas) == pytest.approx(paid / (found.base_fee + found.fees.tip), rel=0.5)


def test_funds_that_do_not_cover_the_gas_are_named_to_the_wei(chain: Chain) -> None:
    plan = prepare(chain, Config.devnet(), Journal())
    needed = survey(chain, plan).reserve
    chain.request("anvil_setBalance", DEPLOYER.address, hex(needed - 5))
    with pytest.raises(FundsTooLow, match="5 are missing") as refused:
        survey(chain, plan)
    assert (refused.value.balance, refused.value.needed) == (needed - 5, needed)
    chain.request("anvil_setBalance", DEPLOYER.address, hex(needed))
    survey(chain, plan)


@pytest.mark.parametrize("code", [None, "0x", "0x00"])
def test_a_token_that_is_none_is_refused(chain: Chain, code: str | None) -> None:
    token = dev_account(16).address
    if code is not None:
        chain.request("anvil_setCode", token, code)
    plan = prepare(chain, replace(Config.devnet(), token=token), Journal())
    with pytest.raises((NotAToken, TransactionFailed)) as refused:
        survey(chain, plan)
    if code == "0x00":
        assert isinstance(refused.value, NotAToken)


def test_an_existing_token_is_asked_for_its_decimals(net: Net, chain: Chain) -> None:
    token, _ = deploy_token(net.provider, dev_account(16))
    found = survey(chain, prepare(chain, replace(Config.devnet(), token=token), Journal()))
    assert found.token is not None
    assert (found.token.symbol, found.token.decimals) == ("DEV", 18)
    assert len(found.gas) == STEPS - 2


def test_a_chain_without_the_history_of_block_hashes_is_refused(chain: Chain) -> None:
    plan = prepare(chain, Config.devnet(), Journal())
    survey(chain, plan)
    chain.request("anvil_setCode", HISTORY, "0x5f5ff3")  # answers nothing
    with pytest.raises(FeatureMissing, match="EIP-2935"):
        survey(chain, plan)
    chain.request("anvil_setCode", HISTORY, "0x")
    with pytest.raises(FeatureMissing, match="EIP-2935"):
        survey(chain, plan)


def test_terms_that_the_contract_refuses_are_refused_before_anything_is_sent(chain: Chain) -> None:
    unsafe = replace(Config.devnet(), unlock_delay=599)
    with pytest.raises(TransactionFailed, match="ConfigUnsafe"):
        survey(chain, prepare(chain, unsafe, Journal()))
    assert chain.nonce(DEPLOYER.address) == 0


# ── Sending ──────────────────────────────────────────────────────────────────────────────────────
def test_what_was_deployed_is_what_was_planned_and_a_node_can_join_by_its_file(
    run: Run, net: Net, tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(spec_to_json(SPEC)))
    words = ("deploy", "--devnet", "--spec", str(tmp_path / "spec.json"))
    assert run(*words)[0] == 0
    code, said = run(*words, "--broadcast")
    assert code == 0, said
    deployment = Deployment.load(tmp_path / "deployment.json")
    plan = make_plan(31_337, DEPLOYER.address, 0, Config.devnet(), specs=[SPEC])
    assert deployment.contract == plan.contract
    assert deployment.made is not None and deployment.made.config == plan.config
    assert run("deployment")[0] == 0
    with_key = Chain(net.provider, deployment, DEPLOYER, poll=0.01)
    assert with_key.config() == plan.config
    operator = dev_account(16)
    with_key.send(with_key.calls.transfer(operator.address, SPEC.seat_stake))
    seats = take_seats(with_key.with_account(operator), Seats(model_id(SPEC), SPEC, 1, 5))
    assert seats == [0]
    code, said = run(*words, "--broadcast")
    assert code == 3 and f"[{AlreadyDeployed.code}]" in said


class Killed(BaseException):
    """What no code of ours catches."""


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_any_step_it_goes_on_with_the_same_addresses(
    chain: Chain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    sent: bool,
) -> None:
    """Killed right before, or right after, the transaction of a step was sent."""
    state, broadcast, calls = tmp_path / "state", chain.broadcast, iter(range(STEPS))

    def dying(raw: bytes) -> None:
        last = next(calls) == step
        if sent or not last:
            broadcast(raw)
        if last:
            raise Killed

    monkeypatch.setattr(chain, "broadcast", dying)
    with pytest.raises(Killed):
        deployer(chain, Journal(state)).run()
    monkeypatch.undo()
    deployment = deployer(chain, Journal(state)).run()
    assert chain.nonce(DEPLOYER.address) == STEPS
    assert deployment.contract == created_address(DEPLOYER.address, STEPS - 1)
    assert deployment.made is not None
    assert differences(chain, deployment, deployment.made) == ()


@pytest.mark.slow
def test_a_killed_process_is_simply_run_again(tmp_path: Path) -> None:
    with Anvil(tmp_path / "chain", block_time=1, accounts=20) as anvil:
        values = os.environ | environment(anvil.url, tmp_path, 31_337, DEPLOYER)
        words = [sys.executable, "-m", "verillm.cli", "deploy", "--devnet", "--broadcast"]
        started = subprocess.Popen(words, env=values, cwd=ROOT, stdout=subprocess.DEVNULL)
        journal, deadline = tmp_path / "deployment.json.state", time.monotonic() + 60
        while not (journal.exists() and "Adjudicator" in journal.read_text().partition("sent")[2]):
            assert time.monotonic() < deadline and started.poll() is None
            time.sleep(0.02)
        started.send_signal(signal.SIGKILL)
        assert started.wait() == -signal.SIGKILL
        assert not (tmp_path / "deployment.json").exists()
        assert subprocess.run(words, env=values, cwd=ROOT, timeout=120).returncode == 0
        chain = bare_chain(anvil.url, DEPLOYER)
        assert chain.nonce(DEPLOYER.address) == STEPS
        chain.close()


def test_a_stuck_transaction_is_offered_more(
    chain: Chain, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal()
    said: list[tuple[bytes, ...]] = []

    def mine(seconds: float) -> None:
        if said:
            return
        tried = journal.progress.sent.get("DevToken", ()) if journal.progress else ()
        if len(tried) > 2:
            said.append(tried)
            net.rpc("evm_setAutomine", True)
            net.rpc("evm_mine")

    monkeypatch.setattr(module.time, "sleep", mine)  # type: ignore[attr-defined]
    net.rpc("evm_setAutomine", False)
    try:
        deployer(chain, journal, stuck_after=0.0).run()
    finally:
        net.rpc("evm_setAutomine", True)
    assert len(set(said[0])) == len(said[0]) > 2
    assert chain.nonce(DEPLOYER.address) == STEPS


def test_a_nonce_that_went_elsewhere_ends_the_deployment(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broadcast = chain.broadcast

    def once(raw: bytes) -> None:
        monkeypatch.undo()
        broadcast(raw)
        chain.send(Call("elsewhere", dev_account(1).address, b"", 1))

    monkeypatch.setattr(chain, "broadcast", once)
    with pytest.raises(NonceTaken, match="mint"):
        deployer(chain, Journal(tmp_path / "state")).run()


def test_a_begun_deployment_is_not_gone_on_with_by_other_terms(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def dying(_raw: bytes) -> None:
        raise Killed

    monkeypatch.setattr(chain, "broadcast", dying)
    with pytest.raises(Killed):
        deployer(chain, Journal(tmp_path / "state")).run()
    begun = Journal(tmp_path / "state")
    with pytest.raises(PlanChanged, match="other terms"):
        prepare(chain, Config.devnet(dispute_window=11), begun)
    with pytest.raises(PlanChanged, match="began to deploy"):
        prepare(chain.with_account(dev_account(1)), Config.devnet(), begun)


def test_other_code_at_a_planned_address_is_noticed(chain: Chain) -> None:
    journal = Journal()
    made = deployer(chain, journal)
    chain.request("anvil_setCode", made.plan.config.prover, "0x00")
    with pytest.raises(DeploymentDiffers, match="Prover"):
        made.run()


# ── Looking at what stands ───────────────────────────────────────────────────────────────────────
def test_a_deployment_that_was_tampered_with_is_told_apart_part_by_part(
    run: Run, chain: Chain, tmp_path: Path
) -> None:
    assert run("deploy", "--devnet", "--broadcast")[0] == 0
    deployment = Deployment.load(tmp_path / "deployment.json")
    made = deployment.made
    assert made is not None and run("deployment")[0] == 0
    for name, address in (
        ("Recourse", made.extensions[0]),
        ("Appeals", made.extensions[3]),
        ("Prover", deployment.prover),
    ):
        code = chain.request("eth_getCode", address, "latest")
        chain.request("anvil_setCode", address, code[:-2] + ("00" if code[-2:] != "00" else "01"))
        said = run("deployment")[1]
        assert f"[{DeploymentDiffers.code}]" in said and name in said
        # Whoever tampers with the file as well is told by what this version's bytecode gives.
        addresses = (deployment.contract, *made.extensions, deployment.adjudicator)
        hashes = [keccak(code_at(chain, each)) for each in (*addresses, deployment.prover)]
        false = replace(made, code_hashes=tuple(hashes))
        told = differences(chain, deployment, false)
        assert len(told) == 1 and f"not {name}'s of this version" in told[0]
        chain.request("anvil_setCode", address, code)
    other = replace(made, config=replace(made.config, dispute_window=11))
    assert any("disputeWindow is 10" in each for each in differences(chain, deployment, other))
    swapped = replace(deployment, adjudicator=deployment.prover)
    assert any("own terms" in each for each in differences(chain, swapped, made))
    assert run("deployment")[0] == 0


def test_a_client_refuses_a_contract_with_other_code_than_its_file_names(
    run: Run, net: Net, tmp_path: Path
) -> None:
    assert run("deploy", "--devnet", "--broadcast")[0] == 0
    deployment = Deployment.load(tmp_path / "deployment.json")
    assert Chain(net.provider, deployment).config().dispute_window == 10
    made = deployment.made
    assert made is not None
    wrong = replace(made, code_hashes=(made.code_hashes[1], *made.code_hashes[1:]))
    with pytest.raises(DeploymentDiffers):
        Chain(net.provider, replace(deployment, made=wrong)).config()


# ── What is refused ──────────────────────────────────────────────────────────────────────────────
def test_the_wrong_chain_and_a_server_that_is_away_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "[wrong_chain]" in run("deploy", "--devnet", "--chain-id", "1337")[1]
    monkeypatch.setenv("VERILLM_RPC", "http://user:hidden@127.0.0.1:9/v3/secret?token=secret")
    code, said = run("deploy", "--devnet")
    assert code == 5 and f"[{ChainUnreachable.code}]" in said
    assert "secret" not in said and "hidden" not in said and "127.0.0.1:9" in said


def test_the_server_is_never_taken_from_the_command_line(run: Run, net: Net) -> None:
    code, said = run("--rpc", net.anvil.url + "/", "deploy", "--devnet")
    assert code == 3 and "VERILLM_RPC" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devnet",), "for dev chains alone"),
        (("--token", "0x" + "11" * 20, "--devnet"), "for dev chains alone"),
        (("--token", "0x" + "11" * 20), "--terms FILE"),
        (("--token", "0x11", "--devnet"), "not an address"),
    ],
)
def test_what_is_missing_for_a_live_chain_is_said(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    code, out = run("deploy", "--chain-id", str(LIVE), *words)
    assert code == 3 and said in out and f"[{InputError.code}]" in out


@pytest.fixture
def live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """`verillm` on a chain that is no dev chain, with an ERC-20 on it and safe terms."""
    with Anvil(tmp_path / "chain", chain_id=LIVE, accounts=20) as anvil:
        token, _ = deploy_token(anvil.url, dev_account(16))
        values = environment(anvil.url, tmp_path, LIVE, DEPLOYER)
        values |= {"VERILLM_TOKEN": token, "VERILLM_TERMS": str(tmp_path / "terms.toml")}
        run = command(monkeypatch, capsys, values)
        code, said = run("params", "--toml")
        assert code == 0
        (tmp_path / "terms.toml").write_text(said)
        yield run


def test_a_live_chain_needs_a_dry_run_of_the_same_plan_and_then_a_word(
    live: Run, tmp_path: Path
) -> None:
    code, said = live("deploy", "--broadcast", "--yes")
    assert code == 3 and "[not_confirmed]" in said and "no dry run" in said
    assert live("deploy")[0] == 0
    code, said = live("deploy", "--broadcast")
    assert code == 3 and "--yes is missing" in said
    terms = (tmp_path / "terms.toml").read_text()
    (tmp_path / "terms.toml").write_text(terms.replace("key_grace = ", "key_grace = 9"))
    code, said = live("deploy", "--broadcast", "--yes")
    assert code == 3 and "no dry run" in said
    (tmp_path / "terms.toml").write_text(terms)
    code, said = live("deploy", "--broadcast", "--yes", "--confirmations", "0")
    assert code == 0, said
    assert live("deployment")[0] == 0


def test_unsafe_terms_never_reach_the_chain(live: Run, tmp_path: Path) -> None:
    terms = (tmp_path / "terms.toml").read_text()
    (tmp_path / "terms.toml").write_text(terms.replace("kappa_bps = 12000", "kappa_bps = 11000"))
    code, said = live("deploy")
    assert code == 3 and "[unsafe_parameters]" in said and "kappa_bps: 11000 is below" in said


def test_a_model_of_another_committee_than_the_terms_is_refused(live: Run, tmp_path: Path) -> None:
    spec = replace(SPEC, seat_stake=10**15)
    (tmp_path / "spec.json").write_text(json.dumps(spec_to_json(spec)))
    code, said = live("deploy", "--spec", str(tmp_path / "spec.json"))
    assert code == 3 and "the terms are safe for 3" in said


# ── The key ──────────────────────────────────────────────────────────────────────────────────────
def leaks(text: str, account: LocalAccount) -> bool:
    """Whether a key stands in a text, in hex of any case, or as a number."""
    return account.key.hex() in text.lower() or str(int.from_bytes(account.key)) in text


def test_the_key_is_in_nothing_that_is_said_or_written(run: Run, tmp_path: Path) -> None:
    said = [run("deploy", "--devnet")[1], run("deploy", "--devnet", "--broadcast")[1]]
    said += [run("deploy", "--devnet", "--broadcast")[1], run("deployment")[1]]
    said += [path.read_text() for path in tmp_path.iterdir() if path.is_file()]
    assert len(said) == 6
    assert not any(leaks(text, DEPLOYER) for text in said)


def test_power_a_key_that_was_written_would_be_found() -> None:
    for form in (
        DEPLOYER.key.hex(),
        DEPLOYER.key.hex().upper(),
        repr(int.from_bytes(DEPLOYER.key)),
    ):
        assert leaks(f"… 0x{form} …", DEPLOYER)


@pytest.mark.parametrize("cut", [slice(0, 62), slice(0, 0), slice(1, 64)])
def test_a_key_that_is_none_is_refused_without_its_digits(
    run: Run, monkeypatch: pytest.MonkeyPatch, cut: slice
) -> None:
    raw = DEPLOYER.key.hex()[cut] + "zz"
    monkeypatch.setenv("VERILLM_DEPLOYER_KEY", raw)
    code, said = run("deploy", "--devnet")
    assert code == 3 and "VERILLM_DEPLOYER_KEY is not a key" in said
    assert DEPLOYER.key.hex()[2:20] not in said


def test_a_raw_key_in_the_place_of_a_keystore_is_not_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERILLM_DEPLOYER_KEY")
    monkeypatch.setenv("VERILLM_KEY", "0x" + DEPLOYER.key.hex())
    monkeypatch.setenv("VERILLM_PASSWORD", "pw")
    for words in (("deploy", "--devnet"), ("balance",)):
        code, said = run(*words)
        assert code == 3 and not leaks(said, DEPLOYER)


def test_a_keystore_serves_as_well(
    run: Run, net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account = keystore.create(tmp_path / "key.json", "pw", rounds=2)
    net.rpc("anvil_setBalance", account.address, hex(10**18))
    monkeypatch.delenv("VERILLM_DEPLOYER_KEY")
    monkeypatch.setenv("VERILLM_KEY", str(tmp_path / "key.json"))
    monkeypatch.setenv("VERILLM_PASSWORD", "pw")
    code, said = run("deploy", "--devnet")
    assert code == 0 and account.address in said
