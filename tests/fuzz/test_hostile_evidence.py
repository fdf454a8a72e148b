"""The parser and the judge against broken evidence; the long run is `python -m tests.fuzz`."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.fuzz.hostile import (
    BREAKS,
    ROWS,
    Break,
    Subject,
    broken,
    check,
    judge,
    states_changed,
    subjects,
)
from verillm.codec import decode_bundle
from verillm.types import Outcome

SUBJECTS = subjects()


@pytest.mark.parametrize("subject", SUBJECTS, ids=["honest", "states", "tokens", "one silent"])
def test_whole_evidence_hasTheVerdictItDeserves(subject: Subject) -> None:
    verdict = judge(subject, decode_bundle(subject.raw), ROWS)
    assert (verdict.outcome is Outcome.ACCEPT) == subject.is_honest


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(range(len(SUBJECTS))),
    st.lists(st.tuples(st.sampled_from(BREAKS), st.integers(0, 2**32)), min_size=1, max_size=3),
)
def test_broken_evidence_isRefusedOrJudged_neverAcceptedFalsely(
    which: int, breaks: list[tuple[Break, int]]
) -> None:
    subject = SUBJECTS[which]
    raw = broken(subject.raw, breaks)
    check(subject, raw, ROWS)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(BREAKS), st.integers(0, 2**32))
def test_parsing_broken_evidence_takesBoundedMemory(break_: Break, seed: int) -> None:
    subject = SUBJECTS[0]
    check(subject, broken(subject.raw, [(break_, seed)]), ROWS, trace_memory=True)


def test_theChecker_seesAJudgeThatBelievesUnprovenStates(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = SUBJECTS[0]
    monkeypatch.setattr("verillm.trace.verify_proof", lambda *_: True)
    with pytest.raises(AssertionError, match="altered"):
        for seed in range(200):
            check(subject, broken(subject.raw, [(states_changed, seed)]), ROWS)


def test_aHugeCount_isRefusedBeforeAnythingIsAllocated() -> None:
    raw = SUBJECTS[0].raw
    for at in range(6, len(raw) - 4, 211):
        check(SUBJECTS[0], raw[:at] + b"\xff" * 4 + raw[at + 4 :], ROWS, trace_memory=at % 5 == 0)
