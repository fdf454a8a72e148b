"""A worker through its HTTP face, on a real (tiny) engine: what it takes, refuses, remembers."""

import ast
import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_account import Account

import verillm_node.worker
from verillm import api, sse
from verillm.api import CommitmentEvent, TaskEvent, TaskSubmission, TokenEvent
from verillm.codec import decode_opening
from verillm.model import ModelSpec
from verillm.request import Sampling
from verillm.settlement import bond_of
from verillm.signing import sign
from verillm.task import Task, inner_hash, output_hash
from verillm.trace import check_opening
from verillm.types import Hash32, JobId, ModelId
from verillm_node.admission import Pending
from verillm_node.link import check_commitment
from verillm_node.store import Traces
from verillm_node.tasks import TaskBook, TaskState

from .conftest import NOW, Bench, OpenBench

ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


async def _post(bench: Bench, submission: TaskSubmission) -> httpx.Response:
    return await bench.http.post(api.TASKS, content=api.dumps(submission.to_json()))


def _events(response: httpx.Response) -> list[TaskEvent]:
    assert response.status_code == 200, response.text
    return [api.parse_task_event(event) for event in sse.Parser().feed(response.content)]


def _code(response: httpx.Response) -> str:
    assert response.status_code >= 400
    body = api.ErrorBody.from_json(api.loads(response.content))
    assert body.message
    assert body.remedy
    return body.code


def _tokens(events: list[TaskEvent]) -> list[int]:
    return [event.token for event in events if isinstance(event, TokenEvent)]


def _commitment(events: list[TaskEvent]) -> CommitmentEvent:
    last = events[-1]
    assert isinstance(last, CommitmentEvent)
    return last


# ── The good way ─────────────────────────────────────────────────────────────────────────────────
async def test_a_task_streams_its_tokens_and_ends_in_a_commitment_to_them(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        events = _events(await _post(bench, bench.signed(task)))
        commitment = _commitment(events)
        hot = bench.worker.identity.hot.address
        check_commitment(bench.domain, task, [hot], commitment)
        assert commitment.leaves[0].output_hash == output_hash(task.task_id, _tokens(events))


async def test_the_trace_is_on_disk_before_the_commitment_is_out(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        order: list[str] = []
        put, committed = Traces.put, TaskBook.committed

        def note_put(self: Traces, task_id: bytes, data: bytes) -> None:
            put(self, task_id, data)
            order.append("trace")

        def note_commit(self: TaskBook, *values: Any) -> None:
            committed(self, *values)
            order.append("book")

        monkeypatch.setattr(Traces, "put", note_put)
        monkeypatch.setattr(TaskBook, "committed", note_commit)
        _commitment(_events(await _post(bench, bench.signed(task))))
        assert order == ["trace", "book"]


async def test_the_same_task_again_gets_the_same_answer(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task())
        first = _events(await _post(bench, submission))
        assert _events(await _post(bench, submission)) == first


async def test_a_stream_is_resumed_after_the_last_event_seen(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        whole = _events(await _post(bench, bench.signed(task)))
        path = api.task_path(task.task_id, "events")
        rest = await bench.http.get(path, headers={sse.LAST_EVENT_ID: "4"})
        assert _events(rest) == whole[4:]


async def test_a_summons_is_run_however_long_it_is_in_all(open_bench: OpenBench) -> None:
    """The chain holds a summons to its items alone, and silence costs a lock."""
    async with open_bench() as bench:
        task = bench.task()
        long = bench.signed(replace(task, items=task.items * 100))
        assert _code(await _post(bench, long)) == "tokens_out_of_bounds"
        events = [each[1] async for each in bench.worker.summoned(long).follow() if each]
        assert isinstance(events[-1], CommitmentEvent)


async def test_two_copies_of_a_task_at_once_run_once(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task())
        one, two = await asyncio.gather(_post(bench, submission), _post(bench, submission))
        assert _events(one) == _events(two)
        assert bench.book.counts() == {TaskState.COMMITTED: 1}


# ── One task id, one commitment ──────────────────────────────────────────────────────────────────
async def test_another_task_under_a_used_id_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        _events(await _post(bench, bench.signed(task)))
        other = replace(bench.task(prompt="something else"), task_id=task.task_id)
        assert _code(await _post(bench, bench.signed(other))) == "replay"
        later = replace(task, deadline=task.deadline - 1)
        assert _code(await _post(bench, bench.signed(later))) == "replay"


async def test_a_commitment_survives_a_restart(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task())
        first = _events(await _post(bench, submission))
    async with open_bench() as bench:
        assert _events(await _post(bench, submission)) == first
        other = replace(bench.task(prompt="else"), task_id=submission.task.task_id)
        assert _code(await _post(bench, bench.signed(other))) == "replay"


async def test_an_interrupted_task_is_run_again_after_a_restart(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task(new=200))
        feed = bench.worker.take(submission, bench.desk.standing_now)
        async for entry in feed.follow():
            assert entry is not None
            break
    async with open_bench() as bench:  # it began again by itself
        status = await bench.http.get(api.task_path(submission.task.task_id))
        assert json.loads(status.content)["stage"] == "running"
        events = _events(await _post(bench, submission))
        assert _commitment(events).inner.new_tokens == len(_tokens(events))


async def test_an_interrupted_task_whose_time_is_over_is_let_go(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = replace(bench.task(new=200), deadline=NOW + 5)
        bench.book.open(bench.signed(task), Hash32(b"h" * 32))
        bench.worker.resume(NOW + 6)
        assert bench.book.counts() == {TaskState.ABANDONED: 1}
        assert bench.book.pending(bench.scheduler.address, NOW, grace=0) == Pending(0, 0)


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────────
def _malleable(signature: bytes) -> bytes:
    s = ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


@pytest.mark.parametrize(
    "forge",
    [
        _malleable,
        lambda signature: signature[:64] + b"\x1d",
        lambda signature: bytes(65),
        lambda signature: signature[:32] + bytes(32) + signature[64:],
    ],
    ids=["malleable", "v", "zero", "s=0"],
)
async def test_a_forged_signature_is_refused(
    open_bench: OpenBench, forge: Callable[[bytes], bytes]
) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task())
        forged = replace(submission, signature=forge(submission.signature))
        assert _code(await _post(bench, forged)) == "bad_signature"
        assert bench.book.counts() == {}


async def test_a_stranger_who_signs_in_a_schedulers_name_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        stranger = Account.from_key(b"x" * 32)
        submission = replace(bench.signed(task), signature=sign(bench.domain, task, stranger))
        assert _code(await _post(bench, submission)) == "bad_signature"


async def test_a_signature_for_another_contract_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        other = replace(bench.domain, chain_id=1)
        submission = replace(bench.signed(task), signature=sign(other, task, bench.scheduler))
        assert _code(await _post(bench, submission)) == "bad_signature"


def _bonds(task: Task, many: int) -> int:
    return many * bond_of(task.lock, task.fee)


async def test_a_scheduler_without_a_bond_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        short = replace(bench.desk.standing_now, scheduler_stake=_bonds(task, 1) - 1)
        bench.desk.standing_now = short
        assert _code(await _post(bench, bench.signed(task))) == "scheduler_overdrawn"


async def test_a_scheduler_holds_no_more_of_our_stake_than_its_own_can_bond(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        bench.desk.standing_now = replace(bench.desk.standing_now, scheduler_stake=_bonds(task, 2))
        for name in ("one", "two"):
            _events(await _post(bench, bench.signed(bench.task(name))))
        third = bench.signed(bench.task("three"))
        assert _code(await _post(bench, third)) == "scheduler_overdrawn"
        other = Account.from_key(b"t" * 32)
        bench.desk.standing_now = replace(bench.desk.standing_now, scheduler_hot_key=other.address)
        theirs = TaskSubmission(third.task, other.address, sign(bench.domain, third.task, other))
        _events(await _post(bench, theirs))  # another scheduler's stake is its own matter


async def test_what_the_chain_shows_counts_no_more_against_its_scheduler(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        task = bench.task("one")
        bench.desk.standing_now = replace(bench.desk.standing_now, scheduler_stake=_bonds(task, 1))
        _events(await _post(bench, bench.signed(task)))
        assert _code(await _post(bench, bench.signed(bench.task("two")))) == "scheduler_overdrawn"
        record = bench.book.find(task.task_id)
        assert record is not None
        assert record.commitment_hash is not None
        bench.book.on_chain(record.commitment_hash)
        _events(await _post(bench, bench.signed(bench.task("two"))))


@pytest.mark.parametrize(("beyond", "code"), [(0, None), (1, "deadline_passed")])
async def test_no_task_holds_stake_for_longer_than_a_job_can_take_to_its_seal(
    open_bench: OpenBench, beyond: int, code: str | None
) -> None:
    async with open_bench() as bench:
        now = bench.desk.standing_now
        latest = now.now + now.job_window + now.seal_window
        response = await _post(bench, bench.signed(replace(bench.task(), deadline=latest + beyond)))
        assert (None if response.status_code == 200 else _code(response)) == code


async def test_a_lock_over_the_free_stake_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        bench.desk.standing_now = replace(bench.desk.standing_now, own_free=99)
        assert _code(await _post(bench, bench.signed(bench.task()))) == "lock_too_large"


async def test_the_locks_of_open_tasks_add_up(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        for name in ("one", "two"):
            _events(await _post(bench, bench.signed(bench.task(name))))
        pending = bench.book.pending(bench.scheduler.address, NOW, grace=0)
        assert pending == Pending(200, _bonds(bench.task(), 2))
        assert bench.book.pending(Account.create().address, NOW, grace=0) == Pending(200, 0)
        record = bench.book.find(bench.task("one").task_id)
        assert record is not None
        assert record.commitment_hash is not None
        bench.book.on_chain(record.commitment_hash)
        pending = bench.book.pending(bench.scheduler.address, NOW, grace=0)
        assert pending == Pending(100, _bonds(bench.task(), 1))


def _item(task: Task, **changes: object) -> Task:
    return replace(task, items=(replace(task.items[0], **changes),))  # type: ignore[arg-type]


def _other_model(task: Task, _spec: ModelSpec) -> Task:
    return replace(task, model_id=ModelId(Hash32(b"m" * 32)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_other_model, "model_mismatch"),
        (lambda task, _: replace(task, worker=Account.from_key(b"q" * 32).address), "bad_input"),
        (lambda task, _: replace(task, items=()), "bad_input"),
        (lambda task, _: replace(task, deadline=NOW), "deadline_passed"),
        (lambda task, _: replace(task, deadline=2**40 - 1), "deadline_passed"),
        (lambda task, _: replace(task, fee=1), "fee_too_low"),
        (lambda task, _: _item(task, max_new_tokens=0), "tokens_out_of_bounds"),
        (lambda task, _: _item(task, max_new_tokens=2**32 - 1), "prompt_too_long"),
        (lambda task, spec: _item(task, tokens=(spec.vocabulary,)), "tokens_out_of_bounds"),
        (lambda task, spec: _item(task, tokens=(1,) * spec.context), "prompt_too_long"),
        (lambda task, _: _item(task, sampling=Sampling(temperature=2_000_001)), "bad_sampling"),
        (lambda task, _: _item(task, sampling=Sampling(top_p=0)), "bad_sampling"),
        (lambda task, _: _item(task, sampling=Sampling(min_p=1_000_001)), "bad_sampling"),
        (lambda task, _: replace(task, items=task.items * 100), "tokens_out_of_bounds"),
    ],
)
async def test_a_task_out_of_bounds_is_refused_with_its_own_code(
    open_bench: OpenBench, change: Callable[[Task, ModelSpec], Task], code: str
) -> None:
    async with open_bench() as bench:
        task = change(replace(bench.task(), deadline=NOW + 600), bench.spec)
        assert _code(await _post(bench, bench.signed(task))) == code
        assert bench.book.counts() == {}


@pytest.mark.parametrize("missing", [0, 1])
async def test_a_tasks_fee_covers_all_tokens_that_may_come(
    open_bench: OpenBench, missing: int
) -> None:
    async with open_bench() as bench:
        task, price = bench.task(), bench.worker.serving.price
        least = price * sum(item.length + item.max_new_tokens for item in task.items)
        task = replace(task, deadline=NOW + 600, fee=least - missing)
        response = await _post(bench, bench.signed(task))
        assert (response.status_code == 402) is bool(missing)
        assert sum(bench.book.counts().values()) == 1 - missing


async def test_a_task_without_a_prompt_is_refused(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        submission = bench.signed(bench.task())
        empty = replace(submission, task=_item(submission.task, tokens=()))
        assert _code(await _post(bench, empty)) == "tokens_out_of_bounds"


async def test_a_worker_takes_no_more_than_it_can_hold(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        for number in range(4):
            bench.worker.take(
                bench.signed(bench.task(str(number), new=200)), bench.desk.standing_now
            )
        response = await _post(bench, bench.signed(bench.task("one too many")))
        assert _code(response) == "engine_unavailable"
        assert response.status_code == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b"{}",
        b'{"task": NaN}',
        b'{"task": {}, "task": {}}',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"task": 1e999}',
    ],
)
async def test_a_hostile_body_is_malformed(open_bench: OpenBench, body: bytes) -> None:
    async with open_bench() as bench:
        assert _code(await bench.http.post(api.TASKS, content=body)) == "malformed"


def _with_broken(text: str, name: str) -> object:
    def broken(found: dict[str, object]) -> dict[str, object]:
        return found | ({name: {}} if name in found else {})

    return json.loads(text, object_hook=broken)


async def test_any_field_of_the_wrong_type_is_named(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        good = bench.signed(bench.task()).to_json()
        text = json.dumps(good)
        for name in ("taskId", "worker", "items", "deadline", "lock", "seed", "salt", "signature"):
            broken = _with_broken(text, name)
            response = await bench.http.post(api.TASKS, content=json.dumps(broken))
            assert _code(response) == "malformed"
            assert name in response.text


async def test_an_endless_body_is_cut_off(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verillm_node.api.MAX_TASK_BYTES", 1000)
    async with open_bench() as bench:
        assert _code(await bench.http.post(api.TASKS, content=b" " * 1001)) == "malformed"


@pytest.mark.parametrize("path", ["/", "/v1/nothing", "/docs", "/v1/tasks/xyz/opening/more"])
async def test_an_unknown_path_has_a_code(open_bench: OpenBench, path: str) -> None:
    async with open_bench() as bench:
        assert _code(await bench.http.get(path)) == "not_found"


# ── Openings ─────────────────────────────────────────────────────────────────────────────────────
async def test_openings_are_closed_until_the_commitment_is_sealed(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task()
        commitment = _commitment(_events(await _post(bench, bench.signed(task))))
        path = api.task_path(task.task_id, "opening")
        query = api.opening_query(0, [1, 3], [5])
        closed = await bench.http.get(path, params=query)
        assert _code(closed) == "not_sealed_yet"
        assert bench.desk.looks == 1  # it looked at the chain before it said no
        job = JobId(Hash32(b"j" * 32))
        bench.desk.on_look = lambda: bench.book.sealed(task.task_id, job, 0)
        opened = await bench.http.get(path, params=query)
        assert opened.status_code == 200
        opening = decode_opening(opened.content)
        check_opening(opening, inner_hash(commitment.inner), bench.spec.shape)
        assert [entry.position for entry in opening.entries] == [1, 3, 5]
        assert [entry.slices is None for entry in opening.entries] == [False, False, True]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "item=x&full=1",
        "item=0&full=a",
        "item=-1&full=1",
        "item=0&full=1&more=1",
        "item=0&full=4294967295",
        "item=7&full=1",
    ],
)
async def test_a_query_that_names_no_opening_is_malformed(
    open_bench: OpenBench, query: str
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        _events(await _post(bench, bench.signed(task)))
        bench.book.sealed(task.task_id, JobId(Hash32(b"j" * 32)), 0)
        response = await bench.http.get(f"{api.task_path(task.task_id, 'opening')}?{query}")
        assert _code(response) == "malformed"


@pytest.mark.parametrize("query", ["full=2", "full=4", "full=1,999", "final=9"])
async def test_a_position_that_nobody_drew_stays_closed(open_bench: OpenBench, query: str) -> None:
    async with open_bench() as bench:
        task = bench.task()
        _events(await _post(bench, bench.signed(task)))
        bench.book.sealed(task.task_id, JobId(Hash32(b"j" * 32)), 0)
        path = f"{api.task_path(task.task_id, 'opening')}?item=0&{query}"
        assert _code(await bench.http.get(path)) == "not_drawn"


async def test_one_caller_gets_an_opening_a_few_times_a_minute_and_others_still_get_it(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        task = bench.task()
        _events(await _post(bench, bench.signed(task)))
        bench.book.sealed(task.task_id, JobId(Hash32(b"j" * 32)), 0)
        path = f"{api.task_path(task.task_id, 'opening')}?item=0&full=1"
        answers = [await bench.http.get(path) for _ in range(13)]
        assert [each.status_code for each in answers] == [200] * 12 + [429]
        assert _code(answers[-1]) == "too_many_requests"
        app = bench.http._transport.app  # type: ignore[attr-defined]
        elsewhere = httpx.ASGITransport(app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://worker") as other:
            assert (await other.get(path)).status_code == 200


async def test_no_bundle_is_read_for_a_job_on_whose_committee_the_worker_is_not(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        path = api.job_path(JobId(Hash32(b"j" * 32)), "attest")
        assert _code(await bench.http.post(path, content=b"bundle")) == "not_found"
        assert bench.committee.read == []


async def test_bundles_are_bounded_in_size_and_number(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        bench.committee.job = JobId(Hash32(b"j" * 32))
        path = api.job_path(bench.committee.job, "attest")
        assert _code(await bench.http.post(path, content=bytes(1001))) == "malformed"
        codes = [_code(await bench.http.post(path, content=bytes(1000))) for _ in range(6)]
        assert codes == ["not_found"] * 5 + ["too_many_requests"]
        assert bench.committee.read == [1000] * 5


async def test_an_unknown_task_is_not_found(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        task = bench.task().task_id
        for path in (api.task_path(task), api.task_path(task, "events")):
            assert _code(await bench.http.get(path)) == "not_found"
        assert _code(await bench.http.get(api.TASKS + "/0x12")) == "malformed"


# ── Roles ────────────────────────────────────────────────────────────────────────────────────────
def test_the_worker_has_no_branch_on_role() -> None:
    """No name in its code speaks of a role; roles come from the chain, after the commitment."""
    code = ast.parse(Path(verillm_node.worker.__file__).read_text())
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
    for word in ("inferencer", "verif", "committee", "party", "role"):
        assert not [name for name in names if word in name.lower()]


async def test_metrics_and_health_speak_plain_text(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        _events(await _post(bench, bench.signed(bench.task())))
        metrics = (await bench.http.get("/metrics")).text
        assert 'verillm_tasks{state="committed"} 1' in metrics
        assert (await bench.http.get("/healthz")).text == "ok\n"
