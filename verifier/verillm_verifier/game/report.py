"""All rounds of the game, and `docs/game.md` from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from verillm_verifier.game.adversary import Guess, guess
from verillm_verifier.game.content import content
from verillm_verifier.game.features import Matrix, fields, timing
from verillm_verifier.game.plant import LEAKS
from verillm_verifier.game.traffic import Traffic, steady
from verillm_verifier.machine import machine_line

PAGE: Final = Path(__file__).parent / "page.md"
GOAL: Final = 0.05
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Round:
    """One adversary on one recording."""

    traffic: str
    adversary: str
    guess: Guess


@dataclass(frozen=True, slots=True)
class Game:
    """Everything that the page states."""

    hiding: Traffic
    paper: Traffic
    plain: Traffic | None
    rounds: tuple[Round, ...]
    planted: tuple[Round, ...]


def both(traffic: Traffic) -> Matrix:
    """Return fields and times side by side."""
    return np.hstack([fields(traffic), timing(traffic)])


def play(
    hiding: Traffic, paper: Traffic, plain: Traffic | None, content_tasks: int, say: Say
) -> Game:
    """Let every adversary guess on every recording, and on each planted leak.

    Prompts on paper have no content.
    """
    rounds = []
    for name, traffic in (("hiding", hiding), ("paper", paper), ("plain", plain)):
        if traffic is None:
            continue
        for adversary, see in (("fields", fields), ("timing", timing), ("both", both)):
            rounds.append(_round(name, adversary, see, traffic, say))
        if name != "paper":
            fewer = first_jobs(traffic, content_tasks)
            rounds.append(_round(name, "content", content, fewer, say))
    planted = tuple(
        _round(leak, "both", both, change(hiding), say) for leak, change in LEAKS.items()
    )
    return Game(hiding, paper, plain, tuple(rounds), planted)


def _round(
    name: str, adversary: str, see: Callable[[Traffic], Matrix], traffic: Traffic, say: Say
) -> Round:
    found = attack(traffic, see)
    say(f"{name}, {adversary}: advantage {found.advantage:.3f} ({found.low:.3f}, {found.high:.3f})")
    return Round(name, adversary, found)


def attack(traffic: Traffic, see: Callable[[Traffic], Matrix]) -> Guess:
    """Guess the roles of all arrivals in the steady part of a recording; content has no times."""
    keep = np.array(steady(traffic)) | (see is content)
    roles = np.array([each.verifies for each in traffic.arrivals])
    jobs = np.array([each.job for each in traffic.arrivals])
    return guess(see(traffic)[keep], roles[keep], list(jobs[keep]))


def first_jobs(traffic: Traffic, tasks: int) -> Traffic:
    """Return all tasks of as many jobs as have about so many tasks."""
    kept: set[str] = set()
    count = 0
    sizes: dict[str, int] = {}
    for each in traffic.arrivals:
        sizes[each.job] = sizes.get(each.job, 0) + 1
    for job, size in sizes.items():
        if count + size > tasks:
            break
        kept.add(job)
        count += size
    return replace(traffic, arrivals=tuple(a for a in traffic.arrivals if a.job in kept))


# ── The page ─────────────────────────────────────────────────────────────────────────────────────
def write(game: Game) -> str:
    """Return the page."""
    hiding = game.hiding
    recordings = {"hiding": hiding, "paper": game.paper, "plain": game.plain}
    return PAGE.read_text("utf-8").format(
        about=machine_line("scikit-learn"),
        recordings="\n".join(
            f"* *{name}*: {_recorded(each)}." for name, each in recordings.items() if each
        ),
        rounds=_table(
            ("traffic", "adversary sees", "advantage (95 %)", "AUC", "learner", "tasks"),
            [_row(each) for each in game.rounds],
        ),
        planted=_table(
            ("undone", "advantage (95 %)", "AUC"),
            [
                (each.traffic, _interval(each.guess), f"{each.guess.auc:.3f}")
                for each in game.planted
            ],
        ),
        goal=GOAL,
        verdict=_verdict(game, "hiding"),
        paper_verdict=_verdict(game, "paper"),
        cost=_cost(hiding),
    )


def _recorded(traffic: Traffic) -> str:
    load, arrivals = traffic.load, traffic.arrivals
    waits = f"verification tasks wait up to {load['shuffleSeconds']:g} s"
    turns = "workers take turns" if load["fairTurns"] else "workers by lot"
    workers = len({each.worker for each in arrivals})
    return (
        f"{load['jobs']} jobs ({load['kind']}), {load['rate']:g} a second, {workers} workers, "
        f"{len(arrivals)} tasks; {waits}, {turns}; {_lengths(traffic)}"
    )


def _row(each: Round) -> tuple[str, ...]:
    found = each.guess
    auc = f"{found.auc:.3f}"
    return each.traffic, each.adversary, _interval(found), auc, found.learner, str(found.tasks)


def _interval(found: Guess) -> str:
    return f"{found.advantage:.3f} ({max(found.low, 0):.3f} to {found.high:.3f})"


def _verdict(game: Game, traffic: str) -> str:
    found = {each.adversary: each.guess for each in game.rounds if each.traffic == traffic}
    said = []
    for name in ("fields", "timing", "both"):
        high, point = found[name].high, found[name].advantage
        if high < GOAL:
            how = "below the goal with its whole interval"
        elif point < GOAL:
            how = "below the goal, its interval is not"
        else:
            how = "**not below the goal**"
        said.append(f"{name} {point:.3f}, {how}")
    if "content" in found:
        said.append(f"content {found['content'].advantage:.3f}, **which nothing hides**")
    return "; ".join(said) + "."


def _cost(traffic: Traffic) -> str:
    answers = _answers(traffic)
    cut = [short for _, short in answers]
    return (
        f"{np.mean(cut):.1%} of {len(answers)} answers were cut short; only there a verifier "
        "decodes more than the end token"
    )


def _answers(traffic: Traffic) -> Sequence[tuple[int, bool]]:
    """Length of each job's answer, and whether it was cut: seen from the tasks of both roles."""
    prompts: dict[str, Any] = {each.job: each for each in traffic.arrivals if not each.verifies}
    found = {}
    for each in traffic.arrivals:
        own = prompts.get(each.job)
        if each.verifies and own is not None:
            length = each.length - own.length + 1
            found[each.job] = (length, length >= own.most)
    return list(found.values())


def _lengths(traffic: Traffic) -> str:
    prompts = [each.length for each in traffic.arrivals if not each.verifies]
    low, middle, high = np.quantile(prompts, (0.05, 0.5, 0.95))
    answers = [length for length, _ in _answers(traffic)]
    return (
        f"prompts of {low:.0f} to {high:.0f} tokens (5 to 95 %, median {middle:.0f}), answers of "
        f"{np.mean(answers):.0f} on average"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
