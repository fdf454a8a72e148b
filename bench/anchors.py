"""Ours beside the anchors' ideas on the same runs: bytes, time, detection at equal false positives.

    python bench/anchors.py [--out docs/anchors.md]

Both are re-implemented here from their papers' ideas, without their packages or formats:

* TOPLOC (arXiv 2501.16007): the 128 largest values of the final states of 32 tokens; a verifier
  counts unequal exponents and compares mantissas. Its polynomial only packs these (258 bytes per
  32 tokens in the package), so it is left out, and its time with it.
* Activation-DiFR's idea: the final state of each token projected on few random directions, at
  16 bits; a verifier compares relative distances.
* Ours: seed-chosen slices of every eighth layer and the whole final state, at challenged positions.

The threshold of each is the largest score of an honest job: no false positives among those at hand.
Runs are the detection lab's, kept in its folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verillm.engine import cache_home
from verillm.statistics import to_floats
from verillm.types import Bits
from verillm_verifier.lab.cases import Case
from verillm_verifier.lab.command import read_profile, shipped
from verillm_verifier.lab.experiment import Lab
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import TITLES
from verillm_verifier.lab.study import Study, collect

CHUNK, LARGEST = 32, 128
DIRECTIONS = (8, 32)
CHALLENGED = 16
VERIFIERS = ("bf16", "fp32")
CHEATS = ("int8_row", "int8_group", "fp8", "cache8", "int4", "skipped", "whispered",
          "one_token_off", "forgot_one", "windowed", "temperature")  # fmt: skip
Score = Callable[[Case, str], float]


def generated(case: Case, name: str) -> Bits:
    """Final states that chose the output."""
    return case.views[name].finals[case.prompt_tokens - 1 :]


def largest_values(case: Case, verifier: str) -> float:
    """TOPLOC's comparison: mean mantissa distance where exponents agree, and 128 where not."""
    mine, theirs = generated(case, OWN), generated(case, verifier)
    scores = []
    for start in range(0, len(mine), CHUNK):
        x, y = mine[start : start + CHUNK].ravel(), theirs[start : start + CHUNK].ravel()
        kept = np.argsort(-np.abs(to_floats(x)), kind="stable")[:LARGEST]
        a, b = x[kept].astype(np.int64), y[kept].astype(np.int64)
        same = (a >> 7) == (b >> 7)
        scores.append(float(np.where(same, np.abs((a & 127) - (b & 127)), 128).mean()))
    return float(np.mean(scores))


def projected(directions: int) -> Score:
    """Activation-DiFR's comparison: relative distance of projections, averaged over tokens."""

    def score(case: Case, verifier: str) -> float:
        mine, theirs = (project(generated(case, name), directions) for name in (OWN, verifier))
        apart = np.linalg.norm(mine - theirs, axis=-1) / np.linalg.norm(theirs, axis=-1)
        return float(apart.mean())

    return score


def project(states: Bits, directions: int) -> NDArray[np.float16]:
    """Fingerprints float16 [n, directions]."""
    random = np.random.default_rng(0)
    matrix = random.choice([-1.0, 1.0], (states.shape[-1], directions)).astype(np.float32)
    return (to_floats(states) @ matrix / np.float32(np.sqrt(directions))).astype(np.float16)


def ours(case: Case, verifier: str) -> float:
    """Our mean ratio at challenged positions, one draw."""
    random = np.random.default_rng(len(case.output))
    count = len(case.views[OWN].finals)
    rows = np.append(random.permutation(np.arange(1, count - 1))[: CHALLENGED - 1], count - 1)
    statistics = case.cells(OWN, verifier).at(rows.tolist())
    return max(
        statistics.mean / case.profile.mean_refund,
        statistics.over / (case.profile.over_refund + 1),
    )


def caught(lab: Lab, score: Score, verifier: str) -> tuple[dict[str, float], float]:
    """Share of each cheat's jobs over the honest maximum, and that maximum."""
    honest = [
        score(case, verifier)
        for name in lab.honest
        for case in lab.cases(name)
        if len(case.output) > 8
    ]
    limit = max(honest)
    shares = {
        name: float(np.mean([score(case, verifier) > limit for case in lab.cases(name)]))
        for name in CHEATS
        if name in lab.groups
    }
    return shares, limit


def microseconds(work: Callable[[], object], tokens: int) -> float:
    """Best of five, per token."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / tokens


def methods(case: Case) -> list[tuple[str, Score, str, float, float]]:
    """Name, score, bytes, microseconds to build and to compare per generated token."""
    n = len(case.output)
    finals = generated(case, OWN)
    width = 2 * (case.views[OWN].slices[0].size + finals.shape[1])
    rows: list[tuple[str, Score, str, float, float]] = [
        (
            "largest values (TOPLOC's idea)",
            largest_values,
            "8.1 a token, all tokens",
            microseconds(lambda: np.argsort(-np.abs(to_floats(finals).ravel()))[:LARGEST], n),
            microseconds(lambda: largest_values(case, "bf16"), n),
        )
    ]
    for directions in DIRECTIONS:
        score = projected(directions)
        rows.append(
            (
                f"projection on {directions} (Activation-DiFR's idea)",
                score,
                f"{2 * directions} a token, all tokens",
                microseconds(partial(project, finals, directions), n),
                microseconds(partial(score, case, "bf16"), n),
            )
        )
    fresh = Case(case.item, case.output, case.views, case.profile, None)  # type: ignore[arg-type]

    def compare() -> None:
        fresh.forget()
        ours(fresh, "bf16")

    rows.append(
        (
            "slices and final state (ours)",
            ours,
            f"32 a token committed; {width} at each of {CHALLENGED} challenged positions",
            float("nan"),
            microseconds(compare, len(case.views[OWN].finals)),
        )
    )
    return rows


def table(lab: Lab) -> str:
    """The page."""
    found = methods(lab.cases("int8_row")[0])
    lines = ["| cheat | verifier | " + " | ".join(name for name, *_ in found) + " |"]
    lines.append("| --- " * (2 + len(found)) + "|")
    per = {
        verifier: [caught(lab, score, verifier)[0] for _, score, *_ in found]
        for verifier in VERIFIERS
    }
    for cheat in CHEATS:
        for verifier in VERIFIERS:
            shares = [f"{100 * shares[cheat]:.0f} %" for shares in per[verifier] if cheat in shares]
            if shares:
                lines.append(f"| {TITLES[cheat]} | {verifier} | " + " | ".join(shares) + " |")
    costs = ["| method | bytes | build, µs a token | compare, µs a token |", "| --- " * 4 + "|"]
    costs += [
        f"| {name} | {size} | {build:.1f} | {compare:.1f} |".replace("nan", "hashing only")
        for name, _, size, build, compare in found
    ]
    return "\n".join([*costs, "", *lines]) + "\n"


PAGE = """# Beside the anchors

Written by `python bench/anchors.py --out docs/anchors.md` from the detection lab's runs. The two
anchors' *ideas* are re-implemented (see the script); their packages and formats are not run. One
verifier, one job; each method's threshold is the largest score of an honest job: no false positives
among the jobs at hand (a few dozen honest ones, 6 or 20 of each cheat). Ours also sees the prompt
and three inner layers; the others see the output's final states only, and short outputs set their
thresholds. What they do better: a few bytes for every token, with nothing to open. No method sees
another temperature in states.

{table}"""


def main() -> int:
    """Print the page, or write it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    folder = cache_home() / "models" / "smollm2-135m-instruct"
    if not (cache_home() / "lab").is_dir():
        print("no runs are kept: `make lab` first")
        return 0
    groups = collect(Study(folder), cache_home() / "lab", lambda line: print(line, file=sys.stderr))
    page = PAGE.format(table=table(Lab(folder, read_profile(shipped(folder)), groups)))
    if asked.out:
        asked.out.write_text(page, "utf-8")
    else:
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
