"""`verillm-audit lab`: run the cheats, judge them, write down what came of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from verillm.engine import cache_home
from verillm.engine.describe import compute_roots
from verillm.errors import InputError, VeriLLMError
from verillm.files import make_room, write_atomically
from verillm.model import CheckProfile, check_profile
from verillm.schema import from_json, to_json
from verillm_verifier.machine import machine_line

FIGURES = "detection.json"


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="verillm-audit lab", description=__doc__)
    options.add_argument("--model", type=Path, help="model folder (the default model's)")
    options.add_argument("--profile", type=Path, help="check profile (the one that ships)")
    options.add_argument("--engine", choices=("torch", "tiny"), default="torch")
    options.add_argument("--prompts", type=int, default=32, help="prompts of honest runs")
    options.add_argument("--cheat-jobs", type=int, default=64, help="jobs of each cheat")
    options.add_argument("--subtle-jobs", type=int, default=64, help="of those that hide in one")
    options.add_argument("--new-tokens", type=int, default=64, help="longest answer")
    options.add_argument("--draws", type=int, default=100, help="draws per job and setting")
    options.add_argument("--kept", action="store_true", help="run nothing: judge what is kept")
    options.add_argument("--work", type=Path, help="where runs are kept")
    options.add_argument("--figures", type=Path, help="write the figures here, as JSON")
    options.add_argument("--judged", type=Path, help="take single jobs' verdicts from figures")
    options.add_argument("--out", type=Path, help="write the page here")
    options.add_argument("--also", type=Path, nargs="*", default=[], help="figures of other models")
    options.add_argument("--fixtures", type=Path, help="write what the power tests read")
    options.add_argument("--table", type=Path, help="write the sequential test's table")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lab; a second run goes on from the runs that were kept."""
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


def read_profile(path: Path) -> CheckProfile:
    """Read a profile as `verillm-audit calibrate` writes it."""
    profile = from_json(CheckProfile, document_of(path)["profile"], "profile")
    check_profile(profile, len(profile.layers) - 1)
    return profile


def document_of(path: Path) -> dict[str, Any]:
    """Read the whole file of a profile; InputError if it is none."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"no profile in {path}: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("profile"), dict):
        raise InputError(f"no profile in {path}: it has no part of that name")
    return document


def _run(options: argparse.Namespace) -> None:
    from verillm_verifier.lab.experiment import Lab, as_json, experiment, many_json, over_many
    from verillm_verifier.lab.fixtures import fixtures
    from verillm_verifier.lab.honest import Runs
    from verillm_verifier.lab.report import write
    from verillm_verifier.lab.study import Study, collect

    for path in (options.figures, options.out, options.fixtures, options.table):
        if path is not None:
            make_room(path)
    folder = options.model or cache_home() / "models" / "smollm2-135m-instruct"
    path = options.profile or shipped(folder)
    profile = read_profile(path)
    study = Study(
        folder,
        options.engine,
        prompts=options.prompts,
        cheat_jobs=options.cheat_jobs,
        subtle_jobs=options.subtle_jobs,
        new_tokens=options.new_tokens,
        only_kept=options.kept,
    )
    work = options.work or cache_home() / "lab"
    memory = work / f"votes {folder.name}.json"
    lab = Lab(folder, profile, collect(study, work, _say), memory)
    kept = list(Runs(folder, profile, cache_home() / "certify", options.engine).kept())
    found = {
        "model": {
            "name": folder.name,
            "weights": compute_roots(folder).weights,
            "about": _about(folder),
        },
        "profile": {"hash": _digest(profile), **to_json(profile)},
        "certificate": record_of(path, "certificate"),
        "tail": record_of(path, "tail"),
        "overMany": machine_line(),
        "others": [json.loads(path.read_text("utf-8")) for path in options.also],
    }
    if options.judged is None:
        found |= {"machine": machine_line(), "draws": options.draws}
        found |= as_json(experiment(lab, _say, options.draws, kept))
    else:
        found = judged(options.judged, found) | many_json(over_many(lab, _say, kept))
    outputs: dict[Path | None, Callable[[], str]] = {
        options.figures: lambda: json.dumps(found, indent=1) + "\n",
        options.out: lambda: write(found),
        options.fixtures: lambda: fixtures(lab),
        options.table: lambda: (
            json.dumps({"weights": found["model"]["weights"], **found["table"]}, indent=1) + "\n"
        ),
    }
    for path, make in outputs.items():
        if path is not None:
            write_atomically(path, make().encode())
            _say(f"wrote {path}")


def judged(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an earlier run under the same profile, brought up to date."""
    earlier: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if earlier["profile"]["hash"] != found["profile"]["hash"]:
        raise InputError(f"the jobs of {path} were judged under another profile")
    return earlier | found


def record_of(path: Path, name: str) -> Any:
    """Return a part of a profile's record of its calibration; None if there is none."""
    return document_of(path).get("calibration", {}).get(name)


def shipped(folder: Path) -> Path:
    """Return the profile that ships for a model folder; InputError if none does."""
    import verillm

    path = Path(verillm.__file__).parent / "data" / "profiles" / f"{folder.name}.json"
    if not path.is_file():
        raise InputError(f"no profile ships for {folder.name}: calibrate, then give --profile")
    return path


def _about(folder: Path) -> str:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    kind = (config.get("architectures") or ["unknown"])[0]
    sizes = f"{config['num_hidden_layers']} layers of {config['hidden_size']}"
    return f"{kind}, {sizes}, vocabulary {config['vocab_size']}."


def _digest(profile: CheckProfile) -> str:
    return sha256(json.dumps(to_json(profile), sort_keys=True).encode()).hexdigest()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
