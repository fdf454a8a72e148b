import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from tests.unit.verillm.builders import SEAL_BEACON, make_world
from verillm.errors import InputError
from verillm.records import Claiming, record_hash
from verillm.types import Outcome, Reason

JOB = "(address,bytes32,bytes32,uint16,uint96,uint40,uint256)"
QUOTE = "(address,bytes32,uint96,bytes32,uint40)"
POSTING = f"({JOB},{QUOTE},uint32,address,bytes32,bytes32,uint96,uint96,uint32,uint40,uint40)"
INNER = "(bytes32,bytes32,uint32,uint64,uint64)"
SEALING = f"(bytes32,bytes32,{INNER},uint96,uint40,(uint32,address,bytes32,uint96)[])"
CLAIMING = "(address,uint8,uint8,uint8,bytes32,bytes32)"


def test_records_are_the_hashes_of_solidity_abi_encode() -> None:
    world = make_world()
    p, s, i = world.posting, world.sealing, world.sealing.inner
    job = (
        p.job.client, p.job.quote, p.job.requests_root, p.job.requests, p.job.max_fee,
        p.job.deadline, p.job.nonce,
    )  # fmt: skip
    quote = (
        p.quote.scheduler, p.quote.model_id, p.quote.unit_price, p.quote.draw_commit,
        p.quote.expiry,
    )  # fmt: skip
    posting = (
        job, quote, p.seat, p.worker, p.commitment, p.outputs_root, p.lock, p.bond, p.slots,
        p.posted_at, p.posted_block,
    )  # fmt: skip
    inner = (i.task_hash, i.items_root, i.items, i.prompt_tokens, i.new_tokens)
    members = [(each.seat, each.owner, each.inner, each.lock) for each in s.committee]
    sealing = (s.secret, s.beacon, inner, s.fee, s.sealed_block, members)
    claiming = Claiming(p.worker, Outcome.SLASH, Reason.WITHHELD, 5, SEAL_BEACON, SEAL_BEACON)
    claimed = (p.worker, 3, 3, 5, SEAL_BEACON, SEAL_BEACON)
    posted = keccak(encode([POSTING], [posting]))
    sealed = keccak(encode(["bytes32", SEALING], [posted, sealing]))
    assert record_hash(p) == posted
    assert record_hash(p, s) == sealed
    assert record_hash(p, s, claiming) == keccak(encode(["bytes32", CLAIMING], [sealed, claimed]))


def test_a_claim_without_a_seal_has_no_record() -> None:
    world = make_world()
    claiming = Claiming(
        world.posting.worker, Outcome.SLASH, Reason.WITHHELD, 5, SEAL_BEACON, SEAL_BEACON
    )
    with pytest.raises(InputError):
        record_hash(world.posting, None, claiming)
