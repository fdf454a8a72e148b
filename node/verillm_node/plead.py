"""Asking for a re-verification: what a worker does when a verdict against its own work stands.

Once a job, with a bond: only where more is at stake than the bond, few at a time, and no more at
all once one was lost, for whoever loses there may be wrong about itself. The intent is in the
store before anything is sent, and the outbox sends it once, whatever kills this process.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from verillm.appeal import Content
from verillm.chain.appeals import (
    AppealPhase,
    Concluded,
    ContentSupplied,
    ReverificationAsked,
    split,
)
from verillm.chain.contract import Call, Chain, Status
from verillm.chain.deployment import Config
from verillm.chain.wallet import Outbox
from verillm.errors import TransactionFailed
from verillm.types import ChecksumAddress, JobId, Outcome, Reason
from verillm_node.config import DefendSettings
from verillm_node.registry import free_stake
from verillm_node.sending import send_all
from verillm_node.stakes import Stand, at_stake
from verillm_node.store import Database
from verillm_node.threads import blocking
from verillm_node.view import View, is_forced
from verillm_node.words import is_supported

log = logging.getLogger(__name__)


class Plea(StrEnum):
    """What became of a re-verification that we asked for; `asked` is the intent."""

    ASKED = "asked"
    WON = "won"
    LOST = "lost"
    VOID = "void"


class Pleas:
    """The table of them: at most one a job, ever."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self, job_id: JobId) -> None:
        """Writes the intent."""
        self._db.run("INSERT OR IGNORE INTO pleas VALUES (?, ?)", job_id, Plea.ASKED)

    def end(self, job_id: JobId, plea: Plea) -> None:
        """Writes how it ended."""
        self._db.run("UPDATE pleas SET state = ? WHERE job_id = ?", plea, job_id)

    def find(self, job_id: JobId) -> Plea | None:
        """What became of one."""
        row = self._db.one("SELECT state FROM pleas WHERE job_id = ?", job_id)
        return None if row is None else Plea(row["state"])

    def count(self, plea: Plea) -> int:
        """How many stand there."""
        row = self._db.one("SELECT COUNT(*) AS many FROM pleas WHERE state = ?", plea)
        return 0 if row is None else int(row["many"])


@dataclass(frozen=True, slots=True)
class Pleader:
    """Asks where it is worth it; `chain` and `outbox` send with the worker's hot key."""

    chain: Chain
    terms: Config
    operator: ChecksumAddress
    pleas: Pleas
    outbox: Outbox
    settings: DefendSettings
    _told: set[tuple[JobId, str]] = field(default_factory=set)

    def is_due(self, view: View, party: int, found: Stand | None) -> bool:
        """Whether what stands costs us more than the bond, and nothing else comes first.

        States that are not finite are so for every committee; and what was said of the tokens in a
        round refunds whatever a larger one finds of the states, so that the bond would be lost.
        """
        if found is None or view.is_late or not self.settings.reverify:
            return False
        if found.outcome is Outcome.REFUND and is_supported(view):
            return False
        forced = is_forced(view, self.terms.forced_every)
        if view.state.status is Status.CLAIMED and forced:
            return False
        worth = at_stake(view, party, found, self.terms) > self.terms.reverify_bond
        return worth and found.reason is not Reason.NON_FINITE

    async def ask(self, view: View, party: int, found: Stand, shown: Sequence[Content]) -> None:
        """Asks for one, if the limits allow another; what was begun before is gone on with."""
        record, first = (view.posting, view.sealing, view.claiming), split(shown)[0]
        call = self.chain.calls.reverify(*record, first)
        known = self.pleas.find(view.job_id)
        if known is None:
            if obstacle := await blocking(self._obstacle, call):
                return self._say_once(view, f"not asked for: {obstacle}")
            self.pleas.open(view.job_id)
            stake = at_stake(view, party, found, self.terms)
            why = f"{found.outcome.name} for {found.reason.name} costs {stake} as party {party}"
            self._say_once(view, f"asked for: {why}, the bond is {self.terms.reverify_bond}")
        elif known is not Plea.ASKED:
            return None
        try:
            # By the job alone: it is asked for once, however its contents are split.
            key = f"reverify:0x{view.job_id.hex()}"
            await blocking(self.outbox.run, key, call, lambda: self._is_asked(view.job_id))
        except TransactionFailed:
            self.pleas.end(view.job_id, Plea.VOID)
            raise

    async def lacks_contents(self, view: View) -> bool:
        """Whether our own question waits for the rest of its contents: else its bond burns."""
        state = await blocking(self.chain.appeal_of, view.job_id)
        return state.requester == self.operator and state.phase is AppealPhase.ASKED

    async def supply(self, view: View, shown: Sequence[Content]) -> None:
        """Brings what the chain does not have yet."""
        supplied = len(view.history.all(ContentSupplied))
        record = (view.posting, view.sealing, view.claiming)
        for part in split(shown[supplied:]):
            await send_all(self.chain, [self.chain.calls.supply(*record, part)])

    def close(self, view: View) -> None:
        """Writes what became of our question when the job is over."""
        if self.pleas.find(view.job_id) is not Plea.ASKED:
            return
        asked, said = view.history.first(ReverificationAsked), view.history.first(Concluded)
        plea = Plea.VOID
        if asked is not None and said is not None and asked.event.requester == self.operator:
            plea = Plea.LOST if said.event.stands else Plea.WON
        self.pleas.end(view.job_id, plea)
        log.info("reverification", extra={"job": view.job_id, "said": plea.value})

    def _obstacle(self, call: Call) -> str:
        """Why no other one may be asked for now, in words; empty if nothing is in the way."""
        lost, running = self.pleas.count(Plea.LOST), self.pleas.count(Plea.ASKED)
        bond = self.terms.reverify_bond
        if lost >= self.settings.losses:
            return f"{lost} were lost; find out why, then raise defend.losses"
        if running >= self.settings.bonds:
            return f"{running} are under way, defend.bonds allows no more"
        free = free_stake(self.chain.account_of(self.operator))
        if free < bond:
            return f"the bond is {bond}, the free stake {free}"
        refusal = self.chain.refusal(call)  # such as TooFewOwners
        return "" if refusal is None else str(refusal)

    def _is_asked(self, job_id: JobId) -> bool:
        return self.chain.job_state(job_id).status in (Status.REVERIFYING, Status.FINAL)

    def _say_once(self, view: View, said: str) -> None:
        if (view.job_id, said) not in self._told:
            self._told.add((view.job_id, said))
            log.info("reverification", extra={"job": view.job_id, "said": said})
