"""What a scheduler remembers: quotes (each used once), jobs, parties, every event it streamed."""

import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from eth_typing import ChecksumAddress

from verillm import api
from verillm.api import CommitmentEvent, JobEvent, JobSubmission, TaskSubmission
from verillm.errors import QuoteExpiredError, ReplayError
from verillm.sse import ServerEvent
from verillm.types import Hash32, JobId
from verillm_node.store import Database

OPEN = "open"
CLOSED = "closed"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Party:
    """One worker of a job: k = 0 the inferencer, 1..m the committee in drawn order."""

    k: int
    seat: int
    owner: ChecksumAddress
    submission: TaskSubmission
    commitment: CommitmentEvent | None


@dataclass(frozen=True, slots=True)
class ClaimedWork:
    """What a worker claimed on the chain of a job that was never posted."""

    commitment: Hash32
    outputs: tuple[tuple[int, ...], ...]

    def to_bytes(self) -> bytes:
        """For the store."""
        outputs = [list(output) for output in self.outputs]
        return json.dumps({"commitment": self.commitment.hex(), "outputs": outputs}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """From the store."""
        held = json.loads(data)
        outputs = tuple(tuple(output) for output in held["outputs"])
        return cls(Hash32(bytes.fromhex(held["commitment"])), outputs)


class JobBook:
    """The tables of one scheduler."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def transaction(self) -> AbstractContextManager[Database]:
        """Several writes, all or none."""
        return self._db.transaction()

    # ── Quotes ───────────────────────────────────────────────────────────────────────────────────
    def add_quote(self, quote: Hash32, nonce: bytes, expiry: int) -> None:
        """Remembers a quote by its struct hash, and the nonce that its secret derives from."""
        self._db.run("INSERT INTO quotes (quote, nonce, expiry) VALUES (?, ?, ?)",
                     quote, nonce, expiry)  # fmt: skip

    def forget_quotes(self, now: int) -> None:
        """Drops expired quotes that no job used."""
        self._db.run("DELETE FROM quotes WHERE job_id IS NULL AND expiry < ?", now)

    def nonce_of(self, quote: Hash32) -> bytes:
        """The nonce of a quote of ours; raises `QuoteExpiredError` for any other."""
        row = self._db.one("SELECT nonce FROM quotes WHERE quote = ?", quote)
        if row is None:
            raise QuoteExpiredError(0)
        return bytes(row["nonce"])

    # ── Jobs ─────────────────────────────────────────────────────────────────────────────────────
    def open(self, job_id: JobId, submission: JobSubmission) -> None:
        """Takes a job and uses up its quote, both or neither; raises `ReplayError`."""
        with self._db.transaction():
            used = self._db.run(
                "UPDATE quotes SET job_id = ? WHERE quote = ? AND job_id IS NULL",
                job_id,
                submission.job.quote,
            )
            if used != 1:
                raise ReplayError("this quote was used for another job")
            self._db.run(
                "INSERT INTO jobs (job_id, wire, state, created) VALUES (?, ?, ?, ?)",
                job_id,
                api.dumps(submission.to_json()).encode(),
                OPEN,
                time.time(),
            )

    def find(self, job_id: JobId) -> JobSubmission | None:
        """A job as it was submitted."""
        row = self._db.one("SELECT wire FROM jobs WHERE job_id = ?", job_id)
        return None if row is None else JobSubmission.from_json(api.loads(bytes(row["wire"])))

    def every_job(self) -> list[tuple[JobId, bytes]]:
        """All jobs ever taken, the newest first, each with the nonce of its secret."""
        rows = self._db.all(
            "SELECT jobs.job_id, nonce FROM jobs JOIN quotes ON quotes.job_id = jobs.job_id"
            " ORDER BY jobs.created DESC"
        )
        return [(JobId(Hash32(bytes(row["job_id"]))), bytes(row["nonce"])) for row in rows]

    def state(self, job_id: JobId) -> str | None:
        """`open`, `closed` or `failed`."""
        row = self._db.one("SELECT state FROM jobs WHERE job_id = ?", job_id)
        return None if row is None else str(row["state"])

    def close(self, job_id: JobId, state: str) -> None:
        """Ends a job here: it needs no step any more."""
        self._db.run("UPDATE jobs SET state = ? WHERE job_id = ?", state, job_id)

    def open_jobs(self) -> list[JobId]:
        """Jobs that still need steps, oldest first."""
        rows = self._db.all("SELECT job_id FROM jobs WHERE state = ? ORDER BY created", OPEN)
        return [JobId(Hash32(bytes(row["job_id"]))) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        rows = self._db.all("SELECT state, COUNT(*) AS many FROM jobs GROUP BY state")
        return {row["state"]: row["many"] for row in rows}

    # ── Facts and parties ────────────────────────────────────────────────────────────────────────
    def fact(self, job_id: JobId, name: str) -> bytes | None:
        """One remembered value of a job."""
        row = self._db.one("SELECT value FROM facts WHERE job_id = ? AND name = ?", job_id, name)
        return None if row is None else bytes(row["value"])

    def set_fact(self, job_id: JobId, name: str, value: bytes) -> None:
        """Remembers a value of a job."""
        self._db.run("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", job_id, name, value)

    def drop_facts(self, job_id: JobId, *names: str) -> None:
        """Forgets values that another course of the chain made void."""
        for name in names:
            self._db.run("DELETE FROM facts WHERE job_id = ? AND name = ?", job_id, name)

    def parties(self, job_id: JobId) -> list[Party]:
        """All workers of a job in order."""
        rows = self._db.all("SELECT * FROM parties WHERE job_id = ? ORDER BY k", job_id)
        return [
            Party(
                k=row["k"],
                seat=row["seat"],
                owner=row["owner"],
                submission=TaskSubmission.from_json(api.loads(bytes(row["task"]))),
                commitment=None
                if row["commitment"] is None
                else CommitmentEvent.from_json(api.loads(bytes(row["commitment"]))),
            )
            for row in rows
        ]

    def set_party(self, job_id: JobId, party: Party) -> None:
        """Writes who is asked, before it is asked; without a commitment yet."""
        self._db.run(
            "INSERT OR REPLACE INTO parties (job_id, k, seat, owner, task) VALUES (?, ?, ?, ?, ?)",
            job_id,
            party.k,
            party.seat,
            party.owner,
            api.dumps(party.submission.to_json()).encode(),
        )

    def set_commitment(self, job_id: JobId, k: int, commitment: CommitmentEvent) -> None:
        """Writes what a party committed to."""
        self._db.run(
            "UPDATE parties SET commitment = ? WHERE job_id = ? AND k = ?",
            api.dumps(commitment.to_json()).encode(),
            job_id,
            k,
        )

    def drop_committee(self, job_id: JobId) -> None:
        """Forgets a committee that another draw made void."""
        self._db.run("DELETE FROM parties WHERE job_id = ? AND k > 0", job_id)

    # ── Claimed by a worker ──────────────────────────────────────────────────────────────────────
    def adopt(
        self, job_id: JobId, party: Party, commitment: CommitmentEvent, work: ClaimedWork
    ) -> None:
        """Opens a job again that ended unposted, as its worker claims to have done it."""
        with self._db.transaction():
            self.set_party(job_id, party)
            self.set_commitment(job_id, party.k, commitment)
            self.set_fact(job_id, "claimed", work.to_bytes())
            self.close(job_id, OPEN)

    def claimed(self, job_id: JobId) -> ClaimedWork | None:
        """The claim that a job is to be posted by, if any."""
        data = self.fact(job_id, "claimed")
        return None if data is None else ClaimedWork.from_bytes(data)

    # ── Events ───────────────────────────────────────────────────────────────────────────────────
    def add_events(self, job_id: JobId, after: int, events: Iterable[JobEvent]) -> None:
        """Appends events behind number `after`, all or none."""
        with self._db.transaction():
            for number, event in enumerate(events, after + 1):
                encoded = api.encode_event(number, event)
                self._db.run(
                    "INSERT INTO events VALUES (?, ?, ?, ?)",
                    job_id,
                    number,
                    encoded.name,
                    encoded.data,
                )

    def events(self, job_id: JobId) -> list[JobEvent]:
        """Every event of a job's stream, in order."""
        rows = self._db.all("SELECT * FROM events WHERE job_id = ? ORDER BY seq", job_id)
        return [
            api.parse_job_event(ServerEvent(row["seq"], row["kind"], row["data"])) for row in rows
        ]
