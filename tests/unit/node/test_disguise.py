"""A verification task asks for what its prompt would have been asked with."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from verillm.hashing import sha
from verillm.request import Job, Request, Sampling
from verillm.settlement import bond_of, least_lock
from verillm.task import verification_prompt
from verillm.types import Hash32
from verillm_node.committee import _delay
from verillm_node.disguise import FEE_FACTOR, asked, blurred, most_lock, on_grid

from ..verillm.builders import CLIENT

PRICE, KAPPA = 10, 20_000
CONTEXT, END = 1000, (0,)


def _job(requests: list[Request], headroom: int = 0) -> Job:
    fee = PRICE * sum(len(each.tokens) + each.max_new_tokens for each in requests) + headroom
    return Job(CLIENT.address, Hash32(b"q" * 32), Hash32(b"r" * 32), len(requests), fee, 9, 7)


def _request(prompt: int, most: int) -> Request:
    return Request(sha(b"salt"), (5,) * prompt, most, Sampling.of())


def _output(new: int, ended: bool) -> tuple[int, ...]:
    return (5,) * (new - 1) + ((0,) if ended else (5,))


def test_an_answer_that_ended_is_asked_for_as_the_request_was() -> None:
    # The verifier decodes the end token again, so this costs one step whatever is asked.
    requests = [_request(20, 200)]
    found = asked(_job(requests, 77), requests, {0: _output(40, True)}, CONTEXT, END, PRICE, 8)
    assert found.new_tokens == (200,)
    assert found.fee == 77 + PRICE * (20 + 39 + 200)


def test_an_answer_that_was_cut_costs_a_verifier_few_tokens() -> None:
    requests = [_request(20, 200)]
    for most, expected in ((8, 8), (10**6, 200)):
        output = {0: _output(200, False)}
        found = asked(_job(requests), requests, output, CONTEXT, END, PRICE, most)
        assert found.new_tokens == (expected,)


def test_a_request_that_nobody_checks_is_paid_by_the_fee_all_the_same() -> None:
    requests = [_request(400, 500), _request(20, 50)]
    job = _job(requests)
    found = asked(job, requests, {1: _output(10, True)}, CONTEXT, END, PRICE, 8)
    assert found.fee == job.max_fee


LENGTHS = st.tuples(st.integers(1, 400), st.integers(1, 400), st.floats(0, 1), st.booleans())


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.integers(0, 10**6), st.integers(1, 500))
def test_every_worker_that_can_run_the_job_can_run_its_verification(
    shapes: list[tuple[int, int, float, bool]], headroom: int, dummy: int
) -> None:
    requests = [_request(prompt, most) for prompt, most, _, _ in shapes]
    outputs = {}
    for number, (_, most, share, ended) in enumerate(shapes):
        new = max(1, round(share * most))
        outputs[number] = _output(new, ended or new < most)
    job = _job(requests, headroom)
    found = asked(job, requests, outputs, CONTEXT, END, PRICE, dummy)
    lengths = [len(verification_prompt(requests[n], output)) for n, output in outputs.items()]
    total = sum(lengths) + sum(found.new_tokens)
    given = sum(len(each.tokens) + each.max_new_tokens for each in requests)
    assert min(found.new_tokens) >= 1
    assert total <= max(given, CONTEXT)
    # The contract locks what was posted: a worker must have reserved at least that.
    fee = blurred(found.fee, sha(b"secret"), 1)
    assert job.max_fee <= found.fee <= fee < FEE_FACTOR * job.max_fee
    posted = bond_of(least_lock(job.max_fee, KAPPA), job.max_fee)
    assert bond_of(least_lock(fee, KAPPA), fee) <= FEE_FACTOR * posted


def test_fees_are_blurred_by_up_to_a_fourth_and_differently_for_each_task() -> None:
    fees = [blurred(1000, bytes([n]) * 32, k) for n in range(64) for k in range(4)]
    assert 1000 <= min(fees) < 1010
    assert 1240 < max(fees) <= 1250
    assert len(set(fees)) > 100
    assert all(least_lock(fee, KAPPA) <= most_lock(1000, KAPPA) for fee in fees)


@pytest.mark.parametrize(("deadline", "expected"), [(0, 0), (59, 0), (60, 60), (3599, 3540)])
def test_deadlines_lie_on_whole_minutes(deadline: int, expected: int) -> None:
    assert on_grid(deadline) == expected


def _wait(shuffle: float, left: float, secret: bytes, k: int) -> float:
    settings = SimpleNamespace(shuffle_seconds=shuffle, summon_seconds=left)
    context: Any = SimpleNamespace(settings=settings, terms=SimpleNamespace(seal_window=10_000))
    view: Any = SimpleNamespace(posting=SimpleNamespace(posted_at=time.time()))
    flow: Any = SimpleNamespace(secret=secret)
    return _delay(context, flow, k, view)


def test_a_verification_waits_for_a_while_that_leaves_time_to_be_asked() -> None:
    waits = [_wait(60, 3600, bytes([n]) * 32, k) for n in range(64) for k in range(1, 4)]
    assert 0 <= min(waits) < 6
    assert 54 < max(waits) <= 60
    assert len(set(waits)) == len(waits)
    assert all(_wait(60, 10, bytes([n]) * 32, 1) <= 5 for n in range(64))
    assert _wait(60, -5, b"s" * 32, 1) == 0
