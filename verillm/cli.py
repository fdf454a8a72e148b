"""`verillm`: a client's money and jobs from the command line.

Exit codes: 0 done; 2 wrong usage; 3 wrong input or setting; 4 a signature, model or evidence that
does not hold; 5 the chain refused or is away; 6 the scheduler refused or is away; 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, TypeVar

from eth_account.signers.local import LocalAccount
from eth_utils.address import is_address, to_checksum_address
from rich.console import Console
from rich.table import Table

from verillm import __version__, api, keystore
from verillm.chain import command as deploying
from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.chain.events import (
    At,
    Burnt,
    ChallengeOpened,
    Claimed,
    Finalized,
    ItemMismatched,
    JobHistory,
    Paid,
    PairCompared,
    PositionServed,
    Posted,
    Revealed,
    Sealed,
    Slashed,
    job_history,
    stream,
)
from verillm.client import STAGES, Client, JobHandle
from verillm.economics import command as params
from verillm.errors import (
    ChainError,
    ConfigError,
    InputError,
    NodeError,
    NotFound,
    VeriLLMError,
)
from verillm.types import ChecksumAddress, JobId, Outcome, Reason

T = TypeVar("T")
DECIMALS: Final = 18
EXIT_CODES: Final[tuple[tuple[type[VeriLLMError], int], ...]] = (
    (InputError, 3),
    (ConfigError, 3),
    (ChainError, 5),
    (NodeError, 6),
)
MEANING: Final = {
    Reason.NONE: "the committee's states agree with the inferencer's",
    Reason.STATES_DIFFER: "the committee's states differ from the inferencer's",
    Reason.NON_FINITE: "the inferencer's states hold NaN or infinity",
    Reason.WITHHELD: "the inferencer did not open what it committed to",
    Reason.MARGIN_MEAN: "on average, tokens lose by too much to others",
    Reason.MARGIN_MAX: "a token loses by too much to another",
    Reason.OUTSIDE_NUCLEUS: "a token lies outside what the sampling allows",
    Reason.LENGTH: "the output is longer or shorter than the job asked",
    Reason.AFTER_END: "tokens after an end token",
    Reason.TASK_MISMATCH_INFERENCER: "the inferencer's task is not the job's request",
    Reason.OUTPUT_MISMATCH: "the outputs are not those that were committed",
    Reason.OUT_OF_BOUNDS: "the worker took a task that no worker can run",
    Reason.TRACE_DIFFERS: "the worker ran another prompt than its task's",
    Reason.TASK_DIFFERS: "the scheduler gave out another task than the job's",
    Reason.RECEIPT_DIFFERS: "the scheduler's receipt is not of what it posted",
    Reason.NO_CLIQUE: "too few verifiers agree with one another",
    Reason.DIVIDED: "the verifiers are divided over the inferencer",
    Reason.TOO_FEW_POSITIONS: "too few positions to judge by",
    Reason.PROFILE_MISSING: "the model has no calibrated thresholds",
    Reason.EVIDENCE_MISSING: "evidence is missing",
    Reason.TASK_MISMATCH: "the verifiers were given another text",
    Reason.HEAD_MISSING: "the token check lacks the model's head",
    Reason.NOT_SEALED: "the scheduler did not seal in time",
    Reason.BEACON_LOST: "the chain forgot the block hash that the draw needs",
    Reason.NOT_COMPARED: "nobody compared the openings in time",
}


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────
def _account(options: argparse.Namespace) -> LocalAccount:
    if not options.key:
        raise ConfigError("no key: give --key or set VERILLM_KEY; `verillm key FILE` makes one")
    return keystore.load(Path(options.key), keystore.password(options.password_file))


def _deployment(options: argparse.Namespace) -> Deployment:
    return Deployment.load(Path(options.deployment))


def _client(options: argparse.Namespace) -> Client:
    account = _account(options)
    return Client(options.rpc, _deployment(options), account, scheduler=options.scheduler)


def _with_chain(options: argparse.Namespace, work: Callable[[Chain], T]) -> T:
    chain = Chain(options.rpc, _deployment(options))
    try:
        return work(chain)
    finally:
        chain.close()


def _scheduler_address(client: Client, options: argparse.Namespace) -> ChecksumAddress:
    """Named on the command line, or what the scheduler's API says of itself."""
    if options.to is None:
        return client.schedulers_offer().address
    return _address(options.to)


def _address(text: str) -> ChecksumAddress:
    if not is_address(text):
        raise InputError(f"{text} is not an address")
    return to_checksum_address(text)


def parse_amount(text: str) -> int:
    """Token units of a decimal number of tokens; raises InputError."""
    try:
        units = Decimal(text).scaleb(DECIMALS)
    except InvalidOperation as error:
        raise InputError(f"{text!r} is not a number of tokens") from error
    if not units.is_finite() or units != units.to_integral_value() or not 0 < units < 1 << 96:
        raise InputError(f"{text!r} is not a positive number of tokens with {DECIMALS} decimals")
    return int(units)


def show_amount(units: int) -> str:
    """A number of tokens, without trailing zeros."""
    number = Decimal(units).scaleb(-DECIMALS)
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


def _show_time(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S")


# ── Commands ─────────────────────────────────────────────────────────────────────────────────────
def _key(options: argparse.Namespace, console: Console) -> None:
    password = keystore.password(options.password_file)
    account = keystore.create(Path(options.file), password)
    console.print(account.address, markup=False)


def _deposit(options: argparse.Namespace, console: Console) -> None:
    amount = parse_amount(options.amount)
    with _client(options) as client:
        scheduler = _scheduler_address(client, options)
        client.deposit(scheduler, amount)
        held = client.deposit_of(scheduler).amount
    console.print(f"deposited {show_amount(amount)}; {show_amount(held)} at {scheduler}")


def _withdraw(options: argparse.Namespace, console: Console) -> None:
    with _client(options) as client:
        scheduler = _scheduler_address(client, options)
        state = client.deposit_of(scheduler)
        if state.unlocking and state.available_at <= client.chain.now():
            client.withdraw(scheduler)
            console.print("withdrawn; in the wallet: " + show_amount(client.balance()))
            return
        if not state.unlocking:
            amount = None if options.amount is None else parse_amount(options.amount)
            state = client.unlock(scheduler, amount)
        console.print(
            f"{show_amount(state.unlocking)} unlocks at {_show_time(state.available_at)} UTC; "
            "then run this again"
        )


def _balance(options: argparse.Namespace, console: Console) -> None:
    with _client(options) as client:
        table = Table("where", "tokens")
        table.add_row("wallet", show_amount(client.balance()))
        if options.to or options.scheduler:
            scheduler = _scheduler_address(client, options)
            state = client.deposit_of(scheduler)
            table.add_row(f"deposit at {scheduler}", show_amount(state.amount))
            if state.unlocking:
                until = _show_time(state.available_at)
                table.add_row(f"unlocking until {until}", show_amount(state.unlocking))
        table.add_row("gas (wei)", str(client.chain.balance(client.account.address)))
    console.print(table)


def _ask(options: argparse.Namespace, console: Console) -> None:
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    asked: dict[str, Any] = {"prompt": prompt} if options.raw else {"messages": _chat(prompt)}
    max_fee = None if options.max_fee is None else parse_amount(options.max_fee)
    with _client(options) as client:
        handle = client.submit(
            **asked,
            model=options.model,
            max_fee=max_fee,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
        )
        for piece in handle:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        _follow(handle, options, Console(stderr=True))


def _follow(handle: JobHandle, options: argparse.Namespace, console: Console) -> None:
    console.print(f"job {api.to_hex(handle.job_id)}", style="dim")
    handle.verify_receipt()
    if options.wait == "receipt":
        return
    with console.status(f"waiting until {options.wait} …"):
        handle.wait(options.wait, within=options.within)
    checked = handle.verify_receipt()
    console.print(f"{options.wait}; receipt holds (posted: {checked.posted})", style="dim")
    if (settled := handle.outcome()) is not None:
        console.print(f"{settled.outcome.name.lower()}: {MEANING[settled.reason]}")


def _chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _jobs(options: argparse.Namespace, console: Console) -> None:
    client = _address(options.client) if options.client else _account(options).address

    def collect(chain: Chain) -> list[tuple[At[Posted], str]]:
        posted = [each for each in stream(chain, (Posted,)) if each.event.client == client]
        return [(each, chain.job_state(each.event.job_id).status.name) for each in posted]

    table = Table("posted (UTC)", "job", "requests", "max fee", "status")
    for at, status in _with_chain(options, collect):
        job = at.event.posting.job
        row = (_show_time(at.timestamp), api.to_hex(at.event.job_id), str(job.requests))
        table.add_row(*row, show_amount(job.max_fee), status.lower())
    console.print(table)


def _explain(options: argparse.Namespace, console: Console) -> None:
    job_id = JobId(api.parse_hash(options.job, "job"))
    history = _with_chain(options, lambda chain: job_history(chain, job_id))
    if not history.events:
        raise NotFound(f"the chain knows no job {options.job}")
    console.print(explanation(history))


def explanation(history: JobHistory) -> Table:
    """Everything that happened to a job, a line an event."""
    table = Table("time (UTC)", "step", "what", "transaction")
    for at in history.events:
        what = _TELL[type(at.event)](at.event) if type(at.event) in _TELL else ""
        step = type(at.event).__name__
        table.add_row(_show_time(at.timestamp), step, what, api.to_hex(at.transaction)[:18] + "…")
    return table


def _tell_claim(event: Claimed) -> str:
    claiming = event.claiming
    verdict = f"{Outcome(claiming.outcome).name.lower()}: {MEANING[Reason(claiming.reason)]}"
    return f"{claiming.claimer} claims {verdict}"


_TELL: Final[dict[type[Any], Callable[[Any], str]]] = {
    Posted: lambda e: (
        f"worker {e.posting.worker} committed to {e.posting.job.requests} request(s); "
        f"{show_amount(e.posting.job.max_fee)} in escrow, {show_amount(e.posting.lock)} at stake"
    ),
    Sealed: lambda e: (
        f"committee {', '.join(e.sealing.owners)} committed; fee {show_amount(e.sealing.fee)}"
    ),
    Claimed: _tell_claim,
    ChallengeOpened: lambda e: f"{e.challenger} challenges; openings due {_show_time(e.open_by)}",
    Revealed: lambda e: f"request {e.checked_index}: {e.prompt_tokens} + {e.new_tokens} tokens",
    PositionServed: lambda e: f"party {e.party} opened position {e.position_index}",
    ItemMismatched: lambda e: f"party {e.party} was to run another text",
    PairCompared: lambda e: f"parties {e.party_a} and {e.party_b} compared",
    Paid: lambda e: f"{e.account} gets {show_amount(e.amount)}",
    Slashed: lambda e: f"{e.operator} loses {show_amount(e.amount)}",
    Burnt: lambda e: f"{show_amount(e.amount)} burnt",
    Finalized: lambda e: f"{e.outcome.name.lower()}: {MEANING[e.reason]}",
}


# ── The command line ─────────────────────────────────────────────────────────────────────────────
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verillm",
        description="Verifiable LLM inference, for clients: money, questions, verdicts.",
        epilog="Every option that names an environment variable may be set there.",
    )
    parser.add_argument("--version", action="version", version=f"verillm {__version__}")
    option = parser.add_argument
    option("--rpc", default=_env("RPC", "http://127.0.0.1:8545"), help="chain (VERILLM_RPC)")
    option("--deployment", default=_env("DEPLOYMENT", "deployment.json"), help="addresses file")
    option("--key", default=_env("KEY"), help="keystore (VERILLM_KEY)")
    option("--password-file", default=_env("PASSWORD_FILE"), help="or set VERILLM_PASSWORD")
    option("--scheduler", default=_env("SCHEDULER"), help="its API (VERILLM_SCHEDULER)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., None], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    command("key", _key, "make a new encrypted key").add_argument("file")
    _add_money(command)
    _add_ask(command("ask", _ask, "ask a question, stream the answer, wait for the verdict"))
    sub = command("jobs", _jobs, "list this account's jobs")
    sub.add_argument("--client", help="another account's address")
    command("explain", _explain, "tell what happened to a job").add_argument("job")
    deploying.add_deploy(
        command("deploy", deploying.run_deploy, "deploy the contracts: a dry run, then --broadcast")
    )
    command("deployment", deploying.run_deployment, "compare an addresses file with the chain")
    deploying.add_spec(command("spec", deploying.run_spec, "describe a model, for `deploy --spec`"))
    params.add_options(command("params", params.run, "recommend a deployment's parameters"))
    return parser


def _add_money(command: Callable[..., argparse.ArgumentParser]) -> None:
    for name, run, text in (
        ("deposit", _deposit, "put tokens at a scheduler's disposal"),
        ("withdraw", _withdraw, "take a deposit back, in two steps"),
        ("balance", _balance, "show wallet and deposit"),
    ):
        sub = command(name, run, text)
        sub.add_argument("--to", help="scheduler's address; asked of its API if left out")
        if name == "deposit":
            sub.add_argument("amount", help="tokens, such as 1.5")
        if name == "withdraw":
            sub.add_argument("--amount", help="tokens; all of it if left out")


def _add_ask(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("prompt", help="the question; - reads it from standard input")
    sub.add_argument("--raw", action="store_true", help="complete the text, without chat template")
    sub.add_argument("--model", help="id or name")
    sub.add_argument("--max-new-tokens", type=int, default=256)
    sub.add_argument("--temperature", type=float, default=1.0)
    sub.add_argument("--top-p", type=float, default=1.0)
    sub.add_argument("--top-k", type=int, default=0)
    sub.add_argument("--min-p", type=float, default=0.0)
    sub.add_argument("--max-fee", help="tokens; what the quote makes of it if left out")
    sub.add_argument("--wait", choices=["receipt", *STAGES], default="final")
    sub.add_argument("--within", type=float, default=600.0, help="seconds to wait at most")


def _env(name: str, default: str | None = None) -> str | None:
    return os.environ.get(f"VERILLM_{name}", default)


def exit_code(error: VeriLLMError) -> int:
    """The exit code of an error."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 4)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False)
    try:
        options.run(options, console)
    except VeriLLMError as error:
        said = error.to_dict()
        errors = Console(stderr=True, highlight=False)
        errors.print(f"error [{said['code']}]: {said['message']}", style="red", markup=False)
        errors.print(f"remedy: {said['remedy']}", markup=False)
        return exit_code(error)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
