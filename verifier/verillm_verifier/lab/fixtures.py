"""What the power tests read: distances, margins and borders of some jobs of each kind, model-free.

A test of a threshold needs no model, only what honest and cheating jobs look like. Distances are in
ppm per position and layer, so that medians, caps and all thresholds can be applied to them anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from verillm.draw import positions
from verillm.request import Sampling
from verillm.sampling import probabilities
from verillm.statistics import to_floats, zone
from verillm.types import PPM, Hash32
from verillm_verifier.lab.cases import Case
from verillm_verifier.lab.judged import OWN
from verillm_verifier.lab.matrix import HONEST
from verillm_verifier.lab.trials import MANY

if TYPE_CHECKING:
    from verillm_verifier.lab.experiment import Lab

STATES = ("int8_row", "int8_group", "cache8", "fp8", "int4", "skipped", "whispered",
          "one_token_off", "forgot_one", "windowed")  # fmt: skip
TOKENS = ("int4", "temperature", "swapped")
JOBS, HONEST_JOBS, TOKEN_JOBS, POSITIONS = 5, 8, 12, MANY
SUBTLEST = {"cache8": 24}
"""Of a cheat that is near the border a few jobs say nothing of where the border should be."""
VERIFIERS = ("bf16", "fp32")
TOP_P, MIN_P, TOP_K = 0.9, 0.05, 40
"""What mixed honest jobs asked for; plain jobs are judged as if they had asked for it."""


def fixtures(lab: Lab) -> str:
    """Return the document, compact."""
    random = np.random.default_rng(3)
    cheats = [name for name in STATES if name in lab.groups]
    states = {
        name: [_states(case, OWN, random) for case in lab.cases(name)[:HONEST_JOBS]]
        for name in lab.honest
    }
    states |= {
        name: [_states(case, OWN, random) for case in lab.cases(name)[: SUBTLEST.get(name, JOBS)]]
        for name in cheats
    }
    states["patched"] = [_states(case, "patched", random) for case in lab.cases(HONEST)[: 2 * JOBS]]
    tokens = {
        name: [_tokens(case) for case in lab.cases(name)[:TOKEN_JOBS]]
        for name in [*lab.honest, *(each for each in TOKENS if each in lab.groups)]
    }
    tokens["other seed"] = [_tokens(case) for case in lab.cases(HONEST, True)[:JOBS]]
    document = {
        "honest": lab.honest,
        "scales": [layer.scale for layer in lab.profile.layers],
        "states": states,
        "tokens": tokens,
        "borders": _borders(lab),
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _states(case: Case, shown: str, random: np.random.Generator) -> dict[str, Any]:
    """One draw: zones of its positions, distances of the inferencer to each verifier."""
    stream = Hash32(random.bytes(32))
    where = sorted(positions(stream, 0, case.prompt_tokens, case.new_tokens, POSITIONS))
    return {
        "zones": [zone(at, case.prompt_tokens) for at in where],
        "apart": [
            case.apart(shown, name)[where].tolist() for name in VERIFIERS if name in case.views
        ],
    }


def _tokens(case: Case) -> dict[str, Any]:
    """Margins of both tiers by index, those that are zero left out."""
    kinds = [name for name in ("bf16", "chunked", "fp32") if name in case.views]
    found = case.margins(kinds)
    return {
        "count": len(found.margins),
        "margins": {str(at): margin for at, margin in enumerate(found.margins) if margin},
        "above": {str(at): margin for at, margin in enumerate(found.margins_above) if margin},
    }


def _borders(lab: Lab) -> dict[str, dict[str, list[int]]]:
    """How far beyond each border of the nucleus a job's tokens went at most: mass or logits, ppm.

    Honest jobs asked for the border; *ignored* are plain jobs, judged as if they had asked for it.
    """
    asked = {
        "top_p": Sampling.of(0.7, top_p=TOP_P),
        "min_p": Sampling.of(0.8, min_p=MIN_P),
        "top_k": Sampling.of(1.0, top_k=TOP_K),
    }
    found: dict[str, dict[str, list[int]]] = {name: {"honest": [], "ignored": []} for name in asked}
    for group in lab.honest:
        for case in lab.cases(group):
            for name, sampling in asked.items():
                if case.item.sampling == sampling:
                    found[name]["honest"].append(_beyond(case, name, lab))
    for case in lab.cases(HONEST):
        for name in asked:
            found[name]["ignored"].append(_beyond(case, name, lab))
    return found


def _beyond(case: Case, name: str, lab: Lab) -> int:
    finals = to_floats(case.views["bf16"].finals[case.prompt_tokens - 1 :])
    sampling = case.item.sampling
    worst = max(
        _excess(logits, token, name, sampling)
        for logits, token in zip(lab.head.logits(finals), case.output, strict=True)
    )
    return round(worst * PPM)


def _excess(logits: np.ndarray, token: int, name: str, sampling: Sampling) -> float:
    """Mass above the token over top-p, or logits below the border of top-k or min-p."""
    if name == "top_p":
        mass = probabilities(logits, sampling)
        return float(mass[logits > logits[token]].sum()) - TOP_P
    if name == "top_k":
        return float(np.sort(logits)[-TOP_K] - logits[token])
    reach = sampling.temperature / PPM * np.log(1 / MIN_P)
    return float(logits.max() - logits[token] - reach)
