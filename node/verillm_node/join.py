"""Bringing an operator onto the chain: gas for its hot key, the key itself, endpoint, stake, seats.

Each step looks first at what is there, so a start after a crash does only what is missing.
"""

import logging
from dataclasses import dataclass

from eth_typing import ChecksumAddress

from verillm.chain.contract import Call, Chain
from verillm.chain.events import EndpointSet, stream
from verillm.errors import ConfigError
from verillm.model import ModelSpec
from verillm.types import ModelId

log = logging.getLogger(__name__)

LONGEST_SLOT_SCAN = 4096


@dataclass(frozen=True, slots=True)
class Seats:
    """What a worker wants of a model: how many seats, at which price a token."""

    model_id: ModelId
    spec: ModelSpec
    count: int
    price: int


def present(chain: Chain, hot_key: ChecksumAddress, endpoint: str, gas_reserve_wei: int) -> None:
    """Names hot key and endpoint for the chain's sender, the operator; gives the hot key gas."""
    operator = chain.sender.address
    if hot_key != operator and chain.balance(hot_key) < gas_reserve_wei:
        _send(chain, Call("fund", hot_key, b"", gas_reserve_wei * 2))
    if chain.account_of(operator).hot_key != hot_key:
        _send(chain, chain.calls.set_hot_key(hot_key))
    if endpoint_of(chain, operator) != endpoint:
        _send(chain, chain.calls.set_endpoint(endpoint))


def endpoint_of(chain: Chain, operator: ChecksumAddress) -> str | None:
    """Where an operator's API listens, as it published last."""
    found = None
    for each in stream(chain, (EndpointSet,)):
        if each.event.operator == operator:
            found = each.event.endpoint
    return found


def take_seats(chain: Chain, wanted: Seats) -> list[int]:
    """Takes the missing seats of a worker, with the stake they need; all its seats."""
    operator = chain.sender.address
    held = held_seats(chain, wanted.model_id, operator)
    missing = wanted.count - len(held)
    if missing > 0:
        account = chain.account_of(operator)
        stake_up(chain, account.staked + missing * wanted.spec.seat_stake)
    for _ in range(missing):
        _send(chain, chain.calls.join(wanted.model_id, wanted.price))
    return held_seats(chain, wanted.model_id, operator)


def held_seats(chain: Chain, model_id: ModelId, operator: ChecksumAddress) -> list[int]:
    """Active seats of an operator."""
    slots, _ = chain.slots_of(model_id)
    seats = range(min(slots, LONGEST_SLOT_SCAN))
    states = ((seat, chain.seat_of(model_id, seat)) for seat in seats)
    return [seat for seat, state in states if state.owner == operator and state.left_at == 0]


def stake_up(chain: Chain, amount: int) -> None:
    """Brings the sender's stake up to `amount`, in token units; raises `ConfigError`."""
    operator = chain.sender.address
    missing = amount - chain.account_of(operator).balance
    if missing <= 0:
        return
    held = chain.token_balance(operator)
    if held < missing:
        raise ConfigError(f"{operator} holds {held} token units, its stake needs {missing} more")
    if chain.allowance(operator) < missing:
        _send(chain, chain.calls.approve(missing))
    _send(chain, chain.calls.add_stake(missing))


def _send(chain: Chain, call: Call) -> None:
    mined = chain.send(call)
    log.info("operator_sent", extra={"call": call.name, "transaction": mined.transaction})
