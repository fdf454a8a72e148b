"""Server-sent events: one event's bytes, and a bounded parser that takes the stream in any pieces.

Only the fields that we send are understood (`id`, `event`, `data`, comments); an event is
dispatched at its blank line, so a connection that breaks inside one loses all of it and is resumed
before it.
"""

from dataclasses import dataclass

from verillm.errors import MalformedError

MEDIA_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
MAX_EVENT_BYTES = 4 << 20
KEEP_ALIVE = b": keep-alive\n\n"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event as it travels; `id` counts the events of one stream from 1, 0 = without an id."""

    id: int
    name: str
    data: str

    def encode(self) -> bytes:
        """The event's bytes; data without line breaks, as JSON from us always is."""
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n".encode()


class Parser:
    """Turns the bytes of a stream into events; raises MalformedError on what cannot be ours."""

    __slots__ = ("_data", "_held", "_id", "_line_parts", "_name", "_size")

    def __init__(self) -> None:
        # Pieces of the line that is not over yet: joined once, or a line in tiny pieces would be
        # copied again for each.
        self._line_parts: list[bytes] = []
        self._held = 0
        self._reset()

    def _reset(self) -> None:
        self._id, self._name, self._size = 0, "message", 0
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that `piece` completes, in order."""
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._line_parts, lines[0]])
            self._line_parts, self._held = [], 0
        self._line_parts.append(rest)
        self._held += len(rest)
        if self._held > MAX_EVENT_BYTES:
            raise MalformedError("event", "a line of the stream is too long")
        events = (self._line(line.removesuffix(b"\r")) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        self._size += len(line)
        if self._size > MAX_EVENT_BYTES:
            raise MalformedError("event", "an event of the stream is too long")
        try:
            field, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise MalformedError("event", "the stream is not UTF-8") from error
        self._field(field, value.removeprefix(" "))
        return None

    def _field(self, field: str, value: str) -> None:
        if field == "id":
            self._id = parse_event_id(value)
        elif field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._id, self._name, "\n".join(self._data)) if self._data else None
        self._reset()
        return event


def parse_event_id(text: str) -> int:
    """A stream position as `id:` or Last-Event-ID carries it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise MalformedError("event.id", "not a small decimal number")
    return int(text)
