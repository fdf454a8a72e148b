"""The machine of `test_machine` where second committees are asked too, in a town of more owners.

A module of its own: two towns on one chain would move each other's clock.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.chain.conftest import Net
from tests.chain.jobs import Jobs
from tests.chain.life import AS_EVER, Life, live
from tests.chain.questions import Questions
from tests.chain.town import Town, inhabited

OWNERS: Final = 9
"""With first committees of three a second one has seven members, and the inferencer is none."""


@pytest.fixture(scope="module")
def city(deployed: Net) -> Iterator[Town]:
    with inhabited(deployed, workers=OWNERS) as made:
        yield made


class Doubts(Questions, Jobs):
    """Re-verifications beside everything that happens to jobs."""


def test_a_second_committee_does_what_the_reference_says(city: Town) -> None:
    live(city, Questions, max_examples=4, stateful_step_count=15, **AS_EVER)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rules", [Questions, Doubts])
def test_a_second_committee_does_what_the_reference_says_for_long(
    city: Town, rules: type[Life]
) -> None:
    live(city, rules, max_examples=10, stateful_step_count=40)
