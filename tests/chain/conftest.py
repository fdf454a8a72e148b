from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from eth_account.signers.local import LocalAccount

from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.contract import Chain
from verillm.chain.deploy import deploy
from verillm.chain.deployment import Config, Deployment
from verillm.chain.rpc import HttpProvider

if TYPE_CHECKING:
    from tests.chain.world import World

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.anvil)


@dataclass(frozen=True)
class Net:
    """A chain with our contracts, rolled back after each test."""

    anvil: Anvil
    provider: HttpProvider
    deployment: Deployment
    config: Config

    def rpc(self, method: str, *params: object) -> object:
        response = self.provider.make_request(method, list(params))  # type: ignore[arg-type]
        assert "error" not in response, response
        return response["result"]

    def chain(self, account: LocalAccount) -> Chain:
        return Chain(self.provider, self.deployment, account, poll=0.01)

    def pass_time(self, seconds: int) -> None:
        self.rpc("evm_increaseTime", seconds)
        self.rpc("evm_mine")


@pytest.fixture(scope="session")
def anvil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anvil]:
    with Anvil(tmp_path_factory.mktemp("anvil"), accounts=20) as running:
        yield running


@pytest.fixture(scope="session")
def deployed(anvil: Anvil) -> Iterator[Net]:
    provider = HttpProvider(anvil.url)
    config = Config.devnet()
    deployment = deploy(provider, dev_account(0), config)
    yield Net(anvil, provider, deployment, config)
    provider.close()


@pytest.fixture
def net(deployed: Net) -> Iterator[Net]:
    """The deployment alone."""
    snapshot = deployed.rpc("evm_snapshot")
    yield deployed
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator["World"]:
    """The deployment with everybody in it; a module may have a world of its own."""
    from tests.chain.world import World  # it needs `Net`

    snapshot = deployed.rpc("evm_snapshot")
    yield World(deployed)
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: "World") -> Iterator["World"]:
    """What is furnished, rolled back after each test."""
    snapshot = furnished.net.rpc("evm_snapshot")
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)
