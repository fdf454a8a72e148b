import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from eth_account import Account

from verillm.errors import ConfigError
from verillm.types import Hash32, JobId
from verillm_node.admission import Pending
from verillm_node.plead import Plea, Pleas
from verillm_node.store import Database, OutboxStore, Traces, master_secret
from verillm_node.tasks import TaskBook


def test_a_failed_transaction_leaves_nothing_behind(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.sqlite")
    with pytest.raises(RuntimeError), database.transaction():
        database.set_note("first", b"1")
        with database.transaction():
            database.set_note("second", b"2")
        raise RuntimeError
    assert database.note("first") is None
    assert database.note("second") is None
    database.close()


def test_what_is_written_is_there_after_kill_9(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from verillm_node.store import Database
database = Database(Path({str(tmp_path)!r}) / "store.sqlite")
number = 0
with database.transaction():
    database.set_note("half", b"begun")
    database.run("SELECT 1")
    print("open", flush=True)
while True:
    number += 1
    with database.transaction():
        database.set_note("a", str(number).encode())
        database.set_note("b", str(number).encode())
    print(number, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = 0
    for line in child.stdout:
        if line.strip().isdigit() and (seen := int(line)) >= 20:
            break
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split()
    child.stdout.close()
    assert child.wait(10) == -signal.SIGKILL
    last = int(rest[-1]) if rest else seen
    database = Database(tmp_path / "store.sqlite")
    a, b = database.note("a"), database.note("b")
    database.close()
    assert a == b is not None
    assert int(a or b"0") >= last


def test_a_second_daemon_on_one_store_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.sqlite")
    with pytest.raises(ConfigError, match="cannot use the store"):
        Database(tmp_path / "store.sqlite")
    database.close()


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.sqlite")
    database.run("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="newer version"):
        Database(tmp_path / "store.sqlite")


def test_a_store_of_the_first_version_is_brought_up_with_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    old = sqlite3.connect(path)
    old.execute(
        "CREATE TABLE tasks (task_id BLOB PRIMARY KEY, task_hash BLOB NOT NULL, wire BLOB NOT NULL,"
        " deadline INTEGER NOT NULL, lock TEXT NOT NULL, state TEXT NOT NULL, commitment BLOB,"
        " digest BLOB, job_id BLOB, party INTEGER, released INTEGER NOT NULL DEFAULT 0,"
        " final INTEGER NOT NULL DEFAULT 0, created REAL NOT NULL)"
    )
    old.execute(
        "INSERT INTO tasks (task_id, task_hash, wire, deadline, lock, state, created)"
        " VALUES (x'01', x'02', x'03', 100, '7', 'accepted', 0)"
    )
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    database = Database(path)
    assert TaskBook(database).pending(Account.create().address, 50, 0) == Pending(7, 0)
    assert Pleas(database).count(Plea.ASKED) == 0
    database.close()


def test_a_store_of_the_second_version_learns_of_pleas(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.sqlite")
    database.run("DROP TABLE pleas")
    database.run("PRAGMA user_version = 2")
    database.close()
    database = Database(tmp_path / "store.sqlite")
    pleas, job_id = Pleas(database), JobId(Hash32(b"j" * 32))
    pleas.open(job_id)
    pleas.end(job_id, Plea.WON)
    pleas.open(job_id)  # once a job, ever
    assert (pleas.find(job_id), pleas.count(Plea.ASKED)) == (Plea.WON, 0)
    database.close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"x" * 4096)
    with pytest.raises(ConfigError, match="cannot use the store"):
        Database(tmp_path / "store.sqlite")


def test_the_outbox_keeps_text_by_key(tmp_path: Path) -> None:
    database = Database(tmp_path / "store.sqlite")
    store = OutboxStore(database)
    store.put("post:1", "a")
    store.put("post:1", "b")
    store.put("seal:1", "c")
    store.delete("seal:1")
    database.close()
    again = OutboxStore(database := Database(tmp_path / "store.sqlite"))
    assert again.get("post:1") == "b"
    assert again.get("seal:1") is None
    assert again.list() == [("post:1", "b")]
    database.close()


def test_traces_are_swept_when_their_time_is_over_and_leftovers_of_a_crash_too(
    tmp_path: Path,
) -> None:
    traces = Traces(tmp_path, ttl_seconds=3600)
    traces.put(b"\x01" * 32, b"old")
    traces.put(b"\x02" * 32, b"new")
    leftover = tmp_path / ".half"
    leftover.write_bytes(b"x")
    hours_ago = time.time() - 7200
    os.utime(tmp_path / ("01" * 32 + ".vlt1"), (hours_ago, hours_ago))
    os.utime(leftover, (hours_ago, hours_ago))
    assert traces.sweep() == 2
    assert traces.get(b"\x01" * 32) is None
    assert traces.get(b"\x02" * 32) == b"new"


def test_the_master_secret_is_made_once_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "draw.secret"
    first = master_secret(path)
    assert master_secret(path) == first
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        master_secret(path)
