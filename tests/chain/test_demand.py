"""A bundle that is demanded on chain: served chunk by chunk and read back, or the claim is void."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from eth_account import Account

from tests.chain.conftest import Net
from tests.chain.world import Running, World
from verillm.chain.events import Claimed, ClaimVoided, events_of
from verillm.chain.reads import Status
from verillm.codec import CHUNK, bundle_chunks, bundle_hash
from verillm.errors import InputError
from verillm.types import Hash32, Outcome
from verillm_node.rounds import due_chunks
from verillm_node.view import look
from verillm_verifier.cli import main
from verillm_verifier.demand import demand, served
from verillm_verifier.facts import Facts, check, read

DATA = bytes(range(256)) * (2 * CHUNK // 256) + b"the last chunk is shorter"


class Holder(World):
    """Claims name a bundle of three chunks."""

    @staticmethod
    def bundle(run: Running) -> Hash32:
        return bundle_hash(DATA)


@pytest.fixture
def world(net: Net) -> Iterator[Holder]:
    yield Holder(net)


@pytest.fixture
def run(world: Holder) -> Running:
    """A claimed job whose bundle the auditor demands."""
    run = world.claim(world.seal(world.post()))
    demand(world.chain(world.auditor.account), facts_of(world, run))
    return run


def facts_of(world: Holder, run: Running) -> Facts:
    found = read(world.chain(world.client), world.id_of(run))
    check(found)
    return found


def test_a_bundle_is_named_by_its_chunks() -> None:
    assert [len(chunk) for chunk in bundle_chunks(DATA)] == [CHUNK, CHUNK, 25]
    assert bundle_hash(DATA) != bundle_hash(DATA[:-1]) != bundle_hash(DATA[:CHUNK])


def test_a_demanded_bundle_is_served_and_read_out_of_the_chain(world: Holder, run: Running) -> None:
    chain = world.chain(world.scheduler.account)
    before = chain.account_of(world.scheduler.address).balance
    while due := due_chunks(chain.calls, look(chain, world.id_of(run)), DATA):
        assert served(chain, facts_of(world, run)) is None
        chain.send(due[-1])  # in any order
    facts = facts_of(world, run)
    assert facts.state.status is Status.CLAIMED
    assert served(chain, facts) == DATA
    bond = world.net.config.challenge_bond
    assert chain.account_of(world.scheduler.address).balance == before + bond
    world.finalize(run)
    assert facts_of(world, run).state.status is Status.FINAL


def test_a_demand_that_nobody_answers_makes_the_claim_void(world: Holder, run: Running) -> None:
    chain, record = world.chain(world.auditor.account), (run.posting, run.sealing, run.claiming)
    before = chain.account_of(world.auditor.address).balance
    world.net.pass_time(world.net.config.opening_window)
    mined = chain.send(chain.calls.void_claim(*record))
    assert [each.claimer for each in events_of(mined) if isinstance(each, ClaimVoided)] == [
        world.scheduler.address
    ]
    assert chain.account_of(world.auditor.address).balance == before + world.net.config.claim_bond
    facts = facts_of(world, run)
    assert (facts.state.status, facts.claiming) == (Status.SEALED, None)
    world.claim(run, Outcome.ACCEPT)
    again = facts_of(world, run)
    assert len(again.history.all(Claimed)) == 2
    assert again.claiming == run.claiming


def test_what_is_not_claimed_cannot_be_demanded(world: Holder, run: Running) -> None:
    with pytest.raises(InputError, match="demanded has no claim"):
        demand(world.chain(world.auditor.account), facts_of(world, run))


def test_power_a_damaged_chunk_is_refused(world: Holder, run: Running, tmp_path: Path) -> None:
    chain = world.chain(world.scheduler.account)
    view = look(chain, world.id_of(run))
    assert due_chunks(chain.calls, view, DATA)
    wrong = due_chunks(chain.calls, view, DATA[:-1] + b"!")[-1]
    with pytest.raises(Exception, match="ChunkInvalid"):
        chain.send(wrong)


def test_the_command_line_demands_a_bundle_and_saves_what_was_served(
    world: Holder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = world.claim(world.seal(world.post()))
    addresses, key = tmp_path / "deployment.json", tmp_path / "key.json"
    world.net.deployment.save(addresses)
    key.write_text(json.dumps(Account.encrypt(world.auditor.account.key, "", iterations=2)))
    key.chmod(0o600)
    job = world.id_of(run).hex()
    where = ["--rpc", world.net.anvil.url, "--deployment", str(addresses), "--json"]
    assert main(["demand", job, *where]) == 3  # without a key
    capsys.readouterr()
    assert main(["demand", job, *where, "--key", str(key)]) == 0
    assert "demanded" in json.loads(capsys.readouterr().out)
    chain = world.chain(world.scheduler.account)
    for call in due_chunks(chain.calls, look(chain, world.id_of(run)), DATA):
        chain.send(call)
    out = tmp_path / "bundle"
    assert main(["demand", job, *where, "--out", str(out)]) == 0
    assert out.read_bytes() == DATA
