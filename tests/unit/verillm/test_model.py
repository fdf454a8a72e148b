import json
from dataclasses import replace
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from tests.unit.verillm.builders import PROFILE, SPEC
from verillm.errors import MalformedError
from verillm.model import (
    CheckProfile,
    LayerProfile,
    check_spec,
    committed_layers,
    model_id,
    slice_dims_of,
    spec_from_json,
    spec_to_json,
)

MANY = replace(
    PROFILE,
    many_positions=SPEC.positions,
    mean_refund_many=PROFILE.mean_refund,
    mean_slash_many=PROFILE.mean_slash,
)
LAYER = "(int8,uint32[3],uint32[3])"
CHECKS = (
    "(uint32,uint32,uint16,uint16,uint32,uint32,uint32,uint32,uint32,uint16,uint16,uint32,uint32,"
    f"{LAYER}[])"
)
SOLIDITY = (
    "(string,bytes32,bytes32,bytes32,bytes32,bytes32,uint8,uint32,uint32,uint32,uint16,uint16[],"
    f"uint16,uint32[],uint64,bool,uint96,uint8,uint16,uint16,{CHECKS})"
)


def profile_tuple(profile: CheckProfile) -> tuple[Any, ...]:
    return (
        profile.mean_refund, profile.mean_slash, profile.over_refund, profile.over_slash,
        profile.margin_mean, profile.margin_max_refund, profile.margin_max_slash,
        profile.mass_epsilon, profile.logit_tau, profile.min_positions,
        profile.many_positions, profile.mean_refund_many, profile.mean_slash_many,
        [(layer.scale, layer.med, layer.cap) for layer in profile.layers],
    )  # fmt: skip


def test_model_id_is_the_hash_of_solidity_abi_encode() -> None:
    s = SPEC
    values = (
        s.name, s.parent, s.weights_root, s.head_root, s.tokenizer_hash, s.template_hash, s.dtype,
        s.vocabulary, s.hidden, s.context, s.depth, s.committed_layers, s.slice_dims, s.end_tokens,
        s.head_scale, s.token_proof, s.seat_stake, s.committee, s.checked_requests, s.positions,
        profile_tuple(s.profile),
    )  # fmt: skip
    assert model_id(s) == keccak(encode([SOLIDITY], [values]))
    assert model_id(replace(s, positions=9)) != model_id(s)


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(1, (1,)), (2, (1,)), (3, (2,)), (8, (4,)), (9, (8,)), (16, (8, 16)), (30, (8, 16, 24))],
)
def test_every_eighth_layer_is_committed_or_else_the_middle_one(
    depth: int, layers: tuple[int, ...]
) -> None:
    assert committed_layers(depth) == layers


def test_slices_are_at_most_256_dimensions() -> None:
    assert (slice_dims_of(64), slice_dims_of(4096)) == (64, 256)


def test_a_spec_survives_json() -> None:
    text = json.dumps(spec_to_json(SPEC))
    assert spec_from_json(json.loads(text)) == SPEC
    assert json.loads(text)["seatStake"] == str(10**18)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("vocabulary", "96"),
        ("vocabulary", True),
        ("vocabulary", 2**32),
        ("vocabulary", -1),
        ("vocabulary", 96.0),
        ("vocabulary", None),
        ("seatStake", 5),
        ("seatStake", "05"),
        ("seatStake", "-5"),
        ("seatStake", str(2**96)),
        ("seatStake", "9" * 400),
        ("tokenProof", 1),
        ("headRoot", "0x" + "AB" * 32),
        ("headRoot", "ab" * 32),
        ("headRoot", "0x" + "ab" * 31),
        ("endTokens", {}),
        ("endTokens", [1] * 5000),
        ("name", "x" * 257),
        ("name", 7),
        ("profile", []),
        ("hidden", 33),
        ("committedLayers", [8]),
    ],
)
def test_an_ill_typed_field_is_malformed_and_named(path: str, value: object) -> None:
    body = spec_to_json(SPEC) | {path: value}
    with pytest.raises(MalformedError) as raised:
        spec_from_json(body)
    assert path in raised.value.field


def test_an_unknown_or_missing_field_is_malformed_and_named() -> None:
    body = spec_to_json(SPEC)
    with pytest.raises(MalformedError, match="extra"):
        spec_from_json(body | {"extra": 1})
    del body["profile"]["layers"][1]["cap"]
    with pytest.raises(MalformedError, match=r"layers\[1\]\.cap"):
        spec_from_json(body)
    body = spec_to_json(SPEC)
    body["profile"]["layers"][0]["med"] = [1, 2]
    with pytest.raises(MalformedError, match=r"layers\[0\]\.med"):
        spec_from_json(body)


@pytest.mark.parametrize(
    "profile",
    [
        replace(PROFILE, layers=PROFILE.layers[:-1]),
        replace(PROFILE, layers=(LayerProfile(0, (0, 1, 1), (1, 1, 1)),) * 3),
        replace(PROFILE, layers=(LayerProfile(0, (5, 5, 5), (5, 4, 5)),) * 3),
        replace(PROFILE, mean_slash=PROFILE.mean_refund - 1),
        replace(PROFILE, over_slash=0),
        replace(PROFILE, margin_max_slash=0),
        replace(MANY, many_positions=SPEC.positions + 1),
        replace(MANY, mean_refund_many=PROFILE.mean_refund + 1),
        replace(MANY, mean_refund_many=0),
        replace(MANY, mean_slash_many=MANY.mean_refund_many - 1),
        replace(MANY, mean_slash_many=PROFILE.mean_slash + 1),
        replace(PROFILE, mean_refund_many=1),
        replace(PROFILE, mean_slash_many=1),
    ],
)
def test_a_profile_that_cannot_judge_is_refused(profile: CheckProfile) -> None:
    check_spec(SPEC)
    check_spec(replace(SPEC, profile=MANY))
    with pytest.raises(MalformedError):
        check_spec(replace(SPEC, profile=profile))
