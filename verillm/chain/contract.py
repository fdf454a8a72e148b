"""One deployment of the contracts: its calls and reads, and transactions with one key.

`Calls` builds what a transaction carries; `Chain.send` sends it once and waits, `wallet.Outbox`
sends it so that it survives a crash. A revert becomes an error of ours by `reverts.explain`.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from eth_account.signers.local import LocalAccount
from eth_typing import ChecksumAddress
from web3.providers.base import BaseProvider

from verillm.chain import rpc
from verillm.chain.calls import Call, Calls, Checked, Opening
from verillm.chain.deployment import Deployment
from verillm.chain.reads import (
    AccountState,
    DepositState,
    Drawn,
    JobState,
    PairSums,
    PlaceState,
    Reads,
    Round,
    SeatState,
    Status,
)
from verillm.chain.reverts import explain, is_known, is_underpriced
from verillm.chain.server import LOG_RANGE, MAX_LOGS, Block, Log, parse_address, parse_log
from verillm.errors import ChainUnreachable, MalformedError, Timeout, VeriLLMError
from verillm.hashing import keccak
from verillm.types import Hash32

__all__ = [
    "LOG_RANGE",
    "MAX_LOGS",
    "AccountState",
    "Block",
    "Call",
    "Calls",
    "Chain",
    "Checked",
    "DepositState",
    "Drawn",
    "Fees",
    "JobState",
    "Log",
    "Mined",
    "Opening",
    "PairSums",
    "PlaceState",
    "Round",
    "SeatState",
    "Status",
    "sender_lock",
    "transaction_hash",
]


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
class Fees:
    """EIP-1559 fees in wei per gas."""

    maximum: int
    tip: int

    def raised(self) -> "Fees":
        """A quarter more, rounded up: enough for every node to take it as a replacement."""
        return Fees(self.maximum + self.maximum // 4 + 1, self.tip + self.tip // 4 + 1)


class Chain(Reads):
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
        super().__init__(rpc_, deployment)
        self.account = account
        self.calls = Calls(deployment)
        self.timeout, self.poll = timeout, poll

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
        return self._answer(call, sender or self.sender.address, block)

    def refusal(self, call: Call, sender: ChecksumAddress | None = None) -> VeriLLMError | None:
        """What the contract would refuse the call with now; None if it takes it.

        Raises ChainUnreachable: a server that is gone says nothing of the call.
        """
        try:
            self.simulate(call, sender)
        except ChainUnreachable:
            raise
        except VeriLLMError as error:  # the contract's word, under any of our names for it
            return error
        return None

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
        logs=tuple(parse_log(log) for log in logs),
        contract=None if contract is None else parse_address(contract, "receipt.contractAddress"),
    )


def transaction_hash(raw: bytes) -> Hash32:
    """The hash of a raw signed transaction."""
    return Hash32(keccak(raw))


_LOCKS: defaultdict[tuple[int, str], threading.RLock] = defaultdict(threading.RLock)
_LOCKS_LOCK = threading.Lock()


def sender_lock(chain_id: int, address: ChecksumAddress) -> threading.RLock:
    """Held while a key takes a nonce and sends: one at a time in this process."""
    with _LOCKS_LOCK:
        return _LOCKS[chain_id, address]
