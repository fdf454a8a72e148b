"""A worker's HTTP face: tasks in; token stream, commitments, openings and attestations out."""

import asyncio
from typing import Protocol

from fastapi import FastAPI, Request, Response

from verillm import api
from verillm.api import Info, SignedAttestation, TaskEvent, TaskSubmission
from verillm.codec import encode_opening
from verillm.errors import MalformedError
from verillm.types import JobId, TaskId
from verillm_node.admission import Standing
from verillm_node.drawn import Drawn
from verillm_node.feed import Feed
from verillm_node.http import (
    MAX_BUNDLE_BYTES,
    MAX_TASK_BYTES,
    answer,
    last_event_id,
    make_app,
    read_body,
    stream,
)
from verillm_node.meter import Meter, caller
from verillm_node.tasks import TaskRecord
from verillm_node.worker import Worker


class Desk(Protocol):
    """What a worker needs of the chain to answer HTTP."""

    def standing(self, submission: TaskSubmission) -> Standing:
        """Both sides' standing; blocking."""
        ...

    async def look(self) -> None:
        """Reads the chain's newest events now."""
        ...

    def drawn(self, own: TaskRecord, item: int) -> Drawn:
        """What of an own sealed item is to be opened; blocking."""
        ...


class Attest(Protocol):
    """Signs verdicts on bundles of jobs on whose committee this worker sits."""

    def room(self, job_id: JobId) -> int:
        """The most bytes of its bundle; raises `NotFound` for any other job, at no cost."""
        ...

    async def attest(self, job_id: JobId, data: bytes) -> SignedAttestation:
        """Judges a bundle, each once."""
        ...


class Limits:
    """How often a minute one address gets one thing; a scheduler needs each once, if all is well.

    Whether the chain shows a seal is asked by every retry for every open job of a scheduler.
    """

    def __init__(self) -> None:
        self.looks, self.openings, self.attestations = Meter(240), Meter(12), Meter(6)


def worker_app(worker: Worker, desk: Desk, attest: Attest, info: Info) -> FastAPI:
    """The app of one worker."""
    limits = Limits()
    app = make_app("verillm worker", lambda: worker.metrics())

    @app.get(api.INFO)
    async def show_info() -> Response:
        return answer(info.to_json())

    @app.post(api.TASKS)
    async def post_task(request: Request) -> Response:
        raw = await read_body(request, MAX_TASK_BYTES)
        submission = await asyncio.to_thread(_submission, raw)
        return stream(await _taken(worker, desk, submission), last_event_id(request))

    @app.get(api.TASKS + "/{task}")
    async def show_task(task: str) -> Response:
        return answer(worker.status(_task_id(task)).to_json())

    @app.get(api.TASKS + "/{task}/events")
    async def follow_task(task: str, request: Request) -> Response:
        return stream(worker.follow(_task_id(task)), last_event_id(request))

    @app.get(api.TASKS + "/{task}/opening")
    async def open_task(task: str, request: Request) -> Response:
        data = await _opened(worker, desk, limits, _task_id(task), request)
        return Response(data, media_type="application/octet-stream")

    @app.post(api.JOBS + "/{job}/attest")
    async def attest_job(job: str, request: Request) -> Response:
        job_id = JobId(api.parse_hash(job, "job"))
        room = min(attest.room(job_id), MAX_BUNDLE_BYTES)
        limits.attestations.take(_caller(request), job_id)
        signed = await attest.attest(job_id, await read_body(request, room))
        return answer(signed.to_json())

    return app


async def _taken(worker: Worker, desk: Desk, submission: TaskSubmission) -> Feed[TaskEvent]:
    known = worker.known(submission)
    if known is not None:
        return known
    worker.inspect(submission.task)  # what costs no chain call is refused first
    standing = await asyncio.to_thread(desk.standing, submission)
    # Another copy of the same task may have come in while we asked the chain.
    known = worker.known(submission)
    return worker.take(submission, standing) if known is None else known


async def _opened(
    worker: Worker, desk: Desk, limits: Limits, task_id: TaskId, request: Request
) -> bytes:
    query = dict(request.query_params)
    item = query.pop("item", "")
    full = api.parse_positions(query.pop("full", ""), "full")
    final_only = api.parse_positions(query.pop("final", ""), "final")
    if query or not (item.isascii() and item.isdigit() and len(item) <= 4):
        raise MalformedError("query", "expected item=NUMBER&full=POSITIONS&final=POSITIONS")
    if not worker.is_sealed(task_id):
        limits.looks.take(_caller(request))
        await desk.look()
    own = worker.sealed(task_id)
    limits.openings.take(_caller(request), task_id, item)
    what = await asyncio.to_thread(desk.drawn, own, int(item))
    what.check(full, final_only)
    opening = await asyncio.to_thread(worker.opening, own, int(item), full, final_only)
    return await asyncio.to_thread(encode_opening, opening)


def _caller(request: Request) -> str:
    return caller(None if request.client is None else request.client.host)


def _submission(raw: bytes) -> TaskSubmission:
    return TaskSubmission.from_json(api.loads(raw))


def _task_id(text: str) -> TaskId:
    return TaskId(api.parse_hash(text, "task"))
