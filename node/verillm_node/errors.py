"""Refusals that only a daemon gives; the tree continues `verillm.errors`.

::

    NodeError
    ├── NotSealedYet (not_sealed_yet)     openings before the seal would tell the role
    ├── ContractWallet (contract_wallet)  a client that could take its signature back
    ├── NotDrawn (not_drawn)              openings beyond those that the protocol asks for
    ├── TooManyRequests (too_many_requests)  one caller asks for one thing too often
    ├── LockTooLarge (lock_too_large)     the task would lock more stake than is free
    ├── SchedulerOverdrawn (scheduler_overdrawn)  its sender cannot bond all that it asked for
    ├── Stopped (stopped)                 this daemon is shutting down
    └── Overloaded (engine_unavailable)   as many tasks as this worker can hold
    ConfigError
    └── EngineTooSmall (engine_too_small) a task that this worker may be drawn for would not fit
"""

from verillm.errors import ConfigError, EngineUnavailable, NodeError


class NotSealedYet(NodeError):
    """The commitment is not sealed on the chain, as far as this worker has read it."""

    code = "not_sealed_yet"
    remedy = "Ask again once the job is sealed on the chain."


class ContractWallet(NodeError):
    """The client's account has code, so its signature may hold now and not at `post`."""

    code = "contract_wallet"
    remedy = "Pay from an account without code, or ask a scheduler that takes contract wallets."

    def __init__(self, client: str) -> None:
        super().__init__(f"client {client} is a contract", client=client)


class NotDrawn(NodeError):
    """The protocol does not ask for this position, or this item, to be opened."""

    code = "not_drawn"
    remedy = "Ask for drawn positions, and final states of generated tokens, of checked requests."

    def __init__(self, place: int) -> None:
        super().__init__(f"item or position {place} is not drawn", place=place)


class TooManyRequests(NodeError):
    """One caller asks for one thing more often than the protocol needs."""

    code = "too_many_requests"
    remedy = "Keep what you were given; ask again later."

    def __init__(self, seconds: float) -> None:
        super().__init__(f"enough for now; ask again in {max(1, round(seconds))} s")


class Overloaded(EngineUnavailable):
    """This worker holds as many tasks as it can."""

    remedy = "Send the task to another worker, or later."


class LockTooLarge(NodeError):
    """The task's lock, with all that is open, exceeds this worker's stake."""

    code = "lock_too_large"
    remedy = "Send the task to a worker with more free stake, or later."

    def __init__(self, lock: int, free: int) -> None:
        super().__init__(f"a lock of {lock} exceeds the free stake of {free}", lock=lock)


class SchedulerOverdrawn(NodeError):
    """A scheduler's open tasks here need more bonds than it has stake."""

    code = "scheduler_overdrawn"
    remedy = "Let the scheduler post what it sent, or add to its stake."

    def __init__(self, scheduler: str, bonds: int, stake: int) -> None:
        super().__init__(
            f"scheduler {scheduler} would have to bond {bonds} here, and has {stake}",
            bonds=bonds,
            stake=stake,
        )


class Stopped(NodeError):
    """This daemon is shutting down; what is open goes on at its next start."""

    code = "stopped"
    remedy = "Start the daemon again."


class EngineTooSmall(ConfigError):
    """The engine takes fewer tokens than one item of its model may have.

    Whoever holds a seat can be summoned, or drawn for a re-verification, with any item that the
    model can run. It cannot decline, and its silence costs a lock: so it does not start.
    """

    code = "engine_too_small"
    remedy = "Raise engine.max_tokens to the model's context, or serve a model with a smaller one."

    def __init__(self, max_tokens: int, context: int) -> None:
        super().__init__(
            f"engine.max_tokens is {max_tokens}, and an item of this model may have {context}",
            max_tokens=max_tokens,
            context=context,
        )
