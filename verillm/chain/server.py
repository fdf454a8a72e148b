"""The RPC server of a deployment: which chain it is on, its blocks, its logs, its answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_typing import ChecksumAddress
from eth_utils.address import to_checksum_address
from web3.providers.base import BaseProvider

from verillm.chain import rpc
from verillm.chain.calls import Call
from verillm.chain.deployment import Deployment
from verillm.chain.refused import DeploymentDiffers
from verillm.chain.reverts import explain
from verillm.errors import ChainError, ChainUnreachable, ConfigError, MalformedError, WrongChain
from verillm.hashing import keccak
from verillm.types import Hash32

LOG_RANGE: Final = 10_000
MAX_LOGS: Final = 1_000_000


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


class Server:
    """The RPC server behind one deployment."""

    def __init__(self, rpc_: str | BaseProvider, deployment: Deployment) -> None:
        self.rpc = rpc.Rpc.of(rpc_)
        self.deployment = deployment
        self._checked = False

    def close(self) -> None:
        """Close the connection, unless the provider is the caller's."""
        self.rpc.close()

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
        found = rpc.data(code, "code")
        if not found:
            raise ConfigError(f"no contract at {self.deployment.contract} on this chain")
        made = self.deployment.made
        if made is not None and keccak(found) != made.code_hashes[0]:
            fact = f"other code than the addresses file names at {self.deployment.contract}"
            raise DeploymentDiffers((fact,))
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
        span = LOG_RANGE
        while first <= last:
            end = min(first + span - 1, last)
            found = self._logs(wanted, first, end)
            if found is None:
                span = (end - first + 1) // 2
                continue
            yield from (parse_log(each) for each in found)
            first, span = end + 1, min(2 * span, LOG_RANGE)

    def _logs(self, topics: Sequence[object], first: int, last: int) -> list[object] | None:
        """The logs of some blocks; None if the server finds them too many, and fewer may do.

        Servers bound an answer's logs or bytes, each in words of its own; and anyone can fill the
        blocks of a range with events, so no range is sure to pass.
        """
        query = {
            "address": [self.deployment.contract, self.deployment.adjudicator],
            "topics": topics,
            "fromBlock": hex(first),
            "toBlock": hex(last),
        }
        try:
            found = self.request("eth_getLogs", query)
        except ChainError as error:
            narrow = isinstance(error, rpc.AnswerTooLong) or isinstance(
                error.__cause__, rpc.RpcRefused
            )
            if narrow and first < last:
                return None
            raise
        if not isinstance(found, list) or len(found) > MAX_LOGS:
            raise MalformedError("logs", "not a list of logs")
        return found

    def _answer(self, call: Call, sender: ChecksumAddress, block: str) -> bytes:
        """What the call would answer at a block; raises what it would revert with."""
        return rpc.data(self.request("eth_call", self._message(call, sender), block), "answer")

    @staticmethod
    def _message(call: Call, sender: ChecksumAddress) -> dict[str, object]:
        message: dict[str, object] = {"from": sender, "data": "0x" + call.data.hex()}
        if call.to is not None:
            message["to"] = call.to
        if call.value:
            message["value"] = hex(call.value)
        return message


def _topic(topic: bytes | Sequence[bytes] | None) -> object:
    if topic is None or isinstance(topic, bytes):
        return None if topic is None else "0x" + topic.hex()
    return ["0x" + each.hex() for each in topic]


def parse_log(value: object) -> Log:
    """A log of a mined transaction."""
    log = rpc.record(value, "log")
    topics = log.get("topics")
    if not isinstance(topics, list) or len(topics) > 4 or log.get("removed") is True:
        raise MalformedError("log.topics", "not the topics of a mined log")
    return Log(
        address=parse_address(log.get("address"), "log.address"),
        topics=tuple(rpc.hash32(topic, "log.topics") for topic in topics),
        data=rpc.data(log.get("data"), "log.data"),
        block_number=rpc.quantity(log.get("blockNumber"), "log.blockNumber"),
        block_hash=rpc.hash32(log.get("blockHash"), "log.blockHash"),
        transaction=rpc.hash32(log.get("transactionHash"), "log.transactionHash"),
        index=rpc.quantity(log.get("logIndex"), "log.logIndex"),
    )


def parse_address(value: object, field: str) -> ChecksumAddress:
    """An account's address."""
    found = rpc.data(value, field)
    if len(found) != 20:
        raise MalformedError(field, "not an address")
    return to_checksum_address(found)
