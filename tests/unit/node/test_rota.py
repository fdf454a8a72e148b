from itertools import pairwise

import pytest
from eth_account import Account

from verillm.types import ChecksumAddress
from verillm_node.inference import SPREAD, Rota
from verillm_node.registry import Member


def _member(number: int, free: int = 100) -> Member:
    owner = ChecksumAddress(Account.from_key(bytes([number]) * 32).address)
    return Member(owner, number, 1, "http://worker", owner, (owner,), free)


MEMBERS = [_member(number) for number in range(1, 6)]


def test_every_worker_gets_jobs_in_turn() -> None:
    rota, served = Rota(fair=True), []
    for _ in range(10):
        first = rota.order(MEMBERS, 1)[0]
        rota.begin(first.owner)
        served.append(first.seat)
        rota.end(first.owner, failed=False)
    assert served == [1, 2, 3, 4, 5] * 2


def test_a_busy_worker_comes_after_an_idle_one() -> None:
    rota = Rota(fair=True)
    rota.begin(MEMBERS[0].owner)
    assert rota.order(MEMBERS, 1)[-1] is MEMBERS[0]


def test_a_lot_tells_nobody_whose_turn_it_is() -> None:
    rota, served = Rota(), []
    for _ in range(1000):
        first = rota.order(MEMBERS, 1)[0]
        rota.begin(first.owner)
        served.append(first.seat)
        rota.end(first.owner, failed=False)
    again = sum(one == two for one, two in pairwise(served))
    assert 140 <= again <= 260  # one in five, by more than four standard deviations
    assert all(150 <= served.count(seat) <= 250 for seat in range(1, 6))


def test_a_lot_never_prefers_a_worker_with_far_more_to_do() -> None:
    rota = Rota()
    for _ in range(SPREAD):
        rota.begin(MEMBERS[0].owner)
    assert all(rota.order(MEMBERS, 1)[-1] is MEMBERS[0] for _ in range(200))


@pytest.mark.parametrize("fair", [True, False])
def test_a_worker_that_failed_is_asked_last(fair: bool) -> None:
    rota = Rota(fair)
    rota.begin(MEMBERS[0].owner)
    rota.end(MEMBERS[0].owner, failed=True)
    assert rota.order(MEMBERS, 1)[-1] is MEMBERS[0]


def test_a_worker_without_free_stake_is_not_asked() -> None:
    assert [m.seat for m in Rota().order([_member(1, 5), _member(2, 50)], 10)] == [2]
