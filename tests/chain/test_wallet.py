"""The outbox on a real Anvil that is stopped, killed, and comes back older than our records."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from eth_account import Account

from verillm.chain import artifacts
from verillm.chain.anvil import Anvil, dev_account
from verillm.chain.contract import Call, Chain, Fees
from verillm.chain.deploy import deploy_token
from verillm.chain.deployment import ZERO_ADDRESS, Deployment
from verillm.chain.wallet import Entry, EntryState, MemoryStore, Outbox
from verillm.errors import ChainUnreachable, TransactionFailed
from verillm.types import ChecksumAddress, Hash32

SENDER = dev_account(1)


class FileStore(MemoryStore):
    """A store that survives its process: one file per key."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            super().put(bytes.fromhex(path.name).decode(), path.read_text())

    def put(self, key: str, value: str) -> None:
        super().put(key, value)
        (self._folder / key.encode().hex()).write_text(value)

    def delete(self, key: str) -> None:
        super().delete(key)
        (self._folder / key.encode().hex()).unlink(missing_ok=True)


class Token:
    """A chain whose contract is a DevToken: effects are balances, so doing a thing twice shows."""

    def __init__(self, anvil: Anvil) -> None:
        self.anvil = anvil
        token, block = deploy_token(anvil.url, dev_account(0))
        self.deployment = Deployment(
            31_337, token, ZERO_ADDRESS, ZERO_ADDRESS, token, block, Hash32(bytes(32))
        )
        self.chain = Chain(anvil.url, self.deployment, SENDER, poll=0.01)

    def balance(self, owner: ChecksumAddress) -> int:
        return self.chain.token_balance(owner)

    def mint(self, to: ChecksumAddress, amount: int = 5) -> tuple[Call, Callable[[], bool]]:
        """A mint, and whether it happened."""
        return self.chain.calls.mint(to, amount), lambda: self.balance(to) > 0

    def outbox(self, store: MemoryStore, chain: Chain | None = None, **options: float) -> Outbox:
        settings = {"poll": 0.02, "timeout": 20.0, "stuck_after": 0.3} | options
        return Outbox(chain or self.chain, store, **settings)

    def rpc(self, method: str, *params: object) -> object:
        return self.chain.rpc.call(method, *params)


def fresh() -> ChecksumAddress:
    address: ChecksumAddress = Account.create().address
    return address


@pytest.fixture
def token(tmp_path: Path) -> Iterator[Token]:
    with Anvil(tmp_path / "anvil", keep_state=True) as anvil:
        found = Token(anvil)
        yield found
        found.chain.close()


def test_run_takes_effect_once_and_returns_the_receipt(token: Token) -> None:
    to, outbox = fresh(), token.outbox(MemoryStore())
    call, done = token.mint(to)

    mined = outbox.run("mint", call, done)

    assert mined is not None and mined.ok
    assert outbox.run("mint", call, done) == mined
    assert token.balance(to) == 5
    assert outbox.pending() == ()


def test_run_sends_nothing_if_the_effect_is_there_already(token: Token) -> None:
    to, store = fresh(), MemoryStore()
    call, done = token.mint(to)
    token.chain.send(call)
    assert token.outbox(store).run("mint", call, done) is None
    assert token.balance(to) == 5 and store.list() == []


def test_nothing_is_sent_that_could_not_be_recorded(token: Token) -> None:
    class Full(MemoryStore):
        def put(self, key: str, value: str) -> None:
            raise OSError("disk full")

    to = fresh()
    call, done = token.mint(to)
    before = token.chain.nonce(SENDER.address, "pending")
    with pytest.raises(OSError, match="disk full"):
        token.outbox(Full()).run("mint", call, done)
    assert token.chain.nonce(SENDER.address, "pending") == before
    assert token.balance(to) == 0


CHILD = """
import os, sys
from pathlib import Path
from tests.chain.test_wallet import FileStore, SENDER
from verillm.chain.contract import Chain
from verillm.chain.deployment import Deployment
from verillm.chain.wallet import Outbox

class Dies(Chain):
    def broadcast(self, raw):
        if sys.argv[4] == "after":
            super().broadcast(raw)
        os._exit(9)

folder, url, to = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
chain = Dies(url, Deployment.load(folder / "deployment.json"), SENDER)
Outbox(chain, FileStore(folder / "store")).run("mint", chain.calls.mint(to, 5), lambda: False)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_killed_around_sending_does_it_once(
    token: Token, tmp_path: Path, when: str
) -> None:
    to = fresh()
    token.deployment.save(tmp_path / "deployment.json")
    command = [sys.executable, "-c", CHILD, str(tmp_path), token.anvil.url, to, when]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], timeout=60).returncode == 9
    assert token.balance(to) == (0 if when == "before" else 5)

    outbox = token.outbox(FileStore(tmp_path / "store"))
    (waiting,) = outbox.pending()
    call, done = token.mint(to)
    mined = outbox.run("mint", call, done)

    assert mined is not None and mined.transaction == waiting.hashes[0]
    assert token.balance(to) == 5
    assert FileStore(tmp_path / "store").list()[0][1] == Entry.to_text(outbox.entry("mint"))  # type: ignore[arg-type]


def test_a_chain_that_comes_back_older_gets_all_it_lost(token: Token, tmp_path: Path) -> None:
    store, (early, late, new) = MemoryStore(), (fresh(), fresh(), fresh())
    outbox, state = token.outbox(store), tmp_path / "anvil" / "state.json"
    outbox.run("early", *token.mint(early))
    token.anvil.stop()  # writes its state
    older = shutil.copy(state, tmp_path / "older.json")
    token.anvil.start()
    outbox.run("late", *token.mint(late))
    token.anvil.kill()
    shutil.copy(older, state)
    token.anvil.start()
    assert (token.balance(early), token.balance(late)) == (5, 0)

    token.outbox(store).run("new", *token.mint(new))  # a new process would do this

    assert [token.balance(each) for each in (early, late, new)] == [5, 5, 5]
    outbox.run("late", *token.mint(late))
    assert token.balance(late) == 5


def test_an_effect_lost_by_the_chain_is_made_again_by_the_same_transaction(
    token: Token, tmp_path: Path
) -> None:
    to, outbox, state = fresh(), token.outbox(MemoryStore()), tmp_path / "anvil" / "state.json"
    token.anvil.stop()
    older = shutil.copy(state, tmp_path / "older.json")
    token.anvil.start()
    first = outbox.run("mint", *token.mint(to))
    token.anvil.kill()
    shutil.copy(older, state)
    token.anvil.start()
    assert token.balance(to) == 0

    second = outbox.run("mint", *token.mint(to))

    assert first is not None and second is not None
    assert first.transaction == second.transaction and token.balance(to) == 5


def test_run_waits_while_anvil_is_down(token: Token) -> None:
    to, outbox = fresh(), token.outbox(MemoryStore())
    call, done = token.mint(to)
    token.anvil.stop()
    starter = threading.Timer(1.0, token.anvil.start)
    starter.start()
    mined = outbox.run("mint", call, done)
    starter.join()
    assert mined is not None and token.balance(to) == 5


def test_run_gives_up_on_a_chain_that_stays_away_and_says_so(token: Token) -> None:
    call, done = token.mint(fresh())
    outbox = token.outbox(MemoryStore(), timeout=0.5)
    token.anvil.stop()
    with pytest.raises(ChainUnreachable) as failed:
        outbox.run("mint", call, done)
    assert failed.value.code == "chain_unreachable" and failed.value.remedy


def test_a_stuck_transaction_is_replaced_at_a_higher_fee(token: Token) -> None:
    to, store = fresh(), MemoryStore()
    token.rpc("evm_setAutomine", False)
    outbox = token.outbox(store)
    call, done = token.mint(to)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(outbox.run, "mint", call, done)
        deadline = time.monotonic() + 10
        while (entry := outbox.entry("mint")) is None or len(entry.raws) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        token.rpc("evm_mine")
        mined = running.result(timeout=10)
    assert mined is not None and mined.transaction in outbox.entry("mint").hashes[1:]  # type: ignore[union-attr]
    assert token.balance(to) == 5
    assert token.chain.nonce(SENDER.address) == entry.nonce + 1


def test_a_nonce_that_someone_else_used_is_given_up(token: Token) -> None:
    to, rival = fresh(), fresh()
    token.rpc("evm_setAutomine", False)
    outbox = token.outbox(MemoryStore(), stuck_after=60)
    call, done = token.mint(to)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(outbox.run, "mint", call, done)
        while (entry := outbox.entry("mint")) is None or not token.chain.knows(entry.hashes[0]):
            time.sleep(0.02)
        high = Fees(10**12, 10**11)
        other = token.chain.sign(token.mint(rival)[0], entry.nonce, 100_000, high)
        token.chain.broadcast(other)
        token.rpc("evm_mine")
        token.rpc("evm_setAutomine", True)
        mined = running.result(timeout=10)
    assert mined is not None and outbox.entry("mint").nonce == entry.nonce + 1  # type: ignore[union-attr]
    assert (token.balance(to), token.balance(rival)) == (5, 5)


def test_a_refused_call_costs_no_nonce_and_blocks_nothing(token: Token) -> None:
    outbox, to = token.outbox(MemoryStore()), fresh()
    before = token.chain.nonce(SENDER.address)
    overdraft = token.chain.calls.transfer(to, 10**30)
    with pytest.raises(TransactionFailed) as refused:
        outbox.run("overdraft", overdraft, lambda: False)
    assert refused.value.error == "ERC20InsufficientBalance"
    assert refused.value.arguments == (SENDER.address, 0, 10**30)
    assert token.chain.nonce(SENDER.address) == before
    assert outbox.run("mint", *token.mint(to)) is not None


def test_a_transaction_that_reverts_when_mined_raises_why(token: Token) -> None:
    to, store = fresh(), MemoryStore()
    token.chain.send(token.chain.calls.mint(SENDER.address, 5))
    token.rpc("evm_setAutomine", False)
    outbox = token.outbox(store, stuck_after=60)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(
            outbox.run, "pay", token.chain.calls.transfer(to, 5), lambda: token.balance(to) > 0
        )
        while (entry := outbox.entry("pay")) is None or not token.chain.knows(entry.hashes[0]):
            time.sleep(0.02)
        # Someone empties the account in the same block, before it.
        taken = token.chain.calls.transfer(fresh(), 5)
        rival = token.chain.sign(taken, entry.nonce, 100_000, Fees(10**12, 10**11))
        token.chain.broadcast(rival)
        token.rpc("evm_mine")
        token.rpc("evm_setAutomine", True)
        with pytest.raises(TransactionFailed) as failed:
            running.result(timeout=10)
    assert failed.value.error == "ERC20InsufficientBalance"
    assert outbox.entry("pay").state is EntryState.FAILED  # type: ignore[union-attr]


def test_many_threads_share_one_key(token: Token) -> None:
    outbox, receivers = token.outbox(MemoryStore()), [fresh() for _ in range(20)]
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(outbox.run, to, *token.mint(to)) for to in receivers]
        assert all(run.result(timeout=30) is not None for run in runs)
    assert [token.balance(to) for to in receivers] == [5] * 20
    assert len({outbox.entry(to).nonce for to in receivers}) == 20  # type: ignore[union-attr]


def test_finished_entries_are_forgotten_in_time(
    token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verillm.chain.wallet.MAX_GAP", 2)
    store = MemoryStore()
    outbox = token.outbox(store)
    for number in range(5):
        outbox.run(f"mint {number}", *token.mint(fresh()))
    assert sorted(key for key, _ in store.list()) == ["mint 2", "mint 3", "mint 4"]


def test_an_entry_reads_back_what_it_wrote() -> None:
    call = Call("mint", SENDER.address, artifacts.functions("DevToken")["mint"].selector, 3)
    entry = Entry("k", call, SENDER.address, 7, 21_000, Fees(2**70, 1), (b"\x02ab", b"\x02cd"))
    assert Entry.from_text(entry.to_text()) == entry
