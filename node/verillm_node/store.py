"""What a daemon must not forget: SQLite (WAL, every commit synced) and trace files.

A daemon may die between any two instructions. So the order is always: write the intent, do it,
write the outcome; what was begun is found again by `unfinished`. Amounts are stored as decimal
text, because a `uint96` exceeds what SQLite calls an integer.
"""

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from verillm.errors import ConfigError
from verillm.files import sync_directory, write_atomically

VERSION = 3
_LEFTOVER_SECONDS = 600  # no write takes so long: its writer is dead
_TABLES = """
CREATE TABLE tasks (
    task_id BLOB PRIMARY KEY, task_hash BLOB NOT NULL, wire BLOB NOT NULL,
    scheduler TEXT NOT NULL, deadline INTEGER NOT NULL, lock TEXT NOT NULL, bond TEXT NOT NULL,
    state TEXT NOT NULL,
    commitment BLOB, digest BLOB, job_id BLOB, party INTEGER,
    released INTEGER NOT NULL DEFAULT 0, final INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL);
CREATE INDEX tasks_by_job ON tasks (job_id);
CREATE TABLE quotes (
    quote BLOB PRIMARY KEY, nonce BLOB NOT NULL UNIQUE, expiry INTEGER NOT NULL,
    job_id BLOB UNIQUE);
CREATE TABLE jobs (
    job_id BLOB PRIMARY KEY, wire BLOB NOT NULL, state TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE parties (
    job_id BLOB NOT NULL, k INTEGER NOT NULL, seat INTEGER NOT NULL, owner TEXT NOT NULL,
    task BLOB NOT NULL, commitment BLOB, PRIMARY KEY (job_id, k));
CREATE TABLE facts (
    job_id BLOB NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job_id, name));
CREATE TABLE events (
    job_id BLOB NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
CREATE TABLE outbox (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE pleas (job_id BLOB PRIMARY KEY, state TEXT NOT NULL);
"""
_PLEAS = "CREATE TABLE pleas (job_id BLOB PRIMARY KEY, state TEXT NOT NULL)"
_SINCE = {
    1: (
        "ALTER TABLE tasks ADD COLUMN scheduler TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE tasks ADD COLUMN bond TEXT NOT NULL DEFAULT '0'",
        _PLEAS,
    ),
    2: (_PLEAS,),
    VERSION: (),
}
"""What brings a store of each version to this one."""


class Database:
    """One SQLite file, used by all threads of one process and by no other process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.RLock()
        self._depth = 0
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._open()

    def _open(self) -> None:
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._migrate()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ConfigError(f"cannot use the store {self.path}: {error}") from error

    def _migrate(self) -> None:
        found = self.one("PRAGMA user_version")
        version = found[0] if found else 0
        if version > VERSION:
            raise ConfigError(f"{self.path} was written by a newer version ({version})")
        with self.transaction():
            for statement in _TABLES.split(";") if version == 0 else _SINCE[version]:
                if statement.strip():
                    self.run(statement)
            self.run(f"PRAGMA user_version = {VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """All or nothing, on disk when the block ends; nests."""
        with self._lock:
            outermost = self._depth == 0
            if outermost:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield self
            except BaseException:
                if outermost:
                    self._connection.execute("ROLLBACK")
                raise
            else:
                if outermost:
                    self._connection.execute("COMMIT")
            finally:
                self._depth -= 1

    def run(self, sql: str, *values: Any) -> int:
        """Executes one statement; how many rows it changed."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row, if any."""
        with self._lock:
            found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
            return found

    def all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Every row."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def note(self, name: str) -> bytes | None:
        """A small value by its name."""
        row = self.one("SELECT value FROM notes WHERE name = ?", name)
        return bytes(row["value"]) if row else None

    def set_note(self, name: str, value: bytes) -> None:
        """Keeps a small value under its name."""
        self.run("INSERT OR REPLACE INTO notes VALUES (?, ?)", name, value)

    def close(self) -> None:
        """Folds the log into the file and lets go of it."""
        with self._lock:
            self._connection.close()


class OutboxStore:
    """Durable text by key, as `verillm.chain.wallet.Outbox` wants it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, key: str, value: str) -> None:
        """Writes or overwrites; on disk when this returns."""
        self._db.run("INSERT OR REPLACE INTO outbox VALUES (?, ?)", key, value)

    def get(self, key: str) -> str | None:
        """Reads, None if never put."""
        row = self._db.one("SELECT value FROM outbox WHERE key = ?", key)
        return None if row is None else str(row["value"])

    def delete(self, key: str) -> None:
        """Forgets."""
        self._db.run("DELETE FROM outbox WHERE key = ?", key)

    def list(self) -> list[tuple[str, str]]:
        """All keys and values."""
        return [(row["key"], row["value"]) for row in self._db.all("SELECT * FROM outbox")]


class Traces:
    """Committed traces on disk: whole or absent, kept for a time to live."""

    SUFFIX = ".vlt1"

    def __init__(self, folder: Path, ttl_seconds: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._ttl = ttl_seconds

    def put(self, task_id: bytes, data: bytes) -> None:
        """Stores a trace; on disk when this returns."""
        write_atomically(self._path(task_id), data, 0o600)

    def get(self, task_id: bytes) -> bytes | None:
        """The trace of a task, if it is still kept."""
        try:
            return self._path(task_id).read_bytes()
        except FileNotFoundError:
            return None

    def sweep(self, now: float | None = None) -> int:
        """Removes what outlived its time, and leftovers of a crash; how many files went."""
        now = time.time() if now is None else now
        gone = 0
        for path in self.folder.iterdir():
            keep = _LEFTOVER_SECONDS if path.name.startswith(".") else self._ttl
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < now - keep:
                    path.unlink()
                    gone += 1
        if gone:
            sync_directory(self.folder)
        return gone

    def _path(self, task_id: bytes) -> Path:
        return self.folder / (task_id.hex() + self.SUFFIX)


def master_secret(path: Path) -> bytes:
    """The one secret behind every draw secret; made once, readable by its owner alone.

    Why a file of its own and not the database: it must survive a lost store, or every open job's
    draw is lost with it.
    """
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        secret = secrets.token_bytes(32)
        write_atomically(path, secret, 0o600)
    if len(secret) != 32:
        raise ConfigError(f"{path} must hold 32 bytes")
    os.chmod(path, 0o600)
    return secret
