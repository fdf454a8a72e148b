"""Write tests/vectors/*.json from the Python reference: one truth that pytest and forge both read.

Hashes and bytes are 0x hex, integers over 53 bits decimal strings. Arrays are flat and parallel;
where entries differ in length, they stand one after the other and a `…Counts` array says how many
belong to each case. Everything is a pure function of the constants below.
"""

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from eth_account import Account
from eth_utils.address import to_checksum_address

from verillm import draw, merkle, request, sampling, statistics, task, trace
from verillm.errors import DrawExhausted
from verillm.hashing import tokens_bytes
from verillm.model import CheckProfile, LayerProfile, ModelSpec, model_id
from verillm.proofs.margins import Margin, margin_of
from verillm.records import Attestation, Claiming, Member, Posting, Sealing, record_hash
from verillm.schema import abi_encode, to_json
from verillm.signing import (
    Domain,
    Signed,
    digest,
    encode_type,
    job_id,
    sign,
    struct_hash,
    type_hash,
)
from verillm.types import (
    PPM,
    Bits,
    ChecksumAddress,
    Hash32,
    JobId,
    ModelId,
    Outcome,
    Reason,
    TaskId,
)
from verillm.verdict import PartyStatus, decide, paid_mask

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "vectors"
SEED = 20250924
DOMAIN = Domain(31337, to_checksum_address("0x5fbdb2315678afecb367f032d93f642f64180aa3"))
STATUSES = (
    PartyStatus.OPEN,
    PartyStatus.SILENT,
    PartyStatus.NON_FINITE,
    PartyStatus.MISMATCHED,
)
PROFILE = CheckProfile(
    mean_refund=1_600_000,
    mean_slash=2_400_000,
    over_refund=3,
    over_slash=6,
    margin_mean=5_000,
    margin_max_refund=250_000,
    margin_max_slash=400_000,
    mass_epsilon=10_000,
    logit_tau=500_000,
    min_positions=8,
    many_positions=20,
    mean_refund_many=1_300_000,
    mean_slash_many=2_000_000,
    layers=(
        LayerProfile(-5, (22_000, 15_000, 10_000), (90_000, 60_000, 30_000)),
        LayerProfile(-4, (26_000, 18_000, 12_000), (95_000, 70_000, 42_000)),
        LayerProfile(2, (36_000, 25_000, 17_000), (99_000, 80_000, 46_000)),
    ),
)


def main(folder: Path = FOLDER) -> None:
    """Write every file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in vectors().items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def vectors() -> dict[str, dict[str, Any]]:
    """All files by name."""
    return {
        "philox": philox(),
        "gumbel": gumbel(),
        "merkle": merkle_proofs(),
        "leaves": leaves(),
        "digests": digests(),
        "draws": draws(),
        "distances": distances(),
        "verdicts": verdicts(),
        "margins": margins(),
        "bounds": bounds(),
    }


def value(name: str) -> Hash32:
    """32 bytes that look random."""
    return Hash32(sha256(name.encode()).digest())


def address(name: str) -> ChecksumAddress:
    """An address that looks random."""
    return to_checksum_address(value(name)[:20])


def hexed(data: bytes) -> str:
    """0x hex."""
    return "0x" + data.hex()


def many(values: Sequence[bytes]) -> list[str]:
    """0x hex of each."""
    return [hexed(each) for each in values]


# ── Philox, Gumbel, slices ──────────────────────────────────────────────────────────────────────
def philox() -> dict[str, Any]:
    """Counters, keys and blocks; words by seed; slice dimensions by seed."""
    rng = random.Random(SEED)
    counters = [[0] * 4, [2**32 - 1] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]]
    keys = [[0] * 2, [2**32 - 1] * 2, [0xA4093822, 0x299F31D0]]
    for _ in range(29):
        counters.append([rng.getrandbits(32) for _ in range(4)])
        keys.append([rng.getrandbits(32) for _ in range(2)])
    outputs = sampling.philox4x32_10(np.array(counters), np.array(keys))
    cases = [(value(f"seed {n}"), rng.randrange(40_000), rng.randrange(150_000)) for n in range(24)]
    slices = [(value("slices 0"), 0, 64, 16), (value("slices 1"), 2, 576, 256)]
    slices += [(value("slices 2"), 1, 32, 32)]
    dimensions = [sampling.slice_dimensions(*case).tolist() for case in slices]
    return {
        "counters": [number for counter in counters for number in counter],
        "keys": [number for key in keys for number in key],
        "outputs": outputs.ravel().tolist(),
        "seeds": many([seed for seed, _, _ in cases]),
        "positions": [position for _, position, _ in cases],
        "ids": [entry for _, _, entry in cases],
        "words": [int(sampling.words(s, p, np.array([v]))[0]) for s, p, v in cases],
        "sliceSeeds": many([seed for seed, _, _, _ in slices]),
        "sliceLayers": [layer for _, layer, _, _ in slices],
        "sliceHiddens": [hidden for _, _, hidden, _ in slices],
        "sliceCounts": [count for _, _, _, count in slices],
        "sliceDimensions": [dimension for found in dimensions for dimension in found],
    }


def gumbel() -> dict[str, Any]:
    """Words and their noise in signed Q64; both extremes, powers of two, and some between."""
    rng = random.Random(SEED + 1)
    extremes = [0, 1, 511, 512, 2**31 - 1, 2**31, 2**32 - 513, 2**32 - 512, 2**32 - 1]
    powers = [1 << bit for bit in range(9, 32)] + [(1 << 32) - (1 << bit) for bit in range(9, 32)]
    words = sorted({*extremes, *powers, *(rng.getrandbits(32) for _ in range(64))})
    return {"words": words, "values": [str(sampling.gumbel_q64(word)) for word in words]}


# ── Trees and leaves ────────────────────────────────────────────────────────────────────────────
def merkle_proofs() -> dict[str, Any]:
    """Roots of trees over leaves sha256("leaf i"), and proofs, some of them wrong."""
    counts = [1, 2, 3, 4, 5, 7, 8, 9, 33, 257]
    trees = {count: merkle.Tree([value(f"leaf {i}") for i in range(count)]) for count in counts}
    proofs = [proof for tree in trees.values() for proof in _proofs(tree)]
    return {
        "counts": counts,
        "depths": [tree.depth for tree in trees.values()],
        "roots": many([tree.root for tree in trees.values()]),
        "leaves": many([value(f"leaf {i}") for i in range(max(counts))]),
        "proofRoots": many([root for root, *_ in proofs]),
        "proofLeaves": many([leaf for _, leaf, *_ in proofs]),
        "proofIndices": [index for _, _, index, *_ in proofs],
        "proofCounts": [count for _, _, _, count, _ in proofs],
        "proofPaths": many([b"".join(path) for *_, path in proofs]),
        "proofValid": [merkle.verify_proof(*proof) for proof in proofs],
    }


Proof = tuple[Hash32, Hash32, int, int, tuple[Hash32, ...]]


def _proofs(tree: merkle.Tree) -> list[Proof]:
    last = tree.count - 1
    root, leaf, path = tree.root, value(f"leaf {last}"), tree.proof(last)
    wrong = [
        (root, value("other"), last, tree.count, path),
        (value("other"), leaf, last, tree.count, path),
        (root, leaf, last + 1, tree.count, path),
        (root, leaf, last, tree.count, (*path, merkle.ZERO)),
        (root, leaf, last, tree.count * 2, path),
        (root, merkle.ZERO, last + 1, tree.count, path),
    ]
    if path:
        wrong.append((root, leaf, last, tree.count, path[:-1]))
        wrong.append((root, leaf, last, tree.count, (value("other"), *path[1:])))
        wrong.append((root, leaf, last ^ 1, tree.count, path))
    indices = sorted({0, last // 2, last})
    good = [(root, value(f"leaf {i}"), i, tree.count, tree.proof(i)) for i in indices]
    return good + wrong


def states(rng: random.Random, *shape: int) -> Bits:
    """bf16 bits of ordinary sizes."""
    generator = np.random.Generator(np.random.PCG64(rng.getrandbits(64)))
    floats = generator.standard_normal(shape, dtype=np.float32) * np.float32(3)
    return (floats.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def leaves() -> dict[str, Any]:
    """One leaf of each kind with its payload's parts; then a small trace as a whole."""
    rng = random.Random(SEED + 2)
    slices, finals = states(rng, 6, 2, 16), states(rng, 6, 32)
    item = trace.TraceItem(3, 4, (11, 22, 33, 44, 55, 66, 77), slices, finals)
    found = trace.trace_leaves(value("task hash"), item)
    tree = merkle.Tree(found)
    leaf = task.ItemLeaf(3, 4, 3, tree.root, task.output_hash(TaskId(value("task")), item.output))
    asked = _request("leaves", 70)
    pieces = [request.piece_proof(asked.salt, asked.tokens, piece) for piece in range(3)]
    tokens = [tokens_bytes(piece.tokens) for piece in pieces]
    return {
        "taskHash": hexed(value("task hash")),
        "item": 3,
        "tokens": list(item.tokens),
        "slices": many([trace.state_bytes(row) for row in slices]),
        "finals": many([trace.state_bytes(row) for row in finals]),
        "traceLeaves": many(found),
        "traceRoot": hexed(tree.root),
        "tracePaths": many([b"".join(tree.proof(at)) for at in range(len(found))]),
        "taskId": hexed(value("task")),
        "output": list(item.output),
        "outputHash": hexed(leaf.output_hash),
        "itemLeaf": to_json(leaf),
        "itemLeafHash": hexed(task.item_leaf_hash(leaf)),
        "outputRequest": 9,
        "outputLeafHash": hexed(task.output_leaf(9, leaf.output_hash)),
        "salt": hexed(asked.salt),
        "requestTokens": list(asked.tokens),
        "requestMaxNewTokens": asked.max_new_tokens,
        "requestSampling": to_json(asked.sampling),
        "tokensRoot": hexed(request.tokens_root(asked.salt, asked.tokens)),
        "requestLeafHash": hexed(request.request_leaf(asked)),
        "pieceSalts": many([piece.piece_salt for piece in pieces]),
        "pieceTokens": many(tokens),
        "pieceLeafHashes": many(
            [
                merkle.leaf_hash(merkle.LeafKind.TOKENS, piece.piece_salt + data)
                for piece, data in zip(pieces, tokens, strict=True)
            ]
        ),
    }


# ── Signed objects, ids, records ────────────────────────────────────────────────────────────────
def _request(name: str, length: int) -> request.Request:
    tokens = tuple(int.from_bytes(value(f"{name} {i}")[:2], "big") for i in range(length))
    chosen = request.Sampling(800_000, 50, 900_000, 10_000)
    return request.Request(value(f"{name} salt"), tokens, 24, chosen)


def spec() -> ModelSpec:
    """A model version with every field set."""
    return ModelSpec(
        name="vector-model",
        parent=ModelId(value("parent")),
        weights_root=value("weights"),
        head_root=value("head"),
        tokenizer_hash=value("tokenizer"),
        template_hash=value("template"),
        dtype=1,
        vocabulary=49_152,
        hidden=576,
        context=8_192,
        depth=16,
        committed_layers=(8, 16),
        slice_dims=256,
        end_tokens=(0, 2),
        head_scale=1 << 40,
        token_proof=True,
        seat_stake=10**20,
        committee=3,
        checked_requests=2,
        positions=32,
        profile=PROFILE,
    )


def digests() -> dict[str, Any]:
    """Every struct that is hashed, signed or recorded, by name: JSON, ABI, hashes, signature."""
    account = Account.from_key(value("key"))
    secret, version = value("secret"), model_id(spec())
    requests = [_request("first", 3), _request("second", 40)]
    quote = request.Quote(
        address("scheduler"), version, 10**15, task.draw_commit(secret), 1_900_000_000
    )
    job = request.Job(
        account.address,
        struct_hash(quote),
        request.requests_root(requests),
        len(requests),
        10**18,
        1_900_000_600,
        2**200 + 7,
    )
    identity = job_id(DOMAIN, job)
    given = task.inference_task(
        secret, identity, requests, address("worker"), version, 1_900_000_300, 10**19, 10**18
    )
    inner = task.Inner(struct_hash(given), value("items root"), 2, 43, 2**40)
    commitment = task.Commitment(given.task_id, task.inner_hash(inner))
    receipt = request.Receipt(identity, given.task_id, 1, value("output"))
    attestation = Attestation(identity, Outcome.REFUND, Reason.MARGIN_MEAN, value("bundle"))
    signed: dict[str, Signed] = {
        "quote": quote,
        "job": job,
        "task": given,
        "commitment": commitment,
        "receipt": receipt,
        "attestation": attestation,
    }
    return {
        "chainId": DOMAIN.chain_id,
        "contract": DOMAIN.contract,
        "separator": hexed(DOMAIN.separator),
        "signer": account.address,
        "signerKey": hexed(value("key")),
        **{
            name: {
                "value": to_json(each),
                "abi": hexed(abi_encode(each)),
                "type": encode_type(type(each).__name__),
                "typeHash": hexed(type_hash(type(each).__name__)),
                "structHash": hexed(struct_hash(each)),
                "digest": hexed(digest(DOMAIN, each)),
                "signature": hexed(sign(DOMAIN, each, account)),
            }
            for name, each in signed.items()
        },
        **_ids(secret, identity, requests),
        **_records(job, quote, commitment, inner, secret),
    }


def _ids(secret: Hash32, identity: JobId, requests: Sequence[request.Request]) -> dict[str, Any]:
    return {
        "secret": hexed(secret),
        "drawCommit": hexed(task.draw_commit(secret)),
        "jobId": hexed(identity),
        "taskIds": many([task.task_id(secret, identity, k) for k in range(4)]),
        "requestLeaves": many([request.request_leaf(each) for each in requests]),
        "requestsRoot": hexed(request.requests_root(requests)),
        "seeds": many(
            [task.seed(secret, request.request_leaf(r), k) for k, r in enumerate(requests)]
        ),
        "itemStructHashes": many(
            [
                struct_hash(item)
                for item in task.inference_task(
                    secret, identity, requests, address("worker"), model_id(spec()), 1, 1, 1
                ).items
            ]
        ),
    }


def _records(
    job: request.Job,
    quote: request.Quote,
    commitment: task.Commitment,
    inner: task.Inner,
    secret: Hash32,
) -> dict[str, Any]:
    posting = Posting(
        job, quote, 5, address("worker"), struct_hash(commitment), value("outputs root"),
        10**19, 10**19 + 10**18, 12, 1_899_999_999, 1234,
    )  # fmt: skip
    members = tuple(
        Member(seat, address(f"owner {seat}"), value(f"inner {seat}"), lock)
        for seat, lock in ((2, 10**19), (9, 10**19), (4, 0))
    )
    sealing = Sealing(secret, value("post beacon"), inner, 10**17, 1250, members)
    claiming = Claiming(
        address("claimer"),
        Outcome.SLASH,
        Reason.STATES_DIFFER,
        0b101,
        value("bundle"),
        value("seal beacon"),
    )
    return {
        "inner": {"value": to_json(inner), "abi": hexed(abi_encode(inner))},
        "innerHash": hexed(task.inner_hash(inner)),
        "spec": {"value": to_json(spec()), "abi": hexed(abi_encode(spec()))},
        "modelId": hexed(model_id(spec())),
        "posting": {"value": to_json(posting), "abi": hexed(abi_encode(posting))},
        "sealing": {"value": to_json(sealing), "abi": hexed(abi_encode(sealing))},
        "claiming": {"value": to_json(claiming), "abi": hexed(abi_encode(claiming))},
        "postedRecord": hexed(record_hash(posting)),
        "sealedRecord": hexed(record_hash(posting, sealing)),
        "claimedRecord": hexed(record_hash(posting, sealing, claiming)),
    }


# ── Draws ───────────────────────────────────────────────────────────────────────────────────────
ZERO_ADDRESS = to_checksum_address(bytes(20))


def draws() -> dict[str, Any]:
    """Committees from tables of owners (zero = inactive), checked requests, positions."""
    rng = random.Random(SEED + 3)
    secrets = [(value(f"r {n}"), value(f"commitment {n}"), value(f"beacon {n}")) for n in range(4)]
    committees = [_committee(rng, n) for n in range(24)]
    checked = [(value(f"checked {n}"), *case) for n, case in enumerate(_CHECKED)]
    places = [(value(f"positions {n}"), *case) for n, case in enumerate(_POSITIONS)]
    found = [draw.checked_requests(*case) for case in checked]
    where = [draw.positions(*case) for case in places]
    return {
        "secrets": many([r for r, _, _ in secrets]),
        "commitments": many([c for _, c, _ in secrets]),
        "beacons": many([b for _, _, b in secrets]),
        "draws": many([draw.draw(*each) for each in secrets]),
        "positionSeeds": many([draw.position_seed(c, b) for _, c, b in secrets]),
        "seatDraws": many([case["draw"] for case in committees]),
        "seatSlotCounts": [len(case["owners"]) for case in committees],
        "seatOwners": [owner for case in committees for owner in case["owners"]],
        "seatInferencers": [case["inferencer"] for case in committees],
        "seatCommittees": [case["committee"] for case in committees],
        "seatExhausted": [case["exhausted"] for case in committees],
        "seatFoundCounts": [len(case["found"]) for case in committees],
        "seatFound": [slot for case in committees for slot, _ in case["found"]],
        "seatFoundOwners": [owner for case in committees for _, owner in case["found"]],
        "checkedDraws": many([seed for seed, *_ in checked]),
        "checkedRequests": [requests for _, requests, _ in checked],
        "checkedWanted": [wanted for *_, wanted in checked],
        "checkedFoundCounts": [len(each) for each in found],
        "checkedFound": [index for each in found for index in each],
        "positionDraws": many([seed for seed, *_ in places]),
        "positionRequests": [case[1] for case in places],
        "positionPrompts": [case[2] for case in places],
        "positionOutputs": [case[3] for case in places],
        "positionWanted": [case[4] for case in places],
        "positionFoundCounts": [len(each) for each in where],
        "positionFound": [position for each in where for position in each],
    }


_CHECKED = ((1, 1), (1, 4), (4, 4), (5, 4), (17, 4), (4096, 16), (3, 2))
_POSITIONS = (
    (0, 1, 1, 8),
    (0, 1, 2, 8),
    (3, 5, 4, 8),
    (3, 5, 5, 8),
    (7, 40, 60, 32),
    (4095, 8000, 192, 32),
    (2, 20, 1, 1),
    (2, 20, 30, 2),
)


def _committee(rng: random.Random, number: int) -> dict[str, Any]:
    slots = rng.choice([4, 7, 12, 40])
    pool = [address(f"owner {n}") for n in range(rng.choice([3, 5, 9]))]
    owners = [rng.choice(pool) if rng.random() < 0.7 else ZERO_ADDRESS for _ in range(slots)]
    case: dict[str, Any] = {
        "draw": value(f"seats {number}"),
        "owners": owners,
        "inferencer": pool[0],
        "committee": rng.choice([1, 3, 5]),
        "exhausted": False,
        "found": [],
    }
    active = [None if owner == ZERO_ADDRESS else owner for owner in owners]
    try:
        case["found"] = draw.draw_seats(
            case["draw"], slots, lambda slot: active[slot], pool[0], case["committee"]
        )
    except DrawExhausted:
        case["exhausted"] = True
    return case


# ── Distances and verdicts ──────────────────────────────────────────────────────────────────────
def distances() -> dict[str, Any]:
    """Pairs of bf16 rows with their distance; a row that is not finite has none (0)."""
    rng = random.Random(SEED + 4)
    cases = [(*_rows(rng, kind), scale) for kind in _KINDS for scale in (-8, -4, 0, 5)]
    finite = [statistics.is_finite(x) and statistics.is_finite(y) for x, y, _ in cases]
    apart = [
        int(statistics.distance(x, y, scale)) if good else 0
        for (x, y, scale), good in zip(cases, finite, strict=True)
    ]
    cells = [
        (e, column, zone)
        for e in (0, 1, 9_999, 17_001, 46_000, 46_001, 99_999, 2_000_000)
        for column in range(3)
        for zone in range(3)
    ]
    layers = PROFILE.layers
    zones = [(p, prompt) for prompt in (1, 2, 4, 5, 40) for p in (1, 2, 3, 4, 5, 39, 40, 41)]
    values = [0, 0x8000, 1, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3F7F, 0x7F7F, 0xFF7F, 0x4300, 0x42FF]
    values += [0x3F00, 0xBF00, 0x3EFF, 0x3FC0, 0xBFC0, 0x4020]
    return {
        "x": many([trace.state_bytes(x) for x, _, _ in cases]),
        "y": many([trace.state_bytes(y) for _, y, _ in cases]),
        "scales": [scale for *_, scale in cases],
        "finite": finite,
        "distances": apart,
        "quantiseBits": values * 3,
        "quantiseScales": [s for s in (-8, 0, 6) for _ in values],
        "quantised": [statistics.quantise_one(v, s) for s in (-8, 0, 6) for v in values],
        "ratioDistances": [e for e, _, _ in cells],
        "ratioMeds": [layers[column].med[zone] for _, column, zone in cells],
        "ratioCaps": [layers[column].cap[zone] for _, column, zone in cells],
        "ratios": [statistics.ratio(e, layers[column], zone) for e, column, zone in cells],
        "zonePositions": [position for position, _ in zones],
        "zonePrompts": [prompt for _, prompt in zones],
        "zones": [statistics.zone(*case) for case in zones],
    }


_KINDS = ("near", "same", "far", "zeros", "subnormal", "huge", "infinite", "nan", "opposite", "one")


def _rows(rng: random.Random, kind: str) -> tuple[Bits, Bits]:
    x = states(rng, 64)
    y = x.copy()
    if kind == "near":
        y ^= np.array([rng.randrange(2) for _ in range(64)], dtype=np.uint16)
    elif kind == "far":
        y = states(rng, 64)
    elif kind == "zeros":
        x, y = np.zeros(64, np.uint16), np.full(64, 0x8000, np.uint16)
    elif kind == "subnormal":
        x, y = np.full(64, 0x7F, np.uint16), np.full(64, 0x8001, np.uint16)
    elif kind == "huge":
        x, y = np.full(64, 0x7F7F, np.uint16), np.full(64, 0xFF7F, np.uint16)
    elif kind in ("infinite", "nan"):
        y[17] = 0xFF80 if kind == "infinite" else 0x7FC1
    elif kind == "opposite":
        y = x ^ np.uint16(0x8000)
    elif kind == "one":
        y[63] ^= np.uint16(0x40)
    return x, y


def verdicts() -> dict[str, Any]:
    """Statistics of all pairs → verdict. Statuses: 0 open, 1 silent, 2 not finite, 3 mismatched.

    Pairs stand in the order (0,1), (0,2), …, (m-1,m); those of a party that is not open are zero.
    `paid` has bit k-1 for member k, `suspects` bit k.
    """
    rng = random.Random(SEED + 5)
    cases = [_case(rng, rng.choice([1, 2, 3, 3, 3, 4, 5, 7])) for _ in range(400)]
    results = [
        decide(
            [STATUSES[s] for s in case["statuses"]],
            case["pairs"],
            case["positions"],
            PROFILE,
            case["requests"],
        )
        for case in cases
    ]
    flat = [
        case["pairs"].get(pair, statistics.PairStatistics(0, 0, 0))
        for case in cases
        for pair in combinations(range(len(case["statuses"])), 2)
    ]
    return {
        "meanRefund": PROFILE.mean_refund,
        "meanSlash": PROFILE.mean_slash,
        "overRefund": PROFILE.over_refund,
        "overSlash": PROFILE.over_slash,
        "minPositions": PROFILE.min_positions,
        "manyPositions": PROFILE.many_positions,
        "meanRefundMany": PROFILE.mean_refund_many,
        "meanSlashMany": PROFILE.mean_slash_many,
        "members": [len(case["statuses"]) - 1 for case in cases],
        "statuses": [status for case in cases for status in case["statuses"]],
        "positions": [case["positions"] for case in cases],
        "requests": [case["requests"] for case in cases],
        "sums": [pair.sum for pair in flat],
        "cells": [pair.cells for pair in flat],
        "overs": [pair.over for pair in flat],
        "outcomes": [int(result.outcome) for result in results],
        "reasons": [int(result.reason) for result in results],
        "paid": [paid_mask(result) for result in results],
        "suspects": [sum(1 << k for k in result.suspects) for result in results],
    }


def _case(rng: random.Random, members: int) -> Mapping[str, Any]:
    """Parties in groups: near within a group, far between; some noise, some silence."""
    groups = [rng.choice([0, 0, 0, 1, 2]) for _ in range(members + 1)]
    odd = rng.random() < 0.3
    statuses = [
        rng.choice([1, 2, 3]) if k and odd and rng.random() < 0.4 else 0 for k in range(members + 1)
    ]
    if rng.random() < 0.05:
        statuses[0] = rng.choice([1, 2])
    positions, requests = rng.choice([7, 8, 19, 20, 39, 40, 64]), rng.choice([1, 1, 2, 4])
    pairs = {
        (a, b): _pair(rng, positions, requests, groups[a] == groups[b])
        for a, b in combinations(range(members + 1), 2)
        if statuses[a] == statuses[b] == 0
    }
    return {"statuses": statuses, "positions": positions, "requests": requests, "pairs": pairs}


def _pair(
    rng: random.Random, positions: int, requests: int, near: bool
) -> statistics.PairStatistics:
    cells = positions * len(PROFILE.layers)
    refund, _ = PROFILE.refund_tier(positions, requests)
    slash, _ = PROFILE.slash_tier(positions, requests)
    mean = rng.choice([900_000, refund - 1, refund] if near else [refund + 1, slash, 4_000_000])
    over = rng.choice([0, 1, 3]) if near else rng.choice([0, 4, 6, 7])
    if rng.random() < 0.1:
        mean, over = 1_000_000, 4
    return statistics.PairStatistics(mean * cells + rng.randrange(cells), cells, over)


# ── Margins ─────────────────────────────────────────────────────────────────────────────────────
_SHAPES = ("usual", "same", "zeros", "subnormal", "largest", "tiny", "cancelling", "steps")
_REFUSED = ("infinite", "nan", "product")
_VOCABULARY = 49_152


def margins() -> dict[str, Any]:
    """States and pairs of head rows with their margins; `refused`: 1 not finite, 2 too large."""
    rng = random.Random(SEED + 6)
    cases = [
        _margin_case(rng, kind, hidden, temperature)
        for kind in _SHAPES
        for hidden, temperature in ((16, 0), (32, 1), (16, 800_000), (48, 2_000_000))
    ]
    cases += [_margin_case(rng, "usual", 576, 1_000_000), _margin_case(rng, "usual", 576, 0)]
    refused = [_margin_case(rng, kind, 32, 1_000_000) for kind in _REFUSED]
    found = [margin_of(*case) for case in cases] + [NO_MARGIN] * len(refused)
    every = cases + refused
    return {
        "states": many([trace.state_bytes(case[0]) for case in every]),
        "tokenRows": many([trace.state_bytes(case[1]) for case in every]),
        "rivalRows": many([trace.state_bytes(case[2]) for case in every]),
        "seeds": many([case[3] for case in every]),
        "positions": [case[4] for case in every],
        "tokens": [case[5] for case in every],
        "rivals": [case[6] for case in every],
        "temperatures": [case[7] for case in every],
        "ahead": [str(each.ahead) for each in found],
        "margins": [str(each.margin) for each in found],
        "roundings": [str(each.rounding) for each in found],
        "refused": [0] * len(cases) + [2 if kind == "product" else 1 for kind in _REFUSED],
    }


NO_MARGIN = Margin(0, 0, 0)
MarginCase = tuple[Bits, Bits, Bits, Hash32, int, int, int, int]


def _margin_case(rng: random.Random, kind: str, hidden: int, temperature: int) -> MarginCase:
    state, own, other = (states(rng, hidden) for _ in range(3))
    if kind == "same":
        other = own.copy()
    elif kind == "zeros":
        state, own = np.zeros(hidden, np.uint16), np.full(hidden, 0x8000, np.uint16)
    elif kind == "subnormal":
        state[::2], own[1::2] = 0x8001, 0x007F
    elif kind == "largest":  # the largest products that still fit
        state, own, other = (np.full(hidden, bits, np.uint16) for bits in (0x7F7F, 0xC0FF, 0x40FF))
    elif kind == "tiny":  # every product lies at the lowest bit, or below it
        state[:], own[:], other[:] = 0x2A7F, 0x2A7F, 0x2A00
    elif kind == "cancelling":
        own[: hidden // 2], own[hidden // 2 :] = 0x4F7F, 0xCF7F
        state[:] = 0x4F01
    elif kind == "steps":  # products at every height between both ends
        state = (np.arange(hidden) * 5 % 191 << 7).astype(np.uint16)
        own = (np.arange(hidden) * 3 % 192 << 7 | 0x8055).astype(np.uint16)
    elif kind in ("infinite", "nan"):
        state[hidden - 1] = 0xFF80 if kind == "infinite" else 0x7FC1
    elif kind == "product":
        state[7], other[7] = 0x6080, 0x6080  # 2^66 each
    edge = rng.random() < 0.3
    token = _VOCABULARY - 1 if edge else rng.randrange(_VOCABULARY)
    rival = token ^ 1 if edge else rng.randrange(_VOCABULARY)
    seed = Hash32(rng.randbytes(32))
    return state, own, other, seed, rng.randrange(2**20), token, rival, temperature


# ── Bounds ──────────────────────────────────────────────────────────────────────────────────────
def bounds() -> dict[str, Any]:
    """Requests around each bound: sampling, length, new tokens, context; the first fault."""
    low, high = 0, 2**32 - 1
    around = {
        "temperature": (low, 2 * PPM - 1, 2 * PPM, 2 * PPM + 1, high),
        "top_k": (low, high),
        "top_p": (low, 1, PPM, PPM + 1, high),
        "min_p": (low, PPM, PPM + 1, high),
        "length": (low, 1, 4095, 4096, high),
        "most": (low, 1, 4095, 4096, high),
    }
    sane = {"temperature": PPM, "top_k": 0, "top_p": PPM, "min_p": 0, "length": 7, "most": 9}
    cases = [sane | {name: each} for name, values in around.items() for each in values]
    rng = random.Random(15)
    cases += [{name: rng.choice(values) for name, values in around.items()} for _ in range(60)]
    numbers, faults = [], []
    for case in cases:
        length, most = case.pop("length"), case.pop("most")
        fault = request.broken_bound(request.Sampling(**case), length, most, 4096)
        numbers += [*case.values(), length, most, 4096]
        faults.append(fault or "")
    return {"numbers": numbers, "faults": faults}


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="make_vectors", description=__doc__)
    options.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    main(options.parse_args().folder)
