"""The demonstration as a stranger runs it, on the tiny model; and that it leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def _command(folder: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "verillm_node.cli", "devnet", "--dir", str(folder)]
    return [*words, "--engine", "tiny", "--workers", "4", *more]


def _processes_of(folder: Path) -> list[str]:
    """Command lines of processes that have anything to do with a run folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def _wait_until_gone(folder: Path, within: float = 15.0) -> None:
    deadline = time.monotonic() + within
    while _processes_of(folder):
        assert time.monotonic() < deadline, _processes_of(folder)
        time.sleep(0.1)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_the_demo_slashes_the_cheater_and_only_the_cheater(tmp_path: Path) -> None:
    folder = tmp_path / "devnet"
    command = _command(
        folder, "--demo", "--cheater", "2", "--dispute-seconds", "4", "--tokens", "24"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "worker2, and only worker2, lost stake" in said
    assert "WRONG" not in said
    assert _processes_of(folder) == []


def _pid_of(config: Path) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str(config).encode() in (entry / "cmdline").read_bytes():
                    return int(entry.name)
    raise LookupError(f"no process of {config}")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("victim", "moment"),
    [  # each process and each moment once; test_settlement.py crosses them on one job
        ("worker1", "job 1:"),
        ("worker2", "job 1: sealed"),
        ("worker3", "job 2: posted"),
        ("worker4", "job 1: sealed"),
        ("scheduler", "job 2: posted"),
    ],
)
def test_the_demo_ends_well_whoever_is_killed(tmp_path: Path, victim: str, moment: str) -> None:
    folder = tmp_path / "devnet"
    options = ("--cheater", "2", "--dispute-seconds", "4", "--tokens", "24")
    command = _command(folder, "--demo", *options)
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            if moment in line:
                os.kill(_pid_of(folder / f"{victim}.toml"), signal.SIGKILL)
                break
        said += list(child.stdout)
    assert child.returncode == 0, "".join(said)
    assert any(f"{victim} died (-9)" in line for line in said)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(900)
def test_the_demo_on_the_default_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILLM_HOME")  # the prepared model lies in the user's own cache
    command = [sys.executable, "-m", "verillm_node.cli", "devnet", "--demo"]
    command += ["--dir", str(tmp_path / "devnet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker3, and only worker3, lost stake" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("after", [2.0, 12.0, 30.0])
def test_a_stopped_devnet_leaves_no_process_and_no_half_file(
    tmp_path: Path, number: signal.Signals, after: float
) -> None:
    folder = tmp_path / "devnet"
    child = subprocess.Popen(_command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    os.kill(child.pid, number)
    child.wait(40)
    if number is not signal.SIGKILL:
        assert _processes_of(folder) == []
    _wait_until_gone(folder)
    assert [path for path in folder.rglob(".*") if path.is_file()] == []
