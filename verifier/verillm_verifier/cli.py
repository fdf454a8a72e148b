"""`verillm-audit`: jobs, show, verify, demand, prove, reverify, suspect, calibrate, certify, lab.

Trusts nothing but arithmetic. Exit codes: 0 accept, 1 reject, 2 inconclusive, 3 the audit could not
be done (no endpoint, wrong chain, bad arguments), 4 the chain settled against the evidence. `jobs`
and `show` give 0 or 3, `prove` and `suspect` 0, 1 or 3.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from verillm.api import to_hex
from verillm.chain import events
from verillm.chain.contract import Chain
from verillm.codec import bundle_hash
from verillm.engine import cache_home, open_engine
from verillm.engine.prepare import default_folder
from verillm.errors import InputError, VeriLLMError
from verillm.head import HeadRows
from verillm.types import ChecksumAddress, Hash32, JobId
from verillm_verifier import report as shown
from verillm_verifier.audit import Audit, Exit, audit
from verillm_verifier.demand import demand, served
from verillm_verifier.errors import BundleUnavailable
from verillm_verifier.facts import Facts, find_job, read, sender_of
from verillm_verifier.listing import list_jobs
from verillm_verifier.money import check_money
from verillm_verifier.opinion import form
from verillm_verifier.prove import find, prove
from verillm_verifier.replay import replay
from verillm_verifier.reverify import ask, check_open, put
from verillm_verifier.sources import account_of, bundle_of, head_of, open_chain
from verillm_verifier.steps import FORGEABLE, steps_of
from verillm_verifier.suspect import Pooled, pool, table_of

RPC_VARIABLE, DEPLOYMENT_VARIABLE = "VERILLM_RPC", "VERILLM_DEPLOYMENT"
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """argparse exits with 2 on bad arguments, which is this command's `inconclusive`."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit as a failed audit."""
        self.print_usage(sys.stderr)
        self.exit(int(Exit.FAILED), f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every expected error has a code and a remedy, on standard error."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["calibrate"]:
        return _calibrate(words[1:])
    if words[:1] == ["certify"]:
        return _certify(words[1:])
    if words[:1] == ["lab"]:
        return _lab(words[1:])
    options = parser().parse_args(words)
    try:
        return int(options.run(options))
    except VeriLLMError as error:
        return _fail(error, options.json)
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = Parser(prog="verillm-audit", description="Judge jobs again, from public data alone.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    jobs = commands.add_parser("jobs", help="every job of a deployment")
    _where(jobs, _jobs)
    show = commands.add_parser("show", help="every step of one job")
    verify = commands.add_parser(
        "verify",
        help="recompute one job's verdict from chain and bundle",
        description="Exit code 0 accept, 1 reject, 2 inconclusive, 3 the audit could not be done, "
        "4 the chain settled against the evidence.",
    )
    for command, run in ((show, _show), (verify, _verify)):
        command.add_argument("job", metavar="JOB", help="a job's id, or how it begins")
        _where(command, run)
        _evidence(command)
    verify.add_argument("--rerun", action="store_true", help="add a prefill of one's own")
    verify.add_argument("--engine", choices=("torch", "tiny"), default="torch", help="for --rerun")
    verify.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    proving = commands.add_parser(
        "prove",
        help="find what the evidence proves on chain without a committee, and send it",
        description="Exit code 0 nothing is proven, 1 something is, 3 it could not be tried.",
    )
    proving.add_argument("job", metavar="JOB", help="a job's id, or how it begins")
    proving.add_argument(
        "--receipt", type=Path, metavar="FILE", help="a receipt, to hold to the post"
    )
    proving.add_argument("--send", action="store_true", help="send the first proof that holds")
    _key(proving)
    _where(proving, _prove)
    _evidence(proving)
    demanding = commands.add_parser(
        "demand",
        help="demand a claim's bundle on chain, bonded, or save the one that was served",
        description="Exit code 0 it was demanded or saved, 3 it could not be.",
    )
    demanding.add_argument("job", metavar="JOB", help="a job's id, or how it begins")
    demanding.add_argument("--out", type=Path, metavar="FILE", help="where a served bundle goes")
    _key(demanding)
    _where(demanding, _demand)
    asking = commands.add_parser(
        "reverify",
        help="say what putting a job before a larger committee takes, and ask for it, bonded",
        description="Exit code 0 it was asked for or can be, 3 it cannot be.",
    )
    asking.add_argument("job", metavar="JOB", help="a job's id, or how it begins")
    asking.add_argument("--send", action="store_true", help="lock the bond and ask")
    _key(asking)
    _where(asking, _reverify)
    _bundle(asking)
    suspect = commands.add_parser(
        "suspect",
        help="pool each worker's jobs: whose to challenge together",
        description="Exit code 0 nobody is suspected, 1 somebody is, 3 the audit failed.",
    )
    suspect.add_argument("worker", nargs="?", metavar="WORKER", help="only this operator's jobs")
    suspect.add_argument("--bundles", type=Path, metavar="DIR", help="bundles named by their jobs")
    suspect.add_argument("--model", type=Path, metavar="DIR", help="model folder (the prepared)")
    suspect.add_argument("--table", type=Path, metavar="FILE", help="likelihood ratios (shipped)")
    _where(suspect, _suspect)
    commands.add_parser("calibrate", help="measure honest runs, write a check profile")
    commands.add_parser("certify", help="bound how often a profile refuses honest work")
    commands.add_parser("lab", help="run every named cheat against the verdict, write what came")
    return top


def _where(command: argparse.ArgumentParser, run: Any) -> None:
    command.add_argument(
        "--rpc",
        default=os.environ.get(RPC_VARIABLE, "http://127.0.0.1:8545"),
        help=f"JSON-RPC endpoint of the chain (${RPC_VARIABLE}; %(default)s)",
    )
    command.add_argument(
        "--deployment",
        type=Path,
        default=os.environ.get(DEPLOYMENT_VARIABLE, str(cache_home() / "devnet/deployment.json")),
        help=f"addresses file of the deployment (${DEPLOYMENT_VARIABLE}; the devnet's)",
    )
    command.add_argument("--json", action="store_true", help="for machines")
    command.set_defaults(run=run)


def _key(command: argparse.ArgumentParser) -> None:
    keystore = os.environ.get("VERILLM_KEY")
    command.add_argument("--key", default=keystore, help="keystore of who sends (VERILLM_KEY)")
    command.add_argument("--password-file", help="its password (VERILLM_PASSWORD)")


def _bundle(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bundle", metavar="FILE|URL", help="the evidence (default: asked of the job's scheduler)"
    )


def _evidence(command: argparse.ArgumentParser) -> None:
    _bundle(command)
    command.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="model folder for the head rows (default: the prepared model, if it is the job's)",
    )


# ── Commands ─────────────────────────────────────────────────────────────────────────────────────
def _jobs(options: argparse.Namespace) -> int:
    chain = open_chain(options)
    try:
        rows = list(list_jobs(chain))
    finally:
        chain.close()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for each in rows:
            print(shown.row(each))
        print(f"{len(rows)} jobs")
    return int(Exit.ACCEPT)


def _show(options: argparse.Namespace) -> int:
    report = perform(options)
    _print(options, report, shown.story(report))
    return int(Exit.ACCEPT)


def _verify(options: argparse.Namespace) -> int:
    report = perform(options)
    _print(options, report, shown.verification(report))
    return int(report.audit.exit)


def _prove(options: argparse.Namespace) -> int:
    notes: list[str] = []
    chain = open_chain(options, account_of(options) if options.send else None)
    try:
        facts = read(chain, find_job(chain, options.job))
        raw, missing = bundle_of(options.bundle, facts, notes)
        if raw is None:
            raise BundleUnavailable(missing)
        head = head_of(options.model, facts.spec, notes)
        tried = tuple(prove(chain, facts, find(facts, raw, head, options.receipt), options.send))
    finally:
        chain.close()
    if options.json:
        print(json.dumps({"proofs": [each.to_json() for each in tried], "notes": notes}, indent=2))
    else:
        for line in (*(each.line() for each in tried), *(f"note: {note}" for note in notes)):
            print(shown.clean(line))
    return int(Exit.REJECT if any(each.holds for each in tried) else Exit.ACCEPT)


def _demand(options: argparse.Namespace) -> int:
    chain = open_chain(options, account_of(options) if options.key else None)
    try:
        facts = read(chain, find_job(chain, options.job))
        found = served(chain, facts)
        if found is None:
            account_of(options)  # says what is missing, before anything is sent
            mined = demand(chain, facts)
            said = {"demanded": to_hex(mined.transaction)}
        else:
            if options.out is not None:
                options.out.write_bytes(found)
            said = {"served": to_hex(bundle_hash(found)), "bytes": str(len(found))}
    finally:
        chain.close()
    lines = [json.dumps(said)] if options.json else [f"{k}: {v}" for k, v in said.items()]
    for line in lines:
        print(shown.clean(line))
    return int(Exit.ACCEPT)


def _reverify(options: argparse.Namespace) -> int:
    notes: list[str] = []
    account = account_of(options) if options.send or options.key else None
    chain = open_chain(options, account)
    try:
        facts = read(chain, find_job(chain, options.job))
        check_open(chain, facts)  # before a bundle is asked of anyone
        raw, missing = bundle_of(options.bundle, facts, notes)
        if raw is None:
            raise BundleUnavailable(missing)
        question = put(chain, facts, raw)
        sent = ask(chain, question) if options.send else ()
        units = chain.token_units()
    finally:
        chain.close()
    if options.json:
        print(json.dumps(question.to_json(sent), indent=2))
    else:
        for line in question.lines(sent, *units):
            print(shown.clean(line))
    return int(Exit.ACCEPT)


def _suspect(options: argparse.Namespace) -> int:
    notes: list[str] = []
    found = suspects(options, notes)
    if options.json:
        said = {"workers": [each.to_json() for each in found], "notes": notes}
        print(json.dumps(said, indent=2))
    else:
        for line in (*(each.line() for each in found), *(f"note: {note}" for note in notes)):
            print(shown.clean(line))
    return int(Exit.REJECT if any(each.is_alarm for each in found) else Exit.ACCEPT)


def suspects(options: argparse.Namespace, notes: list[str]) -> tuple[Pooled, ...]:
    """Read, fetch and judge every job of the model at hand, and pool them by worker."""
    chain = open_chain(options)
    try:
        posted = [at.event.job_id for at in events.stream(chain, (events.Posted,))]
        told = [read(chain, JobId(job)) for job in posted]
    finally:
        chain.close()
    wanted = [
        facts for facts in told if options.worker in (None, facts.posting.worker) and facts.sealing
    ]
    models = dict.fromkeys(facts.posting.quote.model_id for facts in wanted)
    pooled: list[Pooled] = []
    for model in models:
        jobs = [facts for facts in wanted if facts.posting.quote.model_id == model]
        head = head_of(options.model, jobs[0].spec, notes)
        if head is None:
            continue
        table = table_of(jobs[0].spec, options.table)
        audits = (_pooled_audit(options.bundles, facts, head, notes) for facts in jobs)
        pooled += pool(audits, head, table)
    return tuple(sorted(pooled, key=lambda each: -each.suspicion.value))


def _pooled_audit(folder: Path | None, facts: Facts, head: HeadRows, notes: list[str]) -> Audit:
    path = None if folder is None else folder / to_hex(facts.history.job_id)
    raw, missing = bundle_of(str(path) if path and path.is_file() else None, facts, notes)
    return audit(facts, raw, head, missing)


def _lab(arguments: Sequence[str]) -> int:
    from verillm_verifier import game, lab

    if arguments[:1] == ["--game"]:
        return game.main(arguments[1:])
    return lab.main(arguments)


def _calibrate(arguments: Sequence[str]) -> int:
    from verillm_verifier import calibrate

    return int(calibrate.main(arguments) or 0)


def _certify(arguments: Sequence[str]) -> int:
    from verillm_verifier import certify

    return certify.main(arguments)


# ── One audit ────────────────────────────────────────────────────────────────────────────────────
def perform(options: argparse.Namespace) -> shown.Report:
    """Read, fetch, judge: everything that `show` and `verify` print."""
    chain = open_chain(options)
    try:
        facts = read(chain, find_job(chain, options.job))
        senders = _senders(chain, facts)
        symbol, decimals = chain.token_units()
    finally:
        chain.close()
    notes: list[str] = []
    head = head_of(options.model, facts.spec, notes)
    raw, missing = bundle_of(options.bundle, facts, notes)
    result = audit(facts, raw, head, missing)
    moved = check_money(facts)
    if getattr(options, "rerun", False):
        result = _rerun(options, result, head, notes)
    steps = steps_of(facts.history, senders)
    return shown.Report(result, steps, moved, tuple(notes), symbol, decimals)


def _senders(chain: Chain, facts: Facts) -> Mapping[Hash32, ChecksumAddress]:
    told = {at.transaction for at in facts.history.events if not isinstance(at.event, FORGEABLE)}
    return {transaction: sender_of(chain, transaction) for transaction in told}


def _rerun(
    options: argparse.Namespace, result: Audit, head: HeadRows | None, notes: list[str]
) -> Audit:
    """Add one's own prefill of the checked requests."""
    if result.evidence is None:
        notes.append("nothing to run again: the evidence does not hold together")
        return result
    if head is None:
        raise InputError("--rerun needs the job's own model: give its folder with --model")
    folder = default_folder() if options.model is None else options.model
    engine = open_engine(folder, kind=options.engine, dtype=options.dtype)
    engine.start()
    try:
        own = replay(engine, result.evidence.checked)
    finally:
        engine.close()
    return replace(result, opinion=form(result.evidence, own, head))


# ── Output ───────────────────────────────────────────────────────────────────────────────────────
def _print(options: argparse.Namespace, report: shown.Report, lines: Iterator[str]) -> None:
    if options.json:
        print(json.dumps(shown.to_json(report), indent=2))
    else:
        for line in lines:
            print(line)


def _fail(error: VeriLLMError, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": error.to_dict()}, indent=2))
    print(f"error [{error.code}]: {shown.clean(str(error))}\n  {error.remedy}", file=sys.stderr)
    return int(Exit.FAILED)
