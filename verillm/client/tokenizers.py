"""Tokenizers and templates on disk, kept under their hashes."""

import hashlib
import os
import secrets
from pathlib import Path

import platformdirs

from verillm.types import Hash32


def cache_folder() -> Path:
    """Where they are kept unless told otherwise."""
    home = os.environ.get("VERILLM_HOME")
    return (Path(home) if home else platformdirs.user_cache_path("verillm")) / "tokenizers"


def read_cached(path: Path, digest: Hash32) -> bytes | None:
    """A kept file, if it is there and still what its hash names."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).digest() == digest else None


def write_cached(path: Path, content: bytes) -> None:
    """Keep a checked file, whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:  # a cache is a convenience; the content was checked
        partial.unlink(missing_ok=True)
