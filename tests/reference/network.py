"""The whole network in memory: calls happen in blocks, whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.reference.ledger import DEAD
from tests.reference.state import Refused
from tests.reference.wages import Wages
from verillm.chain.deployment import Config
from verillm.signing import Domain
from verillm.types import ChecksumAddress, Hash32


@dataclass(frozen=True, slots=True)
class Block:
    """Where a call is mined; its hash is known only to later ones."""

    number: int
    timestamp: int


class Network(Wages):
    """The reference of VeriLLM, its extensions, its adjudicator and its token as one object.

    Entry points are those of `verillm.chain.calls.Calls`, by the same names and arguments; reads
    are those of `Reads`.
    """

    def __init__(self, config: Config, domain: Domain) -> None:
        super().__init__(config, domain)
        self.hashes: dict[int, Hash32] = {}
        self.lost: set[int] = set()

    def call(
        self, sender: ChecksumAddress, block: Block, name: str, *values: Any
    ) -> tuple[Any, ...]:
        """One transaction; returns its events. Raises Refused, and then nothing happened."""
        before = self.state.copy()
        self.sender, self.now, self.block = sender, block.timestamp, block.number
        self.events = []
        try:
            getattr(self, name)(*values)
        except Refused:
            self.state = before
            raise
        return tuple(self.events)

    def mined(self, block: Block, hash_: Hash32) -> None:
        """A block is over."""
        self.now, self.block = block.timestamp, block.number
        self.hashes[block.number] = hash_

    def money(self) -> Mapping[str, int]:
        """Where all tokens are that the network ever held; the first two are equal."""
        state = self.state
        owed = sum(held.amount for held in state.deposits.values())
        owed += sum(account.balance for account in state.accounts.values())
        owed += sum(state.escrows.values())
        return {
            "held": self.token_balance(self.contract),
            "owed": owed,
            "burnt": self.token_balance(DEAD),
        }
