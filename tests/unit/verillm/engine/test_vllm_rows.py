"""Room for captured states: caps, spilling, and what is given back."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from verillm.engine.vllm.rows import Room
from verillm.errors import EngineOutOfMemory


def test_over_the_cap_arrays_are_on_disk_and_leave_no_file(tmp_path: Path) -> None:
    room = Room(memory=1000, disk=4000, folder=tmp_path)
    near, far = room.take((400,)), room.take((10, 100))
    assert isinstance(far, np.memmap)
    assert not isinstance(near, np.memmap)
    assert room.used == {"memory": 800, "disk": 2000}
    assert list(tmp_path.iterdir()) == []
    far[3, 7] = 9
    view = far[2:5]
    del far
    gc.collect()
    assert view[1, 7] == 9
    assert room.used["disk"] == 2000


def test_room_comes_back_with_the_last_view_of_an_array(tmp_path: Path) -> None:
    room = Room(memory=1000, disk=4000, folder=tmp_path)
    views = [room.take((400,))[:3], room.take((1000,))[:3]]
    del views
    gc.collect()
    assert room.used == {"memory": 0, "disk": 0}


def test_over_both_caps_is_out_of_memory_and_takes_nothing() -> None:
    room = Room(memory=100, disk=100)
    assert not room.fits(200)
    with pytest.raises(EngineOutOfMemory):
        room.take((100,))
    assert room.used == {"memory": 0, "disk": 0}


def test_a_folder_that_is_not_there_is_out_of_memory_and_takes_nothing(tmp_path: Path) -> None:
    room = Room(memory=0, disk=1000, folder=tmp_path / "none")
    with pytest.raises(EngineOutOfMemory, match="no room"):
        room.take((10,))
    assert room.used["disk"] == 0
