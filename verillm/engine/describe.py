"""A model's identity from its folder: roots over weights, head rows, tokenizer and template.

Needs numpy only, reads every byte once, and remembers the result by the files' sizes and times.

* Weights: `safetensors` tensors in name order, each cut into pages of 1 MiB; the leaf of a page is
  `sha(0x00 ‖ 0x10 ‖ sha(name) ‖ sha(dtype ‖ shape) ‖ page u32 ‖ bytes)`.
* Head: a leaf per LM-head row, `sha(0x00 ‖ 0x11 ‖ row u32 ‖ bf16 bits, big-endian)`; the rows of a
  tied head are the embedding's.

Trees have the protocol's one shape (`verillm.merkle`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verillm.engine import cache_home
from verillm.engine.bits import to_bits
from verillm.engine.config import ModelConfig, read_config
from verillm.engine.weights import Tensor, tensors
from verillm.errors import EngineUnavailable, MalformedError, ModelMismatch, UnknownModel
from verillm.files import write_atomically
from verillm.merkle import Tree
from verillm.model import CheckProfile, ModelSpec, committed_layers, slice_dims_of
from verillm.schema import from_json
from verillm.types import Hash32, ModelId

PROFILES = Path(__file__).parent.parent / "data" / "profiles"
PAGE = 1 << 20
WEIGHT_LEAF = b"\x00\x10"
HEAD_LEAF = b"\x00\x11"
BFLOAT16 = 1
HEAD_SCALE_ONE = 1_000_000
NO_PARENT = ModelId(Hash32(bytes(32)))
HEAD_NAMES = ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight")


@dataclass(frozen=True, slots=True)
class Roots:
    """Digests of a folder, in hexadecimal."""

    weights: str
    head: str
    tokenizer: str
    template: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What a model's version fixes beside its weights: stake, committee, how much is checked."""

    seat_stake: int = 1_000 * 10**18
    committee: int = 3
    checked_requests: int = 4
    positions: int = 64


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration file gives: thresholds, and how much is checked under them."""

    profile: CheckProfile
    terms: Terms


def shipped_profile(name: str) -> Calibrated:
    """Return the calibration that is shipped for a model; raises `UnknownModel`."""
    path = PROFILES / f"{name}.json"
    if not path.is_file():
        raise UnknownModel(name)
    return read_profile(path)


def read_profile(path: Path) -> Calibrated:
    """Read what `verillm-audit calibrate` wrote; raises `MalformedError` if it is not that."""
    try:
        document = json.loads(path.read_text("utf-8"))
        terms = document["terms"]
        return Calibrated(
            profile=from_json(CheckProfile, document["profile"], "profile"),
            terms=Terms(
                committee=int(terms["committee"]),
                checked_requests=int(terms["checkedRequests"]),
                positions=int(terms["positions"]),
            ),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MalformedError(path.name, f"not a calibration: {error!r}") from error


def describe(
    folder: str | Path, profile: CheckProfile, *, name: str, terms: Terms | None = None
) -> ModelSpec:
    """Return the spec of a folder under a calibrated profile."""
    folder = Path(folder)
    config, roots, terms = read_config(folder), compute_roots(folder), terms or Terms()
    return ModelSpec(
        name=name,
        parent=NO_PARENT,
        weights_root=_hash(roots.weights),
        head_root=_hash(roots.head),
        tokenizer_hash=_hash(roots.tokenizer),
        template_hash=_hash(roots.template),
        dtype=BFLOAT16,
        vocabulary=config.vocabulary,
        hidden=config.hidden,
        context=config.context,
        depth=config.depth,
        committed_layers=committed_layers(config.depth),
        slice_dims=slice_dims_of(config.hidden),
        end_tokens=config.end_tokens,
        head_scale=HEAD_SCALE_ONE,
        token_proof=has_token_proof(folder, config),
        seat_stake=terms.seat_stake,
        committee=terms.committee,
        checked_requests=terms.checked_requests,
        positions=terms.positions,
        profile=profile,
    )


def check_folder(folder: str | Path, spec: ModelSpec) -> None:
    """Raise `ModelMismatch` unless the folder is the model that the spec registers."""
    folder = Path(folder)
    config, roots = read_config(folder), compute_roots(folder)
    facts: dict[str, tuple[object, object]] = {
        "weights root": (roots.weights, spec.weights_root.hex()),
        "head root": (roots.head, spec.head_root.hex()),
        "tokenizer": (roots.tokenizer, spec.tokenizer_hash.hex()),
        "template": (roots.template, spec.template_hash.hex()),
        "vocabulary": (config.vocabulary, spec.vocabulary),
        "hidden size": (config.hidden, spec.hidden),
        "depth": (config.depth, spec.depth),
        "context": (config.context, spec.context),
        "end tokens": (config.end_tokens, spec.end_tokens),
    }
    for what, (here, registered) in facts.items():
        if here != registered:
            raise ModelMismatch(f"{folder}: {what} is {here}, {spec.name} has {registered}")


def has_token_proof(folder: Path, config: ModelConfig) -> bool:
    """Whether a logit is exactly final state times head row, as a proof on chain computes it."""
    names = {tensor.name for tensor in tensors(folder)}
    return config.has_plain_head and "lm_head.bias" not in names


def compute_roots(folder: Path) -> Roots:
    """Return a folder's digests, from memory if no file has changed."""
    key = _state(folder)
    memory = cache_home() / "roots" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Roots(**json.loads(memory.read_text("utf-8")))
    found = tensors(folder)
    roots = Roots(
        weights=Tree(list(_weight_leaves(found))).root.hex(),
        head=Tree(list(_head_leaves(_head_tensor(found)))).root.hex(),
        tokenizer=hashlib.sha256(_tokenizer(folder)).hexdigest(),
        template=hashlib.sha256(read_template(folder).encode()).hexdigest(),
    )
    with contextlib.suppress(OSError):
        write_atomically(memory, json.dumps(asdict(roots)).encode())
    return roots


def read_template(folder: Path) -> str:
    """Return the chat template's text, empty if the model has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_bytes().decode()
    settings = folder / "tokenizer_config.json"
    with contextlib.suppress(OSError, ValueError):
        template = json.loads(settings.read_text("utf-8")).get("chat_template")
        return template if isinstance(template, str) else ""
    return ""


def _tokenizer(folder: Path) -> bytes:
    try:
        return (folder / "tokenizer.json").read_bytes()
    except OSError as error:
        raise EngineUnavailable(f"{folder} has no tokenizer.json: {error}") from error


def _state(folder: Path) -> str:
    """Return a digest of the names, sizes and times of all files that `compute_roots` reads."""
    digest = hashlib.sha256(str(folder.resolve()).encode())
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json")
    for path in sorted([*folder.glob("*.safetensors"), *(folder / name for name in names)]):
        if path.is_file():
            status = path.stat()
            digest.update(f"{path.name}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _weight_leaves(found: tuple[Tensor, ...]) -> Iterator[Hash32]:
    for tensor in found:
        name = hashlib.sha256(tensor.name.encode()).digest()
        kind = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode()).digest()
        memory = tensor.memory()
        for page in range(max(1, -(-tensor.size // PAGE))):
            leaf = hashlib.sha256(WEIGHT_LEAF + name + kind + page.to_bytes(4, "big"))
            leaf.update(memory[page * PAGE : (page + 1) * PAGE].data)
            yield Hash32(leaf.digest())


def _head_tensor(found: tuple[Tensor, ...]) -> Tensor:
    by_name = {tensor.name: tensor for tensor in found}
    for name in HEAD_NAMES:
        if name in by_name:
            return by_name[name]
    raise EngineUnavailable(f"no LM head among the tensors: none of {', '.join(HEAD_NAMES)}")


def _head_leaves(head: Tensor) -> Iterator[Hash32]:
    for index, row in enumerate(_head_bits(head)):
        yield Hash32(hashlib.sha256(HEAD_LEAF + index.to_bytes(4, "big") + row.tobytes()).digest())


def _head_bits(head: Tensor) -> NDArray[np.uint16]:
    """Return the head's rows as big-endian bfloat16 bits; other float types are rounded to it."""
    if head.dtype == "BF16":
        bits = head.memory().view(np.uint16).reshape(head.shape)
    else:
        bits = to_bits(head.floats())
    return bits.astype(">u2")


def _hash(text: str) -> Hash32:
    return Hash32(bytes.fromhex(text))
