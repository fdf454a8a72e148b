"""The game finds every leak that is planted, and none where roles are drawn alike."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from verillm.engine import open_engine
from verillm.engine.tiny import tiny_spec, write_folder
from verillm.errors import InputError
from verillm.hashing import sha
from verillm.head import HeadRows
from verillm.request import Sampling
from verillm.task import Item
from verillm_node.paper import Paper
from verillm_verifier.game.adversary import Guess, guess
from verillm_verifier.game.content import _drawn
from verillm_verifier.game.features import fields, timing
from verillm_verifier.game.plant import LEAKS
from verillm_verifier.game.report import Game, Round, attack, both, first_jobs, write
from verillm_verifier.game.traffic import Sample, Traffic, parse, read
from verillm_verifier.replay import local_task

JOBS = 300


@cache
def world(jobs: int = JOBS) -> Traffic:
    """Traffic on paper, shaped as a scheduler shapes it."""
    return parse(Paper(jobs, 1.0, 90.0, 8, seed=7).record())


# ── Power ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("leak", LEAKS)
def test_power_a_planted_leak_is_found(leak: str) -> None:
    assert attack(LEAKS[leak](world()), both).low > 0.1


def test_shaped_traffic_gives_an_adversary_next_to_nothing() -> None:
    found = attack(world(), both)
    assert found.advantage < 0.05
    assert found.low < 0.02


def test_a_certain_sign_is_worth_one_half_and_noise_nothing() -> None:
    roles = np.array([False, True, True, True] * 100)
    jobs = [str(number // 4) for number in range(400)]
    noise = np.random.default_rng(3).normal(size=(400, 4))
    certain = guess(np.column_stack([noise, roles]), roles, jobs)
    assert certain.advantage == 0.5
    assert certain.auc == 1.0
    nothing = guess(noise, roles, jobs)
    assert nothing.low <= 0 < 0.1 > nothing.advantage


def test_roles_that_only_a_job_in_training_tells_are_not_guessed() -> None:
    # A feature that names the job: whoever was trained on the same job would know all its tasks.
    roles = np.array([n % 2 == 0 for n in range(200) for _ in range(4)])
    jobs = [str(n) for n in range(200) for _ in range(4)]
    name = np.random.default_rng(5).permutation(200)[np.repeat(np.arange(200), 4)]
    assert guess(name[:, None].astype(float), roles, jobs).advantage < 0.1


def test_too_little_traffic_is_no_game() -> None:
    with pytest.raises(InputError):
        guess(np.zeros((8, 1)), np.array([False, True] * 4), list("aabbccdd"))


# ── What is known when ───────────────────────────────────────────────────────────────────────────
def test_no_number_comes_from_the_future() -> None:
    traffic = world()
    whole = timing(traffic)
    for place in (5, 100, 400, 700, 1100):
        now = traffic.arrivals[place].at
        jobs = {
            name: replace(job, sealed=job.sealed if job.sealed <= now else math.inf)
            for name, job in traffic.jobs.items()
            if job.posted < now
        }
        past = replace(traffic, arrivals=traffic.arrivals[: place + 1], jobs=jobs)
        assert np.array_equal(timing(past)[-1], whole[place])


def test_roles_are_in_no_field() -> None:
    traffic = world()
    turned = tuple(replace(each, verifies=not each.verifies) for each in traffic.arrivals)
    assert np.array_equal(fields(replace(traffic, arrivals=turned)), fields(traffic))


def test_jobs_are_kept_whole() -> None:
    fewer = first_jobs(world(), 101)
    assert len(fewer.arrivals) == 100
    assert len({each.job for each in fewer.arrivals}) == 25


# ── Content ──────────────────────────────────────────────────────────────────────────────────────
def test_a_prompt_that_ends_with_the_seeds_own_answer_is_drawn_again(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    engine = open_engine(folder, kind="tiny")
    engine.start()
    seed, prompt = sha(b"seed"), tuple(b"tell me something")
    item = Item(bytes(32), prompt, 24, Sampling.of(), seed)
    trace = engine.submit(local_task((item,)), lambda *_: None).result(60).items[0]
    answer = tuple(trace.output)
    head, rule = HeadRows(folder), (1_000_000, 0, 1_000_000, 0)
    assert tiny_spec(folder).context > len(prompt) + len(answer)
    again, _ = _drawn(Sample(prompt + answer[:-1], 8, rule, seed), engine, head)
    asked_for, _ = _drawn(Sample(prompt, 8, rule, seed), engine, head)
    other, _ = _drawn(Sample(prompt + answer[:-1], 8, rule, sha(b"x")), engine, head)
    engine.close()
    assert again == 1.0
    assert max(asked_for, other) < 0.5


# ── In and out ───────────────────────────────────────────────────────────────────────────────────
def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    document = Paper(30, 1.0, 90.0, 8, seed=7).record()
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps(document))
    assert read(path) == world(30)
    assert len(read(path).arrivals) == 4 * len(read(path).jobs) == 120
    for broken in ("", "{}", "[]", '{"workers": 1}'):
        path.write_text(broken)
        with pytest.raises(InputError):
            read(path)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Guess(0.01, 0.0, 0.04, 0.52, "trees", 400, 100), "below the goal with its whole interval"),
        (Guess(0.03, 0.0, 0.06, 0.55, "trees", 400, 100), "below the goal, its interval is not"),
        (Guess(0.30, 0.2, 0.40, 0.90, "trees", 400, 100), "**not below the goal**"),
    ],
)
def test_the_page_says_what_was_reached(found: Guess, said: str) -> None:
    traffic = world(30)
    rounds = tuple(
        Round(name, adversary, found)
        for name in ("hiding", "paper")
        for adversary in ("fields", "timing", "both", "content")
    )
    page = write(Game(traffic, traffic, None, rounds, (Round("a leak", "both", found),)))
    assert page.count(said) == 6
    assert f"{found.advantage:.3f}" in page
    assert "{" not in page
