"""vLLM's own executor for one process, with followers that run what its worker runs.

Unlike vLLM's executor over processes, one rank stays here, where the hooks are; unlike its external
launcher, only this process schedules, so that no two schedules can come apart.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from verillm.engine.vllm.follower import UNANSWERED
from verillm.engine.vllm.ranks import Ranks
from verillm.engine.vllm.seat import Seat, take

MakeSeat = Callable[[Any, int, str, dict[str, str]], Seat]


def make_executor(ranks: Ranks, seat: MakeSeat) -> type[Any]:
    """Return an executor class over these ranks; `seat` makes a rank's place in the model."""
    import cloudpickle  # type: ignore[import-untyped]  # vLLM's own dependency
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    class RanksExecutor(UniProcExecutor):  # type: ignore[misc]  # vLLM is untyped here
        supports_pp = True

        def _init_executor(self) -> None:
            with TemporaryDirectory(prefix="verillm-ranks-") as folder:
                passed = _without_executor(self.vllm_config)
                for rank in ranks.layout.followers:
                    offered = seat(passed, rank, meeting(Path(folder), rank), dict(os.environ))
                    ranks.seat(rank, cloudpickle.dumps(offered))
                driver = ranks.layout.driver
                mine = seat(self.vllm_config, driver, meeting(Path(folder), driver), {})
                self.driver_worker = take(mine)
                ranks.gather()

        def collective_rpc(
            self,
            method: Any,
            timeout: float | None = None,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
            non_block: bool = False,
            single_value: bool = False,
        ) -> Any:
            ranks.call(method, *args, **(kwargs or {}))
            own = super().collective_rpc(method, timeout, args, kwargs, non_block, single_value)
            if method in UNANSWERED:
                return own
            found = ranks.gather()
            if single_value:
                return own
            return [*(found | {ranks.layout.driver: own[0]}).values()]

    return RanksExecutor


def meeting(folder: Path, rank: int) -> str:
    """Return where a rank meets the others: one file, under a name for each.

    vLLM takes the name for that of a group that shares memory on CPUs. Under names that differ it
    uses sockets instead: their exchanges break when a rank ends, where those over shared memory
    would wait, and turn a core, for ever.
    """
    name = folder / f"rank{rank}"
    if not name.is_symlink():
        name.symlink_to("ranks")
    return f"file://{name}"


def _without_executor(config: Any) -> Any:
    """Return vLLM's configuration as other processes can read it: without our executor's class."""
    passed = copy.copy(config)
    passed.parallel_config = copy.copy(config.parallel_config)
    passed.parallel_config.distributed_executor_backend = "mp"
    return passed
