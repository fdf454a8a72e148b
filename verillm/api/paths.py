"""Where the schedulers' and workers' endpoints are, and the query of an opening."""

from collections.abc import Iterable
from typing import Final

from verillm.api.fields import to_hex
from verillm.api.limits import MAX_TOKENS
from verillm.errors import MalformedError
from verillm.types import JobId, ModelId, TaskId

VERSION: Final = "v1"
INFO: Final = "/v1/info"
MODELS: Final = "/v1/models"
QUOTES: Final = "/v1/quotes"
JOBS: Final = "/v1/jobs"
TASKS: Final = "/v1/tasks"


def tokenizer_path(model_id: ModelId) -> str:
    """Where a scheduler serves a model's tokenizer.json."""
    return f"{MODELS}/{to_hex(model_id)}/tokenizer"


def template_path(model_id: ModelId) -> str:
    """Where a scheduler serves a model's chat template."""
    return f"{MODELS}/{to_hex(model_id)}/template"


def job_path(job_id: JobId, part: str = "") -> str:
    """A job at its scheduler (`events`, `bundle`) or worker (`attest`)."""
    return f"{JOBS}/{to_hex(job_id)}" + (f"/{part}" if part else "")


def task_path(task_id: TaskId, part: str = "") -> str:
    """A task at its worker (`events`, `opening`)."""
    return f"{TASKS}/{to_hex(task_id)}" + (f"/{part}" if part else "")


def opening_query(item: int, full: Iterable[int], final: Iterable[int]) -> dict[str, str]:
    """Query of an opening: positions with slices and final state, those with the final only."""
    return {
        "item": str(item),
        "full": ",".join(map(str, full)),
        "final": ",".join(map(str, final)),
    }


def parse_positions(text: str, field: str) -> tuple[int, ...]:
    """Positions of an opening's query; empty text is none."""
    parts = text.split(",") if text else []
    if len(parts) > MAX_TOKENS or not all(
        p.isascii() and p.isdigit() and len(p) <= 8 for p in parts
    ):
        raise MalformedError(field, "not a list of positions like 1,5,9")
    return tuple(map(int, parts))
