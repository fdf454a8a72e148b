"""One rank's place in a model that several share; the driver and its followers take it alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verillm.engine import WeightTransform
from verillm.engine.vllm.ranks import Layout


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """What a rank begins with: vLLM's configuration, where the ranks meet, how weights load."""

    config: Any
    rank: int
    meeting: str
    environment: dict[str, str]
    layout: Layout
    loader: str
    layers: tuple[int, ...]
    weights: WeightTransform | None

    @property
    def has_head(self) -> bool:
        """Whether this rank holds a part of the head."""
        return self.rank >= self.layout.driver


def take(seat: Seat) -> Any:
    """Load the seat's part of the model; returns vLLM's worker, which has met all others."""
    from vllm.platforms import current_platform
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    worker = WorkerWrapperBase(rpc_rank=0, global_rank=seat.rank)
    worker.init_worker(
        all_kwargs=[
            {
                "vllm_config": seat.config,
                "local_rank": seat.rank,
                "rank": seat.rank,
                "distributed_init_method": seat.meeting,
                "is_driver_worker": seat.rank % seat.layout.devices == 0,
            }
        ]
    )
    worker.init_device()
    worker.load_model()
    current_platform.update_block_size_for_backend(seat.config)
    _make_room_between_stages(worker.worker.model_runner)
    return worker


def _make_room_between_stages(runner: Any) -> None:
    """Make the buffers for what the stage before hands on; vLLM does so only where it warms up."""
    from vllm.distributed.parallel_state import get_pp_group

    if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
        runner.intermediate_tensors = runner.get_model().make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens,
            dtype=runner.model_config.dtype,
            device=runner.device,
        )
