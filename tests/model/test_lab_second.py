"""Nothing is tuned to one model: a random Qwen2 is calibrated and judged by the same commands."""

import pytest

from verillm.engine.random_model import write_folder
from verillm.model import CheckProfile
from verillm.schema import from_json
from verillm.types import Outcome, Reason
from verillm_verifier.calibrate import calibrate
from verillm_verifier.lab.experiment import Lab, judge_trial
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import honest, inferencers
from verillm_verifier.lab.study import DECODERS, Study, collect
from verillm_verifier.lab.trials import Trial
from verillm_verifier.runs import Plan

pytestmark = pytest.mark.slow
DRAWS = 5
CHEATS = ("int4", "skipped", "temperature", "cache8", "forgot_one", "windowed", "whispered")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    home = tmp_path_factory.mktemp("second")
    folder = write_folder(home / "random-qwen2")
    plan = Plan(folder, prompts=6, new_tokens=48, cheats=())
    found = calibrate(plan, home / "calibration")
    profile = from_json(CheckProfile, found["profile"], "profile")
    study = Study(
        folder,
        prompts=4,
        cheat_jobs=4,
        subtle_jobs=4,
        new_tokens=48,
        cheats=CHEATS,
        decoders=(DECODERS[0], DECODERS[-1]),
    )
    return Lab(folder, profile, collect(study, home / "lab", lambda _: None))


@pytest.fixture(scope="module")
def trials(lab: Lab) -> dict[str, Trial]:
    return {trial.name: trial for trial in [*honest(lab.honest), *inferencers(lab.cheats)]}


def test_honest_jobs_thatNoThresholdHasSeen_areNeverSlashed(
    lab: Lab, trials: dict[str, Trial]
) -> None:
    for name in lab.honest:
        for result in judge_trial(lab, trials[name], DRAWS).results:
            assert {outcome for outcome, _ in result.verdicts} <= {Outcome.ACCEPT, Outcome.REFUND}
            assert result.caught.value < 0.3, (name, result.verdicts)


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("int4", {Reason.STATES_DIFFER}),
        ("skipped", {Reason.STATES_DIFFER}),
        ("whispered", {Reason.STATES_DIFFER}),
        ("temperature", {Reason.MARGIN_MAX, Reason.MARGIN_MEAN}),
        ("prefilled int4", {Reason.MARGIN_MAX, Reason.MARGIN_MEAN}),
        ("other seed", {Reason.MARGIN_MAX}),
    ],
)
def test_power_a_cheat_isCaughtForItsReason(
    lab: Lab, trials: dict[str, Trial], name: str, reasons: set[Reason]
) -> None:
    for result in judge_trial(lab, trials[name], DRAWS).results:
        assert result.caught.value > 0.95
        assert {reason for _, reason in result.verdicts} - {Reason.NONE} <= reasons


def test_a_cacheThatForgets_leavesThePromptsStatesTrue_andChangesTheRest(lab: Lab) -> None:
    for name in ("forgot_one", "windowed"):
        for case in lab.cases(name):
            over = case.cells(OWN, "bf16").over
            assert not over[1 : case.prompt_tokens].any()
        longest = max(lab.cases(name), key=lambda case: case.prompt_tokens)
        sums = longest.cells(OWN, "bf16").sums
        prompt, rest = sums[4 : longest.prompt_tokens], sums[longest.prompt_tokens :]
        assert rest.mean() > 1.5 * prompt.mean()
