"""JSON logs: the event's name is the message, its fields come by `extra=`.

Whatever a caller passes, a field whose name speaks of a secret, of a prompt or of an output is
replaced before it is formatted: logs travel further than keys may.
"""

import json
import logging
import re
import sys
import time
from typing import Any, TextIO

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"secret|password|private|mnemonic|keystore|prompt$|output$|^tokens$|^text$|^key$|_key$", re.I
)
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Redact(logging.Filter):
    """Blanks fields that must not reach a log, also inside nested mappings."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every record; changes the fields of some."""
        for name in set(vars(record)) - _PLAIN:
            setattr(record, name, _redacted(name, getattr(record, name)))
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, source, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "source": record.name,
            "event": record.getMessage(),
        }
        line |= {name: _plain(vars(record)[name]) for name in vars(record) if name not in _PLAIN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends every log of this process to `stream` (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(Redact())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "web3", "urllib3", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _redacted(name: str, value: object) -> object:
    if _SECRET_NAME.search(name):
        return REDACTED
    if isinstance(value, dict):
        return {key: _redacted(str(key), inner) for key, inner in value.items()}
    return value


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
