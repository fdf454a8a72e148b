"""What the power tests read: distances and margins of some draws of each trial, model-free.

A test of a threshold needs no model, only what honest and cheating jobs look like. Distances are in
ppm per position and layer, so that medians, caps and all thresholds can be applied to them anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from verillm.draw import positions
from verillm.statistics import zone
from verillm.types import Hash32
from verillm_verifier.lab.cases import Case, distance_cells
from verillm_verifier.lab.matrix import HONEST
from verillm_verifier.lab.trials import OWN

if TYPE_CHECKING:
    from verillm_verifier.lab.experiment import Lab

STATES = ("int8_row", "int8_group", "fp8", "int4", "skipped", "whispered", "one_token_off",
          "forgot_one", "windowed")  # fmt: skip
TOKENS = ("int4", "temperature", "swapped")
JOBS, POSITIONS = 6, 16
VERIFIERS = ("bf16", "fp32")


def fixtures(lab: Lab) -> str:
    """Return the document: few jobs of each group, compact."""
    random = np.random.default_rng(3)
    honest = [name for name in lab.honest if lab.groups[name].jobs]
    document = {
        "profile": "distances under the scales of the profile that ships",
        "states": {
            name: [_states(case, random) for case in lab.cases(name)[:JOBS]]
            for name in [*honest, *(each for each in STATES if each in lab.groups)]
        },
        "tokens": {
            name: [_tokens(case) for case in lab.cases(name)[: 2 * JOBS]]
            for name in [*honest, *(each for each in TOKENS if each in lab.groups)]
        }
        | {"other seed": [_tokens(case) for case in lab.cases(HONEST, True)[:JOBS]]},
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _states(case: Case, random: np.random.Generator) -> dict[str, Any]:
    """One draw: zones of its positions, distances of the inferencer to each verifier."""
    stream = Hash32(random.bytes(32))
    where = sorted(positions(stream, 0, case.prompt_tokens, case.new_tokens, POSITIONS))
    return {
        "zones": [zone(at, case.prompt_tokens) for at in where],
        "apart": [distance_cells(case, OWN, name)[where].tolist() for name in VERIFIERS],
    }


def _tokens(case: Case) -> dict[str, Any]:
    """Margins of both tiers by index, those that are zero left out."""
    kinds = [name for name in ("bf16", "chunked", "fp32") if name in case.views]
    found = case.margins(kinds)
    return {
        "count": len(found.margins),
        "margins": {str(at): margin for at, margin in enumerate(found.margins) if margin},
        "above": {str(at): margin for at, margin in enumerate(found.margins_above) if margin},
        "outside": list(found.outside),
    }
