"""What a job has in store for one of its parties as things stand; pure, from the chain."""

from dataclasses import dataclass, replace

from verillm.chain.contract import Status
from verillm.chain.deployment import Config
from verillm.chain.events import Supported
from verillm.evidence import INFERENCER
from verillm.settlement import share
from verillm.types import Outcome, Reason
from verillm_node.view import View


@dataclass(frozen=True, slots=True)
class Stand:
    """What ends the job if nobody speaks; `lost` by party, `paid` by member less 1."""

    outcome: Outcome
    reason: Reason
    lost: int
    paid: int

    @property
    def rejects(self) -> bool:
        """Whether the inferencer loses by it."""
        return self.outcome in (Outcome.SLASH, Outcome.REFUND)


def stand(view: View) -> Stand | None:
    """The claim, or the public round's verdict; None where neither is the last word."""
    if view.state.status is Status.CLAIMED:
        claim = view.claiming
        return Stand(claim.outcome, Reason(claim.reason), 0, claim.paid)
    judged = view.history.judged
    if view.state.status is not Status.JUDGED or judged is None:
        return None
    event = judged.event
    found = Stand(event.outcome, Reason(event.reason), event.lost, event.paid)
    supported = view.history.first(Supported)
    if supported is None or found.rejects:
        return found
    return replace(found, outcome=Outcome.REFUND, reason=Reason(supported.event.reason))


def at_stake(view: View, party: int, found: Stand, terms: Config) -> int:
    """Token units that a party loses by what stands, against being accepted and paid."""
    posting, sealing = view.posting, view.sealing
    committee = share(sealing.fee, terms.committee_bps)
    if party == INFERENCER:
        own = share(sealing.fee, terms.inferencer_bps)
        if found.outcome is Outcome.SLASH:
            return posting.lock + own
        return own + committee if found.outcome is Outcome.REFUND else 0
    part = committee // len(sealing.committee)
    if found.lost >> party & 1:
        return sealing.committee[party - 1].lock + part
    return 0 if found.paid >> (party - 1) & 1 else part
