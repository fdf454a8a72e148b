"""The command line on a real chain: a keystore's money and what happened to its jobs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eth_account import Account

from tests.chain.conftest import Net
from tests.chain.world import World
from verillm import api, cli, keystore
from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def world(deployed: Net) -> Iterator[World]:
    snapshot = deployed.rpc("evm_snapshot")
    yield World(deployed)
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def run(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command as the world's client, on a wide screen."""
    monkeypatch.setattr(Account, "create", lambda: world.client)
    keystore.create(tmp_path / "key.json", "pw", rounds=2)
    monkeypatch.undo()
    world.net.deployment.save(tmp_path / "deployment.json")
    for name, value in {
        "VERILLM_RPC": world.net.anvil.url,
        "VERILLM_DEPLOYMENT": str(tmp_path / "deployment.json"),
        "VERILLM_KEY": str(tmp_path / "key.json"),
        "VERILLM_PASSWORD": "pw",
        "COLUMNS": "250",
    }.items():
        monkeypatch.setenv(name, value)

    def command(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def test_money_goes_in_and_out(run: Run, world: World) -> None:
    to = ["--to", world.scheduler.address]
    assert run("deposit", *to, "1.5")[:2] == (
        0,
        f"deposited 1.5; 51.5 at {world.scheduler.address}\n",
    )
    assert "51.5" in run("balance", *to)[1]
    code, said, _ = run("withdraw", *to, "--amount", "0.5")
    assert code == 0 and said.startswith("0.5 unlocks at ")
    world.net.pass_time(world.net.config.unlock_delay + 1)
    assert run("withdraw", *to)[1].startswith("withdrawn")
    assert " 51 " in run("balance", *to)[1]


def test_a_deposit_beyond_the_wallet_is_refused_with_a_remedy(run: Run, world: World) -> None:
    code, said, error = run("deposit", "--to", world.scheduler.address, "1000000")
    assert (code, said) == (3, "")
    assert "error [deposit_too_small]" in error and "remedy: " in error


def test_jobs_and_explain_tell_a_whole_story(run: Run, world: World) -> None:
    job = world.finalize(world.claim(world.seal(world.post())))
    identity = api.to_hex(world.id_of(job))
    code, listed, _ = run("jobs")
    assert code == 0 and identity in listed and "final" in listed
    code, told, _ = run("explain", identity)
    assert code == 0
    for step in ("Posted", "Sealed", "Claimed", "Finalized", "accept", "the committee's states"):
        assert step in told
    assert job.posting.worker in told


def test_explaining_an_unknown_job_says_so(run: Run) -> None:
    code, _, error = run("explain", "0x" + "00" * 32)
    assert code == 6 and "error [not_found]" in error
    assert run("explain", "0x00")[0] == 3


def test_deploy_writes_a_file_that_works(run: Run, world: World, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    words = ("--deployment", str(path), "deploy", "--devnet", "--chain-id", "31337")
    assert run(*words)[0] == 0 and not path.exists()
    assert run(*words, "--broadcast")[0] == 0
    fresh = Deployment.load(path)
    assert fresh.contract != world.net.deployment.contract
    assert Chain(world.net.provider, fresh).config().token == fresh.token
