"""Cheats that run almost the given request: colder, of another nucleus, one prompt token off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from verillm.engine import Engine, EngineMaker, EngineTransform
from verillm.request import Sampling
from verillm.task import Item
from verillm_verifier.attacks.deviant import Deviant

LUKEWARM = 0.95
NARROW = Sampling.of(1.0, top_p=0.9).top_p


def cooled(factor: float) -> EngineTransform:
    """Return the attack that samples at `factor` of the asked temperature."""

    def change(item: Item) -> Item:
        colder = round(item.sampling.temperature * factor)
        return replace(item, sampling=replace(item.sampling, temperature=colder))

    return lambda make: _changed(make, change)


lukewarm = cooled(LUKEWARM)


def narrowed(make: EngineMaker) -> Engine:
    """Sample from the likeliest nine tenths, whatever was asked, for answers that look better."""

    def change(item: Item) -> Item:
        return replace(item, sampling=replace(item.sampling, top_p=NARROW))

    return _changed(make, change)


def widened(make: EngineMaker) -> Engine:
    """Sample from all tokens, whatever nucleus was asked, to save its search."""

    def change(item: Item) -> Item:
        return replace(item, sampling=Sampling(temperature=item.sampling.temperature))

    return _changed(make, change)


def one_token_off(make: EngineMaker) -> Engine:
    """Answer a prompt in whose middle one token is its neighbour's."""

    def change(item: Item) -> Item:
        at = len(item.tokens) // 2
        other = item.tokens[at - 1] if at else item.tokens[at]
        return replace(item, tokens=(*item.tokens[:at], other, *item.tokens[at + 1 :]))

    return _changed(make, change)


def _changed(make: EngineMaker, change: Callable[[Item], Item]) -> Engine:
    return Deviant(
        make(None),
        task=lambda task: replace(task, items=tuple(change(item) for item in task.items)),
    )
