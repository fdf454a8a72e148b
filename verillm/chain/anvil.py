"""A private Anvil: started, stopped, killed and started again from its own state file."""

import os
import platform
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eth_account import Account
from eth_account.signers.local import LocalAccount

from verillm.errors import ConfigError, MissingTool, PortInUse

START_TIMEOUT: Final = 15.0
STOP_TIMEOUT: Final = 10.0
PERSISTED_STATES: Final = 500  # beside as many in memory; nothing here reads older ones
_LISTENING: Final = re.compile(r"^Listening on (\S+)$", re.MULTILINE)
_REMEDY: Final = "run `make install`, or put Foundry's anvil on the PATH or in VERILLM_ANVIL"


def dev_account(index: int) -> LocalAccount:
    """One of the accounts that every Anvil funds; their keys are public, so only for devnets."""
    Account.enable_unaudited_hdwallet_features()
    account: LocalAccount = Account.from_mnemonic(
        "test test test test test test test test test test test junk",
        account_path=f"m/44'/60'/0'/0/{index}",
    )
    return account


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("VERILLM_ANVIL"):
        yield Path(named)
    # The npm package's native binary: its wrapper needs Node.js and hides exit codes.
    system = platform.system().lower()
    for root in (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents):
        yield from root.glob(f"node_modules/@foundry-rs/anvil-{system}-*/bin/anvil")
    if found := shutil.which("anvil"):
        yield Path(found)


def find_anvil() -> Path:
    """The native Anvil binary; raises MissingTool."""
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise MissingTool("anvil", _REMEDY)


def _port_is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class Anvil:
    """One Anvil process; its log goes to a file: a pipe that nobody reads would stop it.

    Parameters
    ----------
    folder : where `anvil.log` and, if `keep_state`, `state.json` lie; old states, while it runs.
    port : 0 takes a free one at the first start and keeps it over restarts.
    keep_state : dump the state once a second: a killed Anvil comes back at most that much older.
    block_time : seconds between blocks; None mines a block for each transaction.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        keep_state: bool = False,
        block_time: int | None = None,
        chain_id: int = 31_337,
        accounts: int = 10,
    ) -> None:
        self.folder, self.host, self.port = folder, host, port
        self.chain_id = chain_id
        self._keep_state, self._block_time, self._accounts = keep_state, block_time, accounts
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """JSON-RPC address, once started."""
        return f"http://{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """What Anvil said, over all starts."""
        return self.folder / "anvil.log"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process lives: someone else may have ended it."""
        return self._process is not None and self._process.poll() is None

    @property
    def _old_states(self) -> Path:
        return self.folder / "states"

    def _command(self) -> list[str]:
        command = [str(find_anvil()), "--host", self.host, "--port", str(self.port)]
        command += ["--chain-id", str(self.chain_id), "--accounts", str(self._accounts)]
        # Anvil would keep thousands of them in the home folder, and a killed one leaves them there.
        command += ["--cache-path", str(self._old_states)]
        command += ["--max-persisted-states", str(PERSISTED_STATES)]
        if self._keep_state:
            command += ["--state", str(self.folder / "state.json"), "--state-interval", "1"]
        if self._block_time is not None:
            command += ["--block-time", str(self._block_time)]
        return command

    def start(self) -> Self:
        """Start and wait until it answers; raises MissingTool, PortInUse."""
        if self._process is not None:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.port and not _port_is_free(self.host, self.port):
            raise PortInUse(self.port)
        self._forget_old_states()
        offset = self.log.stat().st_size if self.log.exists() else 0
        # Its own session: Ctrl-C in a terminal must reach us first, so that we stop it last.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(offset)
        except BaseException:
            self.kill()
            raise
        return self

    def _wait(self, offset: int) -> None:
        process, deadline = self._process, time.monotonic() + START_TIMEOUT
        while process is not None:
            said = self.log.read_bytes()[offset:].decode(errors="replace")
            if found := _LISTENING.search(said):
                self.port = int(found[1].rpartition(":")[2])
                return
            if process.poll() is not None:
                if "already in use" in said:
                    raise PortInUse(self.port)
                raise ConfigError(f"anvil ended with {process.returncode}: see {self.log}")
            if time.monotonic() > deadline:
                raise ConfigError(f"anvil was not ready after {START_TIMEOUT} s: see {self.log}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it in order: it writes its state once more."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        self._forget_old_states()

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._forget_old_states()

    def _forget_old_states(self) -> None:
        shutil.rmtree(self._old_states, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
