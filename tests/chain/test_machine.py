"""The deployed contracts and the in-memory reference take the same calls, right and wrong ones.

After every step all money, seats, jobs and rounds are equal in both, what is held is what is owed,
and in the end anyone can bring every job to its end, which leaves nothing locked.
"""

from collections.abc import Iterator

import pytest
from hypothesis import Phase

from tests.chain.conftest import Net
from tests.chain.jobs import Jobs
from tests.chain.labour import Labour
from tests.chain.life import AS_EVER, Life, live
from tests.chain.silence import Silence
from tests.chain.town import Town, inhabited


class Whole(Silence, Labour, Jobs):
    """All rules together."""


@pytest.fixture(scope="module")
def town(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed) as made:
        yield made


def test_the_contracts_do_what_the_reference_says(town: Town) -> None:
    live(
        town,
        Jobs,
        max_examples=12,
        stateful_step_count=40,
        derandomize=True,
        phases=[Phase.generate],
    )


@pytest.mark.parametrize("rules", [Silence, Labour])
def test_each_part_does_what_the_reference_says(town: Town, rules: type[Life]) -> None:
    live(town, rules, max_examples=2, stateful_step_count=25, **AS_EVER)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_contracts_do_what_the_reference_says_for_long(town: Town) -> None:
    live(town, Whole, max_examples=30, stateful_step_count=60)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rules", [Silence, Labour])
def test_each_part_does_what_the_reference_says_for_long(town: Town, rules: type[Life]) -> None:
    live(town, rules, max_examples=12, stateful_step_count=40)


def test_a_key_that_left_its_operator_is_not_ended_by_it(town: Town) -> None:
    """Who stakes acts for itself again; another operator's key it may become thereafter."""
    with town.beside.undone():
        here, (first, second) = town.beside, town.schedulers
        shared = town.auditor  # owns stake of its own, and gives it up below
        amount = here.reference.account(shared.address).balance
        here.must(shared.address, "request_stake_withdrawal", amount)
        here.pass_time(here.config.unbonding)
        here.must(shared.address, "withdraw_stake")
        here.must(first.address, "set_hot_key", shared.address)
        here.must(shared.address, "add_stake", 1)
        here.must(shared.address, "request_stake_withdrawal", 1)
        here.pass_time(here.config.unbonding)
        here.must(shared.address, "withdraw_stake")
        here.must(second.address, "set_hot_key", shared.address)
        here.must(first.address, "set_hot_key", town.hot[first.address].address)
        here.pass_time(here.config.key_grace)
        assert here.chain.operator_of(shared.address) == second.address
        here.compare()
