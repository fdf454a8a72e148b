"""A private Anvil: what can go wrong with its start is said, and a killed one comes back."""

import socket
import time
from pathlib import Path

import pytest

from verillm.chain import anvil as module
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.rpc import HttpProvider, Rpc, quantity
from verillm.errors import MissingTool, PortInUse


def block_number(url: str) -> int:
    rpc = Rpc.of(url)
    try:
        return quantity(rpc.call("eth_blockNumber"), "number")
    finally:
        rpc.close()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUse) as failed:
            Anvil(tmp_path, port=port).start()
    assert failed.value.port == port and failed.value.code == "port_in_use"


def test_a_missing_anvil_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_candidates", lambda: iter([tmp_path / "anvil"]))
    with pytest.raises(MissingTool, match="make install"):
        Anvil(tmp_path).start()


def test_a_killed_anvil_comes_back_on_its_port_with_its_state(tmp_path: Path) -> None:
    running = Anvil(tmp_path, keep_state=True).start()
    try:
        url = running.url
        rpc = HttpProvider(url)
        rpc.make_request("anvil_mine", ["0x5"])  # type: ignore[arg-type]
        rpc.close()
        deadline = time.monotonic() + 10
        while not (tmp_path / "state.json").exists() or time.monotonic() < deadline - 8:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        running.kill()
        running.start()
        assert running.url == url and block_number(url) == 5
    finally:
        running.stop()
    assert running.pid is None


def test_old_states_are_bounded_and_lie_in_its_folder_while_it_lives_only(tmp_path: Path) -> None:
    running = Anvil(tmp_path).start()
    try:
        provider = HttpProvider(running.url)
        for _ in range(5):
            provider.make_request("anvil_mine", ["0x190"])  # type: ignore[arg-type]
        provider.close()
        assert 0 < len(list((tmp_path / "states").rglob("*.json"))) <= module.PERSISTED_STATES
    finally:
        running.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["anvil.log"]


def test_a_block_time_mines_without_transactions(tmp_path: Path) -> None:
    with Anvil(tmp_path, block_time=1) as running:
        deadline = time.monotonic() + 10
        while block_number(running.url) < 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_the_funded_accounts_are_anvils() -> None:
    assert dev_account(0).address == "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
