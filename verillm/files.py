"""Files that are whole or absent: written beside their place, synced, then renamed."""

import contextlib
import os
import tempfile
from pathlib import Path

from verillm.errors import InputError


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces `path` by `data`; after a crash either the old or the new content is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    sync_directory(path.parent)


def make_room(path: Path) -> None:
    """Makes the folder of a file that long work will end in; InputError if it cannot be there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: its folder is read-only")


def sync_directory(folder: Path) -> None:
    """Makes a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
