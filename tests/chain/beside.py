"""The deployed contracts on Anvil and the in-memory reference, driven as one and compared."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.chain.conftest import Net
from tests.reference import Block, Network, Refused
from tests.reference.ledger import DEAD
from tests.reference.state import NO_CLAIM
from verillm.chain import artifacts, events
from verillm.chain.appeals import AppealPhase, AppealState
from verillm.chain.contract import Call, Chain, Mined
from verillm.chain.reads import (
    AccountState,
    DepositState,
    JobState,
    PairSums,
    PlaceState,
    Round,
    SeatState,
    Status,
    TaskClaimState,
)
from verillm.chain.reverts import decode_revert
from verillm.records import Member
from verillm.statistics import PairStatistics
from verillm.types import ChecksumAddress, Hash32, JobId, ModelId, TaskId

GAS: Final = 15_000_000
PATIENCE: Final = 60.0
HISTORY: Final = "0x0000F90827F1C53a10cb7A02335B175320002935"
HISTORY_BLOCKS: Final = 8_191
FORGOTTEN: Final = 257
"""Blocks after which BLOCKHASH knows one no more."""

Ask = tuple[str, str, tuple[Any, ...], Any]
"""A read: of which contract, its name, its arguments, what it answers."""

_MONEY: Final = (events.Paid, events.Slashed, events.Burnt)
_ACCOUNT: Final = [int] * 5 + [str]
_PLACE: Final = [str, int, int, int, int, Hash32, Hash32]
_APPEAL: Final = [AppealPhase, str, tuple[Member, ...]]
_CLAIM: Final = [str, str, TaskId, int, int, int]
_ROUND: Final = [JobId, *[int] * 4, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Said:
    """What both said of one call: its events, or the name of the error."""

    events: tuple[Any, ...] = ()
    error: str | None = None


@dataclass
class Watched:
    """Whose storage is compared after each call."""

    holders: list[ChecksumAddress] = field(default_factory=list)
    deposits: list[tuple[ChecksumAddress, ChecksumAddress]] = field(default_factory=list)
    operators: list[ChecksumAddress] = field(default_factory=list)
    keys: list[ChecksumAddress] = field(default_factory=list)
    seats: list[tuple[ModelId, int]] = field(default_factory=list)
    jobs: list[JobId] = field(default_factory=list)
    claims: list[Hash32] = field(default_factory=list)


class Beside:
    """One network, twice. Every call goes to both; `compare` reads both."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.chain = Chain(net.provider, net.deployment)
        self.config = self.chain.config()
        self.reference = Network(self.config, net.deployment.domain)
        self.watched = Watched()
        newest = self.chain.block()
        self.reference.mined(Block(newest.number, newest.timestamp), newest.hash)
        self._http = httpx.Client(trust_env=False, timeout=PATIENCE)
        self._wait = 1

    def close(self) -> None:
        """Leave no socket open."""
        self._http.close()

    @property
    def now(self) -> int:
        """The newest block's time."""
        return self.reference.now

    # ── Time ────────────────────────────────────────────────────────────────────────────────────
    def pass_time(self, seconds: int) -> None:
        """The next block comes that much later; seen at once, by a block without transactions."""
        self.net.rpc("evm_setNextBlockTimestamp", self.now + seconds)
        self.net.rpc("evm_mine")
        self._mined()

    def forget(self, block: int) -> None:
        """Let so much time pass in blocks that the chain does not know the hash of `block`.

        8191 blocks are too many to mine; what they would do to the history is done to one slot.
        """
        slot = f"0x{block % HISTORY_BLOCKS:064x}"
        self.net.rpc("anvil_mine", hex(FORGOTTEN))
        self.net.rpc("anvil_setStorageAt", HISTORY, slot, "0x" + "00" * 32)
        self.reference.lost.add(block)
        self._mined()

    def _mined(self) -> Block:
        newest = self.chain.block()
        block = Block(newest.number, newest.timestamp)
        self.reference.mined(block, newest.hash)
        return block

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens within, both forget."""
        snapshot, state = self.net.rpc("evm_snapshot"), self.reference.state.copy()
        at = Block(self.reference.block, self.reference.now)
        lost, jobs = set(self.reference.lost), list(self.watched.jobs)
        claims = list(self.watched.claims)
        try:
            yield
        finally:
            assert self.net.rpc("evm_revert", snapshot)
            self.reference.state, self.reference.lost, self.watched.jobs = state, lost, jobs
            self.watched.claims = claims
            self.reference.now, self.reference.block = at.timestamp, at.number

    # ── Calls ───────────────────────────────────────────────────────────────────────────────────
    def send(self, sender: ChecksumAddress, name: str, *values: Any, wait: int = 1) -> Said:
        """One call `wait` seconds after the newest block; AssertionError if the two differ."""
        call = self._call(name, values)
        self.net.rpc("evm_setNextBlockTimestamp", self.now + wait)
        message = {"from": sender, "to": call.to, "data": "0x" + call.data.hex(), "gas": hex(GAS)}
        sent = str(self.net.rpc("eth_sendTransaction", message))
        mined = self._receipt(Hash32(bytes.fromhex(sent[2:])))
        block = Block(mined.block_number, self.now + wait)
        theirs = Said(events.events_of(mined)) if mined.ok else Said(error=self._why(sent))
        try:
            ours = Said(self.reference.call(sender, block, name, *values))
        except Refused as refused:
            ours = Said(error=refused.error)
        self.reference.mined(block, mined.block_hash)
        assert ours.error == theirs.error, f"{name}: {ours} here, {theirs} on chain"
        assert _plain(ours.events) == _plain(theirs.events), name
        assert _moved(ours.events) == _moved(theirs.events), name
        return ours

    def _call(self, name: str, values: tuple[Any, ...]) -> Call:
        """Calls of the prover alone are no part of what `Calls` offers."""
        if (make := getattr(self.chain.calls, name, None)) is not None:
            return make(*values)  # type: ignore[no-any-return]
        data = artifacts.functions("VeriLLM")[name].encode(*values)
        return Call(name, self.net.deployment.contract, data)

    def must(self, sender: ChecksumAddress, name: str, *values: Any, wait: int = 1) -> Said:
        """A call that both take."""
        said = self.send(sender, name, *values, wait=wait)
        assert said.error is None, f"{name}: {said.error}"
        return said

    def _receipt(self, transaction: Hash32) -> Mined:
        deadline = time.monotonic() + PATIENCE
        while (mined := self.chain.mined(transaction)) is None:
            assert time.monotonic() < deadline, "not mined"
        return mined

    def _why(self, transaction: str) -> str:
        trace = self.net.rpc("debug_traceTransaction", transaction, {"tracer": "callTracer"})
        assert isinstance(trace, dict)
        return decode_revert(bytes.fromhex(trace.get("output", "0x")[2:]))[0]

    # ── What both hold ──────────────────────────────────────────────────────────────────────────
    def compare(self, whole: bool = True) -> None:
        """What is watched is the same in both, and no money came or went.

        Not `whole`: what jobs touch, without purses, keys and seats.
        """
        views = [*self._views(), *(self._rest() if whole else ())]
        asked, ours = zip(*views, strict=True)
        theirs = self._read(asked)
        for ask, mine, other in zip(asked, ours, theirs, strict=True):
            assert mine == other, (ask[1], ask[2], mine, other)
        money = self.reference.money()
        assert money["held"] == money["owed"], money
        for operator, account in self.reference.state.accounts.items():
            assert 0 <= account.locked <= account.balance, (operator, account)

    def _views(self) -> Iterator[tuple[Ask, Any]]:
        """Each read of the contracts with the reference's answer."""
        ours, watched = self.reference, self.watched
        for owner in (ours.contract, DEAD):
            yield ("DevToken", "balanceOf", (owner,), int), ours.token_balance(owner)
        for operator in watched.operators:
            yield ("VeriLLM", "accountOf", (operator,), AccountState), ours.account_of(operator)
        for pair in watched.deposits:
            yield ("VeriLLM", "depositOf", pair, DepositState), ours.deposit_of(*pair)
        for job in watched.jobs:
            yield ("VeriLLM", "jobState", (job,), JobState), ours.job_state(job)
            yield from self._rounds(ours.job_state(job).record)
            yield from self._places(job)
            yield ("VeriLLM", "appealOf", (job,), AppealState), ours.appeal_of(job)
            if (appeal := ours.state.appeals.get(job)) is not None:
                yield from self._rounds(appeal.round)

        for claim in watched.claims:
            found = ours.task_claim_of(claim) or NO_CLAIM
            yield ("VeriLLM", "taskClaimOf", (claim,), TaskClaimState), found

    def _rest(self) -> Iterator[tuple[Ask, Any]]:
        ours, watched = self.reference, self.watched
        for owner in watched.holders:
            yield ("DevToken", "balanceOf", (owner,), int), ours.token_balance(owner)
        for key in watched.keys:
            yield ("VeriLLM", "operatorOf", (key,), str), ours.operator_of(key)
        for model in {model for model, _ in watched.seats}:
            yield ("VeriLLM", "slotsOf", (model,), tuple), ours.slots_of(model)
        for seat in watched.seats:
            yield ("VeriLLM", "seatOf", seat, SeatState), ours.seat_of(*seat)

    def _rounds(self, record: Hash32) -> Iterator[tuple[Ask, Any]]:
        found = self.reference.state.rounds.get(record)
        if found is None:
            return
        at = (self.net.deployment.contract, record)
        yield ("Adjudicator", "roundOf", at, Round), self.reference.round_of(record)
        for pair, sums in found.sums.items():
            yield ("Adjudicator", "pairOf", (*at, *pair), PairSums), _sums(sums)

    def _places(self, job: JobId) -> Iterator[tuple[Ask, Any]]:
        panel = self.reference.state.panels.get(job)
        size, replaced = (0, 0) if panel is None else (len(panel.places), panel.replaced)
        yield ("VeriLLM", "panelOf", (job,), tuple), (size, replaced)
        for index, place in enumerate(() if panel is None else panel.places):
            yield ("VeriLLM", "placeOf", (job, index), PlaceState), place
            number = self.reference.task_number_of(job, index + 1)
            yield ("VeriLLM", "taskNumberOf", (job, index + 1), int), number

    def _read(self, asked: Sequence[Ask]) -> list[Any]:
        """All answers in one round trip."""
        at = self.net.deployment
        where = {"VeriLLM": at.contract, "Adjudicator": at.adjudicator, "DevToken": at.token}
        body = []
        for number, (contract, name, values, _) in enumerate(asked):
            data = "0x" + artifacts.functions(contract)[name].encode(*values).hex()
            call = [{"to": where[contract], "data": data}, "latest"]
            method = {"jsonrpc": "2.0", "id": number, "method": "eth_call", "params": call}
            body.append(method)
        answers = self._http.post(self.net.anvil.url, json=body).json()
        by_id = {answer["id"]: bytes.fromhex(answer["result"][2:]) for answer in answers}
        return [_decoded(*ask, by_id[number]) for number, ask in enumerate(asked)]


def _decoded(contract: str, name: str, values: tuple[Any, ...], kind: Any, data: bytes) -> Any:
    outputs = artifacts.functions(contract)[name].outputs
    if kind is AccountState:
        return AccountState(*artifacts.decode(outputs, data, _ACCOUNT))
    if kind is Round:
        return Round(*artifacts.decode(outputs, data, _ROUND))
    if kind is JobState:
        return JobState(*artifacts.decode(outputs, data, [Status, int, Hash32]))
    if kind is TaskClaimState:
        return TaskClaimState(*artifacts.decode(outputs, data, _CLAIM))
    if kind is AppealState:
        return AppealState(*artifacts.decode(outputs, data, _APPEAL))
    if kind is PlaceState:
        return PlaceState(*artifacts.decode(outputs, data, _PLACE))
    if kind is PairSums:
        return artifacts.decode(outputs, data, [PairSums])[0]
    found = artifacts.decode(outputs, data)
    if kind in (DepositState, SeatState):
        return kind(*found)
    return found if kind is tuple else found[0]


def _plain(said: Sequence[Any]) -> list[Any]:
    return [each for each in said if not isinstance(each, _MONEY)]


def _moved(said: Sequence[Any]) -> dict[tuple[JobId, ChecksumAddress], int]:
    """What each account gained by a call. The contract pays in more steps than the reference."""
    moved: Counter[tuple[JobId, ChecksumAddress]] = Counter()
    for each in said:
        if isinstance(each, events.Paid):
            moved[each.job_id, each.account] += each.amount
        elif isinstance(each, events.Slashed):
            moved[each.job_id, each.operator] -= each.amount
        elif isinstance(each, events.Burnt):
            moved[each.job_id, DEAD] += each.amount
    return {account: amount for account, amount in moved.items() if amount}


def _sums(sums: PairStatistics) -> PairSums:
    return PairSums(sums.sum, sums.cells, sums.over)
