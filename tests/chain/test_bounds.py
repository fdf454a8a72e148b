"""What no worker can run: the real contracts draw nobody for it, and convict who took it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.chain.appeals import AppealWorld
from tests.chain.conftest import Net
from tests.chain.test_appeals import ONE
from tests.chain.test_reverify_command import bundle_of, facts_of
from tests.chain.world import Running
from verillm.appeal import out_of_bounds
from verillm.chain.contract import Status
from verillm.chain.events import job_history
from verillm.codec import encode_bundle
from verillm.errors import TransactionFailed
from verillm.proofs.find import Proof
from verillm.proofs.shown import NO_PIECE, Given, HashedTask, Piece
from verillm.request import Request, Sampling
from verillm.types import PPM, Outcome, Reason
from verillm_verifier.errors import ContentsOutOfBounds
from verillm_verifier.reverify import contents_of_bundle

ODD: dict[str, dict[str, Any]] = {
    "temperature": {"sampling": Sampling(2 * PPM + 1)},
    "topP": {"sampling": Sampling(top_p=0)},
    "minP": {"sampling": Sampling(min_p=PPM + 1)},
    "context": {"max_new_tokens": ONE.context},
    "newTokens": {"max_new_tokens": 11},
    "vocabulary": {"tokens": (1, 2, ONE.vocabulary)},
}


class OddWorld(AppealWorld):
    """Everybody in a job signs whatever `odd` changes of its request."""

    odd: dict[str, Any] = {}  # noqa: RUF012 - set by tests

    def asked(self, salt: bytes) -> Request:
        return replace(super().asked(salt), **self.odd)


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator[OddWorld]:
    snapshot = deployed.rpc("evm_snapshot")
    world = OddWorld(deployed, ONE)
    world.output = tuple(range(5, 17))
    yield world
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: OddWorld) -> Iterator[OddWorld]:
    snapshot = furnished.net.rpc("evm_snapshot")
    furnished.odd, furnished.output = {}, tuple(range(5, 17))
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)


def claimed(world: OddWorld, bound: str) -> Running:
    world.odd = ODD.get(bound, {})
    return world.claim(world.seal(world.post(1)), paid=1)


def refusal(world: OddWorld, run: Running) -> tuple[str, tuple[Any, ...]]:
    """The contract's error to a re-verification of a job, and its values."""
    try:
        world.reverify(run)
    except TransactionFailed as error:
        return error.error, error.arguments
    return "", ()


def proof(run: Running, bound: str) -> Proof:
    at = 2 if bound == "vocabulary" else 0
    item = run.task.items[0]
    given = Given(run.inner, HashedTask.of(run.task), 0, item)
    piece = Piece.of(item.salt, item.tokens, at) if bound == "vocabulary" else NO_PIECE
    return Proof("outOfBounds", 0, Reason.OUT_OF_BOUNDS, "", (ONE, 0, given, at, piece))


@pytest.mark.parametrize("bound", ODD)
def test_nobody_is_drawn_for_what_no_worker_can_run(
    world: OddWorld, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verillm.trace._check_trace", lambda *_: None)
    run = claimed(world, bound)
    (content,) = world.contents(run)
    assert out_of_bounds(content, ONE) == bound
    name, (request, fact) = refusal(world, run)
    assert (name, request) == ("ContentOutOfBounds", 0)
    assert bytes(fact).rstrip(b"\0").decode() == bound
    chain = world.chain(world.client)
    assert chain.job_state(world.id_of(run)).status is Status.CLAIMED
    with pytest.raises(ContentsOutOfBounds) as told:
        contents_of_bundle(facts_of(world, run), encode_bundle(bundle_of(world, run)))
    assert (told.value.request, told.value.bound) == (0, bound)


def test_an_output_with_a_token_that_is_none_draws_nobody(world: OddWorld) -> None:
    world.output = (*range(5, 16), ONE.vocabulary)
    run = claimed(world, "")
    (content,) = world.contents(run)
    assert out_of_bounds(content, ONE) == "vocabulary"
    assert refusal(world, run)[0] == "ContentOutOfBounds"


def test_power_what_lies_at_the_bounds_is_taken(world: OddWorld) -> None:
    sampling = Sampling(2 * PPM, 2**32 - 1, 1, PPM)
    world.output = (*range(5, 16), ONE.vocabulary - 1)
    world.odd = {
        "tokens": (1, 2, ONE.vocabulary - 1),
        "max_new_tokens": ONE.context - 3,
        "sampling": sampling,
    }
    run = world.claim(world.seal(world.post(1)), paid=1)
    (content,) = world.contents(run)
    assert out_of_bounds(content, ONE) is None
    assert refusal(world, run) == ("", ())


@pytest.mark.parametrize("bound", [each for each in ODD if each != "newTokens"])
def test_who_took_what_no_worker_can_run_is_slashed_for_it(world: OddWorld, bound: str) -> None:
    run = claimed(world, bound)
    chain = world.chain(world.auditor.account)
    before = chain.account_of(run.inferencer.address).balance
    client = chain.deposit_of(world.client.address, world.scheduler.address).amount
    chain.send(chain.calls.prove(*world.record(run), proof(run, bound)))
    finalized = job_history(chain, world.id_of(run)).finalized
    assert finalized is not None
    event = finalized.event
    assert (event.outcome, event.reason) == (Outcome.SLASH, Reason.OUT_OF_BOUNDS)
    assert before - chain.account_of(run.inferencer.address).balance == run.lock
    after = chain.deposit_of(world.client.address, world.scheduler.address).amount
    assert after - client == run.job.max_fee


@pytest.mark.parametrize("bound", ["vocabulary", "context"])
def test_power_an_honest_task_convicts_nobody(world: OddWorld, bound: str) -> None:
    run = claimed(world, "")
    chain = world.chain(world.auditor.account)
    with pytest.raises(TransactionFailed) as refused:
        chain.simulate(chain.calls.prove(*world.record(run), proof(run, bound)))
    expected = "NothingDiffers" if bound == "vocabulary" else "ProofInvalid"
    assert refused.value.error == expected
