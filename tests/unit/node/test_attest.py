"""A committee member judges each bundle once, and only those of its own jobs."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verillm.errors import NotFound
from verillm.head import HeadRows
from verillm.records import Attestation
from verillm.signing import verify
from verillm.types import Outcome, Reason
from verillm_node import attest
from verillm_node.attest import Attester
from verillm_node.errors import TooManyRequests
from verillm_node.judging import verdict_of
from verillm_node.store import Database
from verillm_node.tasks import TaskBook
from verillm_node.view import View
from verillm_node.worker import Identity

from ..verifier import lab
from .test_drawn import own_record


@pytest.fixture(scope="module")
def played(folder: Path) -> Iterator[lab.Played]:
    engines = lab.Engines(folder)
    yield lab.play(engines, lab.spec_of(folder))
    engines.close()


class Office:
    """An attester with its book, on the chain of a played job; counts how often it judges."""

    def __init__(self, played: lab.Played, folder: Path, home: Path, patch: Any) -> None:
        self.played, self.judged = played, 0
        facts = played.facts(until=lab.SEAL)
        self.view = View(facts.history.job_id, facts.state, facts.history, 0, 0)
        self.database = Database(home / "worker.sqlite")
        book = TaskBook(self.database)
        owner = lab.WORKERS[1].address
        identity = Identity(owner, lab.HOT, lab.DOMAIN)
        patch.setattr(attest, "look", lambda _chain, _job: self.view)
        patch.setattr(attest, "verdict_of", self._verdict)
        self.attester = Attester(None, identity, played.spec, HeadRows(folder), book)  # type: ignore[arg-type]
        self.book = book

    def _verdict(self, *args: Any) -> Any:
        self.judged += 1
        return verdict_of(*args)

    def sit(self, party: int) -> None:
        own = own_record(self.played, party)
        assert own.job_id is not None
        self.book.open(own.submission, own.task_hash)
        self.book.sealed(own.task.task_id, own.job_id, party)


@pytest.fixture
def office(
    played: lab.Played, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Office]:
    made = Office(played, folder, tmp_path, monkeypatch)
    yield made
    made.database.close()


def test_only_a_member_of_the_committee_has_a_word(office: Office) -> None:
    with pytest.raises(NotFound):
        office.attester.room(office.view.job_id)
    office.sit(0)  # the inferencer is no judge of its own job
    with pytest.raises(NotFound):
        office.attester.room(office.view.job_id)
    office.sit(1)
    assert office.attester.room(office.view.job_id) >= len(office.played.raw)


async def test_the_same_bundle_again_gets_the_same_word_without_work(office: Office) -> None:
    office.sit(1)
    job, raw = office.view.job_id, office.played.raw
    first = await office.attester.attest(job, raw)
    assert first.outcome == Outcome.ACCEPT
    word = Attestation(job, Outcome(first.outcome), Reason(first.reason), first.bundle)
    verify(lab.DOMAIN, word, first.signature, lab.HOT.address)
    assert await office.attester.attest(job, raw) == first
    assert office.judged == 1
    other = await office.attester.attest(job, raw + b"x")
    assert other.outcome == Outcome.INCONCLUSIVE
    assert office.judged == 2


async def test_few_bundles_wait_for_their_turn(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(office.attester, "_attest", lambda *_: go.wait(10))
    job = office.view.job_id
    async with asyncio.TaskGroup() as group:
        for _ in range(attest.MOST_WAITING):
            group.create_task(office.attester.attest(job, b""))
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await office.attester.attest(job, b"")
        go.set()
    await office.attester.attest(job, b"")
