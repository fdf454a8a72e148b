"""Nodes go through the larger remedies by themselves: forced rounds, re-verification, contests."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verillm.chain.anvil import dev_account
from verillm.chain.appeals import Concluded, ReverificationAsked
from verillm.chain.contract import Chain
from verillm.chain.deployment import HOUR, UNIT, Config
from verillm.chain.events import (
    ChallengeOpened,
    JobHistory,
    Paid,
    Slashed,
    TaskContested,
    stream,
)
from verillm.client import JobHandle
from verillm.types import Outcome, Reason
from verillm_node.store import Database
from verillm_node.tasks import TaskBook, TaskRecord

from .conftest import TERMS, WAIT, Town, town

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = replace(TERMS, opening_window=300, unbonding=12 * HOUR)
"""Rounds end once all is compared; their windows are for machines that do much else."""
FORCED = replace(LONG, forced_every=1)
APPEALED = replace(LONG, opening_window=120, dispute_window=60, reverify_bond=UNIT // 10)
"""A re-verification concludes no sooner than its openings are due; its bond is below what a job of
these tokens has at stake.
"""
ENOUGH = 32
"""New tokens, with which a job has positions enough for a verdict."""


def names(town: Town, addresses: Sequence[Any]) -> set[str]:
    return {town.name_of(each) for each in addresses}


def inferencer(town: Town, history: JobHistory) -> str:
    assert history.posted is not None
    return town.name_of(history.posted.event.posting.worker)


def committee(town: Town, history: JobHistory) -> set[str]:
    assert history.sealed is not None
    return names(town, history.sealed.event.sealing.owners)


def test_every_job_is_judged_in_public_where_the_draw_forces_it(tmp_path: Path) -> None:
    with town(tmp_path / "net", workers=5, cheater=5, terms=FORCED) as made:
        # In turn: one of five jobs is the cheat's.
        handles = [made.buy(tokens=10) for _ in range(5)]
        for handle in handles:
            handle.read()
        histories = [made.final(handle, within=2 * WAIT) for handle in handles]
        by_cheat = [each for each in histories if inferencer(made, each) == "worker5"]
        honest = [each for each in histories if inferencer(made, each) != "worker5"]
        assert by_cheat and honest
        for history in histories:
            assert history.first(ChallengeOpened) is not None
            assert history.judged is not None
        for history in honest:
            assert history.finalized is not None
            assert history.finalized.event.outcome is Outcome.ACCEPT, made.logs()
            paid = names(made, [each.event.account for each in history.all(Paid)])
            parties = {inferencer(made, history), *committee(made, history)} - {"worker5"}
            assert parties <= paid
            assert not history.all(Slashed)
        for history in by_cheat:
            assert history.finalized is not None
            ended = history.finalized.event
            assert (ended.outcome, ended.reason) == (Outcome.SLASH, Reason.STATES_DIFFER)
            lost = names(made, [each.event.operator for each in history.all(Slashed)])
            assert lost == {"worker5"}


def test_an_honest_inferencer_has_a_captured_committee_overturned(tmp_path: Path) -> None:
    overturn(tmp_path / "net", "tiny", 24)


@pytest.mark.model
def test_a_captured_committee_is_overturned_on_the_default_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERILLM_HOME")  # the prepared model lies in the user's own cache
    overturn(tmp_path / "net", "torch", 64)


def overturn(folder: Path, engine: str, tokens: int) -> None:
    """The only member serves int4, and its word makes the scheduler claim a slash."""
    options: dict[str, Any] = {"committee": 1, "only_inferencer": 1, "engine": engine}
    with town(folder, cheater=2, terms=APPEALED, **options) as made:
        before = made.balances()
        history = captured(made, "worker2", tokens)
        assert history.claimed is not None
        assert history.claimed.event.claiming.outcome is Outcome.SLASH
        (asked,) = history.all(ReverificationAsked)
        assert made.name_of(asked.event.requester) == "worker1"
        concluded = history.first(Concluded)
        assert concluded is not None
        assert (concluded.event.outcome, concluded.event.stands) == (Outcome.ACCEPT, False)
        lost = names(made, [each.event.operator for each in history.all(Slashed)])
        assert lost == {"scheduler", "worker2"}  # the claim's bond, and the liar's lock
        assert made.balances()["worker1"] > before["worker1"]


def captured(made: Town, liar: str, tokens: int) -> JobHistory:
    """The end of the first job whose committee is the liar."""
    deadline = time.monotonic() + 3 * WAIT
    while time.monotonic() < deadline:
        handles = [made.buy(tokens) for _ in range(2)]
        for handle in handles:
            handle.read()
        for handle in handles:
            sealed = made.history(handle, lambda found: found.sealed)
            assert sealed.sealed is not None
            enough = sealed.sealed.event.sealing.inner.new_tokens >= min(tokens, ENOUGH)
            if enough and committee(made, sealed) == {liar}:
                return made.final(handle, within=2 * WAIT)
    raise AssertionError(f"no committee of {liar}")


def test_a_claim_of_work_that_was_posted_is_contested_by_its_scheduler(tmp_path: Path) -> None:
    terms: Config = replace(TERMS, seal_window=60)
    with town(tmp_path / "net", terms=terms) as made:
        handle = made.buy()
        handle.read()
        history = made.final(handle)
        worker = inferencer(made, history)
        record = told(made, worker, handle)
        before = made.balances()
        made.chain.request("evm_increaseTime", terms.job_window + 3 * terms.seal_window)
        made.chain.request("evm_mine")
        seat = history.posted.event.posting.seat if history.posted else 0
        claim_again(made, record, seat, handle)
        contested = one(made, TaskContested)
        assert contested.job_id == handle.job_id
        assert before[worker] - made.balances()[worker] == contested.burnt > 0


def told(made: Town, worker: str, handle: JobHandle) -> TaskRecord:
    """What a worker's store says of a job, read from a copy."""
    home, copy = made.network.plan.folder / "home" / worker, made.network.plan.folder / "copy"
    copy.mkdir()
    for path in home.glob("worker.sqlite*"):
        shutil.copy(path, copy / path.name)
    database = Database(copy / "worker.sqlite")
    try:
        records = TaskBook(database).of_job(handle.job_id)
    finally:
        database.close()
    return next(each for each in records if each.party == 0)


def claim_again(made: Town, record: TaskRecord, seat: int, handle: JobHandle) -> None:
    """Anyone may send it: the worker has signed it all."""
    assert record.commitment is not None
    network = made.network
    chain = Chain(network.anvil.url, network.deployment, dev_account(0))
    try:
        submission, outputs = record.submission, handle.outputs
        chain.send(chain.calls.claim_task(submission, seat, record.commitment, outputs))
    finally:
        chain.close()


def one(made: Town, kind: type[Any]) -> Any:
    deadline = time.monotonic() + WAIT
    while True:
        found = list(stream(made.chain, (kind,)))
        if found:
            return found[0].event
        assert time.monotonic() < deadline, made.logs()
        time.sleep(0.2)
