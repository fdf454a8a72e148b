from pathlib import Path

import pytest

from verillm.errors import ConfigError
from verillm_node.config import SchedulerSettings, WorkerSettings, load
from verillm_node.worker_main import make_engine

WORKER = """
home = "home"
spec = "spec.json"
price = 100000000000000000000000000
[chain]
rpc = "http://127.0.0.1:8545"
deployment = "/etc/deployment.json"
[keys]
operator = "operator.json"
hot = "hot.json"
[http]
port = 9000
[engine]
kind = "tiny"
model = "model"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "worker.toml"
    path.write_text(text)
    return path


def test_paths_are_read_from_the_files_own_folder(tmp_path: Path) -> None:
    settings = load(_write(tmp_path, WORKER), WorkerSettings)
    assert settings.keys.operator == tmp_path / "operator.json"
    assert settings.chain.deployment == Path("/etc/deployment.json")
    assert settings.price == 10**26
    assert settings.http.url == "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("price = 100000000000000000000000000", "", "missing setting price"),
        ("port = 9000", "port = 9000\nprot = 1", "unknown setting http.prot"),
        ("port = 9000", 'port = "9000"', "http.port must be a int"),
        ("port = 9000", "port = true", "http.port must be a int"),
        ('kind = "tiny"', 'kind = "magic"', "engine.kind must be one of torch, vllm, tiny"),
        ('home = "home"', "home = 3", "home must be a"),
        ('home = "home"', "home = ", "not TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in WORKER
    with pytest.raises(ConfigError, match=named):
        load(_write(tmp_path, WORKER.replace(old, new)), WorkerSettings)


def test_a_worker_is_no_scheduler(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(_write(tmp_path, WORKER), SchedulerSettings)


def test_a_changed_model_is_refused_outside_a_devnet(tmp_path: Path) -> None:
    text = WORKER + 'transform = "verillm_verifier.attacks:int4"\n'
    settings = load(_write(tmp_path, text), WorkerSettings)
    with pytest.raises(ConfigError, match="only a devnet"):
        make_engine(settings.engine, settings.devnet)
