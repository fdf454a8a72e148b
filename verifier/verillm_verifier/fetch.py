"""A bundle from a file or from whoever serves it: bounded, timed, never trusted."""

from pathlib import Path
from typing import Final

import httpx

from verillm import api
from verillm.types import JobId
from verillm_verifier.errors import BundleUnavailable

MAX_BYTES: Final = 256 << 20
TIMEOUT: Final = 30.0


def bundle_url(endpoint: str, job_id: JobId) -> str:
    """Where a scheduler serves a job's bundle."""
    return endpoint.rstrip("/") + api.job_path(job_id, "bundle")


def read_bundle(source: str, job_id: JobId) -> bytes:
    """The bytes of a bundle from a path, or from a URL of the bundle or of a scheduler.

    Raises BundleUnavailable, and no other error, whatever the far side does.
    """
    if source.startswith(("http://", "https://")):
        whole = source if source.rstrip("/").endswith("/bundle") else bundle_url(source, job_id)
        return _download(whole)
    return _read(Path(source))


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleUnavailable(f"{path} is over {MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BundleUnavailable(f"cannot read {path}: {error.strerror}") from error


def _download(url: str) -> bytes:
    try:
        with httpx.stream("GET", url, timeout=TIMEOUT, trust_env=False) as response:
            if response.status_code != httpx.codes.OK:
                raise BundleUnavailable(f"{url} answers {response.status_code}")
            return _body(url, response)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise BundleUnavailable(f"{url}: {error!r}") from error


def _body(url: str, response: httpx.Response) -> bytes:
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_BYTES:
            raise BundleUnavailable(f"{url} sends over {MAX_BYTES} bytes")
    return bytes(body)
