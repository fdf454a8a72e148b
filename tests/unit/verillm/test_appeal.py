"""What a new committee is asked and how its round is numbered, against the protocol's own words."""

from dataclasses import replace

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from tests.unit.verillm.builders import SPEC, World, make_requests, make_world
from verillm.appeal import (
    MOST,
    Content,
    appeal_draw,
    appeal_task,
    content,
    contents_of,
    holds,
    inferencer_task,
    out_of_bounds,
    recommitted,
    second_claiming,
    second_sealing,
    size_of,
    work,
)
from verillm.errors import InputError, MalformedError
from verillm.hashing import tokens_bytes
from verillm.model import model_id
from verillm.records import Member
from verillm.request import Request, Sampling, request_leaf
from verillm.task import inner_hash, item_leaf_hash, output_hash, seed, task_id
from verillm.trace import Trace, TraceItem
from verillm.types import ChecksumAddress, Hash32, Outcome, Reason, TaskId

BEACON = Hash32(b"z" * 32)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


def first_task(world: World) -> TaskId:
    return inferencer_task(world.sealing.secret, world.job_id)


def outputs(world: World) -> list[tuple[int, ...]]:
    return [item.output for item in world.committed[0].trace.items]


def supplied(world: World) -> dict[int, Content]:
    """Every request of the job as `reverify` takes it."""
    requests = make_requests(world.plan)
    every = range(len(requests))
    shown = contents_of(requests, outputs(world), first_task(world), every)
    return dict(zip(every, shown, strict=True))


def lies(world: World, number: int, shown: Content, task: TaskId | None = None) -> bool:
    job, count = world.posting.job, world.posting.job.requests
    roots = (job.requests_root, world.posting.outputs_root)
    return holds(shown, *roots, task or first_task(world), number, count)


def test_the_outputs_are_bound_to_the_inferencers_task(world: World) -> None:
    assert first_task(world) == task_id(world.sealing.secret, world.job_id, 0)
    assert first_task(world) == world.bundle.parties[0].task.task_id


def test_contents_say_what_was_asked_and_answered_and_lie_under_both_roots(world: World) -> None:
    requests = make_requests(world.plan)
    for number, shown in supplied(world).items():
        assert (shown.request, shown.new_tokens) == (requests[number], outputs(world)[number])
        assert lies(world, number, shown)


def test_contents_of_the_checked_requests_are_those_of_a_bundle_in_its_order(world: World) -> None:
    requests = make_requests(world.plan)
    checked = [each.index for each in world.bundle.checked]
    found = contents_of(requests, outputs(world), first_task(world), checked)
    assert found == tuple(
        content(each.request, each.path, each.output, each.output_path)
        for each in world.bundle.checked
    )
    with pytest.raises(InputError):
        contents_of(requests, outputs(world)[:-1], first_task(world), checked)


@pytest.mark.parametrize(
    "changed",
    [
        {"salt": b"x" * 32},
        {"tokens": (5).to_bytes(4, "big")},
        {"max_new_tokens": 99},
        {"path": ()},
        {"output": (5).to_bytes(4, "big")},
        {"output_path": ()},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_content_that_differs_anywhere_lies_under_no_root(
    world: World, changed: dict[str, object]
) -> None:
    shown = supplied(world)[1]
    assert not lies(world, 1, replace(shown, **changed))  # type: ignore[arg-type]


def test_a_content_holds_at_its_own_number_and_task_only(world: World) -> None:
    shown = supplied(world)
    assert not lies(world, 2, shown[1])
    assert not lies(world, 1, shown[1], TaskId(Hash32(b"o" * 32)))


@pytest.mark.parametrize("data", [b"", b"\0" * 3, b"\0" * 5])
def test_tokens_that_are_not_one_or_more_u32_are_malformed(world: World, data: bytes) -> None:
    shown = supplied(world)[0]
    with pytest.raises(MalformedError, match=r"content\.tokens: not .* u32"):
        _ = replace(shown, tokens=data).request
    with pytest.raises(MalformedError, match=r"content\.output: not .* u32"):
        _ = replace(shown, output=data).new_tokens


@pytest.mark.parametrize(
    ("changed", "bound"),
    [
        ({}, None),
        ({"max_new_tokens": 7}, None),  # context is 10: prompt and new tokens fit just
        ({"max_new_tokens": 8}, "context"),
        ({"output": tokens_bytes((95, 95))}, None),
        ({"output": tokens_bytes((95, 96))}, "vocabulary"),
        ({"tokens": tokens_bytes((96, 1, 2))}, "vocabulary"),
        ({"output": tokens_bytes((1,) * 4)}, None),  # as many as were asked for
        ({"output": tokens_bytes((1,) * 5)}, "newTokens"),
        ({"sampling": Sampling(2_000_001)}, "temperature"),
    ],
    ids=str,
)
def test_a_content_that_no_worker_can_run_is_told_by_its_bound(
    changed: dict[str, object], bound: str | None
) -> None:
    shown = content(Request(b"s" * 32, (1, 2, 3), 4, Sampling(0)), (), (1, 2), ())
    spec = replace(SPEC, context=10)
    assert out_of_bounds(replace(shown, **changed), spec) == bound  # type: ignore[arg-type]


@pytest.mark.parametrize(("committee", "size"), [(1, 3), (2, 5), (3, 7), (4, 7), (7, 7)])
def test_a_new_committee_is_twice_the_first_and_one_as_far_as_a_round_takes(
    committee: int, size: int
) -> None:
    assert size_of(committee) == size <= MOST


def test_power_the_draw_of_an_appeal_is_the_abi_hash_of_its_tag_job_and_beacon(
    world: World,
) -> None:
    words = [keccak(b"VeriLLM appeal"), world.job_id, BEACON]
    assert appeal_draw(world.job_id, BEACON) == keccak(encode(["bytes32"] * 3, words))


def test_power_an_appeals_task_is_the_abi_hash_of_its_tag_job_place_and_owner(
    world: World,
) -> None:
    tag = keccak(b"AppealTask(bytes32 jobId,uint256 index,address owner)")
    owner = world.sealing.owners[0]
    words = encode(["bytes32", "bytes32", "uint256", "address"], [tag, world.job_id, 2, owner])
    assert appeal_task(world.job_id, 2, owner) == keccak(words)


def test_a_new_member_runs_the_checked_texts_under_the_inferencers_seeds(world: World) -> None:
    owner: ChecksumAddress = world.sealing.owners[1]
    secret, model = world.sealing.secret, model_id(SPEC)
    shown = supplied(world)
    given = work(secret, world.job_id, 4, owner, model, [(2, shown[2]), (0, shown[0])], 1234)
    assert given.task_id == appeal_task(world.job_id, 4, owner)
    assert (given.worker, given.model_id, given.deadline) == (owner, model, 1234)
    assert (given.lock, given.fee) == (0, 0)
    for number, item in zip((2, 0), given.items, strict=True):
        request, output = shown[number].request, outputs(world)[number]
        assert (item.salt, item.sampling) == (request.salt, request.sampling)
        assert item.tokens == request.tokens + output[:-1]
        assert item.max_new_tokens == 1
        assert item.seed == seed(secret, request_leaf(request), number)


def test_nobody_can_commit_to_another_members_states(world: World) -> None:
    shown = [(0, supplied(world)[0])]
    made = []
    for index, owner in enumerate(world.sealing.owners[:2]):
        task = work(
            world.sealing.secret, world.job_id, index, owner, model_id(SPEC), shown, 1234
        )  # fmt: skip
        (item,), honest = task.items, world.committed[1].trace.items[0]
        states = TraceItem(0, item.length, (*item.tokens, 1), honest.slices, honest.finals)
        trace = Trace(Hash32(b"t" * 32), (states,))
        made.append(recommitted(trace, task))
        assert made[-1].inner.task_hash == made[-1].trace.task_hash == task.task_id
        assert made[-1].commitment.task_id == task.task_id
        assert made[-1].leaves[0].output_hash == output_hash(task.task_id, (1,))
    assert inner_hash(made[0].inner) != inner_hash(made[1].inner)
    assert item_leaf_hash(made[0].leaves[0]) != item_leaf_hash(made[1].leaves[0])


def test_a_second_round_runs_over_the_new_members_before_the_first_ones(world: World) -> None:
    anew = tuple(
        Member(9 + at, owner, Hash32(bytes([at]) * 32), 7)
        for at, owner in enumerate(world.sealing.owners)
    )
    second = second_sealing(world.sealing, anew, 77)
    assert second == replace(
        world.sealing, committee=(*anew, *world.sealing.committee), sealed_block=77
    )


def test_a_second_round_has_a_claim_that_says_and_pays_nothing() -> None:
    found = second_claiming(BEACON)
    assert int(found.claimer, 16) == 0 and len(found.claimer) == 42
    assert (found.outcome, found.reason, found.paid) == (Outcome.NONE, Reason.NONE, 0)
    assert (found.bundle, found.beacon) == (bytes(32), BEACON)
