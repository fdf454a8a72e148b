"""The auditor against a real chain: honest and cheating jobs, and endpoints that lie."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount

from tests.chain.conftest import Net
from tests.unit.verifier.lab import (
    CLIENT,
    HOT,
    PRICE,
    SCHEDULER,
    SECRET,
    WORKERS,
    Engines,
    Played,
    Story,
    play,
    spec_of,
    worker_of,
)
from verillm.chain.contract import Chain, Mined
from verillm.chain.events import Claimed, Posted, Sealed, events_of, stream
from verillm.codec import bundle_hash
from verillm.engine.tiny import write_folder
from verillm.errors import VeriLLMError
from verillm.model import ModelSpec
from verillm.records import Claiming, Posting, Sealing
from verillm.request import Job, Quote
from verillm.signing import job_id, sign
from verillm.task import inner_hash
from verillm.trace import CommittedTrace, commitment_hash
from verillm.types import Hash32, ModelId, Outcome, Reason
from verillm_verifier import cli
from verillm_verifier.attacks import ATTACKS
from verillm_verifier.audit import Exit
from verillm_verifier.facts import check, read
from verillm_verifier.registry import KINDS, Registry

STAKE = 10**22


class OnChain:
    """The lab's parties on Anvil."""

    def __init__(self, net: Net, spec: ModelSpec) -> None:
        self.net, self.spec = net, spec
        self.domain = net.deployment.domain

    def send(self, who: LocalAccount, call: Callable[[Chain], Any]) -> Mined:
        chain = self.net.chain(who)
        return chain.send(call(chain))

    def prepare(self, model: ModelId) -> Registry:
        for who in (CLIENT, SCHEDULER, HOT, *WORKERS):
            self.net.rpc("anvil_setBalance", who.address, hex(10**20))
            self.send(who, minting(who))
            self.send(who, lambda chain: chain.calls.approve(STAKE))
        self.send(CLIENT, lambda chain: chain.calls.deposit(SCHEDULER.address, 10**18))
        self.send(SCHEDULER, lambda chain: chain.calls.add_stake(STAKE))
        self.send(SCHEDULER, lambda chain: chain.calls.set_hot_key(HOT.address))
        self.send(SCHEDULER, lambda chain: chain.calls.set_endpoint("http://127.0.0.1:1"))
        self.send(SCHEDULER, lambda chain: chain.calls.register_model(self.spec))
        for worker in WORKERS:
            self.send(worker, lambda chain: chain.calls.add_stake(STAKE))
            self.send(worker, lambda chain: chain.calls.join(model, PRICE))
        self.net.pass_time(1)
        chain = self.net.chain(CLIENT)
        return Registry.of(stream(chain, KINDS), chain.config().key_grace)

    def now(self) -> int:
        return self.net.chain(CLIENT).now()

    def post(
        self, job: Job, quote: Quote, run: CommittedTrace, outputs_root: Hash32, lock: int
    ) -> tuple[Posting, Hash32]:
        signatures = (
            sign(self.domain, job, CLIENT),
            sign(self.domain, run.commitment, WORKERS[0]),
        )
        hashed = commitment_hash(run.commitment)
        mined = self.send(
            HOT,
            lambda chain: chain.calls.post(job, quote, 0, hashed, outputs_root, lock, *signatures),
        )
        (posted,) = (event for event in events_of(mined) if isinstance(event, Posted))
        return posted.posting, mined.block_hash

    def seal(
        self, posting: Posting, runs: Sequence[CommittedTrace], drawn: Sequence[tuple[int, str]]
    ) -> tuple[Sealing, Hash32]:
        first, *others = runs
        inners = [inner_hash(run.inner) for run in others]
        signatures = [
            sign(self.domain, run.commitment, worker_of(owner))
            for run, (_, owner) in zip(others, drawn, strict=True)
        ]
        mined = self.send(
            HOT,
            lambda chain: chain.calls.seal(posting, SECRET, first.inner, inners, signatures),
        )
        (sealed,) = (event for event in events_of(mined) if isinstance(event, Sealed))
        return sealed.sealing, mined.block_hash

    def claim(
        self, played: Played, outcome: Outcome, reason: Reason, paid: int = 0b111
    ) -> Claiming:
        record = (played.posting, played.sealing)
        named = bundle_hash(played.raw)
        mined = self.send(
            HOT, lambda chain: chain.calls.claim(*record, outcome, reason, paid, named)
        )
        (claimed,) = (event for event in events_of(mined) if isinstance(event, Claimed))
        claiming: Claiming = claimed.claiming
        return claiming

    def finalize(self, played: Played, claiming: Claiming) -> None:
        self.net.pass_time(self.net.config.dispute_window + 1)
        self.send(HOT, lambda chain: chain.calls.finalize(played.posting, played.sealing, claiming))


def minting(who: LocalAccount) -> Callable[[Chain], Any]:
    return lambda chain: chain.calls.mint(who.address, STAKE)


@dataclass(frozen=True)
class Case:
    """One job on chain, and what the command line needs to find it."""

    ground: OnChain
    played: Played
    folder: Path
    files: Path

    @property
    def job(self) -> str:
        return "0x" + job_id(self.ground.domain, self.played.posting.job).hex()

    def settle(self, outcome: Outcome, reason: Reason) -> None:
        self.ground.finalize(self.played, self.ground.claim(self.played, outcome, reason))

    def words(self, *command: str, rpc: str | None = None) -> list[str]:
        deployment, bundle = self.files / "deployment.json", self.files / "bundle"
        self.ground.net.deployment.save(deployment)
        bundle.write_bytes(self.played.raw)
        words = [*command, "--rpc", rpc or self.ground.net.anvil.url]
        words += ["--deployment", str(deployment)]
        if command[0] != "jobs":
            words += ["--bundle", str(bundle), "--model", str(self.folder)]
        return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engines(folder: Path) -> Iterator[Engines]:
    running = Engines(folder)
    yield running
    running.close()


@pytest.fixture
def case(net: Net, folder: Path, engines: Engines, tmp_path: Path) -> Callable[..., Case]:
    def make(story: Story | None = None) -> Case:
        spec = spec_of(folder)
        ground = OnChain(net, spec)
        return Case(ground, play(engines, spec, story, ground), folder, tmp_path)

    return make


def as_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_an_honest_job_is_accepted_at_every_stage(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    assert cli.main(found.words("verify", found.job, "--json")) == Exit.ACCEPT
    assert as_json(capsys)["standing"] == "open"
    claiming = found.ground.claim(found.played, Outcome.ACCEPT, Reason.NONE)
    assert cli.main(found.words("verify", found.job)) == Exit.ACCEPT
    assert "claimed on chain: accept" in capsys.readouterr().out
    found.ground.finalize(found.played, claiming)
    assert cli.main(found.words("verify", found.job, "--json")) == Exit.ACCEPT
    said = as_json(capsys)
    assert said["standing"] == "agrees"
    assert said["settled"]["outcome"] == "accept"
    assert [each["owner"] for each in said["draws"]["committee"]] == list(
        found.played.sealing.owners
    )
    assert int(said["moved"]["accounts"][found.played.posting.worker]) > 0


def test_ones_own_run_is_added_on_request(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    found.settle(Outcome.ACCEPT, Reason.NONE)
    words = found.words("verify", found.job, "--rerun", "--engine", "tiny")
    assert cli.main(words) == Exit.ACCEPT
    assert "own run: agrees" in capsys.readouterr().out


def test_a_slashed_cheat_is_rejected_and_the_money_is_accounted_for(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case(Story(cheats={0: ATTACKS["int4"]}))
    found.settle(Outcome.SLASH, Reason.STATES_DIFFER)
    assert cli.main(found.words("verify", found.job, "--json")) == Exit.REJECT
    said = as_json(capsys)
    assert said["verdict"]["reason"] == "states_differ"
    lost = said["moved"]["accounts"][found.played.posting.worker]
    assert int(lost) == -found.played.posting.lock


def test_a_false_accept_is_told_from_a_true_one(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case(Story(cheats={0: ATTACKS["int4"]}))
    found.settle(Outcome.ACCEPT, Reason.NONE)
    assert cli.main(found.words("verify", found.job)) == Exit.CONTRADICTED
    assert "AGAINST THE EVIDENCE" in capsys.readouterr().out


def test_a_worker_whoseTokensLose_isSuspected_fromChainAndBundles(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case(Story(cheats={0: ATTACKS["prefilled"]}))
    found.settle(Outcome.ACCEPT, Reason.NONE)
    table, bundles = found.files / "table.json", found.files / "bundles"
    table.write_text(
        '{"edges": [-1], "ratios": {"cheat": [4.0, -0.01]},'
        ' "roughness": {"typical": 9000, "most": 12000}}',
        "utf-8",
    )
    bundles.mkdir()
    words = found.words("suspect", "--table", str(table), "--json")
    words[words.index("--bundle") : words.index("--bundle") + 2] = ["--bundles", str(bundles)]
    assert cli.main(words) == Exit.ACCEPT
    (worker,) = as_json(capsys)["workers"]
    assert worker["leftOut"] == {"evidence_missing": 1}

    (bundles / found.job).write_bytes(found.played.raw)
    assert cli.main(words) == Exit.REJECT
    (worker,) = as_json(capsys)["workers"]
    assert worker["worker"] == found.played.posting.worker
    assert worker["jobs"] == [found.job] and worker["alarm"]
    assert cli.main([*words, WORKERS[1].address]) == Exit.ACCEPT
    assert as_json(capsys)["workers"] == []


def test_jobs_lists_every_job_by_its_events(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    found.ground.claim(found.played, Outcome.ACCEPT, Reason.NONE)
    assert cli.main(found.words("jobs", "--json")) == 0
    (row,) = as_json(capsys)
    assert row["job"] == found.job
    assert (row["status"], row["outcome"]) == ("claimed", "accept")
    assert row["worker"] == found.played.posting.worker
    assert cli.main(found.words("jobs")) == 0
    assert "1 jobs" in capsys.readouterr().out


def test_show_tells_every_step_by_a_unique_prefix(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    found.settle(Outcome.ACCEPT, Reason.NONE)
    assert cli.main(found.words("show", found.job[:10])) == 0
    said = capsys.readouterr().out
    for word in (
        "posted",
        "sealed",
        "claimed",
        "finalized",
        "redrawn verifier 3",
        "tokens:",
        "moved",
    ):
        assert word in said
    assert HOT.address in said


def test_without_bundle_or_model_it_says_so_and_accepts_nothing(
    case: Callable[..., Case],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("VERILLM_HOME", str(tmp_path / "nothing"))
    found = case()
    found.settle(Outcome.ACCEPT, Reason.NONE)
    words = found.words("verify", found.job)
    at = words.index("--bundle")
    assert cli.main(words[:at]) == Exit.INCONCLUSIVE  # the published endpoint does not answer
    said = capsys.readouterr().out
    assert "does not serve the bundle" in said
    assert "evidence_missing" in said
    assert cli.main(words[: at + 2]) == Exit.INCONCLUSIVE
    assert "head_missing" in capsys.readouterr().out


# ── Hostile or broken surroundings ───────────────────────────────────────────────────────────────
def code_of(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err.partition("[")[2].partition("]")[0]


def test_unknown_ambiguous_and_foreign_jobs_are_coded_errors(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    for job in ("0x" + "ab" * 32, "zz", "0x", "--", "0x" + "1" * 65):
        words = (
            found.words("verify", "--json", "--", job)
            if job == "--"
            else found.words("verify", job)
        )
        if job == "--":
            continue
        assert cli.main(words) == Exit.FAILED
        assert code_of(capsys) == "unknown_job"


def test_nobody_at_the_endpoint_is_a_coded_error(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    assert cli.main(found.words("verify", found.job, rpc="http://127.0.0.1:1")) == Exit.FAILED
    assert code_of(capsys) == "chain_unreachable"


def test_another_chain_is_a_coded_error(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    words = found.words("verify", found.job)
    replace(found.ground.net.deployment, chain_id=1).save(found.files / "deployment.json")
    assert cli.main(words) == Exit.FAILED
    assert code_of(capsys) == "wrong_chain"


def test_a_foreign_model_folder_is_a_coded_error(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = case()
    other = write_folder(tmp_path / "other", seed=2)
    words = found.words("verify", found.job)
    words[words.index("--model") + 1] = str(other)
    assert cli.main(words) == Exit.FAILED
    assert code_of(capsys) == "model_mismatch"


def test_a_damaged_bundle_is_not_the_claimed_one(
    case: Callable[..., Case], capsys: pytest.CaptureFixture[str]
) -> None:
    found = case()
    found.settle(Outcome.ACCEPT, Reason.NONE)
    words = found.words("verify", found.job)
    (found.files / "bundle").write_bytes(found.played.raw[:-1])
    assert cli.main(words) == Exit.INCONCLUSIVE
    assert "not the bundle that was claimed" in capsys.readouterr().out


def lie(chain: Chain, method: str, change: Callable[[Any], Any]) -> Chain:
    """The same endpoint, with one kind of answer changed."""
    honest = chain.rpc.provider.make_request

    class Liar(type(chain.rpc.provider)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.endpoint_uri = "liar"

        def make_request(self, called: Any, params: Any) -> Any:
            answer = honest(called, params)
            return {**answer, "result": change(answer["result"])} if called == method else answer

    return Chain(Liar(), chain.deployment)


def other_hash(block: Any) -> Any:
    return {**block, "hash": "0x" + "ab" * 32}


def flipped(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("eth_getBlockByNumber", other_hash),
        (
            "eth_getLogs",
            lambda logs: [
                {**log, "data": log["data"][:330] + "f" + log["data"][331:]} for log in logs
            ],
        ),
        ("eth_getLogs", lambda logs: logs[:-1]),
        ("eth_getLogs", lambda logs: []),
        ("eth_call", flipped),
        ("eth_getLogs", lambda logs: "nonsense"),
        ("eth_getBlockByNumber", lambda block: {}),
        ("eth_call", lambda data: "0x"),
        ("eth_getCode", lambda code: 7),
        ("eth_getTransactionByHash", lambda found: {"from": "nobody"}),
    ],
)
def test_an_endpoint_that_lies_is_found_out(
    case: Callable[..., Case], method: str, change: Callable[[Any], Any]
) -> None:
    found = case()
    found.settle(Outcome.ACCEPT, Reason.NONE)
    chain = lie(found.ground.net.chain(CLIENT), method, change)
    job = job_id(found.ground.domain, found.played.posting.job)
    with pytest.raises(VeriLLMError):
        check(read(chain, job))
