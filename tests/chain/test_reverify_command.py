"""`verillm-audit reverify` on the real contracts: what it takes, sent, and every refusal."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount

from tests.chain.appeals import AppealWorld
from tests.chain.conftest import Net
from tests.chain.test_appeals import ONE
from tests.chain.world import Running, World
from verillm.chain.anvil import dev_account
from verillm.chain.appeals import AppealPhase
from verillm.chain.contract import Chain, Status
from verillm.chain.deploy import deploy
from verillm.codec import encode_bundle
from verillm.evidence import Bundle, CheckedOutput
from verillm.merkle import Tree
from verillm.request import requests_tree
from verillm.task import output_hash, outputs_tree
from verillm_verifier.cli import main
from verillm_verifier.errors import AlreadyReverified, ContentsMissing, RoundForced, TooFewOwners
from verillm_verifier.facts import Facts, read
from verillm_verifier.reverify import ask, check_open, contents_of_bundle, put

REFUSED = 3


@pytest.fixture(scope="module")
def furnished(deployed: Net) -> Iterator[AppealWorld]:
    snapshot = deployed.rpc("evm_snapshot")
    yield AppealWorld(deployed, ONE)
    assert deployed.rpc("evm_revert", snapshot)


@pytest.fixture
def world(furnished: AppealWorld) -> Iterator[AppealWorld]:
    snapshot = furnished.net.rpc("evm_snapshot")
    yield furnished
    assert furnished.net.rpc("evm_revert", snapshot)


@pytest.fixture
def run(world: AppealWorld) -> Running:
    return world.claim(world.seal(world.post(5)), paid=1)


def trees(run: Running) -> tuple[Tree, Tree]:
    given = [output_hash(run.task.task_id, output) for output in run.outputs]
    return requests_tree(run.requests), outputs_tree(given)


def bundle_of(world: AppealWorld, run: Running) -> Bundle:
    """A job's bundle without any opening, its requests in another order than drawn."""
    asked, given = trees(run)
    shown = tuple(
        CheckedOutput(each, run.requests[each], asked.proof(each), run.outputs[each],
                      given.proof(each))
        for each in sorted(world.checked(run))
    )  # fmt: skip
    return Bundle(run.job, run.quote, run.client_signature, shown, ())


class Caller:
    """The command line, with its files."""

    def __init__(self, world: World, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.world, self.folder, self.capsys = world, folder, capsys
        self.addresses = folder / "deployment.json"
        world.net.deployment.save(self.addresses)

    def key(self, account: LocalAccount) -> list[str]:
        path = self.folder / f"{account.address}.json"
        path.write_text(json.dumps(Account.encrypt(account.key, "", iterations=2)))
        path.chmod(0o600)
        return ["--key", str(path)]

    def bundle(self, bundle: Bundle) -> list[str]:
        path = self.folder / "bundle"
        path.write_bytes(encode_bundle(bundle))
        return ["--bundle", str(path)]

    def said(self, run: Running, *more: str) -> tuple[int, dict[str, Any]]:
        where = ["--rpc", self.world.net.anvil.url, "--deployment", str(self.addresses), "--json"]
        self.capsys.readouterr()
        code = main(["reverify", self.world.id_of(run).hex(), *where, *more])
        return code, json.loads(self.capsys.readouterr().out)

    def refused(self, run: Running, *more: str) -> str:
        """The code of the error that the command ends with."""
        code, said = self.said(run, *more)
        assert code == REFUSED
        assert said["error"]["remedy"]
        return str(said["error"]["code"])


@pytest.fixture
def caller(
    world: AppealWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Caller:  # fmt: skip
    monkeypatch.delenv("VERILLM_KEY", raising=False)
    monkeypatch.delenv("VERILLM_PASSWORD", raising=False)
    return Caller(world, tmp_path, capsys)


def chain_of(world: World) -> Chain:
    return world.chain(world.auditor.account)


def facts_of(world: World, run: Running) -> Facts:
    return read(chain_of(world), world.id_of(run))


# ── Asked ────────────────────────────────────────────────────────────────────────────────────────
def test_a_dry_run_says_what_it_takes_and_moves_nothing(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    before = chain_of(world).job_state(world.id_of(run))
    code, said = caller.said(run, *caller.bundle(bundle_of(world, run)))
    assert code == 0
    assert said["bond"] == str(world.net.config.reverify_bond)
    assert (said["until"], said["requests"]) == (before.deadline, len(world.checked(run)))
    assert (said["calls"], said["transactions"]) == (["reverify"], [])
    assert chain_of(world).job_state(world.id_of(run)) == before
    question = put(chain_of(world), facts_of(world, run), encode_bundle(bundle_of(world, run)))
    job, bond, until, nothing = question.lines((), "VLT", 18)
    assert job.endswith(f"claimed: {said['requests']} requests to supply")
    assert bond.startswith("bond: 1 VLT;")
    assert until.endswith("UTC")
    assert "--send" in nothing


def test_what_is_sent_locks_the_bond_and_completes_the_contents(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    chain = chain_of(world)
    before = chain.account_of(world.auditor.address).locked
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(world.auditor.account)]
    code, said = caller.said(run, *given, "--send")
    assert (code, len(said["transactions"])) == (0, 1)
    locked = chain.account_of(world.auditor.address).locked
    assert locked - before == world.net.config.reverify_bond
    appeal = chain.appeal_of(world.id_of(run))
    assert (appeal.phase, appeal.requester) == (AppealPhase.COMPLETE, world.auditor.address)
    world.net.pass_time(1)
    assert len(world.convene(run).committee) == 3
    assert caller.refused(run, *given, "--send") == "already_reverified"


def test_a_hot_key_asks_with_the_stake_of_its_operator(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(world.auditor.hot)]
    world.net.rpc("anvil_setBalance", world.auditor.hot.address, hex(10**20))
    assert caller.said(run, *given, "--send")[0] == 0
    assert chain_of(world).appeal_of(world.id_of(run)).requester == world.auditor.address


def test_large_contents_go_in_parts_and_a_broken_off_question_is_taken_up(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    chain, raw = chain_of(world), encode_bundle(bundle_of(world, run))
    whole = put(chain, facts_of(world, run), raw, most_bytes=1)
    assert [call.name for call in whole.calls] == ["reverify"] + ["supply"] * (whole.requests - 1)
    assert whole.requests > 1
    ask(chain, replace(whole, calls=whole.calls[:1]))
    assert chain.appeal_of(world.id_of(run)).phase is AppealPhase.ASKED
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(world.scheduler.account)]
    code, said = caller.said(run, *given, "--send")  # by anyone, and without a bond
    assert (code, said["bond"], said["calls"]) == (0, "0", ["supply"])
    assert chain.appeal_of(world.id_of(run)).phase is AppealPhase.COMPLETE
    with pytest.raises(AlreadyReverified):
        check_open(chain, facts_of(world, run))


def test_a_verdict_of_a_public_round_can_be_asked_about(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    record = world.record(run)
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(world.auditor.account)]
    world.send(world.auditor.account, world.calls.challenge(*record))
    assert caller.refused(run, *given) == "not_disputable"
    world.net.pass_time(3 * world.net.config.opening_window)
    world.send(world.auditor.account, world.calls.adjudicate(*record))
    assert chain_of(world).job_state(world.id_of(run)).status is Status.JUDGED
    assert caller.said(run, *given, "--send")[0] == 0
    assert chain_of(world).job_state(world.id_of(run)).status is Status.REVERIFYING


# ── Refused ──────────────────────────────────────────────────────────────────────────────────────
def test_what_nobody_claimed_cannot_be_asked_about(world: AppealWorld, caller: Caller) -> None:
    assert caller.refused(world.post()) == "not_disputable"
    assert caller.refused(world.seal(world.post())) == "not_disputable"


def test_what_stood_too_long_or_ended_cannot_be_asked_about(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    given = caller.bundle(bundle_of(world, run))
    world.net.pass_time(world.net.config.dispute_window + 1)
    assert caller.refused(run, *given) == "window_over"
    world.finalize(run)
    assert caller.refused(run, *given) == "window_over"


def test_a_bond_that_is_not_covered_is_refused_before_anything_is_sent(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    poor = dev_account(15)
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(poor)]
    sent = chain_of(world).nonce(poor.address)
    assert caller.refused(run, *given) == "bond_not_covered"
    assert caller.refused(run, *given, "--send") == "bond_not_covered"
    assert chain_of(world).nonce(poor.address) == sent


def test_stake_that_is_asked_back_covers_no_bond(
    world: AppealWorld, run: Running, caller: Caller
) -> None:
    chain, auditor = chain_of(world), world.auditor
    free = chain.account_of(auditor.address).balance
    chain.send(chain.calls.request_stake_withdrawal(free))
    given = [*caller.bundle(bundle_of(world, run)), *caller.key(auditor.account)]
    assert caller.refused(run, *given, "--send") == "bond_not_covered"


def test_without_a_bundle_or_a_key_nothing_is_sent(
    world: AppealWorld, run: Running, caller: Caller, tmp_path: Path
) -> None:
    assert caller.refused(run) == "bundle_unavailable"
    assert caller.refused(run, "--bundle", str(tmp_path / "none")) == "bundle_unavailable"
    assert caller.refused(run, *caller.bundle(bundle_of(world, run)), "--send") == "bad_config"


def test_power_a_bundle_with_another_text_or_without_a_request_is_refused(
    world: AppealWorld, run: Running
) -> None:
    facts, bundle = facts_of(world, run), bundle_of(world, run)
    assert len(contents_of_bundle(facts, encode_bundle(bundle))) == len(world.checked(run))
    first, *rest = bundle.checked
    false = replace(first, output=(*first.output[:-1], 99))
    for shown in ((false, *rest), tuple(rest)):
        raw = encode_bundle(replace(bundle, checked=shown))
        with pytest.raises(ContentsMissing):
            contents_of_bundle(facts, raw)


def test_too_few_owners_are_told(net: Net) -> None:
    small = World(net)
    run = small.claim(small.seal(small.post()))
    with pytest.raises(TooFewOwners, match=r"5 owners .* 8 are needed"):
        check_open(chain_of(small), facts_of(small, run))


def test_a_job_whose_round_is_forced_needs_that_round_first(net: Net) -> None:
    config = replace(net.config, forced_every=1)
    deployment = deploy(net.provider, dev_account(0), config)
    forced = AppealWorld(replace(net, deployment=deployment, config=config), ONE)
    run = forced.claim(forced.seal(forced.post()), paid=1)
    with pytest.raises(RoundForced):
        put(chain_of(forced), facts_of(forced, run), encode_bundle(bundle_of(forced, run)))
