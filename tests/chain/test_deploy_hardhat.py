"""Hardhat's deploy.js beside `verillm deploy`: the same plan, state, code and addresses file."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.conftest import ROOT
from tests.chain.test_deploy import LIVE, environment, leaks
from verillm import keystore
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.deploy import bare_chain, deploy_token
from verillm.chain.deployment import Deployment
from verillm.chain.standing import differences

DEPLOYER = dev_account(7)
SCRIPT = "contracts/scripts/deploy.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
]


def hardhat(values: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    words = ["npx", "hardhat", "run", "--no-compile", SCRIPT, "--network", "live"]
    return _run(words, values | more)


def python(values: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return _run([sys.executable, "-m", "verillm.cli", "deploy", *words], values)


def _run(words: list[str], values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERILLM_")}
    clean |= {"VERILLM_PYTHON": sys.executable} | values
    return subprocess.run(words, env=clean, cwd=ROOT, capture_output=True, text=True, timeout=200)


@pytest.fixture
def anvil(tmp_path: Path) -> Iterator[Anvil]:
    with Anvil(tmp_path / "chain") as running:
        yield running


def test_both_give_the_same_code_the_same_state_and_the_same_file(tmp_path: Path) -> None:
    written = []
    for name in ("python", "hardhat"):
        (tmp_path / name).mkdir()
        with Anvil(tmp_path / name / "chain") as anvil:
            values = environment(anvil.url, tmp_path / name, 31_337, DEPLOYER)
            if name == "python":
                assert python(values, "--devnet", "--broadcast").returncode == 0
            else:
                dry = hardhat(values)
                assert dry.returncode == 0 and "nothing was sent" in dry.stdout, dry.stderr
                chain = bare_chain(anvil.url, DEPLOYER)
                assert (chain.block().number, chain.nonce(DEPLOYER.address, "pending")) == (0, 0)
                chain.close()
                done = hardhat(values, VERILLM_BROADCAST="1")
                assert done.returncode == 0, done.stderr
                assert not leaks(dry.stdout + done.stdout + dry.stderr + done.stderr, DEPLOYER)
                again = hardhat(values, VERILLM_BROADCAST="1")
                assert again.returncode == 3 and "[already_deployed]" in again.stderr
            _require_standing(anvil, tmp_path / name)
        files = [tmp_path / name / file for file in ("deployment.json", "deployment.json.state")]
        written.append([path.read_text() for path in files])
        assert not any(leaks(text, DEPLOYER) for text in written[-1])
    # Even the transactions are the same bytes: same nonces, gas, fees and signatures.
    assert written[0] == written[1]


def _require_standing(anvil: Anvil, folder: Path) -> None:
    deployment = Deployment.load(folder / "deployment.json")
    chain = bare_chain(anvil.url, DEPLOYER)
    assert deployment.made is not None
    assert differences(chain, deployment, deployment.made) == ()
    chain.close()


@pytest.mark.parametrize("first", ["python", "hardhat"])
def test_what_one_began_the_other_ends(tmp_path: Path, first: str) -> None:
    with Anvil(tmp_path / "chain", block_time=1) as anvil:
        values = environment(anvil.url, tmp_path, 31_337, DEPLOYER)
        _kill_midway(first, values, tmp_path / "deployment.json.state")
        assert not (tmp_path / "deployment.json").exists()
        if first == "hardhat":
            ended = python(values, "--devnet", "--broadcast")
        else:
            ended = hardhat(values, VERILLM_BROADCAST="1")
        assert ended.returncode == 0, ended.stderr
        _require_standing(anvil, tmp_path)
        chain = bare_chain(anvil.url, DEPLOYER)
        assert chain.nonce(DEPLOYER.address) == 9
        chain.close()


def _kill_midway(first: str, values: dict[str, str], state: Path) -> None:
    words = ["node", "node_modules/hardhat/internal/cli/bootstrap.js", "run", "--no-compile"]
    words += [SCRIPT, "--network", "live"]
    if first == "python":
        words = [sys.executable, "-m", "verillm.cli", "deploy", "--devnet", "--broadcast"]
    started = subprocess.Popen(
        words,
        env=os.environ | values | {"VERILLM_BROADCAST": "1"},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Hardhat runs the script in a process of its own
    )
    deadline = time.monotonic() + 200
    try:
        while "Prover" not in (json.loads(state.read_text())["sent"] if state.exists() else {}):
            assert time.monotonic() < deadline and started.poll() is None
            time.sleep(0.02)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        ended = started.wait()
    assert ended == -signal.SIGKILL


def test_a_live_chain_needs_safe_terms_a_dry_run_and_a_word(tmp_path: Path) -> None:
    with Anvil(tmp_path / "chain", chain_id=LIVE, accounts=20) as anvil:
        token, _ = deploy_token(anvil.url, dev_account(1))
        values = environment(anvil.url, tmp_path, LIVE, DEPLOYER)
        assert "[bad_input]" in hardhat(values).stderr  # neither token nor terms
        values |= {"VERILLM_TOKEN": token, "VERILLM_TERMS": str(tmp_path / "terms.toml")}
        (tmp_path / "terms.toml").write_text("[parameters]\nkappa_bps = 11000\n")
        refused = hardhat(values)
        assert refused.returncode == 3 and "[unsafe_parameters]" in refused.stderr
        assert "kappa_bps: 11000 is below" in refused.stderr
        (tmp_path / "terms.toml").write_text("[situation]\nvalue = 5\n")
        both = {"VERILLM_BROADCAST": "1", "VERILLM_YES": "1"}
        assert "no dry run" in hardhat(values, **both).stderr
        assert hardhat(values).returncode == 0
        assert "[not_confirmed]" in hardhat(values, VERILLM_BROADCAST="1").stderr
        wrong = hardhat(values, VERILLM_CHAIN_ID="1", **both)
        assert wrong.returncode == 3 and "[wrong_chain]" in wrong.stderr
        stopped = hardhat(values | {"VERILLM_TOKEN": dev_account(3).address})
        assert stopped.returncode == 3 and "[not_a_token]" in stopped.stderr


def test_funds_keys_and_servers_are_refused_by_their_own_codes(
    anvil: Anvil, tmp_path: Path
) -> None:
    values = environment(anvil.url, tmp_path, 31_337, DEPLOYER)
    account = keystore.create(tmp_path / "key.json", "pw", rounds=2)
    del values["VERILLM_DEPLOYER_KEY"]
    assert "[bad_config]" in hardhat(values).stderr
    values |= {"VERILLM_KEY": str(tmp_path / "key.json"), "VERILLM_PASSWORD": "other"}
    assert "[wrong_password]" in hardhat(values).stderr
    poor = hardhat(values, VERILLM_PASSWORD="pw")
    assert poor.returncode == 3 and "[funds_too_low]" in poor.stderr
    assert account.address in poor.stderr
    raw = hardhat(values, VERILLM_KEY=DEPLOYER.key.hex())
    assert raw.returncode == 3 and not leaks(raw.stdout + raw.stderr, DEPLOYER)
    away = hardhat(values, VERILLM_PASSWORD="pw", VERILLM_RPC="http://127.0.0.1:9")
    assert away.returncode == 5
