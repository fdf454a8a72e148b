"""Bundles from files and from servers that may be hostile: bytes, or one coded error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from verillm.types import Hash32, JobId
from verillm_verifier import fetch
from verillm_verifier.errors import BundleUnavailable

JOB = JobId(Hash32(b"j" * 32))
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server on a free port whose GET is `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


def body(data: bytes, status: int = 200) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    return answer


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "bundle").write_bytes(b"VLB1")
    assert fetch.read_bundle(str(tmp_path / "bundle"), JOB) == b"VLB1"


@pytest.mark.parametrize("name", ["absent", "."])
def test_a_file_that_is_none_is_a_coded_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleUnavailable):
        fetch.read_bundle(str(tmp_path / name), JOB)


def test_a_schedulers_endpoint_is_asked_for_the_jobs_bundle() -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.path)
        body(b"VLB1")(request)

    with serving(answer) as endpoint:
        assert fetch.read_bundle(endpoint, JOB) == b"VLB1"
        assert fetch.read_bundle(endpoint + "/", JOB) == b"VLB1"
        assert fetch.read_bundle(endpoint + "/mirror/bundle", JOB) == b"VLB1"
    path = f"/v1/jobs/0x{JOB.hex()}/bundle"
    assert seen == [path, path, "/mirror/bundle"]


def test_a_refusal_is_a_coded_error() -> None:
    with serving(body(b"", 404)) as endpoint, pytest.raises(BundleUnavailable, match="404"):
        fetch.read_bundle(endpoint, JOB)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 1000)
    with serving(body(bytes(2000))) as endpoint, pytest.raises(BundleUnavailable, match="over"):
        fetch.read_bundle(endpoint, JOB)


def test_an_oversized_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 10)
    (tmp_path / "bundle").write_bytes(bytes(11))
    with pytest.raises(BundleUnavailable, match="over"):
        fetch.read_bundle(str(tmp_path / "bundle"), JOB)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://", "http://[::1", "http://\udcff"])
def test_nobody_there_or_a_broken_url_is_a_coded_error(url: str) -> None:
    with pytest.raises(BundleUnavailable):
        fetch.read_bundle(url, JOB)


def test_a_broken_connection_is_a_coded_error() -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-length", "1000")
        request.end_headers()
        request.wfile.write(b"short")

    with serving(answer) as endpoint, pytest.raises(BundleUnavailable):
        fetch.read_bundle(endpoint, JOB)
