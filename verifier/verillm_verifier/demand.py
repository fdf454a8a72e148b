"""A claim's bundle on chain: ask for it, and read it out of the calldata that served it."""

from verillm.chain import artifacts, rpc
from verillm.chain.contract import Chain, Mined
from verillm.chain.events import At, BundleDemanded, BundleServed, ChunkServed, JobHistory
from verillm.chain.reads import Status
from verillm.codec import bundle_hash
from verillm.errors import InputError, MalformedError
from verillm.records import Claiming, Posting, Sealing
from verillm.types import Hash32
from verillm_verifier.facts import Facts

ARGUMENTS = (Posting, Sealing, Claiming, int, bytes, tuple)
"""Of `serveBundle`; the fifth is the chunk."""


def demand(chain: Chain, facts: Facts) -> Mined:
    """Demand the bundle of the claim, bonded; InputError where there is no claim to ask about."""
    if facts.state.status is not Status.CLAIMED or facts.sealing is None or facts.claiming is None:
        raise InputError(f"a job that is {facts.state.status.name.lower()} has no claim to ask for")
    return chain.send(chain.calls.demand(facts.posting, facts.sealing, facts.claiming))


def served(chain: Chain, facts: Facts) -> bytes | None:
    """The bundle that was served, None if it is not whole, or not readable from the outside.

    Whoever serves through a contract of its own leaves no such calldata; the hash decides.
    """
    claiming = facts.claiming
    if claiming is None or not facts.history.all(BundleServed):
        return None
    parts = {}
    for each in _chunks(facts.history):
        chunk = _chunk(chain, each.transaction)
        if chunk is None:
            return None
        parts[each.event.index] = chunk
    whole = b"".join(parts[index] for index in sorted(parts))
    return whole if bundle_hash(whole) == claiming.bundle else None


def _chunks(history: JobHistory) -> list[At[ChunkServed]]:
    asked = history.all(BundleDemanded)[-1]
    return [each for each in history.all(ChunkServed) if each.block_number >= asked.block_number]


def _chunk(chain: Chain, transaction: Hash32) -> bytes | None:
    found = chain.request("eth_getTransactionByHash", "0x" + transaction.hex())
    if not isinstance(found, dict):
        return None
    data = rpc.data(found.get("input"), "input")
    entry = artifacts.functions("VeriLLM")["serveBundle"]
    if data[:4] != entry.selector:
        return None
    try:
        return bytes(artifacts.decode(entry.inputs, data[4:], ARGUMENTS)[4])
    except MalformedError:
        return None
