"""The named cheats: what every threshold must survive, as offline functions and as workers.

Each attack is an `EngineTransform`: it takes the maker of an honest engine and returns a deviating
one, so that a worker with it differs from an honest worker in nothing else. A devnet names one as
`verillm_verifier.attacks:int4`; `ATTACKS` lists them all. The building blocks work on weights
(`weights`), on tasks and outputs (`outputs`) and on finished traces (`states`).
"""

from verillm.engine import EngineTransform
from verillm_verifier.attacks.caches import cache8, forgot_one, whispered, windowed
from verillm_verifier.attacks.outputs import (
    cut,
    other_prompt,
    own_seed,
    padded,
    prefilled,
    swapped,
    temperature,
)
from verillm_verifier.attacks.precision import fp8
from verillm_verifier.attacks.settings import lukewarm, narrowed, one_token_off, widened
from verillm_verifier.attacks.states import copied, garbage, perturbed, shuffled
from verillm_verifier.attacks.weights import (
    early_exit,
    int4,
    int8_group,
    int8_row,
    late_int4,
    shallow,
    skipped,
    tuned,
)

ATTACKS: dict[str, EngineTransform] = {
    "int4": int4,
    "int8_group": int8_group,
    "int8_row": int8_row,
    "fp8": fp8,
    "cache8": cache8,
    "skipped": skipped,
    "shallow": shallow,
    "early_exit": early_exit,
    "late_int4": late_int4,
    "tuned": tuned,
    "prefilled": prefilled,
    "temperature": temperature,
    "lukewarm": lukewarm,
    "narrowed": narrowed,
    "widened": widened,
    "swapped": swapped,
    "own_seed": own_seed,
    "other_prompt": other_prompt,
    "whispered": whispered,
    "one_token_off": one_token_off,
    "forgot_one": forgot_one,
    "windowed": windowed,
    "cut": cut,
    "padded": padded,
    "copied": copied,
    "perturbed": perturbed,
    "shuffled": shuffled,
    "garbage": garbage,
}

__all__ = ["ATTACKS", *ATTACKS]
