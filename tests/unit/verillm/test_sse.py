import time

import pytest
from hypothesis import given, strategies as st

from verillm import sse
from verillm.errors import MalformedError
from verillm.sse import Parser, ServerEvent, parse_event_id

TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)
EVENTS = st.lists(st.builds(ServerEvent, st.integers(1, 10**9), TEXT, TEXT), max_size=5)


@given(EVENTS, st.integers(1, 40))
def test_events_come_out_as_they_went_in_whatever_the_pieces(
    events: list[ServerEvent], size: int
) -> None:
    stream = sse.KEEP_ALIVE.join([b"", *(event.encode() for event in events), b""])
    parser = Parser()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == events


def test_a_connection_cut_inside_an_event_loses_all_of_it() -> None:
    whole = ServerEvent(1, "token", '{"a":1}').encode()
    assert all(Parser().feed(whole[:cut]) == [] for cut in range(len(whole)))


def test_carriage_returns_and_many_data_lines_are_understood() -> None:
    raw = b"id: 7\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n"
    assert Parser().feed(raw) == [ServerEvent(7, "x", "a\nb")]


@pytest.mark.parametrize(
    "raw", [b"id: -1\n", b"id: 1e3\n", b"id: \n", b"id: 12345678901\n", b"data: \xff\n"]
)
def test_what_cannot_be_ours_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        Parser().feed(raw)


def test_an_endless_line_or_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(MalformedError, match="too long"):
        Parser().feed(b"data: " + b"x" * 101)
    with pytest.raises(MalformedError, match="too long"):
        Parser().feed(b"data: xxxxxxxx\n" * 10)


def test_event_ids_are_small_decimal_numbers() -> None:
    assert parse_event_id("0042") == 42
    with pytest.raises(MalformedError):
        parse_event_id("٤٢")


def test_a_long_line_in_tiny_pieces_costs_no_more_than_its_length() -> None:
    parser = Parser()
    before = time.process_time()
    for _ in range(400_000):
        parser.feed(b"xxxx")
    assert time.process_time() - before < 5  # copied again for each piece it would take minutes
    with pytest.raises(MalformedError, match="too long"):
        parser.feed(b"x" * sse.MAX_EVENT_BYTES)
