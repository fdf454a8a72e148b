"""`verillm params`: recommend a deployment's parameters, or refuse those that were asked for."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from verillm.economics import terms
from verillm.economics.parameters import (
    Parameters,
    Situation,
    captured,
    cost_of_checking,
    escape,
    reverifiers,
)
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
    "redress": (0.0, "chance that somebody has a captured committee's word re-verified"),
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
    "answer_fee": "units; repays a summoned member's answer, and no more",
    "reverify_bond": "units; a wage of a re-verification is its 2m'-th part",
    "seal_window": "s",
    "claim_window": "s",
    "dispute_window": "s",
    "opening_window": "s",
    "job_window": "s",
    "unbonding": "s; over the longest path",
    "unlock_delay": "s",
    "key_grace": "s",
    "forced_rounds": "forcedEvery: one job in A is judged in public, watched or not; 0: none",
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
    option("--terms", type=Path, help="a terms file in the place of these options")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="check this instead")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--toml", action="store_true", help="print a terms file for `deploy --terms`")
    form.add_argument("--contract", action="store_true", help="print the contracts' Config as JSON")


def run(options: argparse.Namespace, console: Console) -> None:
    """Print a recommendation; UnsafeParameters says why there is none, or why not what was set."""
    file = terms.read_table(options.terms) if options.terms else {}
    options = terms.overlay(options, file.get("situation", {}))
    changes = {**file.get("parameters", {}), **dict(map(_parse_change, options.set))}
    situation = situation_of(options)
    parameters = terms.parameters_of(situation, changes)
    if options.toml:
        console.print(
            terms.to_toml(vars(options), parameters), end="", markup=False, soft_wrap=True
        )
        return
    if options.contract:
        config = terms.config_of(parameters).to_json()
        console.print(json.dumps(config, indent=2), markup=False, soft_wrap=True)
        return
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


def read_terms(path: Path) -> Parameters:
    """What a terms file fixes; raises UnsafeParameters, ConfigError."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    file = terms.read_table(path)
    known = terms.overlay(parser.parse_args([]), file["situation"])
    return terms.parameters_of(situation_of(known), file["parameters"])


def parse_owners(text: str) -> tuple[int, ...]:
    """Seats of each owner from `30x2,1x20`."""
    seats: list[int] = []
    for part in text.split(","):
        count, cross, held = part.partition("x")
        if not (cross and count.isdecimal() and held.isdecimal() and int(count) <= 10_000):
            raise InputError(f"--owners: {part!r} is not COUNTxSEATS", owners=text)
        seats += [int(held)] * int(count)
    return tuple(seats)


def _parse_change(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), int(value)
    except ValueError:
        raise InputError(f"--set: {text!r} is not NAME=WHOLE NUMBER", set=text) from None


def _table(parameters: Parameters) -> Table:
    table = Table("parameter", "value", "meaning")
    for name, value in asdict(parameters).items():
        table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value), MEANING[name])
    return table


def _notes(situation: Situation, parameters: Parameters) -> list[str]:
    size = parameters.committee
    fee = situation.max_fee
    lock = least_lock(fee, parameters.kappa_bps)
    cost = cost_of_checking(situation, parameters)
    caught = situation.token_detection * (1 - escape(situation, size))
    draws = f"{captured(situation, size):.2g}, one of {reverifiers(size)} to re-verify with "
    notes = [
        f"A coalition of {1 - situation.honest_share:.0%} captures a draw with {draws}"
        f"{captured(situation, reverifiers(size)):.2g}; a forgery escapes with {1 - caught:.2g}."
    ]
    if caught < 1:
        softened = fee - parameters.terms.scheduler_bps * fee // BPS + parameters.challenge_bond
        worth = min(lock, softened) / fee * caught / (1 - caught)
        notes.append(f"Forgeries are deterred up to a value of {worth:.3g} fees.")
    notes.append(f"Checking a job costs {cost / fee:.2%} of its fee, locked stake included.")
    return notes
