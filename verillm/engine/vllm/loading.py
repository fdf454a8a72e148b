"""How vLLM loads a model here: weights through a transform, committed layers in sight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from verillm.engine import WeightTransform
from verillm.errors import ModelNotTraceable, ParallelUnsupported

STAGE_TENSORS = ("hidden_states", "residual")
"""What a stage hands on beside committed layers."""
_numbers = itertools.count()


def loader_name() -> str:
    """Return a name for a loader that no other has in this process."""
    return f"verillm-{next(_numbers)}"


def register_loader(name: str, layers: tuple[int, ...], weights: WeightTransform | None) -> None:
    """Register a loader that passes weights through a transform and opens these layers."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class Loader(DefaultModelLoader):  # type: ignore[misc]  # vLLM is untyped here
        def __init__(self, load_config: Any) -> None:
            super().__init__(replace(load_config, load_format="safetensors"))

        def get_all_weights(self, *arguments: Any, **more: Any) -> Iterator[tuple[str, Any]]:
            for key, value in super().get_all_weights(*arguments, **more):
                yield key, _transformed(key, value, weights)

        def load_model(self, *arguments: Any, **more: Any) -> Any:
            model = super().load_model(*arguments, **more)
            _show_layers(model, layers)
            return model

    register_model_loader(name)(Loader)


def _transformed(name: str, value: Any, weights: WeightTransform | None) -> Any:
    import torch

    if weights is None:
        return value
    return torch.from_numpy(weights(name, value.float().numpy())).to(value.dtype)


def _show_layers(model: Any, layers: tuple[int, ...]) -> None:
    """Have the model keep its committed layers' outputs of each pass in `model.verillm_layers`.

    Over several stages, each hands on those of the ones before it, and the last keeps them all.
    """
    from vllm.model_executor.models.interfaces import supports_eagle3
    from vllm.sequence import IntermediateTensors

    name = type(model).__name__
    if not supports_eagle3(model):
        raise ModelNotTraceable(f"vLLM's {name} does not hand out its layers' outputs")
    model.set_aux_hidden_state_layers(layers)
    relayed = _reserve_relay(model)
    forward = model.forward

    def shown(*arguments: Any, **more: Any) -> Any:
        output = forward(*arguments, **more)
        if isinstance(output, IntermediateTensors):
            _hand_on(output.tensors, more.get("intermediate_tensors"), relayed)
            if len(output.tensors) != len(STAGE_TENSORS) + _done(model, layers):
                raise ModelNotTraceable(f"a stage of vLLM's {name} hands on other layers' outputs")
            return output
        if not isinstance(output, tuple) or len(output[1]) != len(layers):
            raise ModelNotTraceable(f"vLLM's {name} showed other layers than {layers}")
        final, model.verillm_layers = output
        return final

    model.forward = shown


def _hand_on(output: dict[str, Any], before: Any, relayed: tuple[str, ...]) -> None:
    for key in relayed:
        output[key] = before[key]


def _done(model: Any, layers: tuple[int, ...]) -> int:
    """Number of committed layers up to the end of this stage.

    A stage that handed on fewer would leave the next with those of an earlier pass, unnoticed.
    """
    from vllm.v1.worker.gpu.spec_decode.eagle import eagle3_utils

    end = eagle3_utils._inner_decoder(model).end_layer
    return sum(layer <= end for layer in layers)


def _reserve_relay(model: Any) -> tuple[str, ...]:
    """Make room for earlier stages' layers; return the names of those that this stage hands on."""
    from vllm.distributed.parallel_state import get_pp_group
    from vllm.v1.worker.gpu.spec_decode.eagle import eagle3_utils

    if get_pp_group().world_size == 1:
        return ()
    try:
        eagle3_utils.verify_supports_aux_hidden_states_over_pp(model, "committing to layers")
    except ValueError as error:
        raise ParallelUnsupported(str(error)) from error
    eagle3_utils.reserve_aux_intermediate_tensor_slots(model)
    return tuple(eagle3_utils.aux_hidden_state_relay_keys(model))
