from eth_account import Account

from verillm.types import ChecksumAddress
from verillm_node.inference import Rota
from verillm_node.registry import Member


def _member(number: int, free: int = 100) -> Member:
    owner = ChecksumAddress(Account.from_key(bytes([number]) * 32).address)
    return Member(owner, number, 1, "http://worker", owner, (owner,), free)


MEMBERS = [_member(number) for number in range(1, 6)]


def test_every_worker_gets_jobs_in_turn() -> None:
    rota, served = Rota(), []
    for _ in range(10):
        first = rota.order(MEMBERS, 1)[0]
        rota.begin(first.owner)
        served.append(first.seat)
        rota.end(first.owner, failed=False)
    assert served == [1, 2, 3, 4, 5] * 2


def test_a_busy_worker_comes_after_an_idle_one() -> None:
    rota = Rota()
    rota.begin(MEMBERS[0].owner)
    assert rota.order(MEMBERS, 1)[-1] is MEMBERS[0]


def test_a_worker_that_failed_is_asked_last() -> None:
    rota = Rota()
    rota.begin(MEMBERS[0].owner)
    rota.end(MEMBERS[0].owner, failed=True)
    assert rota.order(MEMBERS, 1)[-1] is MEMBERS[0]


def test_a_worker_without_free_stake_is_not_asked() -> None:
    assert [m.seat for m in Rota().order([_member(1, 5), _member(2, 50)], 10)] == [2]
