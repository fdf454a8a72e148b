"""What the commands work on: the chain, a key, a bundle, head rows, each as the options name it."""

import argparse
import os
from pathlib import Path

from eth_account.signers.local import LocalAccount

from verillm import keystore
from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.engine.describe import check_folder
from verillm.engine.prepare import default_folder
from verillm.errors import ConfigError, ModelError, ModelMismatch
from verillm.head import HeadRows
from verillm.model import ModelSpec
from verillm_verifier.errors import BundleUnavailable
from verillm_verifier.facts import Facts
from verillm_verifier.fetch import read_bundle


def open_chain(options: argparse.Namespace, account: LocalAccount | None = None) -> Chain:
    """The chain of `--rpc` and `--deployment`, with a key if anything may be sent."""
    return Chain(options.rpc, Deployment.load(Path(options.deployment)), account)


def account_of(options: argparse.Namespace) -> LocalAccount:
    """The key of `--key`, opened; ConfigError without one."""
    if not options.key:
        raise ConfigError("no key: give --key or set VERILLM_KEY")
    password = os.environ.get("VERILLM_PASSWORD", "")
    if options.password_file:
        password = keystore.read_password(Path(options.password_file))
    return keystore.load(Path(options.key), password)


def bundle_of(source: str | None, facts: Facts, notes: list[str]) -> tuple[bytes | None, str]:
    """The bundle's bytes, or why there are none; a named source must exist."""
    job = facts.history.job_id
    if source is not None:
        return read_bundle(source, job), ""
    endpoint = facts.registry.endpoint(facts.posting.quote.scheduler)
    if facts.sealing is None or endpoint is None:
        return None, "no bundle is published"
    try:
        return read_bundle(endpoint, job), ""
    except BundleUnavailable as error:
        notes.append(f"the scheduler does not serve the bundle: {error}")
        return None, "no bundle at hand"


def head_of(folder: Path | None, spec: ModelSpec, notes: list[str]) -> HeadRows | None:
    """The head rows of the very model that the job names; a named folder must be it."""
    try:
        return _rows(default_folder() if folder is None else folder, spec)
    except (ModelError, OSError) as error:
        if folder is not None:
            raise _as_model_error(error) from error
        notes.append("the job's model is not at hand: without its head rows no token is judged")
        return None


def _as_model_error(error: ModelError | OSError) -> ModelError:
    return error if isinstance(error, ModelError) else ModelMismatch(f"no model: {error}")


def _rows(folder: Path, spec: ModelSpec) -> HeadRows:
    check_folder(folder, spec)
    return HeadRows(folder)
