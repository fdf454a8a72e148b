"""What one caller may have, and how soon again."""

from itertools import repeat

import pytest

from verillm_node import meter
from verillm_node.errors import TooManyRequests
from verillm_node.meter import Meter, caller


def test_enough_is_enough_until_the_window_has_moved_on() -> None:
    times = iter([0.0, 1.0, 2.0, 60.0, 60.5, 61.0])
    taken = Meter(2, 60.0, lambda: next(times))
    taken.take("a")
    taken.take("a")
    with pytest.raises(TooManyRequests, match="58 s"):
        taken.take("a")
    taken.take("a")  # the first one is a minute old
    with pytest.raises(TooManyRequests):
        taken.take("a")
    taken.take("a")


def test_what_one_caller_takes_is_not_taken_from_another() -> None:
    taken = Meter(1, 60.0, repeat(0.0).__next__)
    taken.take("a", 1)
    taken.take("b", 1)
    taken.take("a", 2)
    with pytest.raises(TooManyRequests):
        taken.take("a", 1)


def test_a_crowd_of_callers_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_KEYS", 3)
    taken = Meter(1, 60.0, repeat(0.0).__next__)
    for number in range(1000):
        taken.take(number)
    assert len(taken._taken) == 3


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_a_customer_is_counted_once(host: str | None, counted: str) -> None:
    assert caller(host) == counted
