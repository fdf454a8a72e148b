"""Every shipped threshold: loosened it lets its cheat pass, tightened it hits honest work.

`violations` says what a profile does wrong to jobs that the lab measured on the real model
(`verillm-audit lab --fixtures`). The shipped profile does nothing wrong; each change of one
threshold must be seen, or the tests have no power.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verillm.statistics
from tests.unit.verifier.kept import rare_job
from verillm.model import CheckProfile
from verillm.statistics import PairStatistics, ratio
from verillm.tokens import TokenStatistics, judge_tokens
from verillm.types import PPM, Outcome
from verillm.verdict import PartyStatus, decide
from verillm_verifier.lab.command import read_profile
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.trials import MANY, challenged

NAME = "smollm2-135m-instruct.json"
PROFILE = read_profile(Path(verillm.__file__).parent / "data" / "profiles" / NAME)
FOUND: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "lab" / NAME).read_text("utf-8")
)
CAUGHT_BY_STATES = {
    "int8_row": 1.0, "int8_group": 1.0, "cache8": 0.92, "int4": 1.0, "skipped": 1.0,
    "whispered": 1.0, "patched": 0.5,
}  # fmt: skip
"""Least share of pairs that must disagree."""
CAUGHT_BY_TOKENS = {"int4": 1.0, "other seed": 1.0, "temperature": 0.75, "swapped": 0.3}
"""Least share of jobs that must be rejected."""
SLASHED_BY_TOKENS = {"int4": 1.0, "other seed": 1.0}
SUMS = ("sum", "cells", "over")
REQUESTS = 4
HEADROOM = 125
"""Per cent of the honest noise that costs no stake: a slash stands above what a refund does."""
Change = Callable[[CheckProfile], CheckProfile]


def statistics(job: dict[str, Any], verifier: int, profile: CheckProfile) -> PairStatistics:
    """The inferencer against one verifier, from kept distances."""
    total = over = cells = 0
    for where, row in zip(job["zones"], job["apart"][verifier], strict=True):
        total += sum(
            ratio(apart, layer, where) for apart, layer in zip(row, profile.layers, strict=True)
        )
        cells += len(row)
        over += any(
            apart > layer.cap[where] for apart, layer in zip(row, profile.layers, strict=True)
        )
    return PairStatistics(total, cells, over)


def pairs(kind: str, profile: CheckProfile) -> list[PairStatistics]:
    """All jobs of a kind against every verifier."""
    return [
        statistics(job, verifier, profile)
        for job in FOUND["states"][kind]
        for verifier in range(len(job["apart"]))
    ]


def together(found: list[PairStatistics]) -> PairStatistics:
    """Several requests of one job."""
    return PairStatistics(*(sum(getattr(each, name) for each in found) for name in SUMS))


def refunds(pair: PairStatistics, profile: CheckProfile, requests: int = 1) -> bool:
    """Whether a pair is beyond the refund tier."""
    positions = pair.cells // len(profile.layers)
    return not pair.agrees(*profile.refund_tier(positions, requests))


def slashes(pair: PairStatistics, profile: CheckProfile) -> bool:
    """Whether a pair is beyond the slash tier."""
    return not pair.agrees(*profile.slash_tier(pair.cells // len(profile.layers), 1))


def of_four(kind: str, profile: CheckProfile) -> list[PairStatistics]:
    """Jobs of four requests, made of all kept ones in turn."""
    jobs = FOUND["states"][kind]
    return [
        together([statistics(job, verifier, profile) for job in jobs[at : at + REQUESTS]])
        for at in range(len(jobs) - REQUESTS + 1)
        for verifier in range(len(jobs[0]["apart"]))
    ]


def noisier(job: dict[str, Any]) -> dict[str, Any]:
    """The job on hardware whose noise is larger by `HEADROOM`."""
    louder = [[[HEADROOM * e // 100 for e in row] for row in rows] for rows in job["apart"]]
    return {**job, "apart": louder}


def tokens(kind: str) -> list[TokenStatistics]:
    """All jobs' margins."""
    return [
        TokenStatistics(
            tuple(job["margins"].get(str(at), 0) for at in range(job["count"])),
            tuple(job["above"].get(str(at), 0) for at in range(job["count"])),
            (),
        )
        for job in FOUND["tokens"][kind]
    ]


def share(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def violations(profile: CheckProfile) -> list[str]:
    """What a profile gets wrong."""
    return [*_of_states(profile), *_of_tokens(profile), *_of_borders(profile)]


def _of_states(profile: CheckProfile) -> list[str]:
    wrong = [
        f"honest {kind} disagrees"
        for kind in FOUND["honest"]
        if any(refunds(pair, profile) for pair in pairs(kind, profile))
        or any(refunds(pair, profile, REQUESTS) for pair in of_four(kind, profile))
    ]
    wrong += [
        f"honest {kind} would be slashed on noisier hardware"
        for kind in FOUND["honest"]
        for job in FOUND["states"][kind]
        for verifier in range(len(job["apart"]))
        if slashes(statistics(noisier(job), verifier, profile), profile)
    ]
    rare, random = rare_job(profile), np.random.default_rng(1)
    if any(
        rare.verdict(OWN, ("bf16",) * 3, challenged(rare, MANY, random)).outcome is Outcome.SLASH
        for _ in range(20)
    ):
        wrong.append("honest work on a rare text is slashed")
    wrong += [
        f"{kind} passes"
        for kind, least in CAUGHT_BY_STATES.items()
        if share([refunds(pair, profile) for pair in pairs(kind, profile)]) < least
    ]
    wrong += [
        f"{kind} is not slashed"
        for kind in ("int4", "skipped", "int8_row")
        if not all(slashes(pair, profile) for pair in pairs(kind, profile))
    ]
    patched = [pair.over > profile.over_refund for pair in pairs("patched", profile)]
    int4 = [pair.over > profile.over_slash for pair in pairs("int4", profile)]
    if share(patched) < 0.5 or not all(int4):
        wrong.append("patched is not seen by its count")
    return wrong


def _of_tokens(profile: CheckProfile) -> list[str]:
    wrong = [
        f"honest tokens of {kind} are rejected"
        for kind in FOUND["honest"]
        if any(judge_tokens(job, profile)[0] is not Outcome.ACCEPT for job in tokens(kind))
    ]
    if max(rare_job(profile).margins(("bf16",)).margins) > profile.margin_max_refund:
        wrong.append("an honest token on a rare text loses too much")
    # In a long output one large margin hardly moves the mean: the largest must do alone. A colder
    # temperature nearer to the asked one has many small ones: the mean must do alone too.
    large = [max(job.margins) > profile.margin_max_refund for job in tokens("temperature")]
    if share(large) < 0.5:
        wrong.append("no margin of temperature is too large")
    if share([job.mean > profile.margin_mean for job in tokens("temperature")]) < 0.75:
        wrong.append("the mean of temperature is not too large")
    for least, outcomes in (
        (CAUGHT_BY_TOKENS, (Outcome.REFUND, Outcome.SLASH)),
        (SLASHED_BY_TOKENS, (Outcome.SLASH,)),
    ):
        wrong += [
            f"tokens of {kind} pass"
            for kind, wanted in least.items()
            if share([judge_tokens(job, profile)[0] in outcomes for job in tokens(kind)]) < wanted
        ]
    return wrong


def _of_borders(profile: CheckProfile) -> list[str]:
    spare = {
        "top_p": profile.mass_epsilon, "min_p": profile.logit_tau, "top_k": profile.logit_tau,
    }  # fmt: skip
    wrong = []
    for border, tolerance in spare.items():
        found = FOUND["borders"][border]
        if any(beyond > tolerance for beyond in found["honest"]):
            wrong.append(f"an honest token is outside {border}")
        if share([beyond > tolerance for beyond in found["ignored"]]) < 0.5:
            wrong.append(f"ignoring {border} passes")
    return wrong


def scaled(field: str, factor: float) -> Change:
    return lambda profile: replace(profile, **{field: round(getattr(profile, field) * factor)})


def layers(field: str, factor: float) -> Change:
    def change(profile: CheckProfile) -> CheckProfile:
        changed = []
        for layer in profile.layers:
            values: Any = tuple(round(each * factor) for each in getattr(layer, field))
            changed.append(replace(layer, **{field: values}))
        return replace(profile, layers=tuple(changed))

    return change


def few_only(profile: CheckProfile) -> CheckProfile:
    """The profile without a second pair of means, so that every job is held to the first."""
    return replace(profile, many_positions=0)


LOOSENED: dict[str, tuple[Change, str]] = {
    "mean_refund": (lambda p: scaled("mean_refund", 2.0)(few_only(p)), "int8_group passes"),
    "mean_refund_many": (scaled("mean_refund_many", 1.1), "cache8 passes"),
    "mean_slash_many": (scaled("mean_slash_many", 2.0), "int8_row is not slashed"),
    "mean_slash": (lambda p: scaled("mean_slash", 2.0)(few_only(p)), "int8_row is not slashed"),
    "many_positions": (lambda p: replace(p, many_positions=65), "cache8 passes"),
    "over_refund": (lambda p: replace(p, over_refund=16), "patched is not seen by its count"),
    "over_slash": (lambda p: replace(p, over_slash=64), "patched is not seen by its count"),
    "margin_mean": (scaled("margin_mean", 20.0), "the mean of temperature is not too large"),
    "margin_max_refund": (
        scaled("margin_max_refund", 20.0),
        "no margin of temperature is too large",
    ),
    "margin_max_slash": (scaled("margin_max_slash", 20.0), "tokens of int4 pass"),
    "mass_epsilon": (lambda p: replace(p, mass_epsilon=110_000), "ignoring top_p passes"),
    "logit_tau": (lambda p: replace(p, logit_tau=6_000_000), "ignoring min_p passes"),
    "med": (layers("med", 2.0), "int8_group passes"),
    "cap": (layers("cap", 20.0), "patched is not seen by its count"),
}
TIGHTENED: dict[str, Change] = {
    "mean_refund": lambda p: scaled("mean_refund", 0.5)(few_only(p)),
    "mean_refund_many": scaled("mean_refund_many", 0.8),
    "mean_slash_many": scaled("mean_slash_many", 0.8),
    "over_refund": lambda p: replace(p, over_refund=0, layers=layers("cap", 0.75)(p).layers),
    "mean_slash": lambda p: scaled("mean_slash", 0.8)(few_only(p)),
    "over_slash": lambda p: replace(p, over_slash=p.over_slash // 2),
    "margin_mean": scaled("margin_mean", 0.1),
    "margin_max_refund": scaled("margin_max_refund", 0.3),
    "margin_max_slash": scaled("margin_max_slash", 0.1),
    "mass_epsilon": lambda p: replace(p, mass_epsilon=0),
    "logit_tau": lambda p: replace(p, logit_tau=0),
    "med": layers("med", 0.5),
    "cap": layers("cap", 0.5),
}


def test_the_shippedProfile_doesRightByEveryKeptJob() -> None:
    assert violations(PROFILE) == []


def test_the_kept_distances_areUnderTheShippedScales() -> None:
    assert [layer.scale for layer in PROFILE.layers] == FOUND["scales"]


@pytest.mark.parametrize("threshold", LOOSENED)
def test_power_a_threshold_thatIsLoosened_letsItsCheatPass(threshold: str) -> None:
    change, expected = LOOSENED[threshold]
    assert expected in violations(change(PROFILE))


@pytest.mark.parametrize("threshold", TIGHTENED)
def test_power_a_threshold_thatIsTightened_hitsHonestWork(threshold: str) -> None:
    found = violations(TIGHTENED[threshold](PROFILE))
    assert any("honest" in violation for violation in found)


CELLS = [(layer, where) for layer in range(len(PROFILE.layers)) for where in range(3)]


def cap_of(layer: int, where: int, factor: float) -> CheckProfile:
    """The shipped profile with one cap changed."""
    changed = list(PROFILE.layers)
    caps = list(changed[layer].cap)
    caps[where] = max(changed[layer].med[where], round(caps[where] * factor))
    changed[layer] = replace(changed[layer], cap=(caps[0], caps[1], caps[2]))
    return replace(PROFILE, layers=tuple(changed))


def seen_by_count(layer: int, where: int, profile: CheckProfile) -> bool:
    """Whether states that are far off in one layer and zone only are seen, over the kept jobs of
    coarse cheats as the requests of one (a request has three positions in the first zone).
    """
    cap = profile.layers[layer].cap[where]
    over = [
        bool(row[layer] > cap)
        for kind in ("skipped", "whispered", "int4")
        for job in FOUND["states"][kind]
        for zone, row in zip(job["zones"], job["apart"][0], strict=True)
        if zone == where
    ]
    return sum(over) > profile.over_refund


@pytest.mark.parametrize(("layer", "where"), CELLS)
def test_power_each_cap_loosenedAlone_hidesWhatIsFarOffThereOnly(layer: int, where: int) -> None:
    assert seen_by_count(layer, where, PROFILE)
    assert not seen_by_count(layer, where, cap_of(layer, where, 100.0))


@pytest.mark.parametrize(("layer", "where"), CELLS)
def test_power_each_cap_tightenedAlone_hitsHonestWork(layer: int, where: int) -> None:
    found = violations(cap_of(layer, where, 0.0))
    assert any("honest" in violation for violation in found)


def test_power_jobs_ofFewerPositionsThanTheProfileAsks_areUndecided() -> None:
    statuses = [PartyStatus.OPEN] * 4
    agree = PairStatistics(0, 4, 0)
    all_pairs = {(a, b): agree for a in range(4) for b in range(a + 1, 4)}
    few, enough = PROFILE.min_positions - 1, PROFILE.min_positions
    assert PROFILE.min_positions >= 4
    assert decide(statuses, all_pairs, few, PROFILE, 1).outcome is Outcome.INCONCLUSIVE
    assert decide(statuses, all_pairs, enough, PROFILE, 1).outcome is Outcome.ACCEPT


def rare_means() -> list[int]:
    """Means of draws of the rare honest job."""
    job, random = rare_job(PROFILE), np.random.default_rng(1)
    cells = job.cells(OWN, "bf16")
    return [cells.at(challenged(job, MANY, random)).mean for _ in range(20)]


def test_power_a_cell_thatCountsInFull_wouldRefuseARareText_byItsMean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert max(rare_means()) < PROFILE.mean_slash_many
    assert np.median(rare_means()) < PROFILE.mean_refund_many
    monkeypatch.setattr(verillm.statistics, "MOST_RATIO", 100 * PPM)
    assert min(rare_means()) > PROFILE.mean_refund_many


def test_power_a_cell_thatCountsForLess_letsInt8Pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verillm.statistics, "MOST_RATIO", 3 * PPM // 2)
    found = violations(PROFILE)
    assert "int8_row is not slashed" in found and "int8_group passes" in found
