"""`verillm-audit lab --game`: record traffic, guess roles from it, write down how that went."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verillm.engine import cache_home
from verillm.errors import InputError, VeriLLMError
from verillm.files import make_room, write_atomically
from verillm_verifier.game.traffic import Traffic, read

HIDING: Final = ["--kind", "conversations", "--shuffle-seconds", "140", "--rate", "0.3"]
PAPER: Final = ["--paper", "--shuffle-seconds", "120", "--rate", "1"]
PLAIN: Final = ["--kind", "questions", "--shuffle-seconds", "0", "--fair-turns", "--rate", "0.3"]
"""A network that hides roles; the same on paper, as fast as defaults want; one that hides less."""


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="verillm-audit lab --game", description=__doc__)
    options.add_argument("--hiding", type=Path, help="recorded traffic (default: record it)")
    options.add_argument("--plain", type=Path, help="the same, of a network that hides less")
    options.add_argument("--without-plain", action="store_true", help="and do not record it")
    options.add_argument("--paper-jobs", type=int, default=1500, help="jobs to reckon with")
    options.add_argument("--jobs", type=int, default=400, help="jobs to record")
    options.add_argument("--content-tasks", type=int, default=400, help="prompts to run")
    options.add_argument("--work", type=Path, default=cache_home() / "game", help="recordings")
    options.add_argument("--out", type=Path, help="write the page here")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the game; 0 if it could be played, whoever won."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except VeriLLMError as error:
        _say(f"{error} {error.remedy}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    from verillm_verifier.game.report import play, write

    if options.out is not None:
        make_room(options.out)
    hiding = _traffic(options, options.hiding, "hiding", options.jobs, HIDING)
    paper = _traffic(options, None, "paper", options.paper_jobs, PAPER)
    plain = None
    if not options.without_plain:
        plain = _traffic(options, options.plain, "plain", options.jobs // 3, PLAIN)
    page = write(play(hiding, paper, plain, options.content_tasks, _say))
    if options.out is None:
        _say(page)
    else:
        write_atomically(options.out, page.encode())
        _say(f"wrote {options.out}")


def _traffic(
    options: argparse.Namespace, given: Path | None, name: str, jobs: int, how: Sequence[str]
) -> Traffic:
    path: Path = given or options.work / f"{name}.json"
    if given is None:
        options.work.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "verillm_node.cli", "traffic", "--jobs", str(jobs)]
        words += ["--dir", str(options.work / "net"), *how]
        done = subprocess.run([*words, "--out", str(path)], check=False)
        if done.returncode:
            raise InputError(f"no traffic could be recorded (exit code {done.returncode})")
    return read(path)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
