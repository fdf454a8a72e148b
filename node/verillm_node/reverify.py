"""A worker's part in re-verifications: run again what the chain shows, commit, open, compare.

Nobody sends a task and nobody is asked for anything: prompts, outputs, commitments and openings all
stand on the chain, so every worker of a model looks for its own name in each new committee. Silence
there costs a lock, and so it does for the parties of the first round.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from verillm.appeal import Content, work
from verillm.chain import artifacts
from verillm.chain.appeals import (
    AppealPhase,
    AppealState,
    ContentSupplied,
    Convened,
    ReverificationAsked,
    RoundStarted,
)
from verillm.chain.contract import Call, Chain, Checked, Opening as ChainOpening, Status
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.events import (
    At,
    ChallengeOpened,
    Claimed,
    JobHistory,
    PairCompared,
    PositionServed,
    Sealed,
    stream,
)
from verillm.chain.rpc import data as rpc_data
from verillm.errors import EvidenceError, VeriLLMError
from verillm.head import HeadRows
from verillm.model import ModelSpec, model_id
from verillm.records import Claiming, Posting, Sealing
from verillm.task import Task
from verillm.tokens import Generated, Head, judge_tokens, token_statistics
from verillm.trace import CommittedTrace, Opening, open_positions
from verillm.types import ATTESTED, ChecksumAddress, JobId, Outcome, Reason, TaskId
from verillm_node.own import checked_of
from verillm_node.rounds import Round, due_reveals, due_services, told_mismatched
from verillm_node.sending import send_all
from verillm_node.tasks import TaskBook
from verillm_node.threads import blocking
from verillm_node.view import NO_HASH, View, look
from verillm_node.worker import Worker

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a round waits for a run: a long one goes on behind it, beside what else is due."""
TOGETHER = 2
"""Parties in a group; two groups to a call, so that six pairs fit the gas of one."""


# ── What is due, as pure functions of the chain ──────────────────────────────────────────────────
def second_view(view: View) -> View:
    """The job as the second round sees it: its own seal and claim, and nothing from before it."""
    started = view.history.first(RoundStarted)
    if started is None or view.history.posted is None:
        raise LookupError("no second round was started")
    event = started.event
    claiming = Claiming(ZERO_ADDRESS, Outcome.NONE, Reason.NONE, 0, NO_HASH, event.beacon)
    asked = view.history.first(ReverificationAsked)
    opener = ZERO_ADDRESS if asked is None else asked.event.requester
    opened = ChallengeOpened(view.job_id, opener, event.open_by, event.beacon, Reason.NONE)
    place = (started.block_number, started.index)
    since = tuple(each for each in view.history.events if (each.block_number, each.index) > place)
    own = (Sealed(view.job_id, event.sealing), Claimed(view.job_id, claiming), opened)
    frame = (view.history.posted, *(_placed(started, each) for each in own))
    return replace(view, history=JobHistory(view.job_id, (*frame, *since)))


def _placed(at: At[Any], event: object) -> At[Any]:
    """Another event in the place of one."""
    return At(event, at.transaction, at.block_number, at.block_hash, at.timestamp, at.index)


def contents(view: View) -> dict[int, Content]:
    """What the chain shows of the checked requests, by place."""
    supplied = (each.event for each in view.history.all(ContentSupplied))
    return {event.place: event.content for event in supplied}


def pairs_of(size: int, parties: int) -> frozenset[tuple[int, int]]:
    """The pairs that count: all of inferencer and new members, and these with each witness."""
    among = combinations(range(size + 1), 2)
    beside = ((a, b) for a in range(1, size + 1) for b in range(size + 1, parties))
    return frozenset((*among, *beside))


def due_comparisons(
    round_: Round,
    shown: Mapping[tuple[int, int, int], ChainOpening],
    size: int,
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Place, index and parties of each comparison that adds a pair; few parties at a time."""
    view = round_.view
    out = told_mismatched(view)
    done = {
        (e.party_a, e.party_b, e.checked_index, e.position_index)
        for e in (each.event for each in view.history.all(PairCompared))
    }
    wanted = pairs_of(size, len(view.sealing.committee) + 1)
    due = []
    for place in sorted(round_.lengths):
        for index in range(len(round_.where(place))):
            here = sorted(p for (p, at, i) in shown if (at, i) == (place, index) and p not in out)
            groups = [here[at : at + TOGETHER] for at in range(0, len(here), TOGETHER)]
            for one, other in combinations(groups, 2) if len(groups) > 1 else [(here, [])]:
                together = tuple(sorted((*one, *other)))
                left = wanted & set(combinations(together, 2))
                if any((*pair, place, index) not in done for pair in left):
                    due.append((place, index, together))
    return due


def token_reject(
    task: Task, shown: Sequence[Content], made: CommittedTrace, head: Head, spec: ModelSpec
) -> Reason:
    """Why a member's own states reject the tokens; NONE where they do not, or say nothing."""
    requests = []
    for item, content, trace in zip(task.items, shown, made.trace.items, strict=True):
        prompt, output = len(content.request.tokens), content.new_tokens
        finals = trace.finals[prompt - 1 : prompt - 1 + len(output)]
        requests.append(Generated(prompt, output, item.sampling, item.seed, (finals,)))
    try:
        _, reason = judge_tokens(token_statistics(requests, head, spec.profile), spec.profile)
    except EvidenceError:
        return Reason.NONE
    return reason if reason in ATTESTED else Reason.NONE


# ── A worker ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Reverifier:
    """Watches every re-verification of the model; `chain` sends with the worker's hot key."""

    chain: Chain
    spec: ModelSpec
    worker: Worker
    book: TaskBook
    head: HeadRows | None
    jobs: set[JobId] = field(default_factory=set)
    """Re-verifications that have not ended, as far as we know."""
    _read_to: int | None = None
    _rejected: set[JobId] = field(default_factory=set)
    _running: dict[TaskId, "asyncio.Task[CommittedTrace]"] = field(default_factory=dict)

    async def round(self) -> None:
        """Looks once at every open re-verification."""
        ended = [name for name, run in self._running.items() if run.done()]
        await blocking(self._read)
        for job_id in sorted(self.jobs):
            try:
                await self._look(job_id)
            except VeriLLMError as error:
                extra = {"job": job_id, "code": error.code, "error": str(error)}
                log.warning("reverify_failed", extra=extra)
        for name in ended:
            self._forget(name)

    def _forget(self, name: TaskId) -> None:
        """Lets go of a run that had ended and that no open re-verification asked for since."""
        run = self._running.pop(name, None)
        if run is not None and not run.cancelled() and (error := run.exception()) is not None:
            log.info("rerun_in_vain", extra={"task": name, "error": str(error)})

    def _read(self) -> None:
        newest = self.chain.block().number
        first = self.chain.deployment.block if self._read_to is None else self._read_to + 1
        if first <= newest:
            for each in stream(self.chain, (ReverificationAsked,), first, newest):
                self.jobs.add(each.event.job_id)
        self._read_to = newest

    async def _look(self, job_id: JobId) -> None:
        view = await blocking(look, self.chain, job_id)
        ours = view.posting.quote.model_id == model_id(self.spec)
        if not ours or view.state.status is not Status.REVERIFYING:
            self.jobs.discard(job_id)
            return
        state = await blocking(self.chain.appeal_of, job_id)
        calls, record = self.chain.calls, (view.posting, view.sealing, view.claiming)
        match state.phase:
            case AppealPhase.COMPLETE if not view.is_late:
                await self._send(view, state, calls.convene(*record))
            case AppealPhase.CONVENED if not view.is_late:
                await self._commit(view, state)
            case AppealPhase.CONVENED:
                await send_all(self.chain, [calls.close_commits(job_id)])
            case AppealPhase.CLOSED if not view.is_late:
                await self._send(view, state, calls.start_round(*record))
            case AppealPhase.OPENED:
                await self._take_part(view, state)
            case _ if view.is_late:
                await send_all(self.chain, [calls.conclude(*record)])
            case _:
                pass

    async def _send(self, view: View, state: AppealState, call: Call) -> None:
        """What anyone may send: the requester at once, others when it lets time pass."""
        last = max(each.timestamp for each in view.history.events)
        first = state.requester == self.worker.identity.operator
        if first or 2 * view.now >= last + view.state.deadline:
            await send_all(self.chain, [call])

    # ── Commitments ──────────────────────────────────────────────────────────────────────────────
    async def _commit(self, view: View, state: AppealState) -> None:
        operator = self.worker.identity.operator
        for index, member in enumerate(state.committee):
            if member.owner == operator and member.inner == NO_HASH:
                made = await self._run(self._task(view, index))
                if made is None:
                    continue
                log.info("recommitted", extra={"job": view.job_id, "index": index})
                call = self.chain.calls.recommit(view.job_id, index, made.inner)
                await send_all(self.chain, [call])

    async def _run(self, task: Task) -> CommittedTrace | None:
        """Our states of a task, or None while they are being made.

        Each counts from when it was drawn, so several run at once, and openings that are due
        elsewhere wait for none of them.
        """
        running = self._running.get(task.task_id)
        if running is None:
            running = self._running[task.task_id] = asyncio.create_task(self.worker.rerun(task))
        try:
            await asyncio.wait({running}, timeout=PATIENCE)
        finally:
            if running.done():
                del self._running[task.task_id]
        return running.result() if running.done() else None

    async def _made(self, view: View, index: int) -> CommittedTrace:
        """Our states of what the chain shows: from disk, or run now."""
        return await self.worker.rerun(self._task(view, index))

    def _task(self, view: View, index: int) -> Task:
        convened = view.history.first(Convened)
        if convened is None:
            raise LookupError("no committee was convened")
        shown = contents(view)
        checked = enumerate(checked_of(view, self.spec))
        # The engine knows this machine's clock, and the chain's may be another one.
        left = max(0, convened.event.commit_by - view.now)
        return work(
            view.sealing.secret,
            view.job_id,
            index,
            self.worker.identity.operator,
            view.posting.quote.model_id,
            [(number, shown[place]) for place, number in checked],
            int(time.time()) + left,
        )

    # ── The round ────────────────────────────────────────────────────────────────────────────────
    async def _take_part(self, view: View, state: AppealState) -> None:
        second, calls = second_view(view), self.chain.calls
        bare = Round(second, self.spec, {})
        parties = await self._parties(view, state)
        round_ = Round(second, self.spec, _openings(bare, parties))
        reveals = due_reveals(calls, round_)
        if reveals:
            await send_all(self.chain, reveals)
            return
        if not round_.is_late:
            due = [call for party in parties for call in due_services(calls, round_, party)]
            await send_all(self.chain, due)
            await self._reject_tokens(view, state)
        await self._advance(view, state, round_)

    async def _parties(self, view: View, state: AppealState) -> dict[int, CommittedTrace]:
        """What we have to open, by the party that we are in the second round."""
        found: dict[int, CommittedTrace] = {}
        size = len(state.committee)
        for record in self.book.of_job(view.job_id):
            if record.party is not None:
                party = record.party and size + record.party
                found[party] = await blocking(self.worker.committed, record.task.task_id)
        for index, member in enumerate(state.committee):
            if member.owner == self.worker.identity.operator and member.inner != NO_HASH:
                found[index + 1] = await self._made(view, index)
        return found

    async def _reject_tokens(self, view: View, state: AppealState) -> None:
        if self.head is None or view.job_id in self._rejected or not self.spec.token_proof:
            return
        self._rejected.add(view.job_id)
        for index, member in enumerate(state.committee):
            if member.owner != self.worker.identity.operator or member.inner == NO_HASH:
                continue
            shown = [content for _, content in sorted(contents(view).items())]
            made, task = await self._made(view, index), self._task(view, index)
            reason = await blocking(token_reject, task, shown, made, self.head, self.spec)
            if reason is not Reason.NONE:
                call = self.chain.calls.reject_tokens(view.job_id, index, reason)
                await send_all(self.chain, [call])

    async def _advance(self, view: View, state: AppealState, round_: Round) -> None:
        """Compares what stands in calldata; once no opening is due any more, has the contract
        conclude, which it does not before.
        """
        opened = view.history.first(RoundStarted)
        if opened is None:
            return
        ours = state.requester == self.worker.identity.operator
        if not ours and 2 * view.now < opened.timestamp + view.state.deadline:
            return
        size = len(state.committee)
        shown = await blocking(served, self.chain, round_.view)
        record = (view.posting, round_.view.sealing, round_.view.claiming)
        due = [
            self.chain.calls.compare(
                *record,
                self.spec,
                round_.lengths[place],
                index,
                [shown[party, place, index] for party in parties],
            )
            for place, index, parties in due_comparisons(round_, shown, size)
        ]
        if due:
            await send_all(self.chain, due)
        elif round_.is_late:
            values = (view.posting, view.sealing, view.claiming)
            await send_all(self.chain, [self.chain.calls.conclude(*values)])


def _openings(
    round_: Round, parties: Mapping[int, CommittedTrace]
) -> dict[tuple[int, int], Opening]:
    """Our own openings; before the lengths are fixed one position shows the leaf."""
    found = {}
    for party, committed in parties.items():
        for place, number in enumerate(round_.checked):
            item = number if party == 0 else place
            where = round_.where(place) if place in round_.lengths else (0,)
            if item >= len(committed.leaves):
                continue  # of a false task; what there is shows that it was one
            leaf = committed.leaves[item]
            count = leaf.prompt_tokens + leaf.new_tokens - 1
            known = [position for position in where if position < count] or [0]
            found[party, place] = open_positions(committed, item, known)
    return found


def served(chain: Chain, view: View) -> dict[tuple[int, int, int], ChainOpening]:
    """What parties opened, by party, place and index: from the calldata that served it."""
    entry = artifacts.functions("Adjudicator")["serve"]
    kinds = [str, Posting, Sealing, Claiming, ModelSpec, Checked, int, ChainOpening]
    found = {}
    for at in view.history.all(PositionServed):
        event = at.event
        key = (event.party, event.checked_index, event.position_index)
        answer = chain.request("eth_getTransactionByHash", "0x" + at.transaction.hex())
        if not isinstance(answer, dict) or not _is_to(answer, chain.deployment.adjudicator):
            continue  # served through another contract, whose calldata may say anything
        sent = rpc_data(answer.get("input"), "input")
        if sent[:4] != entry.selector:
            continue  # compared as it was served
        *_, opening = artifacts.decode(entry.inputs, sent[4:], kinds)
        found[key] = opening
    return found


def _is_to(sent: Mapping[str, Any], contract: ChecksumAddress) -> bool:
    return str(sent.get("to")).lower() == contract.lower()
