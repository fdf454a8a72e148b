"""The public randomness of a step: the hash of the block that holds it."""

from typing import Final

from verillm.chain.contract import Chain
from verillm.errors import BeaconLost
from verillm.types import Hash32

WINDOW: Final = 256
"""Blocks for which the EVM's BLOCKHASH answers."""


def beacon(chain: Chain, block: int) -> Hash32:
    """Hash of block `block`, which the contract can still see; raises BeaconLost.

    The next transaction is mined at the earliest in the block after the newest, so the newest
    counts as one block old already.
    """
    newest = chain.block().number
    if block > newest or newest + 1 - block > WINDOW:
        raise BeaconLost(block)
    return chain.block(block).hash


def blocks_left(chain: Chain, block: int) -> int:
    """How many blocks may still be mined before the beacon of `block` is lost: `keep` it first."""
    return max(0, block + WINDOW - chain.block().number - 1)
