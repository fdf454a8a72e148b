"""The hooks on one forward pass of vLLM.

Around the model runner's forward pass: which rows are whose, as the runner's own tables say. Around
`compute_logits`: logits of the *rounded* final state, which is the committed one. In the sampler's
place: our tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from verillm.engine.vllm.driver import Listener, Span
from verillm.types import Bits, Floats


class CommittedHead:
    """Stands around a model's head, so that its logits are those of committed states."""

    def __init__(self, runner: Any) -> None:
        self._device = runner.device
        model = runner.get_model()
        self._compute_logits: Callable[..., Any] = model.compute_logits
        self.finals: Any = None
        self._room: Any = None
        model.compute_logits = self._logits

    def logits_of(self, finals: Bits) -> Any:
        """Return the engine's own logits of committed final states."""
        import torch

        states = torch.from_numpy(finals.view(np.int16)).view(torch.bfloat16)
        return self.rounded(self._logits(states.to(self._device))).copy()

    def rounded(self, logits: Any) -> Floats:
        """Return logits rounded to bfloat16, as float32 in main memory that the next call takes.

        The same memory each time: fresh pages for a batch's logits cost more than to fill them.
        """
        import torch

        if self._room is None or self._room.shape[0] < len(logits):
            self._room = torch.empty(logits.shape, dtype=torch.float32)
        found: Floats = self._room[: len(logits)].copy_(logits.to(torch.bfloat16)).numpy()
        return found

    def _logits(self, hidden: Any) -> Any:
        """Compute logits of the final states as they are committed: rounded to bfloat16."""
        import torch

        self.finals = hidden.to(torch.bfloat16)
        return self._compute_logits(self.finals.to(hidden.dtype))


class Hooks:
    """What stands around one model runner's forward pass, head and sampler.

    `share` tells chosen tokens to whoever else holds a part of the head.
    """

    def __init__(
        self, runner: Any, listener: Listener, share: Callable[[list[int]], None] | None = None
    ) -> None:
        self._runner = runner
        self._listener = listener
        self._share = share
        self._model = runner.get_model()
        self._forward: Callable[..., Any] = runner._model_forward
        self.head = CommittedHead(runner)
        self.last: list[str] = []
        runner._model_forward = self._pass
        runner.sampler = sampler(self._sample, runner.device)

    def _pass(self, *arguments: Any, **more: Any) -> Any:
        final = self._forward(*arguments, **more)
        spans = list(self._spans())
        self.last = [span.request for span in spans]
        rows = sum(len(span.tokens) for span in spans)
        self._listener.forward(spans, _leaving([*self._model.verillm_layers, final], rows))
        return final

    def _spans(self) -> Iterator[Span]:
        """Read from the runner's tables, in main memory, whose rows the pass had."""
        batch = self._runner.input_batch
        bounds = self._runner.query_start_loc.np
        for index, name in enumerate(batch.req_ids[: batch.num_reqs]):
            position = int(batch.num_computed_tokens_cpu[index])
            count = int(bounds[index + 1] - bounds[index])
            tokens = batch.token_ids_cpu[index, position : position + count].copy()
            yield Span(name, position, tokens)

    def _sample(self, logits: Any) -> list[int]:
        import torch

        finals = self.head.finals.contiguous().view(torch.int16).cpu().numpy().view(np.uint16)
        tokens = self._listener.choose(finals, self.head.rounded(logits))
        if self._share is not None:
            self._share(tokens)
        return tokens


def _leaving(states: list[Any], rows: int) -> Callable[[], Bits]:
    """Start a pass's states on their way to main memory; return what waits for them."""
    import torch

    stacked = torch.stack([state[:rows].to(torch.bfloat16) for state in states]).view(torch.int16)
    event: Any = None
    if stacked.is_cuda:
        there = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True)
        there.copy_(stacked, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        stacked = there

    def arrived() -> Bits:
        if event is not None:
            event.synchronize()
        found: Bits = stacked.numpy().view(np.uint16)
        return found

    return arrived


def sampler(sample: Callable[[Any], list[int]], device: Any) -> Any:
    """Return a module in the place of vLLM's sampler."""
    import torch
    from vllm.v1.outputs import SamplerOutput

    class Sampler(torch.nn.Module):
        def forward(self, logits: Any, sampling_metadata: Any, **_: Any) -> Any:
            tokens = torch.tensor(sample(logits), dtype=torch.int32, device=device)[:, None]
            return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=None)

    return Sampler()
