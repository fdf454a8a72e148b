"""Refusals that only a daemon gives; the tree continues `verillm.errors`.

::

    NodeError
    ├── NotFound (not_found)              no such task, job or bundle here
    ├── NotSealedYet (not_sealed_yet)     openings before the seal would tell the role
    ├── LockTooLarge (lock_too_large)     the task would lock more stake than is free
    └── Overloaded (engine_unavailable)   as many tasks as this worker can hold
"""

from verillm.errors import EngineUnavailable, NodeError


class NotFound(NodeError):
    """No such thing here."""

    code = "not_found"
    remedy = "Check the id; what is old is no longer kept."


class NotSealedYet(NodeError):
    """The commitment is not sealed on the chain, as far as this worker has read it."""

    code = "not_sealed_yet"
    remedy = "Ask again once the job is sealed on the chain."


class Overloaded(EngineUnavailable):
    """This worker holds as many tasks as it can."""

    remedy = "Send the task to another worker, or later."


class LockTooLarge(NodeError):
    """The task's lock, with all that is open, exceeds this worker's stake."""

    code = "lock_too_large"
    remedy = "Send the task to a worker with more free stake, or later."

    def __init__(self, lock: int, free: int) -> None:
        super().__init__(f"a lock of {lock} exceeds the free stake of {free}", lock=lock)
