"""A scheduler's HTTP face: models, quotes, jobs and their streams, bundles."""

import asyncio

from fastapi import FastAPI, Request, Response

from verillm import api
from verillm.api import Info, JobSubmission, ModelOffer, Models, QuoteRequest
from verillm.engine.describe import read_template
from verillm.errors import NotFound
from verillm.types import JobId, ModelId
from verillm_node.http import answer, last_event_id, make_app, read_body, stream
from verillm_node.scheduler import Scheduler
from verillm_node.threads import blocking

MAX_QUOTE_BYTES = 4096


def scheduler_app(scheduler: Scheduler, info: Info) -> FastAPI:
    """The app of one scheduler."""
    app = make_app("verillm scheduler", scheduler.metrics)
    _add_models(app, scheduler)

    @app.get(api.INFO)
    async def show_info() -> Response:
        return answer(info.to_json())

    @app.post(api.QUOTES)
    async def post_quote(request: Request) -> Response:
        body = api.loads(await read_body(request, MAX_QUOTE_BYTES))
        return answer((await scheduler.quote(QuoteRequest.from_json(body).model_id)).to_json())

    @app.post(api.JOBS)
    async def post_job(request: Request) -> Response:
        raw = await read_body(request, api.MAX_BODY_BYTES)
        submission = await asyncio.to_thread(_submission, raw)
        return stream(await scheduler.submit(submission), last_event_id(request))

    @app.get(api.JOBS + "/{job}")
    async def show_job(job: str) -> Response:
        return answer(scheduler.status(_job_id(job)).to_json())

    @app.get(api.JOBS + "/{job}/events")
    async def follow_job(job: str, request: Request) -> Response:
        return stream(scheduler.feed(_job_id(job)), last_event_id(request))

    @app.get(api.JOBS + "/{job}/bundle")
    async def show_bundle(job: str) -> Response:
        data = await blocking(scheduler.bundle, _job_id(job))
        return Response(data, media_type="application/octet-stream")

    return app


def _add_models(app: FastAPI, scheduler: Scheduler) -> None:
    context = scheduler.context

    @app.get(api.MODELS)
    async def show_models() -> Response:
        offers = tuple(
            ModelOffer(each.model_id, each.unit_price, each.spec)
            for each in context.offers.values()
        )
        return answer(Models(offers).to_json())

    @app.get(api.MODELS + "/{model}/tokenizer")
    async def show_tokenizer(model: str) -> Response:
        folder = context.offer(_model_id(model)).folder
        if folder is None:
            raise NotFound("this scheduler does not hold the model's tokenizer")
        data = await blocking((folder / "tokenizer.json").read_bytes)
        return Response(data, media_type="application/json")

    @app.get(api.MODELS + "/{model}/template")
    async def show_template(model: str) -> Response:
        folder = context.offer(_model_id(model)).folder
        if folder is None:
            raise NotFound("this scheduler does not hold the model's chat template")
        return Response((await blocking(read_template, folder)).encode(), media_type="text/plain")


def _submission(raw: bytes) -> JobSubmission:
    return JobSubmission.from_json(api.loads(raw))


def _job_id(text: str) -> JobId:
    return JobId(api.parse_hash(text, "job"))


def _model_id(text: str) -> ModelId:
    return ModelId(api.parse_hash(text, "model"))
