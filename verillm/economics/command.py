"""`verillm params`: recommend a deployment's parameters, or refuse those that were asked for."""

import argparse
import json
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.table import Table

from verillm.economics.parameters import (
    Parameters,
    Situation,
    cost_of_checking,
    escape,
    override,
)
from verillm.economics.recommend import recommend
from verillm.economics.rules import require_safe
from verillm.economics.world import Costs
from verillm.errors import InputError
from verillm.settlement import BPS, least_lock

COSTS: Final = {
    "inference": (0.4, "running the dearest job"),
    "cheap": (0.15, "running it with the cheapest model that might pass"),
    "prefill": (0.004, "checking it: one prefill"),
    "opening": (0.002, "opening everything on chain, one party"),
    "challenge": (0.08, "a challenge with all its calls"),
    "gas": (0.02, "the scheduler's post and seal"),
    "call": (0.003, "a claim or finalize"),
}
ASSUMED: Final = {
    "honest-share": (0.8, "r: share of all seats; the rest is one coalition"),
    "noise": (0.01, "mu: chance that an honest run disagrees with an honest one"),
    "detection": (0.9, "chance that the weakest cheat that runs another model is slashed"),
    "token-detection": (0.95, "chance that wrong tokens over right states are caught"),
    "watch": (0.99, "chance that somebody honest looks at a claim"),
    "error": (0.01, "xi: of a re-verification"),
}
MEANING: Final = {
    "committee": "members that check a job",
    "kappa_bps": "least lock over the largest fee",
    "inferencer_bps": "of the fee",
    "committee_bps": "of the fee, in equal parts",
    "scheduler_bps": "of the fee",
    "reserve_bps": "of a seat's stake, for its checks",
    "seat_stake": "units; locks of own jobs and checks at once",
    "caller_fee": "units; for a claim, and for a finalize",
    "claim_bond": "units; pays the challenger of a wrong claim",
    "challenge_bond": "units; pays the openings, and deters forged tokens",
    "seal_window": "s",
    "claim_window": "s",
    "dispute_window": "s",
    "opening_window": "s",
    "job_window": "s",
    "unbonding": "s; over the longest path",
    "unlock_delay": "s",
    "key_grace": "s",
    "reverification": "members m'; not in the contracts yet, 0: no size is large enough",
    "check_rate": "share of jobs that are checked; fixed in this version",
    "forced_rounds": "forcedEvery: one job in A is judged in public; 0: no rate deters",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a deployer knows; costs and value in parts of the dearest job's fee."""
    option = parser.add_argument
    option("--owners", default="30x2", help="owners by seats: 30x2,1x20 is 30 of 2 and one of 20")
    option("--fee", type=int, default=10**15, help="fee of the dearest job, token units")
    option("--value", type=float, default=1.0, help="what a forged output is worth, in fees")
    option("--most-kappa", type=float, default=20.0, help="locks per fee that operators carry")
    option("--jobs-at-once", type=int, default=8, help="of a seat, until they are final")
    for name, (default, text) in (ASSUMED | COSTS).items():
        option(f"--{name}", type=float, default=default, help=f"{text} (default {default})")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="check this instead")
    option("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace, console: Console) -> None:
    """Print a recommendation; UnsafeParameters says why there is none, or why not what was set."""
    situation = situation_of(options)
    changes = dict(_parse_change(text) for text in options.set)
    parameters = override(recommend(situation), changes)
    require_safe(situation, parameters)
    if options.json:
        console.print_json(json.dumps(asdict(parameters)))
        return
    console.print(_table(parameters))
    console.print("\n".join(_notes(situation, parameters)), soft_wrap=True)


def situation_of(options: argparse.Namespace) -> Situation:
    """The options as a situation; InputError for what does not parse."""
    costs = [getattr(options, name) * options.fee for name in COSTS]
    return Situation(
        seats=parse_owners(options.owners),
        costs=Costs(*costs),
        max_fee=options.fee,
        value=options.value * options.fee,
        jobs_at_once=options.jobs_at_once,
        most_kappa=options.most_kappa,
        **{(field := name.replace("-", "_")): getattr(options, field) for name in ASSUMED},
    )


def parse_owners(text: str) -> tuple[int, ...]:
    """Seats of each owner from `30x2,1x20`."""
    seats: list[int] = []
    for part in text.split(","):
        count, cross, held = part.partition("x")
        if not (cross and count.isdecimal() and held.isdecimal() and int(count) <= 10_000):
            raise InputError(f"--owners: {part!r} is not COUNTxSEATS", owners=text)
        seats += [int(held)] * int(count)
    return tuple(seats)


def _parse_change(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), float(value)
    except ValueError:
        raise InputError(f"--set: {text!r} is not NAME=VALUE", set=text) from None


def _table(parameters: Parameters) -> Table:
    table = Table("parameter", "value", "meaning")
    for name, value in asdict(parameters).items():
        table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value), MEANING[name])
    return table


def _notes(situation: Situation, parameters: Parameters) -> list[str]:
    captured = escape(situation, parameters.committee)
    fee = situation.max_fee
    lock = least_lock(fee, parameters.kappa_bps)
    cost = cost_of_checking(situation, parameters)
    caught = situation.token_detection * (1 - captured)
    notes = [
        f"A coalition of {1 - situation.honest_share:.0%} captures a draw with {captured:.2g}; "
        f"a forgery escapes with {1 - caught:.2g}."
    ]
    if caught < 1:
        softened = fee - parameters.terms.scheduler_bps * fee // BPS + parameters.challenge_bond
        worth = min(lock, softened) / fee * caught / (1 - caught)
        notes.append(f"Forgeries are deterred up to a value of {worth:.3g} fees.")
    notes.append(f"Checking a job costs {cost / fee:.2%} of its fee, locked stake included.")
    return notes
