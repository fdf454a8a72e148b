import io
import json
import logging
from collections.abc import Iterator

import pytest

from verillm_node import log

KEY = "4f3edf983ac636a65a842ce7c78d9aa706d3b113bce9c46f30d7d21715b23b1d"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    log.configure("INFO", stream)
    yield stream
    logging.basicConfig(handlers=handlers, level=level, force=True)


def test_an_event_is_one_line_of_json_with_its_fields(written: io.StringIO) -> None:
    logging.getLogger("verillm_node.worker").info("task_ended", extra={"task": b"\x01\x02", "s": 3})
    line = json.loads(written.getvalue())
    assert (line["event"], line["task"], line["s"]) == ("task_ended", "0x0102", 3)
    assert (line["level"], line["source"]) == ("info", "verillm_node.worker")


@pytest.mark.parametrize(
    "name",
    ["secret", "draw_secret", "password", "private_key", "hot_key", "prompt", "output", "tokens"],
)
def test_a_field_that_must_stay_here_is_blanked(written: io.StringIO, name: str) -> None:
    logger = logging.getLogger("test")
    logger.info("event", extra={name: KEY, "nested": {name: KEY, "deep": {name: KEY}}})
    assert KEY not in written.getvalue()
    assert written.getvalue().count(log.REDACTED) == 3


def test_an_exception_is_written_with_its_trace(written: io.StringIO) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("test").exception("engine_failed")
    assert "ValueError: boom" in json.loads(written.getvalue())["trace"]
