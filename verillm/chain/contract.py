"""The VeriLLM contract as typed calls and reads, and the few transactions primitives under them.

`Calls` builds what a transaction carries; `Chain.send` sends it once and waits, `wallet.Outbox`
sends it so that it survives a crash. A revert becomes an error of ours by `reverts.explain`.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress
from eth_utils.address import to_checksum_address
from web3.providers.base import BaseProvider

from verillm.chain import artifacts, rpc
from verillm.chain.deployment import ZERO_ADDRESS, Config, Deployment
from verillm.chain.reverts import explain, is_known, is_underpriced
from verillm.errors import (
    ChainUnreachable,
    ConfigError,
    MalformedError,
    Timeout,
    UnknownModel,
    WrongChain,
)
from verillm.hashing import keccak
from verillm.model import ModelSpec, model_id as model_id_of
from verillm.records import Claiming, Posting, Sealing
from verillm.request import Job, Quote
from verillm.task import Inner, ItemLeaf
from verillm.types import Hash32, JobId, ModelId, Outcome

LOG_RANGE: Final = 10_000
MAX_LOGS: Final = 1_000_000


class Status(IntEnum):
    """Where a job stands on chain."""

    NONE = 0
    POSTED = 1
    SEALED = 2
    CLAIMED = 3
    CHALLENGED = 4
    FINAL = 5


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked request by its place in the drawn order, with the lengths that `reveal` fixed."""

    index: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Opening:
    """One party's evidence at one position, as `serve` and `compare` take it; states as bytes."""

    party: int
    inner: Inner
    leaf: ItemLeaf
    item_path: tuple[Hash32, ...]
    position: int
    token: int
    next: int
    slices: bytes
    final_state: bytes
    path: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's slot and the hash of everything else about it; `deadline` in the chain's seconds."""

    status: Status
    deadline: int
    record: Hash32


@dataclass(frozen=True, slots=True)
class DepositState:
    """A client's deposit at one scheduler; `unlocking` of it is payable from `available_at`."""

    amount: int
    unlocking: int
    available_at: int


@dataclass(frozen=True, slots=True)
class AccountState:
    """An operator's money: free balance, locked in jobs, staked in seats, and asked back."""

    balance: int
    locked: int
    staked: int
    withdrawing: int
    available_at: int
    hot_key: ChecksumAddress


@dataclass(frozen=True, slots=True)
class SeatState:
    """A seat of one model; active in blocks after `active_from`, `left_at` 0 while it is held."""

    owner: ChecksumAddress
    active_from: int
    left_at: int
    price: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The committee in drawn order and the checked requests of a job."""

    seats: tuple[int, ...]
    owners: tuple[ChecksumAddress, ...]
    checked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Where a public round stands; bit p of a mask and entry p of `served` are party p's."""

    job_id: JobId
    revealed: int
    positions: int
    non_finite: int
    mismatched: int
    served: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums over the compared positions of two parties (docs/protocol.md §7)."""

    sum: int
    cells: int
    over: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block's head; `base_fee` in wei."""

    number: int
    hash: Hash32
    timestamp: int
    base_fee: int


@dataclass(frozen=True, slots=True)
class Log:
    """One event's raw log and where it stands."""

    address: ChecksumAddress
    topics: tuple[bytes, ...]
    data: bytes
    block_number: int
    block_hash: Hash32
    transaction: Hash32
    index: int


@dataclass(frozen=True, slots=True)
class Mined:
    """A transaction in a block; `ok` is False if it reverted."""

    transaction: Hash32
    block_number: int
    block_hash: Hash32
    gas_used: int
    ok: bool
    logs: tuple[Log, ...]
    contract: ChecksumAddress | None


@dataclass(frozen=True, slots=True)
class Call:
    """What a transaction asks for; `to` None deploys."""

    name: str
    to: ChecksumAddress | None
    data: bytes
    value: int = 0


@dataclass(frozen=True, slots=True)
class Fees:
    """EIP-1559 fees in wei per gas."""

    maximum: int
    tip: int

    def raised(self) -> "Fees":
        """A quarter more, rounded up: enough for every node to take it as a replacement."""
        return Fees(self.maximum + self.maximum // 4 + 1, self.tip + self.tip // 4 + 1)


class Calls:
    """Builds the calls of one deployment; amounts in token units, times in seconds."""

    __slots__ = ("_adjudicator", "_contract", "_token")

    def __init__(self, deployment: Deployment) -> None:
        self._contract, self._token = deployment.contract, deployment.token
        self._adjudicator = deployment.adjudicator

    def _call(self, name: str, *values: object) -> Call:
        return Call(name, self._contract, artifacts.functions("VeriLLM")[name].encode(*values))

    def _round_call(self, name: str, *values: object) -> Call:
        data = artifacts.functions("Adjudicator")[name].encode(self._contract, *values)
        return Call(name, self._adjudicator, data)

    def _token_call(self, name: str, *values: object) -> Call:
        return Call(name, self._token, artifacts.functions("DevToken")[name].encode(*values))

    # Money in and out
    def approve(self, amount: int) -> Call:
        """Lets the contract take `amount` of the caller's tokens."""
        return self._token_call("approve", self._contract, amount)

    def mint(self, to: ChecksumAddress, amount: int) -> Call:
        """Devnet only: makes tokens."""
        return self._token_call("mint", to, amount)

    def transfer(self, to: ChecksumAddress, amount: int) -> Call:
        """Sends tokens."""
        return self._token_call("transfer", to, amount)

    def deposit(self, scheduler: ChecksumAddress, amount: int) -> Call:
        """Client: puts `amount` at the disposal of jobs signed for `scheduler`."""
        return self._call("deposit", scheduler, amount)

    def request_unlock(self, scheduler: ChecksumAddress, amount: int) -> Call:
        """Client: asks for a deposit back."""
        return self._call("requestUnlock", scheduler, amount)

    def withdraw_deposit(self, scheduler: ChecksumAddress) -> Call:
        """Client: takes an unlocked deposit."""
        return self._call("withdrawDeposit", scheduler)

    def add_stake(self, amount: int) -> Call:
        """Operator: adds to its stake."""
        return self._call("addStake", amount)

    def request_stake_withdrawal(self, amount: int) -> Call:
        """Operator: asks for free stake and earnings back."""
        return self._call("requestStakeWithdrawal", amount)

    def withdraw_stake(self) -> Call:
        """Operator: takes what it asked for."""
        return self._call("withdrawStake")

    def set_hot_key(self, hot_key: ChecksumAddress) -> Call:
        """Operator: names the key that signs for it."""
        return self._call("setHotKey", hot_key)

    def set_endpoint(self, endpoint: str) -> Call:
        """Operator: publishes its API's address."""
        return self._call("setEndpoint", endpoint)

    # Models and seats
    def register_model(self, spec: ModelSpec) -> Call:
        """Anyone: registers an immutable model version."""
        return self._call("registerModel", spec)

    def join(self, model_id: ModelId, price: int) -> Call:
        """Operator: takes a seat at a price per token."""
        return self._call("join", model_id, price)

    def leave(self, model_id: ModelId, seat: int) -> Call:
        """Operator: leaves a seat."""
        return self._call("leave", model_id, seat)

    def release(self, model_id: ModelId, seat: int) -> Call:
        """Operator: frees the stake of a seat left long ago."""
        return self._call("release", model_id, seat)

    def evict(self, model_id: ModelId, seat: int) -> Call:
        """Anyone: puts out a seat that its owner's balance no longer covers."""
        return self._call("evict", model_id, seat)

    # A job's life
    def post(
        self,
        job: Job,
        quote: Quote,
        seat: int,
        commitment: Hash32,
        outputs_root: Hash32,
        lock: int,
        client_signature: bytes,
        worker_signature: bytes,
    ) -> Call:
        """Scheduler: posts an inferencer's commitment to a signed job."""
        values = (job, quote, seat, commitment, outputs_root, lock)
        return self._call("post", *values, client_signature, worker_signature)

    def seal(
        self,
        posting: Posting,
        secret: Hash32,
        inner: Inner,
        inners: Sequence[Hash32],
        signatures: Sequence[bytes],
    ) -> Call:
        """Scheduler: seals the committee's commitments, in drawn order."""
        return self._call("seal", posting, secret, inner, inners, signatures)

    def claim(
        self,
        posting: Posting,
        sealing: Sealing,
        outcome: Outcome,
        reason: int,
        paid: int,
        bundle: Hash32,
        attestations: Sequence[bytes] = (),
    ) -> Call:
        """Anyone, bonded: claims a verdict; bit k - 1 of `paid` is committee member k.

        Attestations in drawn order, empty where a member gave none.
        """
        verdict = (outcome, reason, paid, bundle)
        return self._call("claim", posting, sealing, *verdict, attestations)

    def finalize(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: settles an unchallenged claim."""
        return self._call("finalize", posting, sealing, claiming)

    def refund(self, posting: Posting) -> Call:
        """Anyone: ends a job that was not sealed in time."""
        return self._call("refund", posting)

    def keep(self, block: int) -> Call:
        """Anyone: stores a block's hash, for all jobs posted or sealed in it."""
        return self._call("keep", block)

    # The public round
    def challenge(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        outcome: Outcome = Outcome.NONE,
        reason: int = 0,
        bundle: Hash32 = Hash32(bytes(32)),  # noqa: B008 - immutable
        attestations: Sequence[bytes] = (),
    ) -> Call:
        """Anyone, bonded: opens the public round; with a verdict that enough members attested."""
        attested = (outcome, reason, bundle, attestations)
        return self._call("challenge", posting, sealing, claiming, *attested)

    def reveal(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        checked_index: int,
        leaf: ItemLeaf,
        item_path: Sequence[Hash32],
    ) -> Call:
        """Anyone: fixes the lengths of a checked request."""
        record = (posting, sealing, claiming)
        return self._round_call("reveal", *record, checked_index, leaf, item_path)

    def serve(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        opening: Opening,
    ) -> Call:
        """Anyone: puts one party's opening of one position into calldata."""
        record = (posting, sealing, claiming, spec)
        return self._round_call("serve", *record, checked, position_index, opening)

    def compare(
        self,
        posting: Posting,
        sealing: Sealing,
        claiming: Claiming,
        spec: ModelSpec,
        checked: Checked,
        position_index: int,
        openings: Sequence[Opening],
    ) -> Call:
        """Anyone: compares several parties' openings of one position."""
        record = (posting, sealing, claiming, spec)
        return self._round_call("compare", *record, checked, position_index, openings)

    def adjudicate(self, posting: Posting, sealing: Sealing, claiming: Claiming) -> Call:
        """Anyone: computes the public round's verdict and settles by it."""
        return self._call("adjudicate", posting, sealing, claiming)


class Chain:
    """One deployment behind one RPC server, with at most one key that sends.

    Raises ChainUnreachable, WrongChain and MalformedError (an answer that cannot be) from every
    method; safe to share between threads. `timeout` bounds the wait in `send`, in seconds.
    """

    def __init__(
        self,
        rpc_: str | BaseProvider,
        deployment: Deployment,
        account: LocalAccount | None = None,
        *,
        timeout: float = 60.0,
        poll: float = 0.05,
    ) -> None:
        self.rpc = rpc.Rpc.of(rpc_)
        self.deployment, self.account = deployment, account
        self.calls = Calls(deployment)
        self.timeout, self.poll = timeout, poll
        self._checked = False
        self._models: dict[ModelId, ModelSpec] = {}

    def close(self) -> None:
        """Close the connection, unless the provider is the caller's."""
        self.rpc.close()

    def with_account(self, account: LocalAccount) -> "Chain":
        """The same chain, for another sender."""
        chain = Chain(
            self.rpc.provider, self.deployment, account, timeout=self.timeout, poll=self.poll
        )
        chain._checked = self._checked
        return chain

    @property
    def sender(self) -> LocalAccount:
        """The account that sends; raises ValueError without one."""
        if self.account is None:
            raise ValueError("this Chain has no account to send from")
        return self.account

    # ── The server ───────────────────────────────────────────────────────────────────────────────
    def request(self, method: str, *params: object) -> Any:
        """A raw call; the first one makes sure that the server is on the deployment's chain."""
        if not self._checked:
            self._check()
        return self._request(method, *params)

    def _request(self, method: str, *params: object) -> Any:
        try:
            return self.rpc.call(method, *params)
        except rpc.RpcRefused as refusal:
            raise explain(refusal, self.rpc.name) from refusal

    def _check(self) -> None:
        actual = rpc.quantity(self._request("eth_chainId"), "chainId")
        if actual != self.deployment.chain_id:
            raise WrongChain(self.deployment.chain_id, actual)
        code = self._request("eth_getCode", self.deployment.contract, "latest")
        if not rpc.data(code, "code"):
            raise ConfigError(f"no contract at {self.deployment.contract} on this chain")
        self._checked = True

    def block(self, number: int | str = "latest") -> Block:
        """A block's head, by number or tag."""
        tag = hex(number) if isinstance(number, int) else number
        found = self.request("eth_getBlockByNumber", tag, False)
        if found is None:
            raise ChainUnreachable(self.rpc.name, f"it has no block {number}")
        found = rpc.record(found, "block")
        return Block(
            number=rpc.quantity(found.get("number"), "block.number"),
            hash=rpc.hash32(found.get("hash"), "block.hash"),
            timestamp=rpc.quantity(found.get("timestamp"), "block.timestamp"),
            base_fee=rpc.quantity(found.get("baseFeePerGas", "0x0"), "block.baseFee", 128),
        )

    def now(self) -> int:
        """The newest block's timestamp: the clock that deadlines are measured by."""
        return self.block().timestamp

    def nonce(self, address: ChecksumAddress, tag: str = "latest") -> int:
        """How many transactions of `address` are mined (`latest`), or known (`pending`)."""
        return rpc.quantity(self.request("eth_getTransactionCount", address, tag), "nonce")

    def balance(self, address: ChecksumAddress) -> int:
        """Native coin, in wei: what gas is paid with."""
        return rpc.quantity(self.request("eth_getBalance", address, "latest"), "balance", 256)

    # ── Transactions ─────────────────────────────────────────────────────────────────────────────
    def fees(self) -> Fees:
        """Fees that stay enough while the base fee doubles."""
        tip = rpc.quantity(self.request("eth_maxPriorityFeePerGas"), "tip", 128)
        return Fees(2 * self.block().base_fee + tip, tip)

    def estimate(self, call: Call, sender: ChecksumAddress | None = None) -> int:
        """Gas limit with a margin; raises what the call would revert with."""
        message = self._message(call, sender or self.sender.address)
        gas = rpc.quantity(self.request("eth_estimateGas", message), "gas")
        return gas + gas // 4 + 10_000

    def simulate(
        self, call: Call, sender: ChecksumAddress | None = None, block: str = "latest"
    ) -> bytes:
        """What the call would answer now; raises what it would revert with."""
        message = self._message(call, sender or self.sender.address)
        return rpc.data(self.request("eth_call", message, block), "answer")

    @staticmethod
    def _message(call: Call, sender: ChecksumAddress) -> dict[str, object]:
        message: dict[str, object] = {"from": sender, "data": "0x" + call.data.hex()}
        if call.to is not None:
            message["to"] = call.to
        if call.value:
            message["value"] = hex(call.value)
        return message

    def sign(self, call: Call, nonce: int, gas: int, fees: Fees) -> bytes:
        """The raw signed transaction."""
        transaction: dict[str, Any] = {
            "type": 2,
            "chainId": self.deployment.chain_id,
            "nonce": nonce,
            "gas": gas,
            "maxFeePerGas": fees.maximum,
            "maxPriorityFeePerGas": fees.tip,
            "value": call.value,
            "data": call.data,
        }
        if call.to is not None:
            transaction["to"] = call.to
        return bytes(self.sender.sign_transaction(transaction).raw_transaction)

    def broadcast(self, raw: bytes) -> None:
        """Send a signed transaction; one that the server knows already is no error."""
        if not self._checked:
            self._check()
        try:
            self.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        except rpc.RpcRefused as refusal:
            if not (is_known(refusal) or is_underpriced(refusal)):
                raise explain(refusal, self.rpc.name) from refusal

    def mined(self, transaction: Hash32) -> Mined | None:
        """A transaction's receipt, once it is in a block."""
        found = self.request("eth_getTransactionReceipt", "0x" + transaction.hex())
        return None if found is None or found.get("blockHash") is None else _mined(found)

    def knows(self, transaction: Hash32) -> bool:
        """Whether the server has the transaction, mined or not."""
        return self.request("eth_getTransactionByHash", "0x" + transaction.hex()) is not None

    def send(self, call: Call) -> Mined:
        """Send once and wait until it is mined; raises what it reverts with. No crash safety."""
        gas, fees = self.estimate(call), self.fees()
        with sender_lock(self.deployment.chain_id, self.sender.address):
            raw = self.sign(call, self.nonce(self.sender.address, "pending"), gas, fees)
            self.broadcast(raw)
        return self.wait(call, transaction_hash(raw))

    def wait(self, call: Call, transaction: Hash32) -> Mined:
        """Wait for a transaction of `call`; raises what it reverted with, or Timeout."""
        deadline = time.monotonic() + self.timeout
        while (found := self.mined(transaction)) is None:
            if time.monotonic() > deadline:
                raise Timeout(f"{call.name} was not mined in {self.timeout:.0f} s")
            time.sleep(self.poll)
        if not found.ok:
            self.raise_revert(call, found)
        return found

    def raise_revert(self, call: Call, found: Mined) -> None:
        """Run a reverted call again before its block, to learn why; raises that."""
        self.simulate(call, block=hex(found.block_number - 1))
        self.simulate(call)
        raise explain(rpc.RpcRefused(3, f"{call.name} reverted", b""), self.rpc.name)

    # ── Reads ────────────────────────────────────────────────────────────────────────────────────
    def _read(self, name: str, kinds: Sequence[Any], *values: object, block: str = "latest") -> Any:
        entry = artifacts.functions("VeriLLM")[name]
        call = Call(name, self.deployment.contract, entry.encode(*values))
        return artifacts.decode(entry.outputs, self.simulate(call, ZERO_ADDRESS, block), kinds)

    def _read_round(self, name: str, kinds: Sequence[Any], *values: object) -> Any:
        entry = artifacts.functions("Adjudicator")[name]
        call = Call(name, self.deployment.adjudicator, entry.encode(*values))
        return artifacts.decode(entry.outputs, self.simulate(call, ZERO_ADDRESS), kinds)

    def _read_token(self, name: str, *values: object) -> Any:
        entry = artifacts.functions("DevToken")[name]
        call = Call(name, self.deployment.token, entry.encode(*values))
        (value,) = artifacts.decode(entry.outputs, self.simulate(call, ZERO_ADDRESS))
        return value

    def config(self) -> Config:
        """What the deployment fixed for good."""
        (config,) = self._read("config", [Config])
        return config  # type: ignore[no-any-return]

    def job_state(self, job_id: JobId, block: str = "latest") -> JobState:
        """A job's slot."""
        return JobState(*self._read("jobState", [Status, int, Hash32], job_id, block=block))

    def job_id_of(self, job: Job) -> JobId:
        """The job's id as the contract computes it."""
        (job_id,) = self._read("jobIdOf", [JobId], job)
        return JobId(job_id)

    def deposit_of(self, client: ChecksumAddress, scheduler: ChecksumAddress) -> DepositState:
        """A client's deposit at a scheduler."""
        return DepositState(*self._read("depositOf", [int, int, int], client, scheduler))

    def account_of(self, operator: ChecksumAddress) -> AccountState:
        """An operator's money and hot key."""
        return AccountState(*self._read("accountOf", [int] * 5 + [str], operator))

    def operator_of(self, hot_key: ChecksumAddress) -> ChecksumAddress | None:
        """Whose hot key it is, if anyone's."""
        (operator,) = self._read("operatorOf", [str], hot_key)
        return None if operator == ZERO_ADDRESS else operator

    def seat_of(self, model_id: ModelId, seat: int) -> SeatState:
        """A seat of a model."""
        return SeatState(*self._read("seatOf", [str, int, int, int], model_id, seat))

    def slots_of(self, model_id: ModelId) -> tuple[int, int]:
        """Slots and distinct owners of a model."""
        slots, owners = self._read("slotsOf", [int, int], model_id)
        return slots, owners

    def nonce_used(self, client: ChecksumAddress, nonce: int) -> bool:
        """Whether a job with this nonce was posted."""
        (used,) = self._read("nonceUsed", [bool], client, nonce)
        return bool(used)

    def draw_of(self, posting: Posting, secret: Hash32, beacon: Hash32) -> Drawn:
        """The committee that `seal` demands, and the checked requests."""
        values = (self.deployment.contract, posting, secret, beacon)
        return Drawn(*self._read_round("drawOf", [tuple] * 3, *values))

    def positions_of(
        self,
        sealed_record: Hash32,
        beacon: Hash32,
        request: int,
        prompt_tokens: int,
        new_tokens: int,
        wanted: int,
    ) -> tuple[int, ...]:
        """The challenged positions of a checked request."""
        values = (sealed_record, beacon, request, prompt_tokens, new_tokens, wanted)
        (positions,) = self._read_round("positionsOf", [tuple[int, ...]], *values)
        return tuple(positions)

    def round_of(self, record: Hash32) -> Round:
        """Where the public round over a job's record stands."""
        values = (self.deployment.contract, record)
        return Round(*self._read_round("roundOf", [JobId, *[int] * 4, tuple[int, ...]], *values))

    def pair_of(self, record: Hash32, first: int, second: int) -> PairSums:
        """What the round added up for two parties, `first` < `second`."""
        values = (self.deployment.contract, record, first, second)
        (sums,) = self._read_round("pairOf", [PairSums], *values)
        return sums  # type: ignore[no-any-return]

    def model(self, model_id: ModelId) -> ModelSpec:
        """A registered model from its event, checked against its id; raises UnknownModel."""
        if model_id not in self._models:
            entry = artifacts.artifact("VeriLLM").entries("event")["ModelRegistered"]
            for log in self.logs([entry.topic, model_id]):
                with contextlib.suppress(artifacts.NotText):
                    (spec,) = artifacts.decode(entry.inputs[1:], log.data, [ModelSpec])
                    if model_id_of(spec) == model_id:
                        self._models[model_id] = spec
            if model_id not in self._models:
                raise UnknownModel("0x" + model_id.hex())
        return self._models[model_id]

    def token_balance(self, owner: ChecksumAddress) -> int:
        """Tokens that `owner` holds itself."""
        return int(self._read_token("balanceOf", owner))

    def allowance(self, owner: ChecksumAddress) -> int:
        """Tokens of `owner` that the contract may take."""
        return int(self._read_token("allowance", owner, self.deployment.contract))

    def token_units(self) -> tuple[str, int]:
        """Symbol and decimals of the token."""
        return str(self._read_token("symbol")), int(self._read_token("decimals"))

    # ── Logs ─────────────────────────────────────────────────────────────────────────────────────
    def logs(
        self,
        topics: Sequence[bytes | Sequence[bytes] | None],
        first: int | None = None,
        last: int | None = None,
    ) -> Iterator[Log]:
        """Logs of both contracts from block `first` (deployment) to `last` (newest), in order."""
        first = self.deployment.block if first is None else first
        last = self.block().number if last is None else last
        wanted = [_topic(topic) for topic in topics]
        for start in range(first, last + 1, LOG_RANGE):
            query = {
                "address": [self.deployment.contract, self.deployment.adjudicator],
                "topics": wanted,
                "fromBlock": hex(start),
                "toBlock": hex(min(start + LOG_RANGE - 1, last)),
            }
            found = self.request("eth_getLogs", query)
            if not isinstance(found, list) or len(found) > MAX_LOGS:
                raise MalformedError("logs", "not a list of logs")
            yield from (_log(each) for each in found)


# ── Parsing what servers answer ──────────────────────────────────────────────────────────────────
def _topic(topic: bytes | Sequence[bytes] | None) -> object:
    if topic is None or isinstance(topic, bytes):
        return None if topic is None else "0x" + topic.hex()
    return ["0x" + each.hex() for each in topic]


def _log(value: object) -> Log:
    log = rpc.record(value, "log")
    topics = log.get("topics")
    if not isinstance(topics, list) or len(topics) > 4 or log.get("removed") is True:
        raise MalformedError("log.topics", "not the topics of a mined log")
    return Log(
        address=_address(log.get("address"), "log.address"),
        topics=tuple(rpc.hash32(topic, "log.topics") for topic in topics),
        data=rpc.data(log.get("data"), "log.data"),
        block_number=rpc.quantity(log.get("blockNumber"), "log.blockNumber"),
        block_hash=rpc.hash32(log.get("blockHash"), "log.blockHash"),
        transaction=rpc.hash32(log.get("transactionHash"), "log.transactionHash"),
        index=rpc.quantity(log.get("logIndex"), "log.logIndex"),
    )


def _mined(value: object) -> Mined:
    receipt = rpc.record(value, "receipt")
    logs, contract = receipt.get("logs"), receipt.get("contractAddress")
    if not isinstance(logs, list):
        raise MalformedError("receipt.logs", "not a list")
    return Mined(
        transaction=rpc.hash32(receipt.get("transactionHash"), "receipt.transactionHash"),
        block_number=rpc.quantity(receipt.get("blockNumber"), "receipt.blockNumber"),
        block_hash=rpc.hash32(receipt.get("blockHash"), "receipt.blockHash"),
        gas_used=rpc.quantity(receipt.get("gasUsed"), "receipt.gasUsed"),
        ok=rpc.quantity(receipt.get("status"), "receipt.status") == 1,
        logs=tuple(_log(log) for log in logs),
        contract=None if contract is None else _address(contract, "receipt.contractAddress"),
    )


def _address(value: object, field: str) -> ChecksumAddress:
    found = rpc.data(value, field)
    if len(found) != 20:
        raise MalformedError(field, "not an address")
    return to_checksum_address(found)


def transaction_hash(raw: bytes) -> Hash32:
    """The hash of a raw signed transaction."""
    return Hash32(keccak(raw))


_LOCKS: defaultdict[tuple[int, str], threading.RLock] = defaultdict(threading.RLock)
_LOCKS_LOCK = threading.Lock()


def sender_lock(chain_id: int, address: ChecksumAddress) -> threading.RLock:
    """Held while a key takes a nonce and sends: one at a time in this process."""
    with _LOCKS_LOCK:
        return _LOCKS[chain_id, address]
