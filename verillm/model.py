"""An immutable model version: sizes, roots, calibrated check profile (IVeriLLM.ModelSpec)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verillm.errors import MalformedError
from verillm.hashing import keccak
from verillm.schema import abi_encode, from_json, solidity, to_json
from verillm.types import Hash32, ModelId

STRIDE = 8
"""Every so many decoder layers one is committed (the paper's choice)."""
MAX_SLICE_DIMS = 256


@dataclass(frozen=True, slots=True)
class Shape:
    """What one position of a trace holds: `layers` slices of `slice_dims`, a final of `hidden`."""

    layers: int
    slice_dims: int
    hidden: int


@solidity("LayerProfile(int8 scale,uint32[3] med,uint32[3] cap)")
@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One committed layer: scale exponent, honest median and cap of the distance (ppm) by zone."""

    scale: int
    med: tuple[int, int, int]
    cap: tuple[int, int, int]


@solidity(
    "CheckProfile(uint32 meanRefund,uint32 meanSlash,uint16 overRefund,uint16 overSlash,"
    "uint32 marginMean,uint32 marginMaxRefund,uint32 marginMaxSlash,uint32 massEpsilon,"
    "uint32 logitTau,uint16 minPositions,uint16 manyPositions,uint32 meanRefundMany,"
    "uint32 meanSlashMany,LayerProfile[] layers)"
)
@dataclass(frozen=True, slots=True)
class CheckProfile:
    """Calibrated thresholds; ppm unless they are counts. `layers` ends with the final norm.

    A mean over many positions is steadier, so it may be held to less: from `many_positions` a
    checked request on (0: never) the means of `_many` take the others' place. A request, since
    short ones of one job are alike, and as noisy together as one of them.
    """

    mean_refund: int
    mean_slash: int
    over_refund: int
    over_slash: int
    margin_mean: int
    margin_max_refund: int
    margin_max_slash: int
    mass_epsilon: int
    logit_tau: int
    min_positions: int
    many_positions: int
    mean_refund_many: int
    mean_slash_many: int
    layers: tuple[LayerProfile, ...]

    def refund_tier(self, positions: int, requests: int) -> tuple[int, int]:
        """The largest mean and count at which two parties agree over so many positions in all."""
        many = self._are_many(positions, requests)
        return (self.mean_refund_many if many else self.mean_refund), self.over_refund

    def slash_tier(self, positions: int, requests: int) -> tuple[int, int]:
        """The same beyond which it is a slash."""
        many = self._are_many(positions, requests)
        return (self.mean_slash_many if many else self.mean_slash), self.over_slash

    def _are_many(self, positions: int, requests: int) -> bool:
        return 0 < self.many_positions * requests <= positions


@solidity(
    "ModelSpec(string name,bytes32 parent,bytes32 weightsRoot,bytes32 headRoot,"
    "bytes32 tokenizerHash,bytes32 templateHash,uint8 dtype,uint32 vocabulary,uint32 hidden,"
    "uint32 context,uint16 depth,uint16[] committedLayers,uint16 sliceDims,uint32[] endTokens,"
    "uint64 headScale,bool tokenProof,uint96 seatStake,uint8 committee,uint16 checkedRequests,"
    "uint16 positions,CheckProfile profile)"
)
@dataclass(frozen=True, slots=True)
class ModelSpec:
    """An immutable model version; its id is the hash of its ABI encoding."""

    name: str
    parent: ModelId
    weights_root: Hash32
    head_root: Hash32
    tokenizer_hash: Hash32
    template_hash: Hash32
    dtype: int
    vocabulary: int
    hidden: int
    context: int
    depth: int
    committed_layers: tuple[int, ...]
    slice_dims: int
    end_tokens: tuple[int, ...]
    head_scale: int
    token_proof: bool
    seat_stake: int
    committee: int
    checked_requests: int
    positions: int
    profile: CheckProfile

    @property
    def shape(self) -> Shape:
        """What one position of a trace of this model holds."""
        return Shape(len(self.committed_layers), self.slice_dims, self.hidden)


def model_id(spec: ModelSpec) -> ModelId:
    """`keccak(abi(ModelSpec))`."""
    return ModelId(keccak(abi_encode(spec)))


def committed_layers(depth: int) -> tuple[int, ...]:
    """The layers whose output is committed, counted from 1: every 8th, or else the middle one."""
    if depth < 1:
        raise MalformedError("depth", "a model has at least one layer")
    if depth <= STRIDE:
        return ((depth + 1) // 2,)
    return tuple(range(STRIDE, depth + 1, STRIDE))


def slice_dims_of(hidden: int) -> int:
    """How many dimensions of a committed layer a trace holds."""
    return min(MAX_SLICE_DIMS, hidden)


def check_spec(spec: ModelSpec) -> None:
    """Hold a spec to what every other module assumes of it; MalformedError names the field."""
    facts = {
        "hidden": 0 < spec.hidden <= 16384 and spec.hidden % 16 == 0,
        "sliceDims": 0 < spec.slice_dims <= spec.hidden and spec.slice_dims % 16 == 0,
        "committedLayers": spec.committed_layers == committed_layers(spec.depth),
        "vocabulary": spec.vocabulary > 0 and all(t < spec.vocabulary for t in spec.end_tokens),
        "context": spec.context > 1,
        "committee": spec.committee > 0,
        "checkedRequests": spec.checked_requests > 0,
        "positions": spec.positions > 0,
        "profile.manyPositions": spec.profile.many_positions <= spec.positions,
    }
    for field, holds in facts.items():
        if not holds:
            raise MalformedError(field, "out of bounds")
    check_profile(spec.profile, len(spec.committed_layers))


def check_profile(profile: CheckProfile, layers: int) -> None:
    """Hold a profile to its shape: one entry per committed layer and the final, medians over 0."""
    facts = {
        "profile.layers": len(profile.layers) == layers + 1,
        "profile.med": all(med > 0 for layer in profile.layers for med in layer.med),
        "profile.cap": all(
            cap >= med
            for layer in profile.layers
            for cap, med in zip(layer.cap, layer.med, strict=True)
        ),
        "profile.meanSlash": profile.mean_slash >= profile.mean_refund,
        "profile.meanRefundMany": _holds_many(profile),
        "profile.overSlash": profile.over_slash >= profile.over_refund,
        "profile.marginMaxSlash": profile.margin_max_slash >= profile.margin_max_refund,
    }
    for field, holds in facts.items():
        if not holds:
            raise MalformedError(field, "out of bounds")


def _holds_many(profile: CheckProfile) -> bool:
    """Whether many positions are held to no more than few ones, or to nothing of their own."""
    refund, slash = profile.mean_refund_many, profile.mean_slash_many
    if profile.many_positions == 0:
        return refund == slash == 0
    return 0 < refund <= profile.mean_refund and refund <= slash <= profile.mean_slash


def spec_to_json(spec: ModelSpec) -> dict[str, Any]:
    """A spec by the names of its Solidity struct; over 53 bits as decimal strings."""
    return to_json(spec)


def spec_from_json(value: Mapping[str, Any]) -> ModelSpec:
    """A spec from JSON that was read strictly and checked; MalformedError names the field."""
    spec = from_json(ModelSpec, value, "spec")
    check_spec(spec)
    return spec
