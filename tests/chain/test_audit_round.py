"""The auditor after a public round on a real chain: its sums give the contract's verdict."""

from collections.abc import Iterator

import pytest

from tests.chain.conftest import Net
from tests.chain.rounds import OpenWorld, widened
from tests.unit.verillm.builders import SPEC
from verillm.types import Outcome
from verillm_verifier.audit import Exit, Standing, audit
from verillm_verifier.facts import read
from verillm_verifier.money import check_money


@pytest.fixture
def world(net: Net) -> Iterator[OpenWorld]:
    made = OpenWorld(net, widened(SPEC, hidden=64, slice_dims=32, depth=24))
    made.output = tuple(range(5, 17))
    yield made


@pytest.mark.parametrize(
    ("wrong", "exit_code", "standing"),
    [
        (frozenset({0}), Exit.REJECT, Standing.AGREES),
        (frozenset({1, 2}), Exit.INCONCLUSIVE, Standing.AGREES),
        # The states say accept; whether the tokens do, only a bundle tells.
        (frozenset(), Exit.INCONCLUSIVE, Standing.UNCONFIRMED),
    ],
    ids=["inferencer lies", "two verifiers lie", "all honest"],
)
def test_a_round_is_judged_again_without_any_bundle(
    world: OpenWorld, wrong: frozenset[int], exit_code: Exit, standing: Standing
) -> None:
    world.wrong = wrong
    run = world.claim(world.seal(world.post(3)), Outcome.ACCEPT)
    world.challenge(run)
    facts = read(world.chain(world.client), world.id_of(run))
    result = audit(facts, None, None)
    assert (result.exit, result.standing) == (exit_code, standing), result.verdict
    assert facts.sums is not None
    paid = check_money(facts)
    assert sum(paid.accounts.values()) + paid.burnt == run.posting.job.max_fee
