"""Proofs found in a bundle and sent to a real chain: the network believes them and acts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chain.conftest import Net
from tests.chain.test_audit import Case, as_json, case, engines, folder  # noqa: F401 - fixtures
from tests.unit.verifier.lab import CLIENT, HOT, SCHEDULER, WORKERS, Story
from verillm import api, keystore
from verillm.api.events import ReceiptEvent
from verillm.chain.anvil import dev_account
from verillm.chain.calls import Call
from verillm.chain.contract import Status
from verillm.request import Receipt, Sampling
from verillm.signing import job_id, sign
from verillm.task import task_id
from verillm.types import Hash32, JobId, Outcome, Reason
from verillm_verifier import cli
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Exit
from verillm_verifier.facts import read

SWAPPED = Story(cheats={0: ATTACKS["swapped"]}, new_tokens=24, sampling=Sampling(0))
Make = Callable[..., Case]
Told = dict[str, Any]


def identity(found: Case) -> JobId:
    return job_id(found.ground.domain, found.played.posting.job)


def balances(found: Case) -> dict[str, int]:
    chain = found.ground.net.chain(CLIENT)
    parties = {"worker": WORKERS[0].address, "scheduler": SCHEDULER.address}
    return {name: chain.account_of(address).balance for name, address in parties.items()}


def proven(found: Case, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[Told]]:
    """Exit code and proofs of `verillm-audit prove`."""
    code = cli.main([*found.words("prove", found.job, "--json"), *more])
    return code, as_json(capsys)["proofs"]


@pytest.fixture
def key(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A finder's keystore; it needs nothing but gas."""
    path = tmp_path / "finder.json"
    finder = keystore.create(path, "a finder's password", rounds=2)
    net.rpc("anvil_setBalance", finder.address, hex(10**20))
    monkeypatch.setenv("VERILLM_PASSWORD", "a finder's password")
    return str(path)


def test_an_honest_job_proves_nothing(case: Make, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    found = case()
    assert proven(found, capsys) == (Exit.ACCEPT, [])
    found.ground.claim(found.played, Outcome.ACCEPT, Reason.NONE)
    assert proven(found, capsys) == (Exit.ACCEPT, [])


def test_forged_tokens_are_slashed_by_their_own_states_though_the_claim_accepts(
    case: Make,  # noqa: F811
    key: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = case(SWAPPED)
    found.ground.claim(found.played, Outcome.ACCEPT, Reason.NONE)
    code, told = proven(found, capsys)
    assert code == Exit.REJECT
    assert {(each["proof"], each["refusal"]) for each in told} == {
        ("marginOwn", ""),
        ("marginCommittee", ""),
    }
    before = balances(found)
    code, told = proven(found, capsys, "--send", "--key", key)
    assert code == Exit.REJECT
    assert [each["proof"] for each in told if each["transaction"]] == ["marginOwn"]
    facts = read(found.ground.net.chain(CLIENT), identity(found))
    assert facts.history.finalized is not None
    event = facts.history.finalized.event
    assert (event.outcome, event.reason) == (Outcome.SLASH, Reason.MARGIN_MAX)
    assert before["worker"] - balances(found)["worker"] == found.played.posting.lock
    assert balances(found)["scheduler"] >= before["scheduler"]
    # Once a party and job: the same proof is refused now.
    assert all(each["refusal"] for each in proven(found, capsys)[1])


def test_a_committees_states_overrule_a_claim_that_accepts(
    case: Make,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = case(SWAPPED)
    ground = found.ground
    ground.claim(found.played, Outcome.ACCEPT, Reason.NONE)
    told = proven(found, capsys)[1]
    overrules = next(each for each in told if each["proof"] == "marginCommittee")
    send(found, overrules)
    state = ground.net.chain(CLIENT).job_state(identity(found))
    assert state.status not in (Status.CLAIMED, Status.FINAL)


def test_a_false_receipt_costs_the_scheduler_its_bond(
    case: Make,  # noqa: F811
    key: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = case()
    domain, sealing = found.ground.domain, found.played.sealing
    first = task_id(sealing.secret, identity(found), 0)
    receipt = Receipt(identity(found), first, 0, Hash32(b"another output".ljust(32)))
    path = tmp_path / "receipt.json"
    event = ReceiptEvent(receipt, sign(domain, receipt, HOT))
    path.write_text(api.dumps(event.to_json()))
    before = balances(found)
    code, told = proven(found, capsys, "--receipt", str(path), "--send", "--key", key)
    assert code == Exit.REJECT
    assert [each["against"] for each in told] == ["the scheduler"]
    facts = read(found.ground.net.chain(CLIENT), identity(found))
    assert facts.history.finalized is not None
    ended = facts.history.finalized.event
    assert (ended.outcome, ended.reason) == (Outcome.REFUND, Reason.RECEIPT_DIFFERS)
    assert balances(found)["scheduler"] < before["scheduler"]
    assert balances(found)["worker"] > before["worker"]


def send(found: Case, told: Told) -> None:
    """The call that was printed, by anyone."""
    chain = found.ground.net.chain(dev_account(0))
    chain.send(Call(told["proof"], told["to"], bytes.fromhex(told["data"][2:])))
