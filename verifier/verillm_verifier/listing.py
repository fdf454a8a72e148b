"""The jobs of a deployment, each a row by its events."""

from collections.abc import Iterator
from typing import Any

from verillm.api import to_hex
from verillm.chain import events
from verillm.chain.contract import Chain


def list_jobs(chain: Chain) -> Iterator[dict[str, Any]]:
    """Every job by its events, in the order of posting; `fee` is maxFee until it is sealed."""
    kinds = (events.Posted, events.Sealed, events.Claimed, events.ChallengeOpened, events.Finalized)
    rows: dict[bytes, dict[str, Any]] = {}
    for at in events.stream(chain, kinds):
        if isinstance(at.event, events.Posted):
            rows[at.event.job_id] = _row(at.event)
        elif at.event.job_id in rows:
            _advance(rows[at.event.job_id], at.event)
    yield from rows.values()


def _row(event: events.Posted) -> dict[str, Any]:
    posting = event.posting
    return {
        "job": to_hex(event.job_id),
        "status": "posted",
        "outcome": "",
        "reason": "",
        "client": posting.job.client,
        "scheduler": posting.quote.scheduler,
        "worker": posting.worker,
        "requests": posting.job.requests,
        "fee": str(posting.job.max_fee),
    }


def _advance(row: dict[str, Any], event: Any) -> None:
    match event:
        case events.Sealed(sealing=sealing):
            row |= {"status": "sealed", "fee": str(sealing.fee)}
        case events.Claimed(claiming=claiming):
            claim = {
                "outcome": claiming.outcome.name.lower(),
                "reason": claiming.reason.name.lower(),
            }
            row |= {"status": "claimed", **claim}
        case events.ChallengeOpened():
            row |= {"status": "challenged"}
        case events.Finalized(outcome=outcome, reason=reason):
            final = {"outcome": outcome.name.lower(), "reason": reason.name.lower()}
            row |= {"status": "final", **final}
