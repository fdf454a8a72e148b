"""The Prover's rules, once more: whether what a proof brings lies under what was sealed."""

from verillm.evidence import CheckedOutput
from verillm.hashing import tokens_of, u32
from verillm.merkle import LeafKind, leaf_hash, verify_proof
from verillm.model import ModelSpec
from verillm.proofs.find import Case
from verillm.proofs.shown import (
    Asked,
    Entry,
    Given,
    HashedTask,
    Made,
    Output,
    Piece,
    Rival,
    Witness,
)
from verillm.request import PieceProof, request_leaf, tokens_root, verify_piece
from verillm.signing import struct_hash, task_hash
from verillm.task import inner_hash, item_leaf_hash, output_hash, output_leaf, seed
from verillm.trace import state_bytes, state_digest
from verillm.types import Hash32

PIECE = 32


def check_given(case: Case, party: int, given: Given) -> None:
    inners = (inner_hash(case.sealing.inner), *case.sealing.inners)
    task = next(each.task for each in case.bundle.parties if each.party == party)
    assert inner_hash(given.inner) == inners[party]
    assert given.inner.task_hash == task_hash(task)
    hashes = tuple(struct_hash(item) for item in task.items)
    fields = (task.task_id, task.worker, task.model_id, hashes, task.deadline, task.lock, task.fee)
    assert given.task == HashedTask(*fields)
    assert given.item == task.items[given.index]


def check_made(case: Case, party: int, made: Made) -> None:
    openings = next(each.openings for each in case.bundle.parties if each.party == party)
    inner = next(iter(openings.values())).inner
    leaf = item_leaf_hash(made.leaf)
    assert verify_proof(inner.items_root, leaf, made.leaf.item, inner.items, made.path)


def check_entry(given_hash: Hash32, made: Made, entry: Entry) -> None:
    numbers = (made.leaf.item, entry.position, entry.token, entry.next)
    head = given_hash + b"".join(map(u32, numbers))
    leaf = leaf_hash(LeafKind.TRACE, head + entry.slices + entry.final_state)
    count = made.leaf.prompt_tokens + made.leaf.new_tokens - 1
    assert verify_proof(made.leaf.trace_root, leaf, entry.position, count, entry.path)


def token_of(salt: bytes, tokens: tuple[int, ...], at: int, piece: Piece) -> int:
    shown = PieceProof(at // PIECE, piece.salt, tokens_of(piece.tokens), piece.path)
    assert verify_piece(tokens_root(salt, tokens), len(tokens), shown)
    return shown.tokens[at % PIECE]


def check_asked(case: Case, shown: CheckedOutput, asked: Asked) -> None:
    job, request = case.posting.job, shown.request
    assert asked.tokens_root == tokens_root(request.salt, request.tokens)
    assert asked.length == len(request.tokens)
    assert (asked.max_new_tokens, asked.sampling) == (request.max_new_tokens, request.sampling)
    leaf = request_leaf(request)
    assert verify_proof(job.requests_root, leaf, shown.index, job.requests, asked.path)


def check_output(case: Case, shown: CheckedOutput, output: Output) -> None:
    assert tokens_of(output.tokens) == shown.output
    check_posted(case, shown.index, output_hash(case.first_task, shown.output), output.path)


def check_posted(case: Case, number: int, digest: Hash32, path: tuple[Hash32, ...]) -> None:
    leaf, count = output_leaf(number, digest), case.posting.job.requests
    assert verify_proof(case.posting.outputs_root, leaf, number, count, path)


def shown_of(case: Case, made_or_given: Made | Given, party: int) -> CheckedOutput:
    """The checked request that a party's item is of."""
    item = made_or_given.leaf.item if isinstance(made_or_given, Made) else made_or_given.index
    if party:
        return case.bundle.checked[item]
    return next(each for each in case.bundle.checked if each.index == item)


def check_rows(spec: ModelSpec, token: int, rival: Rival) -> None:
    for entry, row in ((token, rival.token), (rival.id, rival.rival)):
        leaf = leaf_hash(LeafKind.HEAD, u32(entry) + row.bits)
        assert verify_proof(spec.head_root, leaf, entry, spec.vocabulary, row.path)


def check_witness(case: Case, shown: CheckedOutput, witness: Witness) -> None:
    check_given(case, witness.party, witness.given)
    check_made(case, witness.party, witness.made)
    check_entry(witness.given.inner.task_hash, witness.made, witness.entry)
    assert shown_of(case, witness.given, witness.party) == shown
    expected = seed(case.sealing.secret, request_leaf(shown.request), shown.index)
    assert witness.given.item.seed == expected
    opening = case.bundle.parties[witness.party].openings[witness.given.index]
    at = witness.entry.position
    state = next(each.final for each in opening.entries if each.position == at)
    assert witness.final_state == state_bytes(state)
    assert witness.entry.final_state == state_digest(state)
