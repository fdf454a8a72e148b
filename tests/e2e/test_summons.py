"""Somebody keeps silent for good: a member of a committee, or the scheduler itself."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verillm.chain.events import Replaced, TaskClaimed, TaskCollected, stream
from verillm.types import Outcome, Reason

from .conftest import TERMS, WAIT, Town, town

pytestmark = pytest.mark.slow

QUICK = replace(TERMS, seal_window=60, opening_window=20)


def _event(town: Town, kind: type[Any], meanwhile: Callable[[], object] = lambda: None) -> Any:
    deadline = time.monotonic() + WAIT
    while True:
        found = list(stream(town.chain, (kind,)))
        if found:
            return found[0].event
        assert time.monotonic() < deadline, town.logs()
        meanwhile()
        time.sleep(0.5)


def test_a_job_ends_accepted_though_a_member_is_gone_for_good(tmp_path: Path) -> None:
    with town(tmp_path / "net", workers=5, terms=QUICK) as made, made.frozen("worker1"):
        for _ in range(6):
            handle = made.buy()
            handle.read()
            history = made.final(handle, within=3 * WAIT)
            assert history.finalized is not None
            said = (history.finalized.event.outcome, history.finalized.event.reason)
            assert said == (Outcome.ACCEPT, Reason.NONE), made.logs()
            replaced = history.all(Replaced)
            if replaced:
                assert made.name_of(replaced[0].event.owner) == "worker1"
                return
    pytest.fail("six draws without worker1")


def test_a_worker_is_paid_though_its_scheduler_streams_and_never_posts(tmp_path: Path) -> None:
    with town(tmp_path / "net", terms=QUICK) as made:
        handle = made.buy(tokens=150)
        next(handle.tokens())
        before = made.balances()
        with made.frozen("scheduler"):
            # The worker finishes; then all that it waits for is the chain's clock.
            _pass(made, QUICK.job_window + 3 * QUICK.seal_window)
            claimed = _event(made, TaskClaimed)
            _pass(made, QUICK.unbonding + 1)
            collected = _event(made, TaskCollected)
        worker = made.name_of(claimed.worker)
        gained = {name: now - before[name] for name, now in made.balances().items()}
        assert collected.commitment == claimed.commitment
        assert gained[worker] == claimed.amount == -gained["scheduler"]


def _pass(town: Town, seconds: int) -> None:
    town.chain.request("evm_increaseTime", seconds)
    town.chain.request("evm_mine")
