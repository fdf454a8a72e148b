"""What the command line says and returns, without a chain: usage, output, and hostile text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.verifier.lab import POST, Engines, Played, Story, at, play
from verillm.chain.events import Burnt, Paid, Slashed
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm.types import Outcome, Reason
from verillm_verifier import cli, report
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Audit, Exit, audit
from verillm_verifier.money import moved
from verillm_verifier.opinion import form
from verillm_verifier.replay import replay
from verillm_verifier.steps import steps_of


def reported(result: Audit, *notes: str) -> report.Report:
    history = result.facts.history
    senders = {each.transaction: result.facts.posting.worker for each in history.events}
    return report.Report(result, steps_of(history, senders), moved(result.facts), notes, "DEV", 18)


@pytest.mark.parametrize(
    "words",
    [[], ["bogus"], ["verify"], ["verify", "0x1", "--rpc"], ["jobs", "extra"], ["show", "--nope"]],
)
def test_wrong_usage_is_a_failed_audit_and_not_inconclusive(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(words)
    assert raised.value.code == Exit.FAILED
    assert "usage:" in capsys.readouterr().err


def test_a_missing_deployment_file_is_a_coded_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", "0x12", "--deployment", str(tmp_path / "absent"), "--json"]
    assert cli.main(words) == Exit.FAILED
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "bad_config"
    assert captured.err.startswith("error [bad_config]:")


def test_calibrate_hands_its_words_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["calibrate", "--help"])
    assert raised.value.code == 0
    assert "calibrate" in capsys.readouterr().out


def test_every_verdict_is_json_with_the_same_names(
    honest: Played, engines: Engines, spec: ModelSpec, head: HeadRows
) -> None:
    cheat = play(engines, spec, Story(cheats={0: ATTACKS["int4"]}))
    results = [
        audit(honest.facts(), honest.raw, head),
        audit(honest.facts(), None, head, "gone"),
        audit(honest.facts(until=POST), None, head),
        audit(cheat.facts(Outcome.SLASH, Reason.STATES_DIFFER), cheat.raw, head),
    ]
    own = form(results[0].evidence, replay(engines.engine(), results[0].evidence.checked), head)  # type: ignore[arg-type, union-attr]
    results.append(replace(results[0], opinion=own))
    said = [json.loads(json.dumps(report.to_json(reported(result)))) for result in results]
    assert len({frozenset(each) for each in said}) == 1
    assert [each["exit"] for each in said] == [0, 2, 2, 1, 0]
    assert said[0]["statistics"]["tokens"]["count"] == 16
    assert said[0]["draws"]["positions"].keys() == {"0", "1"}
    assert said[3]["statistics"]["paper"]
    assert said[4]["opinion"]["agrees"] == [0, 1, 2, 3]


def test_a_story_tells_who_when_where_and_how_much(honest: Played, head: HeadRows) -> None:
    facts = honest.facts()
    *before, end = facts.history.events
    job = facts.history.job_id
    money = (
        Paid(job, honest.posting.worker, 3 * 10**15),
        Slashed(job, honest.posting.worker, 10**18),
        Burnt(job, 5 * 10**17),
    )
    told = (*before, *(at(event, 40) for event in money), end)
    facts = replace(facts, history=replace(facts.history, events=told))
    lines = "\n".join(report.story(reported(audit(facts, honest.raw, head), "a note")))
    for word in (
        "posted          1970-01-01 00:16:40 UTC  block 10",
        f"sent by {honest.posting.worker}",
        "fee: 0.000025 DEV",
        "redrawn positions of request 0 (6 + 8 tokens)",
        "inferencer and verifier 1: mean",
        "-0.997 DEV",
        "+0.5 DEV",
        "recomputed verdict: accept",
        "settled on chain: accept, none",
        "the chain agrees",
        "note: a note",
    ):
        assert word in lines, lines


def test_an_objection_of_ones_own_run_is_loud(
    honest: Played, engines: Engines, head: HeadRows
) -> None:
    result = audit(honest.facts(), honest.raw, head)
    assert result.evidence is not None
    other = engines.engine(ATTACKS["int4"])
    opinion = form(result.evidence, replay(other, result.evidence.checked), head)
    lines = "\n".join(report.verification(reported(replace(result, opinion=opinion))))
    assert "own run: OBJECTS to the inferencer" in lines
    assert replace(result, opinion=opinion).exit is Exit.INCONCLUSIVE


def test_a_strangers_text_cannot_steer_the_terminal(honest: Played, head: HeadRows) -> None:
    evil = "\x1b[2J\x1b[Hyour key:\r\n" + "x" * 1000
    facts = honest.facts()
    hostile = replace(facts, spec=replace(facts.spec, name=evil))
    result = replace(audit(facts, honest.raw, head), facts=hostile)
    for text in (*report.story(reported(result, evil)), *report.verification(reported(result))):
        assert "\x1b" not in text
        assert "\r" not in text
        assert len(text) < 600
    said = json.dumps(report.to_json(reported(result, evil)))
    assert "\\u001b" not in said


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert report.when(2**40) == f"time {2**40}"
    assert report.when(0) == "1970-01-01 00:00:00 UTC"
