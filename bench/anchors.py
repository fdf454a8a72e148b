"""Ours beside the anchors' ideas on the same runs: bytes, time, detection at equal false positives.

    python bench/anchors.py [--out docs/anchors.md]

Both ideas are re-implemented here; the TOPLOC package stands beside them where it is installed
(`bench/toploc_package.py` says how):

* TOPLOC (arXiv 2501.16007): the 128 largest values of the final states of 32 tokens; a verifier
  counts unequal exponents and compares mantissas. Its polynomial only packs these (258 bytes per
  32 tokens in the package), so the re-implementation leaves it out, and its time with it.
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
import toploc_package
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
from verillm_verifier.machine import machine_line

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


def packaged(case: Case, verifier: str) -> float:
    """The TOPLOC package's distances, averaged over a job."""
    return toploc_package.score(generated(case, OWN), generated(case, verifier))


def rejected(case: Case, verifier: str) -> bool:
    """What the TOPLOC package's own limits say of a job."""
    return toploc_package.rejects(generated(case, OWN), generated(case, verifier))


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
        statistics.mean / case.profile.refund_tier(len(rows), 1)[0],
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
    if toploc_package.installed() is not None:
        proofs = toploc_package.build(finals)
        rows.append(
            (
                f"TOPLOC package {toploc_package.installed()}",
                packaged,
                f"{len(proofs[0])} for each {CHUNK} tokens begun",
                microseconds(lambda: toploc_package.build(finals), n),
                microseconds(lambda: toploc_package.verify(finals, proofs), n),
            )
        )
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


def own_limits(lab: Lab) -> str:
    """Each cheat's share of jobs that the TOPLOC package rejects by its own limits."""
    if toploc_package.installed() is None:
        return toploc_package.HOW
    honest = [case for name in lab.honest for case in lab.cases(name) if len(case.output) > 8]
    lines = [
        "| work | " + " | ".join(f"{v} verifier" for v in VERIFIERS) + " |",
        "| --- " * 3 + "|",
    ]
    groups = [("honest, every configuration", honest)]
    groups += [(TITLES[name], list(lab.cases(name))) for name in CHEATS if name in lab.groups]
    for title, cases in groups:
        shares = [np.mean([rejected(case, verifier) for case in cases]) for verifier in VERIFIERS]
        lines.append(f"| {title} | " + " | ".join(f"{100 * each:.0f} %" for each in shares) + " |")
    return "\n".join(lines)


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

Written by `python bench/anchors.py --out docs/anchors.md` from the detection lab's runs. Measured
{about}.

The anchors' *ideas* are re-implemented (see the script); the TOPLOC package is run on the same
states. One verifier, one job; each method's threshold is the largest score of an honest job: no
false positives among the jobs at hand ({honest} honest ones, {cheats} of each cheat). Ours also
sees the prompt and three inner layers; the others see the output's final states only, and short
outputs set their thresholds. No method sees another temperature in states.

{table}
## The package by its own limits

Rejected where any 32 tokens have more than 38 unequal exponents, or a mean mantissa distance over
10, or a median over 8: what its authors recommend, with no threshold of ours.

{own}

## What they do better, and whether to take it

* **Bytes for every token, with nothing to open.** Eight bytes a token say something of all tokens;
  we commit to all and open the challenged ones. Where nobody may ask back, as in a log that is
  checked years later, theirs is the better tool.
* **No seed.** A proof can be made by a server that knows nothing of ours.
* **A compact fingerprint in our leaf: not taken.** It would be a digest of the final state that
  every verifier opens anyway: a bundle holds the verifiers' final states of *all* generated
  positions ({final} bytes each), because token margins need them in full, and whoever has a state
  can project it. On the same jobs projections on {few} numbers see less than slices at 16 positions
  do (table above), so the leaf would grow, the contract would hash more, and hardly a verdict would
  change. What it could add is the inferencer's states at positions that are not challenged: a cheat
  on few positions, which 16 draws can miss. There its tokens are judged already, by the verifiers'
  states of every generated position.
"""


def main() -> int:
    """Print the page, or write it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path)
    options.add_argument("--cheats", nargs="*", default=CHEATS, metavar="NAME")
    options.add_argument("--cheat-jobs", type=int, help="as the lab's runs are kept")
    options.add_argument("--subtle-jobs", type=int, help="the same, of cheats that hide in one job")
    asked = options.parse_args()
    folder = cache_home() / "models" / "smollm2-135m-instruct"
    if not (cache_home() / "lab").is_dir():
        print("no runs are kept: `make lab` first")
        return 0
    sizes = {"cheat_jobs": asked.cheat_jobs, "subtle_jobs": asked.subtle_jobs}
    given = {name: size for name, size in sizes.items() if size is not None}
    study = Study(folder, cheats=tuple(asked.cheats), **given)
    groups = collect(study, cache_home() / "lab", lambda line: print(line, file=sys.stderr))
    lab = Lab(folder, read_profile(shipped(folder)), groups)
    page = PAGE.format(
        about=machine_line("numpy", "toploc"),
        honest=sum(len(lab.cases(name)) for name in lab.honest),
        cheats=f"{study.cheat_jobs} or {study.subtle_jobs}",
        table=table(lab),
        own=own_limits(lab),
        final=2 * next(iter(lab.cases("int8_row"))).views[OWN].finals.shape[1],
        few=DIRECTIONS[0],
    )
    if asked.out:
        asked.out.write_text(page, "utf-8")
    else:
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
