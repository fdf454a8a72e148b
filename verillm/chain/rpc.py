"""JSON-RPC through any web3 provider, with what a daemon needs: timeouts, few retries, bounded
answers read strictly, and two kinds of failure only: the server is unreachable, or it refused.
"""

import time
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
from web3.exceptions import Web3Exception
from web3.providers.base import BaseProvider, JSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from verillm.errors import ChainUnreachable, MalformedError
from verillm.types import Hash32

MAX_ANSWER_BYTES: Final = 64 << 20
_BACKOFF: Final = 0.1
# Sending the same signed transaction twice is one transaction, so every method may be repeated.
_RETRIED: Final = (
    httpx.ConnectError,
    httpx.ReadError,
    httpx.RemoteProtocolError,
    httpx.PoolTimeout,
)


Provider = str | BaseProvider
"""An RPC server's address, or any (synchronous) provider of web3's."""


class RpcRefused(Exception):
    """The server answered a call with an error: its code, message and, of a revert, the data."""

    def __init__(self, code: int, message: str, data: bytes) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class AnswerTooLong(ChainUnreachable):
    """An answer that is longer than any that we read: ask for less."""


class HttpProvider(JSONBaseProvider):
    """One RPC server. Raises ChainUnreachable after `attempts`, never an HTTP library's error.

    web3's own provider bounds no answer's size and leaves its sockets to the garbage collector.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, attempts: int = 3) -> None:
        super().__init__()
        self.url, self._attempts = url, attempts
        self.shown = shown(url)
        headers = {"content-type": "application/json"}
        self._http = httpx.Client(timeout=timeout, headers=headers, trust_env=False)

    def make_request(self, method: RPCEndpoint, params: object) -> RPCResponse:
        """One call; an error that the server answers stays in the response."""
        body = self.encode_rpc_request(method, params)
        for attempt in range(1, self._attempts + 1):
            try:
                return self._decode(self._post(body))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if attempt == self._attempts or not isinstance(error, _RETRIED):
                    raise ChainUnreachable(self.shown, f"{error!r}") from error
                time.sleep(_BACKOFF * 2 ** (attempt - 1))
        raise ChainUnreachable(self.shown, "no attempt was allowed")

    def _post(self, body: bytes) -> bytes:
        with self._http.stream("POST", self.url, content=body) as response:
            answer = bytearray()
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    raise AnswerTooLong(self.shown, f"answer over {MAX_ANSWER_BYTES} bytes")
            return bytes(answer)

    def _decode(self, answer: bytes) -> RPCResponse:
        try:
            decoded: object = self.decode_rpc_response(answer)
        except (ValueError, RecursionError) as error:
            raise ChainUnreachable(self.shown, "its answer is not JSON") from error
        if not isinstance(decoded, dict) or not ("result" in decoded or "error" in decoded):
            raise ChainUnreachable(self.shown, "its answer is not JSON-RPC")
        return cast(RPCResponse, decoded)

    def close(self) -> None:
        """Close its sockets."""
        self._http.close()


def shown(url: str) -> str:
    """A server as messages and logs may name it: users, paths and queries often hold tokens."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the RPC server"
    hidden = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{host}{hidden}" if host else url


@dataclass(frozen=True, slots=True)
class Rpc:
    """Calls through a provider of web3's."""

    provider: BaseProvider
    name: str
    owned: bool

    @classmethod
    def of(cls, rpc: Provider) -> "Rpc":
        """A URL gets our own provider."""
        if isinstance(rpc, str):
            return cls(HttpProvider(rpc), shown(rpc), owned=True)
        named = getattr(rpc, "url", None) or getattr(rpc, "endpoint_uri", type(rpc).__name__)
        return cls(rpc, shown(str(named)), owned=False)

    def call(self, method: str, *params: object) -> Any:
        """The result; raises RpcRefused if the server says no, ChainUnreachable if nothing."""
        try:
            response = self.provider.make_request(RPCEndpoint(method), list(params))
        except (OSError, Web3Exception, ValueError) as error:
            raise ChainUnreachable(self.name, f"{error!r}") from error
        if (refusal := response.get("error")) is not None:
            raise _refused(refusal)
        return response.get("result")

    def close(self) -> None:
        """Close the provider, unless it is the caller's."""
        if self.owned and isinstance(self.provider, HttpProvider):
            self.provider.close()


def _refused(refusal: Any) -> RpcRefused:
    if not isinstance(refusal, dict):
        return RpcRefused(0, str(refusal)[:1000], b"")
    code, data = refusal.get("code"), refusal.get("data")
    if isinstance(data, dict):  # some servers nest it
        data = data.get("data") or data.get("result")
    try:
        raw = bytes.fromhex(data[2:]) if isinstance(data, str) and data[:2] == "0x" else b""
    except ValueError:
        raw = b""
    message = str(refusal.get("message", ""))[:1000]
    return RpcRefused(code if isinstance(code, int) else 0, message, raw)


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────
def quantity(value: object, field: str, bits: int = 64) -> int:
    """An unsigned integer as JSON-RPC writes it; raises MalformedError."""
    if not isinstance(value, str) or not value.startswith("0x") or len(value) > 2 + bits // 4:
        raise MalformedError(field, f"not a quantity of {bits} bits")
    try:
        number = int(value[2:], 16)
    except ValueError as error:
        raise MalformedError(field, "not a quantity") from error
    if number < 0:
        raise MalformedError(field, "negative")
    return number


def data(value: object, field: str) -> bytes:
    """Bytes as JSON-RPC writes them; raises MalformedError."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise MalformedError(field, "not 0x hex")
    try:
        return bytes.fromhex(value[2:])
    except ValueError as error:
        raise MalformedError(field, "not 0x hex") from error


def hash32(value: object, field: str) -> Hash32:
    """32 bytes; raises MalformedError."""
    found = data(value, field)
    if len(found) != 32:
        raise MalformedError(field, "not 32 bytes")
    return Hash32(found)


def record(value: object, field: str) -> dict[str, Any]:
    """An object; raises MalformedError."""
    if not isinstance(value, dict):
        raise MalformedError(field, "not an object")
    return value
