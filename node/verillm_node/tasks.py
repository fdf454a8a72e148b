"""What a worker remembers of its tasks: intent, outcome, and where the commitment went."""

import time
from dataclasses import dataclass
from enum import StrEnum

from eth_typing import ChecksumAddress

from verillm import api
from verillm.api import CommitmentEvent, TaskSubmission
from verillm.settlement import bond_of
from verillm.task import Task
from verillm.types import Hash32, JobId, TaskId
from verillm_node.admission import Pending
from verillm_node.store import Database


class TaskState(StrEnum):
    """The life of a task; `accepted` is the intent, the other three are outcomes."""

    ACCEPTED = "accepted"
    COMMITTED = "committed"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task as stored; `job_id` and `party` are known once its commitment is sealed."""

    task_hash: Hash32
    submission: TaskSubmission
    state: TaskState
    commitment: CommitmentEvent | None
    commitment_hash: Hash32 | None
    job_id: JobId | None
    party: int | None

    @property
    def task(self) -> Task:
        """The task itself."""
        return self.submission.task


class TaskBook:
    """The table of tasks. A task id is taken for good: one task, one commitment, ever."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self, submission: TaskSubmission, task_hash: Hash32) -> None:
        """Writes the intent to run a task."""
        task = submission.task
        self._db.run(
            "INSERT INTO tasks (task_id, task_hash, wire, scheduler, deadline, lock, bond, state,"
            " created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            task.task_id,
            task_hash,
            api.dumps(submission.to_json()).encode(),
            submission.scheduler,
            task.deadline,
            str(task.lock),
            str(bond_of(task.lock, task.fee)),
            TaskState.ACCEPTED,
            time.time(),
        )

    def reopened(self, submission: TaskSubmission, task_hash: Hash32) -> None:
        """Writes the intent to run a task in place of whatever came under its id."""
        with self._db.transaction():
            self._db.run("DELETE FROM tasks WHERE task_id = ?", submission.task.task_id)
            self.open(submission, task_hash)

    def unposted(self, now: int, grace: int, span: int) -> list[TaskRecord]:
        """Committed tasks that no job pays for, since `grace` after their deadline."""
        rows = self._db.all(
            "SELECT * FROM tasks WHERE state = ? AND released = 0"
            " AND deadline + ? <= ? AND deadline + ? > ?",
            TaskState.COMMITTED,
            grace,
            now,
            grace + span,
            now,
        )
        return [_record(dict(row)) for row in rows]

    def find(self, task_id: TaskId) -> TaskRecord | None:
        """A task by its id."""
        row = self._db.one("SELECT * FROM tasks WHERE task_id = ?", task_id)
        return None if row is None else _record(dict(row))

    def of_commitment(self, digest: Hash32) -> TaskRecord | None:
        """A task by what was committed to."""
        row = self._db.one("SELECT * FROM tasks WHERE digest = ?", digest)
        return None if row is None else _record(dict(row))

    def committed(self, task_id: TaskId, commitment: CommitmentEvent, digest: Hash32) -> None:
        """Writes the only commitment that this task will ever have; its trace is on disk."""
        changed = self._db.run(
            "UPDATE tasks SET state = ?, commitment = ?, digest = ?"
            " WHERE task_id = ? AND state = ?",
            TaskState.COMMITTED,
            api.dumps(commitment.to_json()).encode(),
            digest,
            task_id,
            TaskState.ACCEPTED,
        )
        if changed != 1:
            raise RuntimeError(f"task {task_id.hex()} is not open for a commitment")

    def ended(self, task_id: TaskId, state: TaskState) -> None:
        """Writes that a task ended without a commitment."""
        self._db.run(
            "UPDATE tasks SET state = ? WHERE task_id = ? AND state = ?",
            state,
            task_id,
            TaskState.ACCEPTED,
        )

    def reopen(self, task_id: TaskId) -> None:
        """A failed task may run again: it has shown no commitment."""
        self._db.run(
            "UPDATE tasks SET state = ? WHERE task_id = ? AND state IN (?, ?)",
            TaskState.ACCEPTED,
            task_id,
            TaskState.FAILED,
            TaskState.ABANDONED,
        )

    def unfinished(self) -> list[TaskRecord]:
        """Tasks begun and not ended, oldest first."""
        rows = self._db.all(
            "SELECT * FROM tasks WHERE state = ? ORDER BY created", TaskState.ACCEPTED
        )
        return [_record(dict(row)) for row in rows]

    def pending(self, scheduler: ChecksumAddress, now: int, grace: int) -> Pending:
        """What open tasks may still lock on the chain: all on us, one scheduler's on itself.

        A task counts until the chain shows its commitment, or until no one can post it any more.
        """
        rows = self._db.all(
            "SELECT scheduler, lock, bond FROM tasks"
            " WHERE released = 0 AND state IN (?, ?) AND deadline + ? > ?",
            TaskState.ACCEPTED,
            TaskState.COMMITTED,
            grace,
            now,
        )
        bonds = sum(int(row["bond"]) for row in rows if row["scheduler"] == scheduler)
        return Pending(sum(int(row["lock"]) for row in rows), bonds)

    def on_chain(self, digest: Hash32) -> None:
        """Marks a task whose commitment the chain shows: its lock is counted there now."""
        self._db.run("UPDATE tasks SET released = 1 WHERE digest = ?", digest)

    def sealed(self, task_id: TaskId, job_id: JobId, party: int, paid: bool = True) -> None:
        """Marks a task as sealed: from now on its openings are public.

        paid : whether the job could pay for the work; if not, its fee is still to be claimed.
        """
        self._db.run(
            "UPDATE tasks SET job_id = ?, party = ?, released = ? WHERE task_id = ?",
            job_id,
            party,
            int(paid),
            task_id,
        )

    def of_job(self, job_id: JobId) -> list[TaskRecord]:
        """Own tasks in a sealed job."""
        rows = self._db.all("SELECT * FROM tasks WHERE job_id = ?", job_id)
        return [_record(dict(row)) for row in rows]

    def unsettled(self) -> list[JobId]:
        """Jobs with own sealed tasks that are not final yet, as far as we know."""
        rows = self._db.all("SELECT DISTINCT job_id FROM tasks WHERE job_id NOT NULL AND final = 0")
        return [JobId(Hash32(bytes(row["job_id"]))) for row in rows]

    def settled(self, job_id: JobId) -> None:
        """Marks a job as final: nobody will ask for its evidence on the chain any more."""
        self._db.run("UPDATE tasks SET final = 1 WHERE job_id = ?", job_id)

    def counts(self) -> dict[str, int]:
        """How many tasks are in each state."""
        rows = self._db.all("SELECT state, COUNT(*) AS many FROM tasks GROUP BY state")
        return {row["state"]: row["many"] for row in rows}


def _record(row: dict[str, object]) -> TaskRecord:
    commitment, wire, party = row["commitment"], row["wire"], row["party"]
    digest, job_id = row["digest"], row["job_id"]
    return TaskRecord(
        task_hash=Hash32(_blob(row["task_hash"])),
        submission=TaskSubmission.from_json(api.loads(_blob(wire))),
        state=TaskState(str(row["state"])),
        commitment=None
        if commitment is None
        else CommitmentEvent.from_json(api.loads(_blob(commitment))),
        commitment_hash=None if digest is None else Hash32(_blob(digest)),
        job_id=None if job_id is None else JobId(Hash32(_blob(job_id))),
        party=party if isinstance(party, int) else None,
    )


def _blob(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected a blob, found {type(value).__name__}")
    return value
