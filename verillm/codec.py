"""The binary layouts of traces, openings and bundles, each with one bounded strict parser (§5).

A parser reads bytes of strangers: it raises MalformedError or returns the one value whose encoding
they are. Every length is held against a cap, and against the bytes that are left, before anything
is allocated. Values that are not finite parse: they are evidence.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.address import to_canonical_address, to_checksum_address

from verillm.errors import MalformedError
from verillm.evidence import Bundle, CheckedOutput, PartyEvidence
from verillm.hashing import fixed, keccak, tokens_bytes, u32, word
from verillm.model import Shape
from verillm.request import Job, Quote, Request, Sampling
from verillm.schema import STRUCTS, abi_encode, abi_type, struct_name
from verillm.task import Inner, Item, ItemLeaf, Task
from verillm.trace import Entry, Opening, Trace, TraceItem, state_bytes, state_digest
from verillm.types import Bits, ChecksumAddress, Hash32, ModelId, TaskId

T = TypeVar("T")

VERSION = 1
CHUNK = 65_536
"""Bytes of a bundle that one transaction puts on chain; 256 of them at most."""
_TRACE, _OPENING, _BUNDLE = b"VLT1", b"VLO1", b"VLB1"
_FULL, _FINAL_ONLY = 1, 2
_JOB, _QUOTE, _SIGNATURE, _CHECKED, _PARTY, _SHOWN = range(1, 7)


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps that a parser holds lengths against; the defaults fit any model the protocol allows."""

    bytes: int = 1 << 28
    items: int = 4096
    tokens: int = 1 << 20
    layers: int = 64
    hidden: int = 16384
    entries: int = 1 << 16
    path: int = 32
    parties: int = 256
    signature: int = 4096


LIMITS = Limits()


class _Reader:
    """A cursor over bytes that names the field which does not fit."""

    __slots__ = ("_at", "_data", "limits")

    def __init__(self, data: bytes | memoryview, magic: bytes, limits: Limits) -> None:
        if len(data) > limits.bytes:
            raise MalformedError("bytes", f"{len(data)} exceed the cap of {limits.bytes}")
        self._data = memoryview(data)
        self._at = 0
        self.limits = limits
        if magic and self.take(4, "magic") != magic:
            raise MalformedError("magic", f"not {magic.decode()}")
        if magic and self.number(2, "version") != VERSION:
            raise MalformedError("version", f"not {VERSION}")

    def take(self, size: int, field: str) -> bytes:
        return bytes(self.view(size, field))

    def view(self, size: int, field: str) -> memoryview:
        if size > len(self._data) - self._at:
            raise MalformedError(field, f"{size} bytes where {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int, field: str) -> int:
        return int.from_bytes(self.view(size, field), "big")

    def count(self, size: int, field: str, cap: int, least: int = 0) -> int:
        value = self.number(size, field)
        if not least <= value <= cap:
            raise MalformedError(field, f"{value} is not within {least} to {cap}")
        return value

    def hash(self, field: str) -> Hash32:
        return Hash32(self.take(32, field))

    def tokens(self, count: int, field: str) -> tuple[int, ...]:
        return tuple(np.frombuffer(self.view(4 * count, field), dtype=">u4").tolist())

    def states(self, shape: tuple[int, ...], field: str) -> Bits:
        size = 1
        for extent in shape:
            size *= extent
        raw = np.frombuffer(self.view(2 * size, field), dtype=">u2")
        return raw.astype(np.uint16).reshape(shape)

    def path(self, field: str) -> tuple[Hash32, ...]:
        count = self.count(1, field, self.limits.path)
        return tuple(self.hash(field) for _ in range(count))

    def end(self) -> None:
        if self._at != len(self._data):
            raise MalformedError("end", f"{len(self._data) - self._at} trailing bytes")

    @property
    def left(self) -> int:
        return len(self._data) - self._at


# ── Traces ──────────────────────────────────────────────────────────────────────────────────────
def encode_trace(trace: Trace) -> bytes:
    """A trace as `VLT1`."""
    parts = [_TRACE, fixed(VERSION, 2), word(trace.task_hash), u32(len(trace.items))]
    for item in trace.items:
        parts += [u32(item.item), u32(item.prompt_tokens), u32(item.new_tokens)]
        parts += [_shape_bytes(item.shape), tokens_bytes(item.tokens)]
        parts += [state_bytes(item.slices), state_bytes(item.finals)]
    return b"".join(parts)


def decode_trace(data: bytes, limits: Limits = LIMITS) -> Trace:
    """The trace that `VLT1` bytes hold; MalformedError."""
    reader = _Reader(data, _TRACE, limits)
    digest = reader.hash("taskHash")
    count = reader.count(4, "items", limits.items, 1)
    items = tuple(_read_trace_item(reader, number) for number in range(count))
    reader.end()
    return Trace(digest, items)


def _read_trace_item(reader: _Reader, number: int) -> TraceItem:
    where = f"items[{number}]"
    if reader.number(4, f"{where}.item") != number:
        raise MalformedError(f"{where}.item", "items are not numbered in order")
    prompt = reader.count(4, f"{where}.promptTokens", reader.limits.tokens, 1)
    new = reader.count(4, f"{where}.newTokens", reader.limits.tokens, 1)
    shape = _read_shape(reader, where)
    tokens = reader.tokens(prompt + new, f"{where}.tokens")
    positions = prompt + new - 1
    slices = reader.states((positions, shape.layers, shape.slice_dims), f"{where}.slices")
    finals = reader.states((positions, shape.hidden), f"{where}.finals")
    return TraceItem(number, prompt, tokens, slices, finals)


# ── Openings ────────────────────────────────────────────────────────────────────────────────────
def encode_opening(opening: Opening) -> bytes:
    """An opening as `VLO1`."""
    inner, leaf = opening.inner, opening.leaf
    parts = [_OPENING, fixed(VERSION, 2), word(opening.task_hash), word(inner.items_root)]
    parts += [u32(inner.items), fixed(inner.prompt_tokens, 8), fixed(inner.new_tokens, 8)]
    parts += [u32(leaf.item), u32(leaf.prompt_tokens), u32(leaf.new_tokens)]
    parts += [word(leaf.trace_root), word(leaf.output_hash), _path_bytes(opening.item_path)]
    parts += [_shape_bytes(opening.shape), u32(len(opening.entries))]
    for entry in opening.entries:
        parts += [u32(entry.position), u32(entry.token), u32(entry.next)]
        if entry.slices is None:
            parts += [fixed(_FINAL_ONLY, 1), word(entry.slices_digest)]
        else:
            parts += [fixed(_FULL, 1), state_bytes(entry.slices)]
        parts += [state_bytes(entry.final), _path_bytes(entry.path)]
    return b"".join(parts)


def decode_opening(data: bytes | memoryview, limits: Limits = LIMITS) -> Opening:
    """The opening that `VLO1` bytes hold; whether it proves anything, `check_opening` says."""
    reader = _Reader(data, _OPENING, limits)
    digest = reader.hash("taskHash")
    root = reader.hash("itemsRoot")
    items = reader.count(4, "items", limits.items, 1)
    inner = Inner(
        digest, root, items, reader.number(8, "promptTokens"), reader.number(8, "newTokens")
    )
    leaf = ItemLeaf(
        reader.count(4, "leaf.item", items - 1),
        reader.count(4, "leaf.promptTokens", limits.tokens, 1),
        reader.count(4, "leaf.newTokens", limits.tokens, 1),
        reader.hash("leaf.traceRoot"),
        reader.hash("leaf.outputHash"),
    )
    path = reader.path("itemPath")
    shape = _read_shape(reader, "opening")
    count = reader.count(4, "entries", limits.entries)
    last = leaf.prompt_tokens + leaf.new_tokens - 2
    entries = tuple(_read_entries(reader, shape, count, last))
    reader.end()
    return Opening(digest, inner, leaf, path, entries, shape)


def _read_entries(reader: _Reader, shape: Shape, count: int, last: int) -> Iterator[Entry]:
    least = 0
    for number in range(count):
        where = f"entries[{number}]"
        position = reader.count(4, f"{where}.position", last, least)
        least = position + 1
        token, following = reader.number(4, f"{where}.token"), reader.number(4, f"{where}.next")
        kind = reader.count(1, f"{where}.kind", _FINAL_ONLY, _FULL)
        slices = None
        if kind == _FULL:
            slices = reader.states((shape.layers, shape.slice_dims), f"{where}.slices")
            digest = state_digest(slices)
        else:
            digest = reader.hash(f"{where}.slicesDigest")
        final = reader.states((shape.hidden,), f"{where}.final")
        yield Entry(position, token, following, slices, digest, final, reader.path(f"{where}.path"))


# ── Bundles ─────────────────────────────────────────────────────────────────────────────────────
def encode_bundle(bundle: Bundle) -> bytes:
    """A bundle as `VLB1`."""
    sections = [(_JOB, abi_encode(bundle.job)), (_QUOTE, abi_encode(bundle.quote))]
    sections += [(_SIGNATURE, bundle.signature)]
    sections += [(_CHECKED, _checked_bytes(checked)) for checked in bundle.checked]
    sections += [(_PARTY, _party_bytes(party)) for party in bundle.parties]
    sections += [
        (_SHOWN, fixed(party.party, 1) + u32(at) + encode_opening(party.openings[at]))
        for party in bundle.parties
        for at in sorted(party.openings)
    ]
    body = b"".join(fixed(tag, 1) + u32(len(section)) + section for tag, section in sections)
    return _BUNDLE + fixed(VERSION, 2) + body


def decode_bundle(data: bytes, limits: Limits = LIMITS) -> Bundle:
    """The bundle that `VLB1` bytes hold; whether it holds together, `check_bundle` says."""
    reader = _Reader(data, _BUNDLE, limits)
    sections = _read_sections(reader)
    job = _one(sections, _JOB, "job", lambda part: _read_static(part, Job))
    quote = _one(sections, _QUOTE, "quote", lambda part: _read_static(part, Quote))
    signature = _one(sections, _SIGNATURE, "signature", lambda part: part.take(part.left, ""))
    if len(signature) > limits.signature:
        raise MalformedError("signature", f"{len(signature)} bytes exceed the cap")
    checked = tuple(_read_checked(part) for part in _capped(sections, _CHECKED, limits.items))
    openings = _read_shown(_capped(sections, _SHOWN, limits.items * limits.parties))
    parts = _capped(sections, _PARTY, limits.parties)
    parties = tuple(_read_party(part, openings) for part in parts)
    _check_ascending([(party.party,) for party in parties], "parties")
    if openings:
        raise MalformedError("opening.party", "an opening of a party without a task")
    return Bundle(job, quote, signature, checked, parties)


def bundle_chunks(data: bytes) -> list[bytes]:
    """A bundle in the parts that the contract takes, one a transaction."""
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def bundle_hash(data: bytes) -> Hash32:
    """What a claim names a bundle by: each chunk can be served under it."""
    return keccak(b"".join(keccak(chunk) for chunk in bundle_chunks(data)))


def _read_sections(reader: _Reader) -> dict[int, list[_Reader]]:
    sections: dict[int, list[_Reader]] = {tag: [] for tag in range(_JOB, _SHOWN + 1)}
    least = _JOB
    while reader.left:
        least = reader.count(1, "tag", _SHOWN, least)
        size = reader.number(4, "length")
        sections[least].append(_Reader(reader.view(size, "section"), b"", reader.limits))
    return sections


def _capped(sections: dict[int, list[_Reader]], tag: int, cap: int) -> list[_Reader]:
    if len(sections[tag]) > cap:
        raise MalformedError("sections", f"{len(sections[tag])} with tag {tag} exceed {cap}")
    return sections[tag]


def _one(
    sections: dict[int, list[_Reader]], tag: int, field: str, read: Callable[[_Reader], T]
) -> T:
    if len(sections[tag]) != 1:
        raise MalformedError(field, f"stands {len(sections[tag])} times, not once")
    value = read(sections[tag][0])
    sections[tag][0].end()
    return value


def _read_static(reader: _Reader, python: type[T]) -> T:
    """A struct of one-word members, as Solidity encodes it."""
    name = struct_name(python)
    members = STRUCTS[name].members
    data = reader.take(32 * len(members), name)
    try:
        (values,) = decode([abi_type(name)], data, strict=True)
    except (DecodingError, OverflowError, ValueError) as error:
        raise MalformedError(name, str(error)) from None
    fields = {
        member.attribute: to_checksum_address(value) if member.kind == "address" else value
        for member, value in zip(members, values, strict=True)
    }
    return python(**fields)


def _checked_bytes(checked: CheckedOutput) -> bytes:
    request = checked.request
    parts = [u32(checked.index), word(request.salt), u32(request.max_new_tokens)]
    parts += [_sampling_bytes(request.sampling), _counted(request.tokens)]
    parts += [_path_bytes(checked.path), _counted(checked.output)]
    parts += [_path_bytes(checked.output_path)]
    return b"".join(parts)


def _read_checked(reader: _Reader) -> CheckedOutput:
    index = reader.count(4, "checked.index", reader.limits.items - 1)
    salt = reader.hash("checked.salt")
    most = reader.number(4, "checked.maxNewTokens")
    sampling = _read_sampling(reader, "checked.sampling")
    tokens = _read_counted(reader, "checked.tokens")
    path = reader.path("checked.path")
    output = _read_counted(reader, "checked.output")
    output_path = reader.path("checked.outputPath")
    reader.end()
    return CheckedOutput(index, Request(salt, tokens, most, sampling), path, output, output_path)


def _party_bytes(party: PartyEvidence) -> bytes:
    task = party.task
    parts = [fixed(party.party, 1), word(task.task_id), to_canonical_address(task.worker)]
    parts += [word(task.model_id), fixed(task.deadline, 5), fixed(task.lock, 12)]
    parts += [fixed(task.fee, 12), u32(len(task.items))]
    for item in task.items:
        parts += [word(item.salt), word(item.seed), u32(item.max_new_tokens)]
        parts += [_sampling_bytes(item.sampling), _counted(item.tokens)]
    parts += [_signature(party.task_signature), _signature(party.commitment_signature)]
    return b"".join(parts)


def _read_party(reader: _Reader, openings: dict[int, dict[int, Opening]]) -> PartyEvidence:
    number = reader.count(1, "party", reader.limits.parties - 1)
    identity = TaskId(reader.hash("task.taskId"))
    worker = _address(reader)
    model = ModelId(reader.hash("task.modelId"))
    deadline = reader.number(5, "task.deadline")
    lock, fee = reader.number(12, "task.lock"), reader.number(12, "task.fee")
    count = reader.count(4, "task.items", reader.limits.items, 1)
    items = tuple(_read_item(reader, f"task.items[{at}]") for at in range(count))
    task = Task(identity, worker, model, items, deadline, lock, fee)
    signatures = reader.take(65, "taskSignature"), reader.take(65, "commitmentSignature")
    reader.end()
    return PartyEvidence(number, task, *signatures, openings.pop(number, {}))


def _read_item(reader: _Reader, where: str) -> Item:
    salt, seed = reader.hash(f"{where}.salt"), reader.hash(f"{where}.seed")
    most = reader.number(4, f"{where}.maxNewTokens")
    sampling = _read_sampling(reader, f"{where}.sampling")
    return Item(salt, _read_counted(reader, f"{where}.tokens"), most, sampling, seed)


def _read_shown(parts: list[_Reader]) -> dict[int, dict[int, Opening]]:
    openings: dict[int, dict[int, Opening]] = {}
    order: list[tuple[int, ...]] = []
    for part in parts:
        number = part.number(1, "opening.party")
        at = part.count(4, "opening.checked", part.limits.items - 1)
        order.append((number, at))
        shown = decode_opening(part.view(part.left, "opening"), part.limits)
        openings.setdefault(number, {})[at] = shown
    _check_ascending(order, "openings")
    return openings


# ── Parts ───────────────────────────────────────────────────────────────────────────────────────
def _shape_bytes(shape: Shape) -> bytes:
    return fixed(shape.layers, 2) + fixed(shape.slice_dims, 2) + u32(shape.hidden)


def _read_shape(reader: _Reader, where: str) -> Shape:
    layers = reader.count(2, f"{where}.layers", reader.limits.layers, 1)
    slice_dims = reader.count(2, f"{where}.sliceDims", reader.limits.hidden, 16)
    hidden = reader.count(4, f"{where}.hidden", reader.limits.hidden, slice_dims)
    if slice_dims % 16 or hidden % 16:
        raise MalformedError(f"{where}.hidden", "sizes are not multiples of 16")
    return Shape(layers, slice_dims, hidden)


def _path_bytes(path: tuple[Hash32, ...]) -> bytes:
    return fixed(len(path), 1) + b"".join(word(sibling) for sibling in path)


def _sampling_bytes(sampling: Sampling) -> bytes:
    numbers = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    return b"".join(map(u32, numbers))


def _read_sampling(reader: _Reader, where: str) -> Sampling:
    return Sampling(*(reader.number(4, where) for _ in range(4)))


def _counted(tokens: tuple[int, ...]) -> bytes:
    return u32(len(tokens)) + tokens_bytes(tokens)


def _read_counted(reader: _Reader, where: str) -> tuple[int, ...]:
    return reader.tokens(reader.count(4, where, reader.limits.tokens, 1), where)


def _signature(signature: bytes) -> bytes:
    if len(signature) != 65:
        raise MalformedError("signature", f"{len(signature)} bytes where 65 belong")
    return signature


def _address(reader: _Reader) -> ChecksumAddress:
    return to_checksum_address(reader.take(20, "task.worker"))


def _check_ascending(values: Sequence[tuple[int, ...]], field: str) -> None:
    if list(values) != sorted(set(values)):
        raise MalformedError(field, "not ascending and distinct")
