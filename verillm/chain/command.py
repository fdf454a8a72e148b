"""`verillm deploy`: a dry run, then a deployment; `verillm deployment`: does it stand as written?

The RPC server and the key come from the environment alone: a command line is seen by every process
of a machine and kept in histories. Hardhat's `contracts/scripts/deploy.js` takes the same names.
"""

import argparse
import functools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils.address import is_address, to_checksum_address
from rich.console import Console
from rich.table import Table

from verillm import api, keystore
from verillm.chain.contract import Chain
from verillm.chain.deploy import Deployer, bare_chain, prepare
from verillm.chain.deployment import CODED, ZERO_ADDRESS, Config, Deployment
from verillm.chain.journal import Journal
from verillm.chain.plan import DEV_CHAINS, Plan
from verillm.chain.refused import AlreadyDeployed, DeploymentDiffers, NotConfirmed
from verillm.chain.standing import differences
from verillm.chain.survey import Survey, code_at, survey
from verillm.economics import command as params, terms
from verillm.economics.parameters import Parameters
from verillm.engine.describe import describe, read_profile, shipped_profile
from verillm.errors import ConfigError, InputError, WrongChain
from verillm.model import ModelSpec, model_id, spec_from_json, spec_to_json
from verillm.types import ChecksumAddress

RAW_KEY: Final = "VERILLM_DEPLOYER_KEY"
STEP_SECONDS: Final = 900.0
CONFIRMATIONS: Final = 3
GWEI: Final = 10**9
ETHER: Final = 10**18
DECIMALS: Final = 18


@dataclass(frozen=True, slots=True)
class Asked:
    """What to deploy and where."""

    chain_id: int
    terms: Config
    specs: tuple[ModelSpec, ...]
    addresses: Path
    state: Path


def add_deploy(parser: argparse.ArgumentParser) -> None:
    """Options of `verillm deploy`; none of them holds a secret."""
    option = parser.add_argument
    option(
        "--chain-id", type=int, default=_number("VERILLM_CHAIN_ID"), help="which chain it must be"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--terms", type=Path, default=_path("VERILLM_TERMS"), help="a terms file")
    kinds.add_argument("--devnet", action="store_true", help="short windows, for one machine")
    option("--token", default=os.environ.get("VERILLM_TOKEN"), help="the fee token's address")
    option("--spec", type=Path, action="append", default=[], help="register this model, too")
    option("--state", type=Path, help="state file (default: beside the addresses file)")
    option("--broadcast", action="store_true", help="send; without it nothing is sent")
    option("--yes", action="store_true", help="on a live chain: the dry run's plan was read")
    option("--stuck-seconds", type=float, default=60.0, help="raise the fee of what waits longer")
    option(
        "--confirmations", type=int, help=f"blocks to wait for (default {CONFIRMATIONS}; dev: 0)"
    )


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _path(name: str) -> Path | None:
    text = os.environ.get(name)
    return Path(text) if text else None


def run_deploy(options: argparse.Namespace, console: Console) -> None:
    """Plan, look, print; with --broadcast send what is missing and write the addresses file."""
    asked = asked_of(options)
    account = deployer_of(options)
    chain = bare_chain(rpc_of(options), account, STEP_SECONDS)
    try:
        if chain.deployment.chain_id != asked.chain_id:
            raise WrongChain(asked.chain_id, chain.deployment.chain_id)
        journal = Journal(asked.state)
        _require_new(chain, asked)
        plan = prepare(chain, asked.terms, journal, specs=asked.specs)
        known = journal.progress is not None and journal.progress.plan == plan.digest
        found = survey(chain, plan)
        _print(console, plan, found, journal)
        if not options.broadcast:
            journal.plan(plan)
            console.print(_next(asked), soft_wrap=True)
            return
        if asked.chain_id not in DEV_CHAINS and not (known and options.yes):
            lacks = "--yes is missing" if known else "no dry run of this plan was made before"
            raise NotConfirmed(f"chain {asked.chain_id} is live, and {lacks}")
        journal.plan(plan)
        _send(chain, plan, found, journal, asked, options, console)
    finally:
        chain.close()


def _send(
    chain: Chain,
    plan: Plan,
    found: Survey,
    journal: Journal,
    asked: Asked,
    options: argparse.Namespace,
    console: Console,
) -> None:
    waits = options.confirmations
    if waits is None:
        waits = 0 if asked.chain_id in DEV_CHAINS else CONFIRMATIONS
    deployer = Deployer(
        chain,
        plan,
        found.codes,
        journal,
        say=lambda line: console.print(line, markup=False),
        stuck_after=options.stuck_seconds,
        confirmations=waits,
    )
    deployment = deployer.run()
    deployment.save(asked.addresses)
    console.print(f"VeriLLM {deployment.contract}, token {deployment.token}: {asked.addresses}")


# ── What is asked for ────────────────────────────────────────────────────────────────────────────
def asked_of(options: argparse.Namespace) -> Asked:
    """The options as data; raises what is wrong with them before anything is asked of a chain."""
    if options.chain_id is None:
        raise InputError("no chain: give --chain-id or set VERILLM_CHAIN_ID", chain_id=None)
    specs = tuple(map(read_spec, options.spec))
    token = ZERO_ADDRESS if options.token is None else _address(options.token)
    local = options.chain_id in DEV_CHAINS
    if token == ZERO_ADDRESS and not local:
        raise InputError("no token: give --token; a DevToken is for dev chains alone", token=None)
    if options.devnet:
        if not local:
            raise InputError(
                "--devnet is for dev chains alone: a live one needs --terms", devnet=True
            )
        config = Config.devnet()
    elif options.terms is not None:
        parameters = params.read_terms(options.terms)
        for spec in specs:
            _require_match(spec, parameters)
        config = terms.config_of(parameters)
    else:
        raise InputError("no terms: give --terms FILE (`verillm params --toml`)", terms=None)
    addresses = Path(options.deployment)
    state = options.state or addresses.with_name(addresses.name + ".state")
    return Asked(options.chain_id, replace(config, token=token), specs, addresses, state)


def _address(text: str) -> ChecksumAddress:
    if not is_address(text):
        raise InputError(f"{text} is not an address")
    return to_checksum_address(text)


def read_spec(path: Path) -> ModelSpec:
    """A model's spec from its JSON file; raises ConfigError, MalformedError."""
    try:
        value: Any = api.loads(path.read_bytes(), path.name)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is no model's spec")
    return spec_from_json(value)


def _require_match(spec: ModelSpec, parameters: Parameters) -> None:
    """The terms were found safe for one committee and one stake a seat: the model's."""
    if spec.committee != parameters.committee or spec.seat_stake < parameters.seat_stake:
        raise ConfigError(
            f"{spec.name} has a committee of {spec.committee} and seats of {spec.seat_stake}; the "
            f"terms are safe for {parameters.committee} and at least {parameters.seat_stake}"
        )


def rpc_of(options: argparse.Namespace) -> str:
    """The RPC server, from the environment: its URL may hold a token."""
    named: str | None = os.environ.get("VERILLM_RPC")
    if not named or options.rpc != named:
        raise ConfigError("set VERILLM_RPC; `deploy` takes no --rpc, command lines are public")
    return named


def deployer_of(options: argparse.Namespace) -> LocalAccount:
    """The key: VERILLM_DEPLOYER_KEY in hex, or the keystore VERILLM_KEY; never shown."""
    raw = os.environ.get(RAW_KEY)
    if raw is None:
        if not options.key:
            raise ConfigError(f"no key: set {RAW_KEY}, or VERILLM_KEY to a keystore")
        return keystore.load(Path(options.key), keystore.password(options.password_file))
    try:
        key = bytes.fromhex(raw.strip().removeprefix("0x"))
        account: LocalAccount = Account.from_key(key)
    except ValueError:  # without its words: they may hold the key
        raise ConfigError(f"{RAW_KEY} is not a key of 32 bytes in hex") from None
    return account


def _require_new(chain: Chain, asked: Asked) -> None:
    """The addresses file is written last: where it names what stands, all was done."""
    if not asked.addresses.exists():
        return
    named = Deployment.load(asked.addresses)
    if named.chain_id != asked.chain_id:
        raise AlreadyDeployed(f"{asked.addresses} is of chain {named.chain_id}")
    if code_at(chain, named.contract):
        raise AlreadyDeployed(f"{asked.addresses} names {named.contract}, which stands")


# ── What is shown ────────────────────────────────────────────────────────────────────────────────
def _print(console: Console, plan: Plan, found: Survey, journal: Journal) -> None:
    say = functools.partial(console.print, markup=False, soft_wrap=True)
    kind = "a dev chain" if plan.chain_id in DEV_CHAINS else "a live chain"
    say(f"chain {plan.chain_id}, {kind}, at block {found.block}")
    say(f"it has block hashes by EIP-2935, PUSH0, MCOPY, and blocks of {found.block_gas} gas")
    say(f"deployer {plan.deployer} holds {_ether(found.balance)}")
    if found.token is not None:
        say(f"token {plan.config.token}: {found.token.symbol}, {found.token.decimals} decimals")
        if found.token.decimals != DECIMALS:
            say(f"  `verillm` shows amounts with {DECIMALS} decimals, whatever the token's")
    table = Table("nonce", "step", "address", "gas", "state")
    for step, gas, done in zip(plan.steps, found.gas, found.standing, strict=True):
        state = "done" if done else ("sent" if journal.sent(step) else "")
        table.add_row(str(step.nonce), step.name, step.address or "", str(gas or ""), state)
    console.print(table)
    say("terms: " + ", ".join(f"{name} {value}" for name, value in plan.config.to_json().items()))
    fees = f"{found.base_fee / GWEI:g} + {found.fees.tip / GWEI:g} gwei"
    say(f"cost: {_ether(found.cost)} at {fees}; {_ether(found.reserve)} must be there")


def _ether(wei: int) -> str:
    return f"{wei / ETHER:.6f} ether"


def _next(asked: Asked) -> str:
    live = "" if asked.chain_id in DEV_CHAINS else " --yes"
    return f"dry run: nothing was sent. To deploy, run the same with --broadcast{live}"


# ── Looking at a deployment ──────────────────────────────────────────────────────────────────────
def run_deployment(options: argparse.Namespace, console: Console) -> None:
    """Compare what an addresses file names with what stands, and with this version's bytecode."""
    deployment = Deployment.load(Path(options.deployment))
    if deployment.made is None:
        raise ConfigError(f"{options.deployment} does not say how it was made")
    chain = Chain(options.rpc, deployment)
    try:
        if found := differences(chain, deployment, deployment.made):
            raise DeploymentDiffers(found)
    finally:
        chain.close()
    made = deployment.made
    table = Table("contract", "address", "keccak of its code")
    addresses = (deployment.contract, *made.extensions, deployment.adjudicator, deployment.prover)
    for name, address, digest in zip(CODED, addresses, made.code_hashes, strict=True):
        table.add_row(name, address, api.to_hex(digest))
    console.print(table)
    console.print(f"as planned: code of version {made.version}, terms and addresses", markup=False)


# ── A model's spec ───────────────────────────────────────────────────────────────────────────────
def add_spec(parser: argparse.ArgumentParser) -> None:
    """Options of `verillm spec`."""
    option = parser.add_argument
    option("model", type=Path, help="model folder")
    option("--profile", required=True, help="calibration: a file, or the name of a shipped one")
    option("--name", help="what the model is called (default: the folder's name)")
    option("--terms", type=Path, help="a terms file: committee and stake of a seat")
    option("--out", type=Path, required=True, help="file to write")


def run_spec(options: argparse.Namespace, console: Console) -> None:
    """Describe a model folder under a calibration, as `deploy --spec` and nodes read it."""
    file = Path(options.profile)
    calibrated = read_profile(file) if file.is_file() else shipped_profile(options.profile)
    asked = calibrated.terms
    if options.terms is not None:
        parameters = params.read_terms(options.terms)
        committee, stake = parameters.committee, parameters.seat_stake
        asked = replace(asked, committee=committee, seat_stake=stake)
    name = options.name or options.model.name
    spec = describe(options.model, calibrated.profile, name=name, terms=asked)
    options.out.write_text(json.dumps(spec_to_json(spec), indent=2) + "\n", "utf-8")
    console.print(f"{name}: model {api.to_hex(model_id(spec))}", markup=False)
