"""The followers of a model over several devices, with stand-ins for what vLLM runs in them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from verillm.engine.vllm import ranks as ranks_module
from verillm.engine.vllm.ranks import Layout, Ranks
from verillm.errors import DeviceLost, EngineOutOfMemory, ParallelUnsupported, VeriLLMError

WAIT = 30
HERE = Path(__file__).parent
COMMAND = (sys.executable, str(HERE / "stand_in_follower.py"))


class Town:
    """Three ranks, of which two follow, and what was heard of them."""

    def __init__(self, seat: str = "", layout: Layout = Layout(devices=3)) -> None:  # noqa: B008
        self.heard: list[VeriLLMError] = []
        self.ranks = Ranks(layout, self.heard.append, COMMAND)
        for rank in layout.followers:
            self.ranks.seat(rank, pickle.dumps(seat))
        self.ranks.gather()

    def close(self) -> None:
        self.ranks.release()
        self.ranks.close()


@pytest.fixture
def town() -> Iterator[Town]:
    with closing(Town()) as made:
        yield made


def is_gone(process: int) -> bool:
    """Whether a process ends within the deadline; one that nobody waits for counts as ended."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # the latter between open and read
            return True
        if state == "Z":
            return True
        time.sleep(0.01)  # between two looks
    return False


def test_the_driver_is_the_first_device_of_the_last_stage() -> None:
    assert (Layout(4, 1).driver, Layout(4, 1).followers, Layout(4, 1).beside) == (
        0,
        (1, 2, 3),
        (1, 2, 3),
    )
    assert (Layout(1, 3).driver, Layout(1, 3).followers, Layout(1, 3).beside) == (2, (0, 1), ())
    assert (Layout(2, 2).driver, Layout(2, 2).followers, Layout(2, 2).beside) == (
        2,
        (0, 1, 3),
        (3,),
    )


def test_followers_run_what_they_are_told_in_order_and_answer_by_rank(town: Town) -> None:
    town.ranks.call("first", 1)
    town.ranks.call("second", 2)
    town.ranks.share([7, 8])
    assert town.ranks.gather() == {1: ("first", (1,)), 2: ("first", (1,))}
    assert town.ranks.gather() == {1: ("second", (2,)), 2: ("second", (2,))}
    assert town.ranks.gather() == {1: [7, 8], 2: [7, 8]}
    assert not town.heard


def test_only_ranks_with_a_part_of_the_head_are_told_tokens() -> None:
    with closing(Town(layout=Layout(devices=2, stages=2))) as town:
        town.ranks.share([5])
        assert town.ranks.gather([3]) == {3: [5]}
        town.ranks.call("next")
        assert town.ranks.gather() == dict.fromkeys((0, 1, 3), ("next", ()))


def test_a_follower_that_dies_is_heard_of_at_once_and_ends_the_others(town: Town) -> None:
    os.kill(town.ranks.processes[1], signal.SIGKILL)
    with pytest.raises(DeviceLost, match="rank 1 ended with -9"):
        town.ranks.gather()
    assert is_gone(town.ranks.processes[2])
    with pytest.raises(DeviceLost, match="rank 1 ended with -9"):
        town.ranks.call("anything")
    assert len(town.heard) == 1


def test_a_follower_that_fails_says_why(town: Town) -> None:
    town.ranks.call("fail", "RuntimeError('CUDA out of memory')")
    with pytest.raises(EngineOutOfMemory, match="CUDA out of memory"):
        town.ranks.gather()


def test_a_followers_typed_error_keeps_its_type() -> None:
    with closing(Town()) as town:
        town.ranks.call("fail", ParallelUnsupported("cannot be split"))
        with pytest.raises(ParallelUnsupported, match="cannot be split"):
            town.ranks.gather()


def test_a_pass_over_its_time_ends_the_ranks(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_module, "STEP_SECONDS", 0.2)
    monkeypatch.setattr(ranks_module, "LOOK_SECONDS", 0.05)
    with pytest.raises(DeviceLost, match=r"over 0\.2 seconds"), town.ranks.step():
        town.ranks.call("hang")
        town.ranks.gather()
    assert all(is_gone(process) for process in town.ranks.processes.values())


def test_a_pass_that_breaks_off_ends_the_ranks_whose_states_now_differ(town: Town) -> None:
    with pytest.raises(DeviceLost, match="odd batch"), town.ranks.step():
        raise RuntimeError("odd batch")
    with pytest.raises(DeviceLost), town.ranks.step():
        pass
    assert all(is_gone(process) for process in town.ranks.processes.values())


def test_closing_leaves_no_process_also_none_that_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranks_module, "CLOSE_SECONDS", 0.2)
    for seat in ("", "stays"):
        town = Town(seat)
        town.close()
        assert all(is_gone(process) for process in town.ranks.processes.values())
        assert not town.heard


def test_followers_do_not_outlive_a_driver_that_is_killed() -> None:
    """Stopped ones too: only the kernel can end those."""
    script = (
        "import os, pickle, sys, signal\n"
        "from verillm.engine.vllm.ranks import Layout, Ranks\n"
        f"ranks = Ranks(Layout(3), print, {COMMAND!r})\n"
        "[ranks.seat(rank, pickle.dumps('')) for rank in (1, 2)]\n"
        "ranks.gather()\n"
        "os.kill(ranks.processes[2], signal.SIGSTOP)\n"
        "print(*ranks.processes.values(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        processes = [int(each) for each in driver.stdout.readline().split()]
        driver.kill()
    assert len(processes) == 2
    assert all(is_gone(process) for process in processes)
