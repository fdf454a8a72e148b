"""Cheats in what is generated: temperature, seed, prompt, single tokens, length, and the prefill
attack (a cheap model decodes, the true one only prefills, so that the states are honest).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from verillm.engine import Engine, EngineMaker
from verillm.request import MAX_TEMPERATURE
from verillm.task import Item, Task
from verillm.types import Hash32
from verillm_verifier.attacks.deviant import Deviant, Staged, Tokens
from verillm_verifier.attacks.weights import quantised

SWAPPED_INDEX = 4
COOLING = 0.7


def temperature(make: EngineMaker) -> Engine:
    """Sample colder than asked, for answers that look better."""

    def change(item: Item) -> Item:
        cooled = round(item.sampling.temperature * COOLING)
        return replace(item, sampling=replace(item.sampling, temperature=cooled))

    return Deviant(make(None), task=_each(change))


def other_prompt(make: EngineMaker) -> Engine:
    """Answer another prompt of the same length: the first half of the tokens turned around."""

    def change(item: Item) -> Item:
        half = max(2, len(item.tokens) // 2)
        return replace(item, tokens=item.tokens[:half][::-1] + item.tokens[half:])

    return Deviant(make(None), task=_each(change))


def cut(make: EngineMaker) -> Engine:
    """Stop at half the length, without an end token."""

    def change(item: Item) -> Item:
        return replace(item, max_new_tokens=max(1, item.max_new_tokens // 2))

    return Deviant(make(None), task=_each(change))


def padded(make: EngineMaker) -> Engine:
    """Go on after the end token, to be paid for more tokens."""

    def more(item: Item, tokens: Tokens, end: Tokens) -> Item | None:
        is_ended = tokens[-1] in end
        return _go_on(item, tokens, (), item.max_new_tokens) if is_ended else None

    engine = make(None)
    return Staged((engine, _all), (engine, more))


def swapped(make: EngineMaker) -> Engine:
    """Replace one token by another that the model might have said, and go on from it."""

    def begin(item: Item, _tokens: Tokens, _end: Tokens) -> Item:
        return replace(item, max_new_tokens=min(SWAPPED_INDEX, item.max_new_tokens))

    def swap(item: Item, tokens: Tokens, end: Tokens) -> Item | None:
        hot = replace(item.sampling, temperature=MAX_TEMPERATURE)
        return _go_on(replace(item, seed=_other(item.seed), sampling=hot), tokens, end, 1)

    def rest(item: Item, tokens: Tokens, end: Tokens) -> Item | None:
        going_on = _go_on(item, tokens, end, item.max_new_tokens)
        return going_on or _states(item, tokens, end)

    engine = make(None)
    return Staged((engine, begin), (engine, swap), (engine, rest))


def own_seed(make: EngineMaker) -> Engine:
    """Sample with noise of one's own, then prefill for honest states under the given seed."""

    def decode(item: Item, _tokens: Tokens, _end: Tokens) -> Item:
        return replace(item, seed=_other(item.seed))

    engine = make(None)
    return Staged((engine, decode), (engine, _states))


def prefilled(make: EngineMaker) -> Engine:
    """Decode with 4-bit weights, prefill with the true ones."""
    return Staged((make(quantised(4, 32)), _all), (make(None), _states))


def _each(change: Callable[[Item], Item]) -> Callable[[Task], Task]:
    return lambda task: replace(task, items=tuple(change(item) for item in task.items))


def _all(item: Item, _tokens: Tokens, _end: Tokens) -> Item:
    """Run the item as it is."""
    return item


def _states(item: Item, tokens: Tokens, _end: Tokens) -> Item:
    """Replay all tokens but the last for their states; the token that comes out is not used."""
    return replace(item, tokens=tokens[:-1], max_new_tokens=1)


def _go_on(item: Item, tokens: Tokens, end: Tokens, most: int) -> Item | None:
    """Go on from the tokens so far, unless they have ended."""
    left = item.max_new_tokens - (len(tokens) - len(item.tokens))
    if not left or tokens[-1] in end:
        return None
    return replace(item, tokens=tokens, max_new_tokens=min(left, most))


def _other(seed: Hash32) -> Hash32:
    return Hash32(sha256(b"another seed" + seed).digest())
