"""A job's life as a list: what happened, when, by whom, in which transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verillm.api import to_hex
from verillm.chain import events
from verillm.chain.events import At, JobHistory
from verillm.types import ChecksumAddress, Hash32

FORGEABLE = (
    events.Revealed,
    events.PositionServed,
    events.ItemMismatched,
    events.PairCompared,
)
"""Events of the adjudicator, which anyone can emit under a stranger's job id: not told."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened; `facts` are what it fixed, as text."""

    name: str
    block: int
    time: int
    transaction: Hash32
    sender: ChecksumAddress | None
    facts: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "step": self.name,
            "block": self.block,
            "time": self.time,
            "transaction": to_hex(self.transaction),
            "sender": self.sender,
            "facts": dict(self.facts),
        }


def steps_of(history: JobHistory, senders: Mapping[Hash32, ChecksumAddress]) -> tuple[Step, ...]:
    """Every step in order; `senders` by transaction, as far as they are known."""
    told = [_step(at, senders) for at in history.events if not isinstance(at.event, FORGEABLE)]
    return tuple(sorted(told, key=lambda step: step.block))


def _step(at: At[Any], senders: Mapping[Hash32, ChecksumAddress]) -> Step:
    name, sender = type(at.event).__name__, senders.get(at.transaction)
    facts = _facts(at.event)
    return Step(name, at.block_number, at.timestamp, at.transaction, sender, facts)


def _facts(event: Any) -> dict[str, str]:
    match event:
        case events.Posted(posting=posting):
            return _posted(posting)
        case events.Sealed(sealing=sealing):
            return _sealed(sealing)
        case events.Claimed(claiming=claiming):
            return _claimed(claiming)
        case events.Finalized(outcome=outcome, reason=reason):
            return {"outcome": outcome.name.lower(), "reason": reason.name.lower()}
        case events.Paid(account=account, amount=amount):
            return {"to": account, "amount": str(amount)}
        case events.Slashed(operator=operator, amount=amount):
            return {"from": operator, "amount": str(amount)}
        case events.Burnt(amount=amount):
            return {"amount": str(amount)}
        case events.ChallengeOpened(challenger=challenger, open_by=open_by, reason=reason):
            return {"by": challenger, "open until": str(open_by), "attested": reason.name.lower()}
    return {}


def _posted(posting: Any) -> dict[str, str]:
    job, quote = posting.job, posting.quote
    return {
        "client": job.client,
        "scheduler": quote.scheduler,
        "worker": f"{posting.worker}, seat {posting.seat} of {posting.slots}",
        "model": to_hex(quote.model_id),
        "requests": str(job.requests),
        "price a token": str(quote.unit_price),
        "at most": str(job.max_fee),
        "locked on the worker": str(posting.lock),
        "scheduler's bond": str(posting.bond),
        "commitment": to_hex(posting.commitment),
    }


def _sealed(sealing: Any) -> dict[str, str]:
    inner = sealing.inner
    members = [f"{member.owner}, seat {member.seat}" for member in sealing.committee]
    return {
        "secret": to_hex(sealing.secret),
        "beacon": to_hex(sealing.beacon),
        "tokens": f"{inner.prompt_tokens} + {inner.new_tokens}",
        "fee": str(sealing.fee),
        **{f"verifier {k}": member for k, member in enumerate(members, 1)},
    }


def _claimed(claiming: Any) -> dict[str, str]:
    return {
        "by": claiming.claimer,
        "outcome": claiming.outcome.name.lower(),
        "reason": claiming.reason.name.lower(),
        "verifiers paid": ", ".join(str(k) for k in range(1, 9) if claiming.paid >> (k - 1) & 1),
        "bundle": to_hex(claiming.bundle),
    }
