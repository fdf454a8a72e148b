import pytest
from hypothesis import given, strategies as st

from verillm.api import RestartEvent, TokenEvent
from verillm.errors import WorkerFailed
from verillm.request import Request, Sampling
from verillm_node.flow import Attempt, Text

from ..verillm.builders import END, SPEC

MOST = 8


def _attempt(text: Text, most: int = MOST) -> Attempt:
    return Attempt(text, (Request(bytes(32), (1, 2, 3), most, Sampling()),), SPEC)


def _feed(text: Text, tokens: list[int], item: int = 0) -> list[object]:
    attempt = _attempt(text, len(tokens))
    told: list[object] = []
    for index, token in enumerate(tokens):
        told += attempt.add(TokenEvent(item, index, token))
    return told + attempt.end()


def test_a_second_worker_that_agrees_only_goes_on() -> None:
    text = Text.of(1, [])
    first = _attempt(text)
    for index, token in enumerate([5, 6, 7]):
        assert first.add(TokenEvent(0, index, token)) == [TokenEvent(0, index, token)]
    assert _feed(text, [5, 6, 7, 8]) == [TokenEvent(0, 3, 8)]
    assert text.restarts == 0


def test_a_second_worker_that_differs_starts_again_at_token_0() -> None:
    text = Text.of(1, [TokenEvent(0, 0, 5), TokenEvent(0, 1, 6), TokenEvent(0, 2, 7)])
    told = _feed(text, [5, 9, 9])
    assert isinstance(told[0], RestartEvent)
    assert told[0].attempt == 1
    assert told[1:] == [TokenEvent(0, 0, 5), TokenEvent(0, 1, 9), TokenEvent(0, 2, 9)]


def test_a_second_worker_that_ends_earlier_starts_again() -> None:
    text = Text.of(1, [TokenEvent(0, 0, 5), TokenEvent(0, 1, 6)])
    told = _feed(text, [5])
    assert isinstance(told[0], RestartEvent)
    assert told[1:] == [TokenEvent(0, 0, 5)]


@pytest.mark.parametrize("index", [1, 2, 7])
def test_a_gap_in_a_workers_tokens_is_its_failure(index: int) -> None:
    with pytest.raises(WorkerFailed, match="out of order"):
        _attempt(Text.of(1, [])).add(TokenEvent(0, index, 5))


def test_a_token_of_no_request_is_the_workers_failure() -> None:
    with pytest.raises(WorkerFailed):
        _attempt(Text.of(1, [])).add(TokenEvent(1, 0, 5))


def test_a_token_outside_the_vocabulary_is_the_workers_failure_and_nobody_hears_it() -> None:
    # No verifier could take it, so the job could not be sealed, at the scheduler's cost.
    text = Text.of(1, [])
    with pytest.raises(WorkerFailed, match="vocabulary"):
        _attempt(text).add(TokenEvent(0, 0, SPEC.vocabulary))
    assert text.tokens == [[]]


def test_more_tokens_than_were_asked_for_are_the_workers_failure() -> None:
    attempt = _attempt(Text.of(1, []))
    for index in range(MOST):
        attempt.add(TokenEvent(0, index, 5))
    with pytest.raises(WorkerFailed, match="ended"):
        attempt.add(TokenEvent(0, MOST, 5))


def test_a_token_after_the_end_token_is_the_workers_failure() -> None:
    attempt = _attempt(Text.of(1, []))
    attempt.add(TokenEvent(0, 0, END))
    with pytest.raises(WorkerFailed, match="ended"):
        attempt.add(TokenEvent(0, 1, 5))


@pytest.mark.parametrize("tokens", [[], [5, 6]])
def test_an_output_cut_short_is_the_workers_failure(tokens: list[int]) -> None:
    attempt = _attempt(Text.of(1, []))
    for index, token in enumerate(tokens):
        attempt.add(TokenEvent(0, index, token))
    with pytest.raises(WorkerFailed, match="short"):
        attempt.end()


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=5))
def test_a_client_always_ends_with_the_last_workers_tokens(attempts: list[list[int]]) -> None:
    """However many workers die wherever, and however they differ: each token exactly once."""
    text, events = Text.of(1, []), []
    for tokens in attempts:
        events += _feed(text, tokens)
    heard: list[int] = []
    for event in events:
        if isinstance(event, RestartEvent):
            heard = []
        elif isinstance(event, TokenEvent):
            assert event.index == len(heard)
            heard.append(event.token)
    assert heard == attempts[-1]
    assert Text.of(1, events).tokens == [heard]  # type: ignore[arg-type]
