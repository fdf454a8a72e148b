"""Steps, which are all that touches the world, and flows: generators of steps, for a driver."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

import httpx

from verillm import api
from verillm.errors import MalformedError, RemoteError

T = TypeVar("T")
MAX_FILE: Final = 64 << 20
UNREACHABLE: Final = "check the scheduler's address, and that it runs"


@dataclass(frozen=True, slots=True)
class Ask:
    """A blocking question to the chain or the disk."""

    question: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """An HTTP exchange whose answer is read in pieces; answered by a `Source`."""

    method: str
    url: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class Source:
    """An answer that is being read."""

    response: httpx.Response
    pieces: Any


@dataclass(frozen=True, slots=True)
class Read:
    """The next piece, None at the end."""

    source: Source


@dataclass(frozen=True, slots=True)
class Close:
    """The end of an exchange, whether or not all was read."""

    source: Source


Step = Ask | Sleep | Open | Read | Close
Flow = Generator[Step, Any, T]


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A flow's end."""

    value: T


def resume(flow: Flow[T], answer: Any, error: BaseException | None) -> Step | Done[T]:
    """Give a flow what its last step brought; its next step, or its end."""
    try:
        return flow.send(answer) if error is None else flow.throw(error)
    except StopIteration as done:
        return Done(done.value)


def ask(question: Callable[[], T]) -> Flow[T]:
    """The answer to a question."""
    answer: T = yield Ask(question)
    return answer


def fetch(method: str, url: str, body: bytes | None = None) -> Flow[bytes]:
    """A whole answer of bounded size; raises RemoteError for a refusal."""
    try:
        source: Source = yield Open(method, url, body)
        answer = yield from read_all(source)
    except httpx.HTTPError as error:
        raise unreachable(url, error) from error
    if source.response.is_error:
        refuse(source.response.status_code, answer)
    return answer


def read_all(source: Source) -> Flow[bytes]:
    """The rest of an answer, closed behind it; raises MalformedError for more than MAX_FILE."""
    answer = bytearray()
    try:
        while (piece := (yield Read(source))) is not None:
            answer += piece
            if len(answer) > MAX_FILE:
                raise MalformedError("answer", f"over {MAX_FILE} bytes")
    finally:
        yield Close(source)
    return bytes(answer)


def refuse(status: int, answer: bytes) -> NoReturn:
    """Raise what a refusal says of itself."""
    try:
        body = api.ErrorBody.from_json(api.loads(answer))
    except MalformedError as error:
        raise RemoteError(f"http_{status}", f"HTTP {status}", UNREACHABLE) from error
    raise RemoteError(body.code, body.message, body.remedy)


def unreachable(url: str, error: Exception) -> RemoteError:
    """What to raise when no answer came."""
    said = str(error) or type(error).__name__
    return RemoteError("scheduler_unreachable", f"{url}: {said}", UNREACHABLE)
