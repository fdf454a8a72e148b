"""The attack matrix as trials: every row that a verdict on states and tokens can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verillm_verifier.lab.trials import Role, Trial

HONEST = "bf16 rows 16, plain"
"""The honest group whose jobs verifiers lie about, and whose traces are forged."""

TITLES = {
    "int8_row": "int8 weights, one scale per row",
    "int8_group": "int8 weights, groups of 32",
    "fp8": "fp8-like weights (e4m3, one scale per row)",
    "int4": "int4 weights, groups of 32",
    "cache8": "8-bit KV cache",
    "skipped": "two layers skipped",
    "shallow": "another, smaller model: every second layer",
    "early_exit": "early exit, behind the last committed layer",
    "late_int4": "int4 weights behind the last committed layer only",
    "tuned": "another version: weights off by 3 %",
    "whispered": "other system prompt",
    "other_prompt": "other prompt of the same length",
    "one_token_off": "one prompt token replaced",
    "forgot_one": "one prompt token dropped from the context",
    "windowed": "context cut to 4 + 32 positions, prompts of 72 tokens and more",
    "clipped": "the same, prompts of 37 to 71 tokens",
    "temperature": "temperature 0.7 for 1.0",
    "lukewarm": "temperature 0.95 for 1.0",
    "narrowed": "top-p 0.9 where none was asked",
    "widened": "top-p 0.9 asked, and ignored",
    "swapped": "one token swapped",
}
PREFILLED = ("int4", "int8_row", "int8_group", "fp8", "cache8", "skipped", "shallow")
"""Cheats that also decode cheaply and then prefill with the true model."""
LONG = 64
SHOWS_IN_ANSWERS = ("windowed", "temperature")
"""Cheats that show behind the prompt only: how often is told of long answers by themselves, too."""
FORGED = {
    "garbage": "random states",
    "shuffled": "true values at wrong dimensions",
    "perturbed": "true states with noise in four bits",
    "copied": "one position's states everywhere",
    "replayed": "the trace of another request",
    "patched": "another request's states at one position in five",
}
QUANTISED = {"int8_row": "int8 rows", "int4": "int4 groups"}


def honest(names: Sequence[str]) -> list[Trial]:
    """Return the trials that must be accepted: each honest group."""
    return [Trial(name, name, Role.NOBODY, name) for name in names]


def inferencers(groups: Sequence[str]) -> list[Trial]:
    """Return the inferencer's cheats over the groups at hand."""
    own = [
        Trial(name, title, Role.INFERENCER, name)
        for name, title in TITLES.items()
        if name in groups
    ]
    prefilled = [
        Trial(
            f"prefilled {name}",
            f"prefill attack: {TITLES[name]} decode",
            Role.INFERENCER,
            name,
            "bf16",
        )
        for name in PREFILLED
        if name in groups
    ]
    forged = [Trial(name, title, Role.INFERENCER, HONEST, name) for name, title in FORGED.items()]
    helped = [trial for trial in _helped() if trial.group in groups]
    return [
        *(each for trial in own for each in _with_long(trial)),
        Trial("other seed", "sampled under a seed of its own (best of n)", Role.INFERENCER,
              HONEST, seed=True),
        *prefilled,
        *helped,
        *forged,
    ]  # fmt: skip


def _with_long(trial: Trial) -> tuple[Trial, ...]:
    """Return a trial, and the same over long answers alone where short ones show little."""
    if trial.group not in SHOWS_IN_ANSWERS:
        return (trial,)
    title = f"the same, answers of {LONG} tokens"
    return trial, replace(trial, name=f"{trial.name} {LONG}", title=title, least=LONG)


def _helped() -> list[Trial]:
    """Return the cheats that nudge states, and those that a verifier takes part in."""
    return [
        Trial("nudged", "prefill attack, int4, final states nudged", Role.INFERENCER, "int4",
              "nudged"),
        Trial("nudged helped", "the same, and a verifier that shows nudged states too",
              Role.INFERENCER, "int4", "nudged", ("nudged",)),
        Trial("int8_row helped", "int8 per row, and a verifier that shows the same states",
              Role.INFERENCER, "int8_row", "own", ("own",)),
        Trial("swapped helped", "one token swapped, and a verifier whose states choose it",
              Role.INFERENCER, "swapped", "own", ("nudged",)),
    ]  # fmt: skip


def verifiers(views: Sequence[str]) -> list[Trial]:
    """Return the verifier's cheats, in a committee whose other members are honest."""
    forged = [
        Trial(f"verifier {name}", title, Role.VERIFIER, HONEST, fixed=(name,))
        for name, title in FORGED.items()
    ]
    quantised = [
        Trial(
            f"verifier {name}",
            f"prefills with {title}",
            Role.VERIFIER,
            HONEST,
            fixed=(f"quantised {name}",),
        )
        for name, title in QUANTISED.items()
        if f"quantised {name}" in views
    ]
    shifted = Trial(
        "verifier shifted",
        "true states but for one token's, which is far off",
        Role.VERIFIER,
        HONEST,
        fixed=("shifted",),
    )
    return [*quantised, *forged, shifted]
