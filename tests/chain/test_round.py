"""The public round on chain computes what the Python reference computes from the same states."""

from collections.abc import Iterator

import pytest

from tests.chain.conftest import Net
from tests.chain.rounds import OpenWorld, widened
from tests.chain.world import Running
from tests.unit.verillm.builders import SPEC
from verillm.chain.contract import PairSums
from verillm.chain.events import Finalized, PairCompared, Revealed, events_of, job_history
from verillm.records import record_hash
from verillm.statistics import compare
from verillm.types import Outcome, Reason


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator[OpenWorld]:
    snapshot = deployed.rpc("evm_snapshot")
    world = OpenWorld(deployed, widened(SPEC, hidden=64, slice_dims=32, depth=24))
    world.output = tuple(range(5, 17))
    yield world
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: OpenWorld) -> Iterator[OpenWorld]:
    snapshot = furnished.net.rpc("evm_snapshot")
    furnished.wrong = frozenset()
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)


def ended(world: OpenWorld, run: Running) -> Finalized:
    (final,) = (e for e in events_of(world.challenge(run)[-1].mined) if isinstance(e, Finalized))
    return final


@pytest.mark.parametrize(
    ("wrong", "claimed", "outcome"),
    [
        (set(), Outcome.ACCEPT, Outcome.ACCEPT),
        ({0}, Outcome.ACCEPT, Outcome.SLASH),
        ({2}, Outcome.ACCEPT, Outcome.ACCEPT),
        ({1, 2}, Outcome.ACCEPT, Outcome.INCONCLUSIVE),
    ],
    ids=["all honest", "inferencer lies", "one verifier lies", "two verifiers lie"],
)
def test_the_contract_judges_by_the_states(
    world: OpenWorld, wrong: set[int], claimed: Outcome, outcome: Outcome
) -> None:
    world.wrong = frozenset(wrong)
    run = world.claim(world.seal(world.post(3)), claimed)
    assert ended(world, run).outcome is outcome


@pytest.mark.parametrize("requests", [1, 3])
def test_the_sums_of_every_pair_are_the_references(world: OpenWorld, requests: int) -> None:
    world.wrong = frozenset({2})
    run = world.claim(world.seal(world.post(requests)))
    world.challenge(run)
    chain, record = world.chain(world.client), record_hash(run.posting, run.sealing, run.claiming)
    prompts = [len(world.prompt)] * len(world.checked(run))
    opened = [world.states(run, party) for party in range(world.spec.committee + 1)]
    for first, second in world.pairs():
        ours = compare(opened[first], opened[second], world.spec.profile, prompts)
        theirs = chain.pair_of(record, first, second)
        assert theirs == PairSums(ours.sum, ours.cells, ours.over), (first, second)


def test_the_history_names_every_step_of_a_round(world: OpenWorld) -> None:
    run = world.claim(world.seal(world.post()))
    world.challenge(run)
    history = job_history(world.chain(world.client), world.id_of(run))
    assert history.challenged is not None
    assert history.challenged.event.challenger == world.auditor.address
    assert len(history.all(Revealed)) == 1
    compared = {(e.event.party_a, e.event.party_b) for e in history.all(PairCompared)}
    assert compared == set(world.pairs())
    assert history.finalized is not None
    assert history.finalized.event.reason is Reason.NONE
