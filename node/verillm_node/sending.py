"""Calls that are due whoever makes them: sent many to a block, read from the chain again each time.

Not through the outbox: what is due follows from the chain, so a crash loses nothing.
"""

import logging
import time
from collections.abc import Sequence

from verillm.chain.contract import Call, Chain, sender_lock, transaction_hash
from verillm.errors import ChainUnreachable, VeriLLMError
from verillm.types import Hash32
from verillm_node.threads import blocking

log = logging.getLogger(__name__)

AT_ONCE = 12
"""Calls on their way at the same time: one a block would miss the deadline."""
MINED_SECONDS = 20.0


async def send_all(chain: Chain, calls: Sequence[Call]) -> None:
    """Sends calls, many to a block; one that is refused was someone else's, or comes later."""
    for first in range(0, len(calls), AT_ONCE):
        await blocking(_send_batch, chain, calls[first : first + AT_ONCE])


def _send_batch(chain: Chain, calls: Sequence[Call]) -> None:
    sent, sender = [], chain.sender.address
    with sender_lock(chain.deployment.chain_id, sender):
        # Counted here and not asked for each: a server that is just mining answers too low.
        nonce, fees = chain.nonce(sender, "pending"), chain.fees()
        for call in calls:
            gas = _gas_of(chain, call)
            if gas is not None:
                raw = chain.sign(call, nonce, gas, fees)
                chain.broadcast(raw)
                sent.append((call, transaction_hash(raw)))
                nonce += 1
    _wait_for(chain, sent)


def _gas_of(chain: Chain, call: Call) -> int | None:
    try:
        return chain.estimate(call)
    except ChainUnreachable:
        raise
    except VeriLLMError as error:  # the contract's word, under any of our names for it
        log.info("round_call_refused", extra={"call": call.name, "error": str(error)})
        return None


def _wait_for(chain: Chain, sent: Sequence[tuple[Call, Hash32]]) -> None:
    """Waits a while for transactions; what is not mined by then is due again."""
    deadline = time.monotonic() + MINED_SECONDS
    for call, transaction in sent:
        while (found := chain.mined(transaction)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        gas = None if found is None else found.gas_used
        log.info("round_call", extra={"call": call.name, "gas": gas})
