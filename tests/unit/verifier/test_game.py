"""The game finds every leak that is planted, and none where roles are drawn alike."""

import json
import math
import random
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
from verillm.request import Job as ChainJob, Request, Sampling
from verillm.settlement import least_lock
from verillm.task import Item, verification_prompt
from verillm.types import Hash32
from verillm_node.disguise import asked, blurred, on_grid
from verillm_verifier.game.adversary import Guess, guess
from verillm_verifier.game.content import _drawn
from verillm_verifier.game.features import fields, timing
from verillm_verifier.game.plant import LEAKS
from verillm_verifier.game.report import Game, Round, attack, both, first_jobs, write
from verillm_verifier.game.traffic import Arrival, Job, Sample, Traffic, read
from verillm_verifier.replay import local_task

from ..verillm.builders import CLIENT, SPEC as SMALL

PRICE, KAPPA, SLACK, WORKERS, COMMITTEE, WAIT = 10, 20_000, 750, 8, 3, 90.0
SPEC = replace(SMALL, context=8192, end_tokens=(0,))
JOBS = 300
WARM = Sampling.of()


def _sample(tokens: tuple[int, ...], most: int) -> Sample:
    return Sample(tokens, most, (1_000_000, 0, 950_000, 0), b"\x01" * 32)


def _arrival(
    worker: int, name: str, verifies: bool, at: float, fee: int, sample: Sample
) -> Arrival:
    lock, deadline = least_lock(fee, KAPPA), on_grid(int(at) + SLACK)
    return Arrival(f"w{worker}", name, verifies, at, 0.5, deadline, fee, lock, (sample,))


@cache
def world(jobs: int = JOBS) -> Traffic:
    """Traffic as a scheduler shapes it, with long and varied prompts; no engine, no chain."""
    dice = random.Random(7)
    arrivals, chain, now = [], {}, 1_000_000.0
    for number in range(jobs):
        now += dice.expovariate(1.0)
        request = Request(sha(b""), (5,) * dice.randint(20, 2500), dice.choice((128, 256)), WARM)
        answer = (5,) * dice.randint(4, 40) + (0,)
        fee = PRICE * (len(request.tokens) + request.max_new_tokens)
        name, first = f"0x{number + 1:x}", dice.randrange(WORKERS)
        secret, posted = dice.randbytes(32), math.ceil(now + 1)
        sample = _sample(request.tokens, request.max_new_tokens)
        arrivals.append(_arrival(first, name, False, now, blurred(fee, secret, 0), sample))
        job = ChainJob(CLIENT.address, Hash32(b"q" * 32), Hash32(b"r" * 32), 1, fee, 0, 0)
        found = asked(job, [request], {0: answer}, SPEC, PRICE, 8)
        sample = _sample(verification_prompt(request, answer), found.new_tokens[0])
        drawn = dice.sample([each for each in range(WORKERS) if each != first], COMMITTEE)
        times = [posted + 0.5 + dice.random() * WAIT for _ in drawn]
        for k, (worker, at) in enumerate(zip(drawn, times, strict=True), 1):
            arrivals.append(_arrival(worker, name, True, at, blurred(found.fee, secret, k), sample))
        sealed, lock = math.ceil(max(times) + 1), least_lock(fee, KAPPA)
        deadline = int(now) + SLACK - 300
        chain[name] = Job(name, f"w{first}", posted, sealed, fee, lock, deadline)
    ordered = tuple(sorted(arrivals, key=lambda each: each.at))
    load = {"kind": "paper", "jobs": jobs, "rate": 1.0, "shuffleSeconds": WAIT, "fairTurns": False}
    return Traffic(ordered, chain, PRICE, load, Path())


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
    traffic = world(30)
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps(_recording(traffic)))
    again = read(path)
    assert again.arrivals == traffic.arrivals
    assert again.jobs == traffic.jobs
    for broken in ("", "{}", "[]", '{"workers": 1}'):
        path.write_text(broken)
        with pytest.raises(InputError):
            read(path)


def _recording(traffic: Traffic) -> dict[str, object]:
    chain: list[dict[str, object]] = []
    for job in traffic.jobs.values():
        money = {"fee": str(job.fee), "lock": str(job.lock), "deadline": job.deadline}
        told = {"job": job.job, "worker": job.worker} | money
        chain.append(told | {"event": "posted", "time": job.posted})
        chain.append({"event": "sealed", "time": job.sealed, "job": job.job})
    workers = sorted({each.worker for each in traffic.arrivals})
    tasks = {
        worker: [_task(each) for each in traffic.arrivals if each.worker == worker]
        for worker in workers
    }
    load = {name: traffic.load[name] for name in ("kind", "jobs", "rate")}
    return {
        "load": load,
        "shuffleSeconds": traffic.load["shuffleSeconds"],
        "fairTurns": traffic.load["fairTurns"],
        "unitPrice": str(traffic.price),
        "model": str(traffic.model),
        "workers": [{"operator": worker, "tasks": tasks[worker]} for worker in workers],
        "chain": chain,
    }


def _task(each: Arrival) -> dict[str, object]:
    items = []
    for item in each.items:
        names = ("temperature", "topK", "topP", "minP")
        rule = dict(zip(names, item.sampling, strict=True))
        items.append(
            {
                "tokens": list(item.tokens),
                "maxNewTokens": item.most,
                "sampling": rule,
                "seed": "0x" + item.seed.hex(),
            }
        )
    task = {"deadline": each.deadline, "fee": str(each.fee), "lock": str(each.lock), "items": items}
    where = {"job": each.job, "party": int(each.verifies)}
    return where | {"arrived": each.at, "seconds": each.seconds, "task": task}


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
        for name in ("hiding", "plain")
        for adversary in ("fields", "timing", "both", "content")
    )
    page = write(Game(traffic, traffic, rounds, (Round("a leak", "both", found),)))
    assert page.count(said) == 3
    assert f"{found.advantage:.3f}" in page
    assert "{" not in page
