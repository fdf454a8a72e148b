"""Honest jobs in thousands under a profile: how often it refuses one of them, at most.

    verillm-audit certify --model FOLDER --profile PROFILE.json --jobs 3000

Every setup of a worker answers the shipped prompts; other setups check them. Of the first units
`calibrate` takes what honest work is at its rarest, so that they certify nothing and are not run
here (`--tail 0` runs them for a calibration); no threshold has seen the others. Statistics are
kept, states are not; so it may be stopped at any time and goes on from there, and several
processes may share the work (`--part 1/2`). What came of it is written into the profile's record
of its calibration.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from verillm.engine import cache_home
from verillm.errors import InputError, VeriLLMError
from verillm.files import make_room, write_atomically
from verillm_verifier.calibrate_states import POSITIONS
from verillm_verifier.lab.certificate import certificate, judge_all
from verillm_verifier.lab.command import read_profile, record_of
from verillm_verifier.lab.honest import Runs, run
from verillm_verifier.machine import machine_line


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="verillm-audit certify", description=__doc__)
    options.add_argument("--model", type=Path, required=True, help="model folder")
    options.add_argument("--profile", type=Path, required=True, help="as `calibrate` writes it")
    options.add_argument("--jobs", type=int, default=3000, help="of all tokens asked for")
    options.add_argument("--new-tokens", type=int, default=64, help="longest answer")
    options.add_argument("--positions", type=int, default=POSITIONS, help="challenged positions")
    options.add_argument("--prompts", type=int, default=64, help="jobs of a unit")
    options.add_argument(
        "--tail", type=int, help="first units, which thresholds have seen (as the profile says)"
    )
    options.add_argument("--minutes", type=float, help="begin no run after so long")
    options.add_argument("--part", default="1/1", metavar="I/N", help="run every Nth unit only")
    options.add_argument("--threads", type=int, help="threads of this process")
    options.add_argument("--engine", choices=("torch", "tiny"), default="torch")
    options.add_argument("--work", type=Path, help="where statistics are kept")
    options.add_argument("--out", type=Path, help="write the figures here, not into the profile")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, judge all that is kept, write down the bounds."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except VeriLLMError as error:
        _say(f"{error} {error.remedy}")
        return 1
    except KeyboardInterrupt:
        _say("stopped; what has run is kept, the same command goes on from here")
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    profile = read_profile(options.profile)
    make_room(options.out or options.profile)
    if options.tail is None:
        options.tail = (record_of(options.profile, "tail") or {"units": 0})["units"]
    runs = Runs(
        options.model,
        profile,
        options.work or cache_home() / "certify",
        options.engine,
        options.new_tokens,
        options.prompts,
        options.threads,
    )
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    run(runs, _units(runs, options), lambda: end is not None and time.monotonic() >= end, _say)
    records = [record for record in runs.kept() if record.about.unit >= options.tail]
    if not records:
        raise InputError("no honest jobs are kept yet")
    found = certificate(judge_all(records, options.positions), options.new_tokens)
    stated = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine_line(),
        "positions": options.positions,
        **found,
    }
    _write(options, stated)
    _say(table(stated))


def _units(runs: Runs, options: argparse.Namespace) -> Iterator[int]:
    """Yield this part's units, none of the tail's, until enough jobs are kept, whoever ran them."""
    try:
        part, parts = map(int, options.part.split("/"))
    except ValueError as error:
        raise InputError(f"--part {options.part} is not I/N") from error
    if not 0 < part <= parts:
        raise InputError(f"--part {options.part}: there is no such part")
    for unit in count(options.tail + part - 1, parts):
        if runs.long_jobs(options.tail) >= options.jobs:
            return
        yield unit


def _write(options: argparse.Namespace, stated: dict[str, Any]) -> None:
    if options.out is not None:
        _save(options.out, stated)
        return
    document = json.loads(options.profile.read_text("utf-8"))
    document.setdefault("calibration", {})["certificate"] = stated
    _save(options.profile, document)


def _save(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def table(stated: dict[str, Any]) -> str:
    """Return the bounds as text."""
    long, everything = stated["long"], stated["all"]
    return (
        f"{long['jobs']} honest jobs of {stated['tokens']} new tokens: {long['rejected']} refused, "
        f"{long['undecided']} undecided; at most {long['boundRejected']:.2e} are refused (95 %)\n"
        f"{everything['jobs']} honest jobs of any length: {everything['rejected']} refused, "
        f"{everything['undecided']} undecided; at most {everything['boundRejected']:.2e} (95 %)"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
