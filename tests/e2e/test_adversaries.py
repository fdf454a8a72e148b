"""Who lies loses: withheld openings, false claims, forged and hostile messages, wrong keys."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from eth_account import Account

from verillm import api
from verillm.chain.anvil import dev_account
from verillm.chain.contract import Chain
from verillm.chain.events import JobHistory, Slashed
from verillm.signing import sign
from verillm.types import Hash32, Outcome, Reason
from verillm_node.devnet import SEAT_STAKE

from .conftest import Town

pytestmark = pytest.mark.slow


def test_an_inferencer_that_withholds_its_openings_loses_its_lock(honest_town: Town) -> None:
    handle = honest_town.buy()
    handle.read()
    history = honest_town.history(handle, lambda found: found.posted)
    assert history.posted is not None
    worker = honest_town.name_of(history.posted.event.posting.worker)
    with honest_town.frozen(worker):
        history = honest_town.final(handle)
    assert history.finalized is not None
    ended = history.finalized.event
    assert (ended.outcome, ended.reason) == (Outcome.SLASH, Reason.WITHHELD)
    assert {honest_town.name_of(each.event.operator) for each in history.all(Slashed)} == {worker}


def test_a_false_claim_is_challenged_on_chain_and_its_maker_loses_the_bond(
    honest_town: Town,
) -> None:
    with _bonded_liar(honest_town) as liar:
        handle = honest_town.buy()
        handle.read()
        history = honest_town.history(handle, lambda found: found.posted)
        assert history.posted is not None
        worker = honest_town.name_of(history.posted.event.posting.worker)
        with honest_town.frozen(worker):  # so that the scheduler waits for its openings
            history = honest_town.history(handle, lambda found: found.sealed)
            _claim_falsely(liar, history)
        history = honest_town.final(handle, 180)
    assert history.claimed is not None
    assert history.claimed.event.claiming.claimer == liar.sender.address
    assert history.challenged is not None
    assert history.finalized is not None
    assert history.finalized.event.outcome is Outcome.ACCEPT
    slashed = {each.event.operator for each in history.all(Slashed)}
    assert slashed == {liar.sender.address}


def _claim_falsely(liar: Chain, history: JobHistory) -> None:
    assert history.posted is not None
    assert history.sealed is not None
    liar.send(
        liar.calls.claim(
            history.posted.event.posting,
            history.sealed.event.sealing,
            Outcome.SLASH,
            Reason.STATES_DIFFER,
            0b111,
            Hash32(b"\x07" * 32),
        )
    )


@contextlib.contextmanager
def _bonded_liar(town: Town) -> Iterator[Chain]:
    """Someone with a stake, who may claim."""
    account = Account.create()
    network = town.network
    with contextlib.closing(Chain(network.anvil.url, network.deployment, dev_account(0))) as rich:
        rich.request("anvil_setBalance", account.address, hex(10**20))
        rich.send(rich.calls.transfer(account.address, SEAT_STAKE))
    with contextlib.closing(Chain(network.anvil.url, network.deployment, account)) as liar:
        liar.send(liar.calls.approve(SEAT_STAKE))
        liar.send(liar.calls.add_stake(SEAT_STAKE))
        yield liar


# ── Messages ─────────────────────────────────────────────────────────────────────────────────────
def _submission(town: Town) -> api.JobSubmission:
    handle = town.buy(tokens=4)
    handle.read()
    return handle._draft.submission


def _refusal(town: Town, body: bytes) -> str:
    url = town.network.scheduler_url + api.JOBS
    answer = httpx.post(url, content=body, timeout=30, trust_env=False)
    assert answer.status_code >= 400
    return api.ErrorBody.from_json(api.loads(answer.content)).code


def test_forged_replayed_and_malleable_jobs_are_refused_with_codes(honest_town: Town) -> None:
    good = _submission(honest_town)
    domain = honest_town.network.deployment.domain

    def refused(submission: api.JobSubmission) -> str:
        return _refusal(honest_town, api.dumps(submission.to_json()).encode())

    again = replace(good.job, nonce=good.job.nonce + 1)
    signed_again = replace(
        good, job=again, signature=sign(domain, again, honest_town.client.account)
    )
    assert refused(signed_again) == "replay"  # one quote, two jobs
    stranger = replace(again, client=Account.create().address)
    assert refused(replace(good, job=stranger)) == "bad_signature"
    order = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
    high = order - int.from_bytes(good.signature[32:64], "big")
    flipped = good.signature[:32] + high.to_bytes(32, "big") + bytes([55 - good.signature[64]])
    fresh = replace(good, job=again, signature=flipped)
    assert refused(fresh) == "bad_signature"
    assert refused(replace(good, job=replace(again, max_fee=1))) in ("fee_too_low", "bad_signature")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"job": NaN}', b"\xff", b"[" * 9999])
def test_hostile_bodies_are_malformed(honest_town: Town, body: bytes) -> None:
    assert _refusal(honest_town, body) == "malformed"


# ── This machine ─────────────────────────────────────────────────────────────────────────────────
def _run(town: Town, name: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    config = town.network.plan.folder / f"{name}.toml"
    return subprocess.run(
        [sys.executable, "-m", "verillm_node.cli", "worker", "--config", str(config)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_said_at_once(honest_town: Town) -> None:
    began = time.monotonic()
    done = _run(honest_town, "worker1")
    assert done.returncode == 1
    assert "error [port_in_use]" in done.stderr
    assert time.monotonic() - began < 30


def test_a_wrong_password_is_said_at_once(honest_town: Town, tmp_path: Path) -> None:
    folder = honest_town.network.plan.folder
    wrong = tmp_path / "password"
    wrong.write_text("not this one")
    wrong.chmod(0o600)
    text = (folder / "worker1.toml").read_text().replace('"password"', f'"{wrong}"')
    (folder / "wrong.toml").write_text(text)
    done = _run(honest_town, "wrong")
    assert done.returncode == 1
    assert "error [wrong_password]" in done.stderr


def test_a_folder_that_is_not_the_models_is_not_served(honest_town: Town, tmp_path: Path) -> None:
    from verillm.engine.tiny import write_folder

    folder = honest_town.network.plan.folder
    other = write_folder(tmp_path / "other", seed=2)
    text = (folder / "worker1.toml").read_text()
    text = text.replace(str(folder / "model"), str(other)).replace("port = ", "port = 0 # ")
    (folder / "other.toml").write_text(text)
    done = _run(honest_town, "other")
    assert done.returncode == 1
    assert "error [model_mismatch]" in done.stderr
