"""The page of detection, from figures: every part is there, and what was not run is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from verillm.errors import InputError
from verillm_verifier.lab.command import judged
from verillm_verifier.lab.pooled import PLAIN, ROUGH
from verillm_verifier.lab.report import write

SHARE = {"value": 1.0, "low": 0.83, "high": 1.0, "draws": 40, "jobs": 20}
COUNTS = {"jobs": 49, "newTokens": 3136, "rejected": 0, "undecided": 1, "rejectedOfDraws": 0.0,
          "undecidedOfDraws": 0.001, "reasons": [],
          "nearest": {"q99": 0.84, "max": 0.87}}  # fmt: skip
BOUNDS = {**COUNTS, "slashed": 0, "boundRejected": 0.0593, "boundSlashed": 0.0588,
          "boundNotAccepted": 0.09, "prompts": 28, "boundPrompts": 0.1}  # fmt: skip
TAIL = {"units": 40, "jobs": 1780, "over": {"allButRare": 5, "max": 22}, "meanOfManyMax": 1_684_000,
        "marginMean": {"allButRare": 18_900}, "marginMax": 1_123_000,
        "marginAboveMax": 733_000}  # fmt: skip
CERTIFICATE = {
    "date": "2026-11-29",
    "machine": "2 cores",
    "positions": 32,
    "tokens": 64,
    "draws": 20,
    "betweenPrompts": 0.5,
    "long": BOUNDS,
    "all": BOUNDS,
    "byWorker": {"bf16, rows 32": COUNTS},
    "byVerifiers": {"bf16, fp32": COUNTS},
}


def row(name: str, role: str, verdict: str) -> dict[str, Any]:
    results = [
        {"setting": setting, **SHARE, "nearest": 0.9, "verdicts": {verdict: 40}}
        for setting in ("16, mixed", "64, mixed")
    ]
    return {"name": name, "title": f"the {name}", "role": role, "jobs": 20, "tokens": 900,
            "positionsNeeded": None, "tokensNeeded": 64, "results": results}  # fmt: skip


def figures() -> dict[str, Any]:
    thresholds = {"meanRefund": 1_620_000, "meanSlash": 2_090_000, "marginMean": 12_000,
                  "meanRefundMany": 1_550_000, "meanSlashMany": 1_950_000, "manyPositions": 64,
                  "marginMaxRefund": 689_000, "marginMaxSlash": 689_000}  # fmt: skip
    return {
        "model": {"name": "m", "weights": "ab" * 32, "about": "A model."},
        "profile": {"hash": "cd" * 32, "overRefund": 3, "overSlash": 8, **thresholds},
        "machine": "2026-11-29, 2 cores x86_64",
        "certificate": CERTIFICATE,
        "tail": TAIL,
        "draws": 40,
        "rows": [
            row("honest", "nobody", "accept none"),
            row("int8_row", "inferencer", "slash states_differ"),
            row("liar", "verifier", "accept none"),
        ],
        "freedom": {"jobs": 16, "tokens": 54, "by_max": 0.5, "by_mean": 0.16},
        "alarms": [{"cheat": "int8_row", "clique": "mixed", "states": states, "tokens": 574,
                    "median": median, "ninth": None}
                   for states, median in ((PLAIN, 470), (ROUGH, 1_020))],
        "quiet": [{"setup": "bf16, rows 32", "verifiers": kinds, "jobs": jobs, "tokens": 50_000,
                   "workers": 200, "highest": highest, "at_hand": 57 * jobs, "once": 2.125}
                  for kinds, jobs, highest in (("", 64, 4.25), ("fp32", 16, 17.5))],
        "reach": [{"cheat": "int8_row", "kind": "fp32", "positions": positions, "jobs": 14,
                   "honest": 1_540_000, "beyond": beyond}
                  for positions, beyond in ((16, 0.5), (32, 0.9))],
    }  # fmt: skip


def test_the_page_holdsEveryPart_andWhereItWasMeasured() -> None:
    page = write({**figures(), "others": [figures()]})
    for part in (
        "Measured on 2026-11-29, 2 cores x86_64.",
        "| 64 new tokens | 49 | 3136 | 0 | 0 | 1 | ≤ 5.93e-02 | ≤ 5.88e-02 |",
        "The first 40 units, 1780 jobs, do not count",
        "1.68 honest medians off, 22 of 64 positions were beyond a cap",
        "≤ 10.0 %",
        "| bf16, fp32 | 49 | 0 | 1 | 0.87 |",
        "| the int8_row | 100.0 % (83-100) |",
        "| the int8_row | mixed | 470, - | 1020, - | 574 |",
        "| bf16, rows 32 | 64 | 4.25 | 17.5 (fp32, 16 jobs) | 2.12 (3648 tokens) |",
        "| cheat | verifier | jobs | 16 | 32 |",
        "| noisiest honest draw |  |  | 1.54 | 1.54 |",
        "| the int8_row | fp32 | 14 | 50.0 % | 90.0 % |",
        "0.500 bits per token",
        "## Another architecture: m",
    ):
        assert part in page, part
    assert "{" not in page


def test_a_profile_withoutCertificate_isSaidToHaveNone() -> None:
    page = write({**figures(), "certificate": None, "tail": None})
    assert "Not run for this profile." in page
    assert "No thresholds were taken from such jobs." in page


def test_verdicts_ofAnEarlierRun_areTakenUnderTheSameProfileOnly(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps(figures()), "utf-8")
    now = {"profile": {"hash": "cd" * 32}, "certificate": None, "overMany": "2026-12-01, 4 cores"}
    found = judged(path, now)
    assert found["rows"] == figures()["rows"] and found["machine"] == figures()["machine"]
    assert found["certificate"] is None
    page = write({**found, "profile": figures()["profile"]})
    assert "Measured on 2026-11-29, 2 cores x86_64." in page and "2026-12-01, 4 cores." in page
    with pytest.raises(InputError, match="another profile"):
        judged(path, {"profile": {"hash": "ef" * 32}})
