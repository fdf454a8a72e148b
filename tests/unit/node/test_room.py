"""A worker whose engine cannot hold what it may be drawn for does not start."""

import json
from pathlib import Path

import pytest
from eth_account import Account

from verillm import keystore
from verillm.engine.tiny import TinyEngine, tiny_spec
from verillm.errors import ConfigError, PromptTooLong
from verillm.model import spec_to_json
from verillm.request import Sampling
from verillm.task import Item, Task
from verillm.types import Hash32, ModelId, TaskId
from verillm_node.admission import Serving, check_runnable
from verillm_node.config import WorkerSettings, load
from verillm_node.errors import EngineTooSmall
from verillm_node.worker_main import run_worker

SETTINGS = """
home = "home"
spec = "spec.json"
price = 1
[chain]
rpc = "http://127.0.0.1:1"
deployment = "none.json"
[keys]
operator = "operator.json"
hot = "hot.json"
password_file = "password"
[http]
port = 0
[engine]
kind = "tiny"
"""


def settings(home: Path, model: Path, max_tokens: int) -> WorkerSettings:
    """Everything that a worker needs but a chain."""
    for name in ("operator.json", "hot.json"):
        if not (home / name).exists():
            keystore.create(home / name, "secret", rounds=64)
    (home / "password").touch(0o600)
    (home / "password").write_text("secret\n")
    (home / "spec.json").write_text(json.dumps(spec_to_json(tiny_spec(model))))
    text = f'{SETTINGS}model = "{model}"\nmax_tokens = {max_tokens}\n'
    (home / "worker.toml").write_text(text)
    return load(home / "worker.toml", WorkerSettings)


def test_a_worker_with_less_room_than_the_models_context_does_not_start(
    folder: Path, tmp_path: Path
) -> None:
    context = tiny_spec(folder).context
    with pytest.raises(EngineTooSmall) as caught:
        run_worker(settings(tmp_path, folder, context - 1))
    assert caught.value.values == {"max_tokens": context - 1, "context": context}
    assert "engine.max_tokens" in caught.value.remedy


def test_power_with_just_that_room_it_goes_on_to_the_chain(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no deployment file"):
        run_worker(settings(tmp_path, folder, tiny_spec(folder).context))


def test_power_an_engine_with_less_room_refuses_what_a_summons_is_held_to(folder: Path) -> None:
    """Why it does not start: the chain lets such an item through, and silence costs a lock."""
    spec = tiny_spec(folder)
    longest = Item(bytes(32), (1,) * (spec.context - 1), 1, Sampling(0), Hash32(b"s" * 32))
    worker, model = Account.from_key(b"w" * 32).address, ModelId(Hash32(b"m" * 32))
    task = Task(TaskId(Hash32(b"t" * 32)), worker, model, (longest,), 2**39, 1, 1)
    check_runnable(task, Serving(worker, model, spec.context, spec.vocabulary, 1, 1))
    with pytest.raises(PromptTooLong):
        _submitted(TinyEngine(folder, max_tokens=spec.context - 1), task)
    _submitted(TinyEngine(folder, max_tokens=spec.context), task)


def _submitted(engine: TinyEngine, task: Task) -> None:
    engine.start()
    try:
        engine.submit(task, lambda *_: None)
        engine.cancel(task.task_id)
    finally:
        engine.close()
