import math
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from verillm.errors import (
    InputError,
    MalformedError,
    PromptTooLong,
    SamplingError,
    TokensOutOfBounds,
    VeriLLMError,
)
from verillm.request import (
    Request,
    Sampling,
    broken_bound,
    check_request,
    piece_proof,
    request_leaf,
    requests_root,
    tokens_root,
    verify_piece,
)
from verillm.types import PPM

REQUEST = Request(b"s" * 32, tuple(range(40)), 8, Sampling())


def test_tokens_root_hashes_salted_pieces_of_32_as_documented() -> None:
    salt, tokens = b"s" * 32, list(range(1000, 1040))
    pieces = [tokens[:32], tokens[32:]]
    leaves = [
        sha256(
            b"\x00\x05"
            + sha256(salt + number.to_bytes(4, "big")).digest()
            + b"".join(token.to_bytes(4, "big") for token in piece)
        ).digest()
        for number, piece in enumerate(pieces)
    ]
    assert tokens_root(salt, tokens) == sha256(b"\x01" + leaves[0] + leaves[1]).digest()


def test_request_leaf_encodes_root_length_and_parameters_as_documented() -> None:
    sampling = Sampling(700_000, 40, 950_000, 20_000)
    numbers = (40, 8, 700_000, 40, 950_000, 20_000)
    payload = tokens_root(REQUEST.salt, REQUEST.tokens) + b"".join(
        number.to_bytes(4, "big") for number in numbers
    )
    leaf = request_leaf(replace(REQUEST, sampling=sampling))
    assert leaf == sha256(b"\x00\x03" + payload).digest()


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=100), st.data())
def test_a_piece_proves_itself_and_no_other_tokens(tokens: list[int], data: st.DataObject) -> None:
    salt = b"p" * 32
    piece = data.draw(st.integers(0, (len(tokens) - 1) // 32))
    proof = piece_proof(salt, tokens, piece)
    root = tokens_root(salt, tokens)
    assert proof.tokens == tuple(tokens[32 * piece : 32 * piece + 32])
    assert verify_piece(root, len(tokens), proof)
    forged = replace(proof, tokens=(proof.tokens[0] ^ 1, *proof.tokens[1:]))
    assert not verify_piece(root, len(tokens), forged)
    assert not verify_piece(root, len(tokens), replace(proof, piece=piece + 1))


def test_the_same_tokens_under_another_salt_have_another_root() -> None:
    assert tokens_root(b"a" * 32, [1, 2]) != tokens_root(b"b" * 32, [1, 2])


def test_sampling_of_rounds_to_ppm() -> None:
    assert Sampling.of(0.7, 50, 0.9, 0.05) == Sampling(700_000, 50, 900_000, 50_000)
    assert Sampling.of() == Sampling() == Sampling(1_000_000, 0, 1_000_000, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.1, 2.1, 1e300])
def test_sampling_of_refuses_what_is_not_a_temperature(bad: float) -> None:
    with pytest.raises(SamplingError):
        Sampling.of(temperature=bad)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("top_p", 0.0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 1.1), ("top_k", -1)],
)
def test_sampling_of_refuses_parameters_out_of_range(parameter: str, value: float) -> None:
    with pytest.raises(SamplingError):
        Sampling.of(**{parameter: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tokens": ()}, TokensOutOfBounds),
        ({"max_new_tokens": 0}, TokensOutOfBounds),
        ({"max_new_tokens": 61}, PromptTooLong),
        ({"tokens": (1, 100)}, TokensOutOfBounds),
        ({"tokens": (-1,)}, TokensOutOfBounds),
        ({"salt": b"short"}, MalformedError),
        ({"sampling": Sampling(temperature=2_000_001)}, SamplingError),
        ({"sampling": Sampling(top_p=0)}, SamplingError),
        ({"sampling": Sampling(min_p=1_000_001)}, SamplingError),
        ({"sampling": Sampling(top_k=True)}, SamplingError),
    ],
)
def test_check_request_refuses_each_bound_by_its_own_error(
    change: dict[str, object], error: type[VeriLLMError]
) -> None:
    check_request(REQUEST, 100, 100)
    with pytest.raises(error):
        check_request(replace(REQUEST, **change), 100, 100)  # type: ignore[arg-type]


def test_check_request_accepts_both_ends_of_every_bound() -> None:
    for sampling in (Sampling(0, 0, 1, 0), Sampling(2_000_000, 2**32 - 1, 1_000_000, 1_000_000)):
        check_request(replace(REQUEST, max_new_tokens=60, sampling=sampling), 100, 40)


def test_a_job_of_no_or_too_many_requests_is_refused() -> None:
    with pytest.raises(InputError):
        requests_root([])
    with pytest.raises(InputError):
        requests_root([Request(b"s" * 32, (1,), 1, Sampling())] * 4097)


AROUND = st.sampled_from([0, 1, 2, PPM - 1, PPM, PPM + 1, 2 * PPM, 2 * PPM + 1, 2**32 - 1])


@given(st.builds(Sampling, AROUND, AROUND, AROUND, AROUND), st.integers(0, 9), st.integers(0, 9))
def test_what_breaks_no_bound_is_what_a_worker_takes(
    sampling: Sampling, length: int, most: int
) -> None:
    """The contracts' order of bounds and the checks of workers are two readings of one list."""
    bound = broken_bound(sampling, length, most, 12)
    try:
        check_request(Request(b"s" * 32, (7,) * length, most, sampling), 12, 8)
    except InputError:
        assert bound is not None
    else:
        assert bound is None


@pytest.mark.parametrize(
    ("bound", "sampling", "length", "most"),
    [
        ("temperature", Sampling(2 * PPM + 1, top_p=0), 7, 5),
        ("topP", Sampling(top_p=0, min_p=PPM + 1), 7, 5),
        ("topP", Sampling(top_p=PPM + 1), 7, 5),
        ("minP", Sampling(min_p=PPM + 1), 0, 5),
        ("length", Sampling(), 0, 0),
        ("maxNewTokens", Sampling(), 7, 0),
        ("context", Sampling(), 7, 6),
        (None, Sampling(2 * PPM, 2**32 - 1, 1, PPM), 7, 5),
    ],
)
def test_the_first_bound_that_is_broken_is_named(
    bound: str | None, sampling: Sampling, length: int, most: int
) -> None:
    assert broken_bound(sampling, length, most, 12) == bound
