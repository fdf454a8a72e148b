"""The named cheats: what every threshold must survive, as offline functions and as workers.

Each attack is an `EngineTransform`: it takes the maker of an honest engine and returns a deviating
one, so that a worker with it differs from an honest worker in nothing else. A devnet names one as
`verillm_verifier.attacks:int4`; `ATTACKS` lists them all. The building blocks work on weights
(`weights`), on tasks and outputs (`outputs`) and on finished traces (`states`).
"""

from verillm.engine import EngineTransform
from verillm_verifier.attacks.outputs import (
    cut,
    other_prompt,
    own_seed,
    padded,
    prefilled,
    swapped,
    temperature,
)
from verillm_verifier.attacks.states import copied, garbage, perturbed, shuffled
from verillm_verifier.attacks.weights import int4, int8_group, int8_row, skipped

ATTACKS: dict[str, EngineTransform] = {
    "int4": int4,
    "int8_group": int8_group,
    "int8_row": int8_row,
    "skipped": skipped,
    "prefilled": prefilled,
    "temperature": temperature,
    "swapped": swapped,
    "own_seed": own_seed,
    "other_prompt": other_prompt,
    "cut": cut,
    "padded": padded,
    "copied": copied,
    "perturbed": perturbed,
    "shuffled": shuffled,
    "garbage": garbage,
}

__all__ = ["ATTACKS", *ATTACKS]
