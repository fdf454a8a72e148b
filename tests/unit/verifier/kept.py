"""Real jobs that tests keep without their states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from verillm.model import CheckProfile
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.records import About, Record

TAIL = Path(__file__).parents[2] / "fixtures" / "lab" / "tail.json"


def rare_job(profile: CheckProfile) -> Record:
    """An honest float32 worker's job of made-up words, as verifiers in bfloat16 and float32 saw."""
    found: dict[str, Any] = json.loads(TAIL.read_text("utf-8"))
    kinds = ("bf16", "fp32")
    apart = {(kind, OWN): np.array(found["apart"][kind]) for kind in kinds}
    apart["bf16", "fp32"] = np.array(found["between"])
    votes = {
        kind: tuple((margin, above, outside) for margin, above, outside in found["votes"][kind])
        for kind in kinds
    }
    about, sizes = About(0, found["worker"], kinds, 1), (found["promptTokens"], found["newTokens"])
    return Record(about, 0, sizes, apart, votes, (), profile)
