"""What a calibration saw, as a picture: honest jobs, each cheat, and the thresholds between them.

    python -m verillm_verifier.calibrate_picture PROFILE.json PICTURE.svg

The histograms stand in the profile's record, so that the picture can be drawn from it anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verillm.errors import InputError, MissingTool, VeriLLMError
from verillm.model import LayerProfile
from verillm.statistics import MOST_RATIO
from verillm.types import PPM, Ints
from verillm_verifier.calibrate_states import POSITIONS, Compared, simulate
from verillm_verifier.calibrate_tokens import TokenRow
from verillm_verifier.lab.command import document_of, read_profile, record_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HONEST = "honest"
MEANS = [step * MOST_RATIO // 50 for step in range(51)]
"""Borders of the means of draws, ppm of the honest median."""
MARGINS = [0, *(125 << step for step in range(18))]
"""Borders of the mean margins of jobs, ppm of a logit."""


def histograms(
    compared: Sequence[Compared],
    rows: Sequence[TokenRow],
    layers: Sequence[LayerProfile],
    random: np.random.Generator,
) -> dict[str, Any]:
    """Return the counts of the means of draws and of the jobs' mean margins, of all honest runs
    together and of each cheat.
    """
    means: dict[str, Ints] = {}
    for name, pairs in _by_name((each.is_honest, each.run, each) for each in compared).items():
        means[name] = simulate(pairs, layers, POSITIONS, random).mean
    margins = {
        name: np.array([row.mean for row in of])
        for name, of in _by_name((row.is_honest, row.run, row) for row in rows).items()
    }
    return {
        "means": {"borders": MEANS, "counts": _counts(means, MEANS)},
        "margins": {"borders": MARGINS, "counts": _counts(margins, MARGINS)},
    }


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a calibration's document; MissingTool without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingTool("matplotlib", "a calibration's picture needs verillm[lab]") from error
    with rc_context({"svg.hashsalt": "verillm", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        states, tokens = figure.subplots(1, 2)
        profile, seen = document["profile"], document["calibration"]["histograms"]
        _panel(states, seen["means"], _means_of(profile))
        states.set(title="States", xlabel="mean of a draw, honest medians", ylabel="share of draws")
        states.legend(loc="upper left", fontsize="x-small")
        _panel(tokens, seen["margins"], {"refund": profile["marginMean"]})
        tokens.set(title="Tokens", xlabel="mean margin of a job, logits", ylabel="share of jobs")
        tokens.set_xscale("symlog", linthresh=MARGINS[1] / PPM)
        tokens.set_xlim(0, MARGINS[-1] / PPM)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _by_name(told: Iterable[tuple[bool, str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {HONEST: []}
    for is_honest, run, each in told:
        found.setdefault(HONEST if is_honest else run, []).append(each)
    return found


def _counts(found: Mapping[str, Ints], borders: Sequence[int]) -> dict[str, list[int]]:
    return {
        name: np.histogram(np.minimum(values, borders[-1]), borders)[0].tolist()
        for name, values in found.items()
    }


def _means_of(profile: Mapping[str, Any]) -> dict[str, int]:
    """What jobs of `POSITIONS` are held to."""
    of = "Many" if profile["manyPositions"] else ""
    return {"refund": profile[f"meanRefund{of}"], "slash": profile[f"meanSlash{of}"]}


def _panel(axes: Axes, seen: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    borders = np.array(seen["borders"]) / PPM
    for name, counts in seen["counts"].items():
        share = np.array(counts) / max(1, sum(counts))
        is_honest = name == HONEST
        axes.stairs(share, borders, fill=is_honest, alpha=0.6 if is_honest else 0.9, label=name)
    for (name, limit), style in zip(limits.items(), ("--", "-"), strict=False):
        axes.axvline(limit / PPM, color="k", ls=style, lw=0.9, label=name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the picture of a profile's record."""
    options = argparse.ArgumentParser(prog="calibrate_picture", description=__doc__)
    options.add_argument("profile", type=Path)
    options.add_argument("picture", type=Path)
    asked = options.parse_args(arguments)
    try:
        read_profile(asked.profile)
        if record_of(asked.profile, "histograms") is None:
            raise InputError(f"{asked.profile} has no histograms: calibrate again to draw it")
        draw(document_of(asked.profile), asked.picture)
    except VeriLLMError as error:
        sys.stderr.write(f"{error} {error.remedy}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
