"""The lab's fast verdicts against the real ones, and its counts against arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from tests.unit.verifier.lab import profile, spec_of
from tests.unit.verillm.builders import noisy
from verillm.engine.tiny import write_folder
from verillm.errors import InputError
from verillm.evidence import CheckedRequest, Evidence, PartyStates
from verillm.head import HeadRows
from verillm.roughness import Scale
from verillm.sequential import Suspicion, Table
from verillm.statistics import States, to_floats
from verillm.types import Hash32, JobId, Outcome, Reason
from verillm.verdict import judge
from verillm_verifier.attacks import states
from verillm_verifier.lab import experiment, pooled, reach
from verillm_verifier.lab.cases import Case, View
from verillm_verifier.lab.experiment import Lab, judge_trial, sequential
from verillm_verifier.lab.figures import Share, interval
from verillm_verifier.lab.honest import CASTS, WORKERS, Runs, run
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import HONEST, TITLES, inferencers
from verillm_verifier.lab.records import Record
from verillm_verifier.lab.study import CHEATS, DECODERS, LENGTHS, Group, Study, collect
from verillm_verifier.lab.trials import Role, Trial, tokens_needed
from verillm_verifier.lab.views import nudged

POSITIONS = (1, 3, 5, 9, 12, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("lab") / "tiny")


@pytest.fixture(scope="module")
def lab(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    study = Study(
        folder,
        "tiny",
        prompts=2,
        cheat_jobs=2,
        subtle_jobs=2,
        new_tokens=12,
        cheats=("int4", "int8_row", "lukewarm", "temperature"),
        decoders=(DECODERS[0], DECODERS[-1]),
    )
    groups = collect(study, tmp_path_factory.mktemp("runs"), lambda _: None)
    return Lab(folder, profile(2), groups)


@pytest.fixture(scope="module")
def cases(lab: Lab) -> Iterator[list[Case]]:
    yield [*lab.cases(HONEST), *lab.cases("int4"), *lab.cases("temperature")]


def party(case: Case, name: str) -> PartyStates:
    """A view as the evidence module would have read it."""
    view = case.views[name]
    rows = list(POSITIONS)
    shown = States(POSITIONS, view.slices[rows], view.finals[rows])
    return PartyStates((shown,), (view.finals[case.prompt_tokens - 1 :],))


@pytest.mark.parametrize("shown", [OWN, "bf16"])
@pytest.mark.parametrize(
    "committee", [("bf16",) * 3, ("bf16", "fp32", "fp32"), ("fp32", OWN, "bf16")]
)
def test_the_fast_verdict_isTheRealOne(
    cases: list[Case], folder: Path, shown: str, committee: tuple[str, ...]
) -> None:
    spec = replace(spec_of(folder), profile=cases[0].profile)
    for case in cases:
        item = case.item
        request = CheckedRequest(0, item.request, case.output, item.seed, POSITIONS)
        parties = tuple(party(case, name) for name in (shown, *committee))
        real = judge(
            Evidence(JobId(Hash32(bytes(32))), spec, (request,), parties), HeadRows(folder)
        )
        fast = case.verdict(shown, committee, POSITIONS)
        assert (fast.outcome, fast.reason) == (real.outcome, real.reason)
        assert fast.suspects == real.suspects
        assert fast.details.pairs == real.details.pairs


def test_power_the_lab_seesInt4ByItsStates_andColdSamplingByItsTokens(lab: Lab) -> None:
    int4 = judge_trial(lab, Trial("int4", "", Role.INFERENCER, "int4"), 5)
    assert int4.results[0].caught.value == 1.0
    assert set(int4.results[0].verdicts) == {(Outcome.SLASH, Reason.STATES_DIFFER)}
    cold = judge_trial(lab, Trial("temperature", "", Role.INFERENCER, "temperature"), 5)
    assert {reason for _, reason in cold.results[0].verdicts} & {
        Reason.MARGIN_MAX,
        Reason.MARGIN_MEAN,
    }


def test_of_a_cheat_thatTokensShow_longAnswersAreJudgedByThemselves(lab: Lab) -> None:
    longest = max(case.new_tokens for case in lab.cases("temperature"))
    trial = Trial("", "", Role.INFERENCER, "temperature", least=longest)
    wanted = [case for case in lab.cases("temperature") if case.new_tokens == longest]
    row = judge_trial(lab, trial, 2)
    assert (row.jobs, row.tokens) == (len(wanted), longest * len(wanted))
    assert row.results[0].caught.draws == 2 * len(wanted)
    long = [trial for trial in inferencers(lab.cheats) if trial.least]
    assert [(trial.group, trial.least) for trial in long] == [("temperature", 64)]
    both = [trial.group for trial in inferencers(["windowed", "temperature"]) if trial.least]
    assert both == ["windowed", "temperature"]


def test_a_lying_verifier_isNamed_andTheJobAccepted(lab: Lab) -> None:
    trial = Trial("garbage", "", Role.VERIFIER, HONEST, fixed=("garbage",))
    row = judge_trial(lab, trial, 5)
    assert row.results[0].caught.value == 1.0
    honest = Trial("honest", "", Role.VERIFIER, HONEST, fixed=("bf16",))
    assert judge_trial(lab, honest, 5).results[0].caught.value == 0.0


def test_another_seed_isCaughtByItsTokens(lab: Lab) -> None:
    trial = Trial("other seed", "", Role.INFERENCER, HONEST, seed=True)
    row = judge_trial(lab, trial, 2)
    assert row.results[0].caught.value == 1.0 and row.positions is None
    assert tokens_needed(lab.cases(HONEST, True), ("bf16",), 1) in (1, 2, 4, 8)


def test_nudged_states_winEveryToken_andLookHonest(lab: Lab) -> None:
    for case in lab.cases("int4"):
        assert max(case.margins(("nudged",)).margins) <= 1_000
        assert max(case.margins(("bf16",)).margins) > 100_000


def test_a_view_thatIsNotFinite_isJudgedAsSuch(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    broken = case.views[OWN].finals.copy()
    broken[3, 0] = 0x7FC0
    views = {**case.views, "broken": View(case.views[OWN].slices, broken)}
    bad = Case(case.item, case.output, views, case.profile, lab.head)
    verdict = bad.verdict("broken", ("bf16",) * 3, POSITIONS)
    assert (verdict.outcome, verdict.reason) == (Outcome.SLASH, Reason.NON_FINITE)


def test_the_sequentialTest_isFittedOnOtherJobsThanItJudges(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled, "RUNS", 10)
    monkeypatch.setattr(pooled, "MOST_TOKENS", 2_000)
    monkeypatch.setattr(pooled, "QUIET_TOKENS", 24)
    monkeypatch.setattr(pooled, "LEAST_QUIET", 2)
    table, alarms, quiet = sequential(lab)
    assert table is not None and set(table.ratios) == {"int8_row", "lukewarm"}
    judged = sum(case.new_tokens for case in lab.cases("int8_row"))
    assert {each.tokens for each in alarms if each.cheat == "int8_row"} == {judged}
    assert {each.setup for each in quiet} == set(lab.honest)
    assert all(each.highest < 1e5 for each in quiet)
    assert {each.jobs for each in quiet} == {2}
    for each in quiet:
        tokens = sum(case.new_tokens for case in lab.cases(each.setup)[1::2])
        assert each.at_hand == len(pooled.CLIQUES) * tokens


def test_no_job_ofACheat_isJudgedByATable_thatHasSeenIt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, set[tuple[int, ...]]] = {}
    judged: list[tuple[set[tuple[int, ...]], tuple[int, ...]]] = []
    real = pooled.fit_table

    def fit_table(
        honest: Sequence[pooled.Told], cheats: Mapping[str, Sequence[pooled.Told]]
    ) -> Table:
        table = real(honest, cheats)
        seen[id(table)] = {job.leads for jobs in cheats.values() for job in jobs}
        tables.append(table)
        return table

    def alarms(
        name: str, clique: str, jobs: Sequence[pooled.Told], by: Sequence[Table], seed: int
    ) -> tuple[pooled.Alarm, ...]:
        judged.extend((seen[id(by[at % len(by)])], job.leads) for at, job in enumerate(jobs))
        return ()

    tables: list[Table] = []
    monkeypatch.setattr(pooled, "fit_table", fit_table)
    monkeypatch.setattr(pooled, "alarms", alarms)
    table, _, _ = sequential(lab)
    everything = seen[id(table)]
    assert len(tables) == 3 and len(judged) > 4
    for known, leads in judged:
        assert leads in everything and leads not in known


def test_a_worker_thatDoesEachJobOnce_isSuspectedInOrder_byEachOfThem() -> None:
    table = Table((0,), {"cheat": (2.0, -0.5)}, Scale(1_000_000, 1_000_000))
    calm, odd = pooled.Told((9_000_000,) * 2, (10**12,)), pooled.Told((-9_000_000,), (10**12,))
    told = [calm, odd, odd, calm]
    suspicion, reached = Suspicion(), []
    for job in told:
        suspicion = suspicion.after(table.roughness.scaled(job.leads, job.squares), table)
        reached.append(suspicion.value)
    found = pooled.quiet("a setup", "", told, table, 1)
    assert found.once == max(reached) > reached[0]
    assert found.at_hand == suspicion.tokens == 6
    assert found.highest > found.once


@pytest.fixture(scope="module")
def kept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Jobs of a certificate: of the first block of units, which is even, and of the second."""
    runs = Runs(folder, profile(2), tmp_path_factory.mktemp("certify"), "tiny", 8, 3)
    block = len(WORKERS)
    run(runs, (0, 1, block, block + 1, 2 * block), lambda: False, lambda _: None)
    return list(runs.kept())


def test_the_sequentialTest_isFittedOnEvenBlocksOfUnits_andJudgesOddOnes_andTheLab(
    lab: Lab, kept: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, judged = _fitted_and_judged(lab, kept, monkeypatch)
    block = len(WORKERS)
    even = [each for each in kept if each.about.unit in (0, 1, 2 * block)]
    odd = [each for each in kept if each.about.unit in (block, block + 1)]
    assert len(even) > len(odd) > 0 and len(even) + len(odd) == len(kept)
    assert [told.leads for told in fitted] == [each.leads for each in even]
    for at in (0, 1):
        mine = [each.leads for each in odd if each.about.unit == block + at]
        kinds = ", ".join(CASTS[(block + at) % len(CASTS)])
        for verifiers in ("", kinds):
            found = [told.leads for told in judged[WORKERS[at].name, verifiers]]
            assert found == mine, verifiers
    for setup in lab.honest:
        each = [case.leads(("bf16",)) for case in lab.cases(setup)]
        assert [told.leads for told in judged[setup, "bf16"]] == each
        assert len(judged[setup, ""]) == 2 * len(each)
    setups = {*lab.honest, *(each.name for each in WORKERS[:2])}
    assert {setup for setup, _ in judged} == setups | {experiment.EVERY}
    assert [told.leads for told in judged[experiment.EVERY, ""]] == [each.leads for each in odd]


def test_the_sequentialTest_withoutACertificate_isFittedOnHalfOfTheLabsHonestJobs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, judged = _fitted_and_judged(lab, (), monkeypatch)
    for setup in lab.honest:
        even, odd = (
            [case.leads(("bf16",)) for case in lab.cases(setup)[start::2]] for start in (0, 1)
        )
        assert [told.leads for told in judged[setup, "bf16"]] == odd
        assert set(even) <= {told.leads for told in fitted}
    assert len(fitted) == sum(len(jobs) for (_, kinds), jobs in judged.items() if not kinds)


def _fitted_and_judged(
    lab: Lab, kept: Sequence[Record], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[pooled.Told], dict[tuple[str, str], list[pooled.Told]]]:
    """What honest jobs a table is fitted on, and which are judged by it, by setup and kinds."""
    fitted: list[pooled.Told] = []
    judged: dict[tuple[str, str], list[pooled.Told]] = {}

    def fit_table(
        honest: Sequence[pooled.Told], cheats: Mapping[str, Sequence[pooled.Told]]
    ) -> Table:
        fitted[:] = honest
        return Table((0,), {name: (0.0, 0.0) for name in cheats}, Scale(1, 1))

    def quiet(
        setup: str, verifiers: str, told: Sequence[pooled.Told], table: Table, seed: int
    ) -> pooled.Quiet:
        assert table.edges == (0,) and seed == experiment.SEED
        judged[setup, verifiers] = list(told)
        return pooled.Quiet(setup, verifiers, len(told), 0, 0, 0.0, 0, 0.0)

    monkeypatch.setattr(pooled, "fit_table", fit_table)
    monkeypatch.setattr(pooled, "quiet", quiet)
    monkeypatch.setattr(pooled, "RUNS", 1)
    monkeypatch.setattr(pooled, "MOST_TOKENS", 1)
    monkeypatch.setattr(pooled, "LEAST_QUIET", 1)
    sequential(lab, kept)
    return fitted, judged


def test_a_workerOfFewJobs_isNotJudged(
    lab: Lab, kept: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [each for each in kept if each.about.unit == len(WORKERS)]
    monkeypatch.setattr(pooled, "RUNS", 1)
    monkeypatch.setattr(pooled, "MOST_TOKENS", 1)
    monkeypatch.setattr(pooled, "QUIET_TOKENS", 1)
    for least, is_there in ((len(odd), True), (len(odd) + 1, False)):
        monkeypatch.setattr(pooled, "LEAST_QUIET", least)
        setups = {(each.setup, each.verifiers) for each in sequential(lab, kept)[2]}
        assert ((WORKERS[0].name, "") in setups) is is_there


def test_an_alarm_isSoughtInBothManners_andNoSoonerWhereStatesAreAsRoughAsHonestOnesGet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pooled, "RUNS", 40)
    random = np.random.default_rng(3)
    smooth, shaky = (
        [
            pooled.Told(_ties(random, 40_000 * factor), tuple(_squares(random, 10_000)))
            for _ in range(400)
        ]
        for factor in (1, 2)
    )
    rough = [pooled.Told(_ties(random, 80_000), tuple(_squares(random, 20_000))) for _ in smooth]
    table = pooled.fit_table([*smooth, *rough], {"cheat": shaky})
    plain, hidden = pooled.alarms("cheat", "mixed", shaky[::2], [table], 5)
    assert (plain.states, hidden.states) == (pooled.PLAIN, pooled.ROUGH)
    for each in (plain, hidden):
        assert (each.cheat, each.clique, each.tokens) == ("cheat", "mixed", 200 * 64)
    assert plain.median is not None and plain.ninth is not None and plain.median <= plain.ninth
    assert hidden.median is None or hidden.median > 2 * plain.median
    assert hidden.ninth is None or hidden.ninth > 2 * plain.ninth
    most = (table.roughness.most**2,) * 64
    shown = [pooled.Told(each.leads, most) for each in shaky[::2]]
    assert hidden == replace(
        pooled.alarms("cheat", "mixed", shown, [table], 5)[0], states=pooled.ROUGH
    )


def _ties(random: np.random.Generator, noise: float) -> tuple[int, ...]:
    """Leads of which each is lost where noise is more than its distance."""
    apart = random.uniform(0.0, 400_000.0, 64)
    lost = random.normal(0.0, noise, 64) > apart
    return tuple(np.where(lost, -apart, apart).astype(int).tolist())


def _squares(random: np.random.Generator, rough: int) -> list[int]:
    found: list[int] = ((rough * random.uniform(0.8, 1.2, 12)) ** 2).astype(int).tolist()
    return found


def test_a_scale_isOfJobsWithEnoughPositions_orElseOfAll() -> None:
    jobs = [pooled.Told((), (rough**2,) * 8) for rough in range(100, 2_200, 100)]
    few = [pooled.Told((), (10**12,) * 7), pooled.Told((), ())]
    assert pooled.scale_of([*few, *jobs]) == Scale(1_100, 2_000)
    assert pooled.scale_of(few) == Scale(10**6, 10**6)
    assert pooled.scale_of([pooled.Told((), (0,) * 8)]) == Scale(1, 1)


@pytest.mark.parametrize(
    "clique", [("one",), ("one", "two"), ("one", "two", "three"), ("one", OWN)]
)
def test_squares_areThoseOfTheStates_atTheDrawnPositionsThatChoseTokens(
    lab: Lab, clique: tuple[str, ...]
) -> None:
    """Each view rounds otherwise, so that what members differ by among each other counts."""
    for honest in lab.cases(HONEST):
        own = honest.views[OWN]
        views = {OWN: own} | {
            name: View(own.slices, noisy(own.finals, key))
            for key, name in enumerate(("one", "two", "three"))
        }
        case = Case(honest.item, honest.output, views, honest.profile, lab.head)
        first = case.prompt_tokens - 1
        found = case.squares(OWN, clique, (first + 4, 2, first, first - 1))
        finals = {
            name: to_floats(view.finals).astype(np.float64) for name, view in case.views.items()
        }
        expected = [
            _apart(finals[OWN][at], np.mean([finals[name][at] for name in clique], axis=0)) ** 2
            for at in (first, first + 4)
        ]
        assert min(expected) > 0
        assert found == pytest.approx(expected, rel=0.02)


def test_a_keptJob_hasTheSquaresOfItsDistances_andNoneToAViewOfItsOwn(kept: list[Record]) -> None:
    record = kept[0]
    first = record.prompt_tokens - 1
    to_fp32, among = (record.apart(one, "fp32")[[first, first + 1], -1] for one in (OWN, "bf16"))
    assert record.about.checkers == ("bf16", "fp32") and to_fp32.any()
    assert record.squares(OWN, ("fp32",), (first + 1, first)) == tuple(np.square(to_fp32))
    both = np.square(among) // 2 - np.square(among) // 4
    assert record.squares("bf16", ("bf16", "fp32"), (first + 1, first)) == tuple(both)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """How far two states are apart, ppm."""
    return 1e6 * sqrt(2 * float(((a - b) ** 2).sum()) / float((a**2 + b**2).sum()))


def test_every_cheat_ofTheLab_hasATitle() -> None:
    assert sorted(CHEATS) == sorted(TITLES)


def test_a_cheat_withoutAPromptOfItsLength_isNotRun(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LENGTHS, "int4", range(1 << 20, 1 << 21))
    study = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=("int4",), decoders=DECODERS[:1])
    assert all(group.is_honest for group in collect(study, tmp_path, lambda _: None))


def test_a_group_withoutRuns_isRunOnceOnly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=(), decoders=DECODERS[:1])
    first = list(collect(study, tmp_path, lambda _: None))

    _forbid_runs(monkeypatch)
    second = list(collect(study, tmp_path, lambda _: None))
    assert [_digest(group) for group in first] == [_digest(group) for group in second]


def test_a_lab_ofWhatIsKept_runsNothing_andTakesWholePartsOnly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Study(folder, "tiny", prompts=1, new_tokens=3, cheats=("int4",), decoders=DECODERS[:2])
    with pytest.raises(InputError, match="no honest work is kept"):
        list(collect(replace(asked, only_kept=True), tmp_path, lambda _: None))
    run = list(collect(replace(asked, cheat_jobs=2), tmp_path, lambda _: None))
    for name in ("bf16 rows 1, mixed, checked by fp32", f"{HONEST}, checked by int4"):
        next(tmp_path.glob(f"*/{name}.npz")).unlink()
    _forbid_runs(monkeypatch)
    told: list[str] = []
    kept = list(collect(replace(asked, only_kept=True), tmp_path, told.append))
    assert [group.name for group in kept] == [
        group.name for group in run if group.name != "bf16 rows 1, mixed"
    ]
    assert "quantised int4" in run[0].checks and "quantised int4" not in kept[0].checks
    assert [_digest(group) for group in kept if group.name == "int4"] == [
        _digest(group) for group in run if group.name == "int4"
    ]
    assert told[-1].startswith(f"[{len(told)}/{len(told)}]")
    next(tmp_path.glob("*/int4 from 0 of 2, checked by fp32.npz")).unlink()
    left = collect(replace(asked, only_kept=True), tmp_path, lambda _: None)
    assert all(group.is_honest for group in left)


def test_power_a_cheat_isBeyondTheNoisiestHonestDraw_andHonestWorkIsNot(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "LONG", 12)
    honest, cheats = lab.cases(HONEST), {"cheat": lab.cases("int4"), "honest": lab.cases(HONEST)}
    found = {(each.cheat, each.kind): each for each in reach.reaches(honest, cheats, 1)}
    assert found["cheat", "bf16"].beyond == 1.0 and found["cheat", "fp32"].beyond == 1.0
    assert found["honest", "bf16"].beyond == found["honest", "fp32"].beyond == 0.0
    monkeypatch.setattr(reach, "LONG", 13)
    assert reach.reaches(honest, cheats, 1) == ()


def test_forged_states_differFromTheirModel(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    for name in ("copied", "perturbed", "shuffled", "garbage", "replayed"):
        assert case.views[name].finals.shape == case.views[OWN].finals.shape
        assert not np.array_equal(case.views[name].finals, case.views[OWN].finals)
    assert states.perturb_states(case.views[OWN].finals).dtype == np.uint16


def test_nudging_aTokenThatWinsAlready_changesNothing(lab: Lab) -> None:
    case = lab.cases(HONEST)[0]
    same = nudged(case.views[OWN], case.item, case.output, lab.head, lab.rows)
    assert np.array_equal(same.finals, case.views[OWN].finals)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(10, 10, 0.6915, 1.0), (0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129)],
)
def test_intervals_areClopperAndPearsons(hits: int, count: int, low: float, high: float) -> None:
    assert interval(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_a_share_countsJobs_notDraws() -> None:
    share = Share.of([1.0, 1.0, 0.5, 0.5], 100)
    assert (share.value, share.draws, share.jobs) == (0.75, 400, 4)
    assert share.low == pytest.approx(interval(3, 4)[0])


def _digest(group: Group) -> tuple[object, ...]:
    return group.name, [job.tokens for job in group.jobs], sorted(group.checks)


def _forbid_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("verillm_verifier.lab.study.decode", forbidden)
    monkeypatch.setattr("verillm_verifier.lab.study.prefill", forbidden)
