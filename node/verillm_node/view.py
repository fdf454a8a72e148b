"""What the chain says of one job, read in one go."""

from dataclasses import dataclass

from verillm import draw
from verillm.chain.beacon import WINDOW
from verillm.chain.contract import Chain, JobState, Status
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.events import BeaconKept, JobHistory, job_history, stream
from verillm.records import Claiming, Posting, Sealing
from verillm.types import Hash32, JobId, Outcome, Reason

NO_HASH = Hash32(bytes(32))


@dataclass(frozen=True, slots=True)
class View:
    """A job's slot, its history, and the chain's clock."""

    job_id: JobId
    state: JobState
    history: JobHistory
    now: int
    block: int

    @property
    def posting(self) -> Posting:
        """What `post` fixed; for a job that is posted."""
        if self.history.posted is None:
            raise LookupError("this job is not posted")
        return self.history.posted.event.posting

    @property
    def sealing(self) -> Sealing:
        """What `seal` fixed; for a job that is sealed."""
        if self.history.sealed is None:
            raise LookupError("this job is not sealed")
        return self.history.sealed.event.sealing

    @property
    def claiming(self) -> Claiming:
        """What `claim` fixed; an empty claim where a challenge came without one."""
        if self.history.claimed is not None:
            return self.history.claimed.event.claiming
        opened = self.history.challenged
        beacon = NO_HASH if opened is None else opened.event.beacon
        return Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, NO_HASH, beacon)

    @property
    def is_late(self) -> bool:
        """Whether the deadline of the job's state has passed."""
        return self.now >= self.state.deadline

    @property
    def beacon_block(self) -> int | None:
        """The block whose hash the next step needs."""
        if self.state.status is Status.POSTED:
            return self.posting.posted_block
        return self.sealing.sealed_block if self.state.status is Status.SEALED else None


def is_forced(view: View, every: int) -> bool:
    """Whether the draw of a sealed job demands a public round."""
    if view.history.sealed is None:
        return False
    sealing = view.sealing
    return draw.is_forced(draw.draw(sealing.secret, view.posting.commitment, sealing.beacon), every)


def look(chain: Chain, job_id: JobId) -> View:
    """Reads a job; blocking."""
    head = chain.block()
    state = chain.job_state(job_id)
    history = job_history(chain, job_id) if state.status else JobHistory(job_id, ())
    return View(job_id, state, history, head.timestamp, head.number)


def beacon_blocks(chain: Chain, view: View) -> int | None:
    """Blocks until the beacon that the job needs next is lost; None if kept or none is needed."""
    block = view.beacon_block
    if block is None:
        return None
    kept = any(
        each.event.block_number == block for each in stream(chain, (BeaconKept,), block, None)
    )
    return None if kept else max(0, block + WINDOW - view.block - 1)
