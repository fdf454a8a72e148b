"""The vocabulary that every other module shares: hashes, ids, arrays, outcome and reason codes."""

from enum import IntEnum
from typing import Final, NewType

import numpy as np
from eth_typing import ChecksumAddress, Hash32
from numpy.typing import NDArray

__all__ = [
    "PPM",
    "Bits",
    "ChecksumAddress",
    "Floats",
    "Hash32",
    "Ints",
    "JobId",
    "Mask",
    "ModelId",
    "Outcome",
    "Reason",
    "TaskId",
    "Words",
]

JobId = NewType("JobId", Hash32)
ModelId = NewType("ModelId", Hash32)
TaskId = NewType("TaskId", Hash32)

Bits = NDArray[np.uint16]
"""bf16 values by their bits: hidden states are compared as integers, never as floats."""
Words = NDArray[np.uint32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

PPM = 1_000_000
"""Millionths: the unit of every ratio, threshold and sampling parameter that is hashed."""


class Outcome(IntEnum):
    """What a verdict does to the money (docs/protocol.md §7)."""

    NONE = 0
    ACCEPT = 1
    REFUND = 2
    SLASH = 3
    INCONCLUSIVE = 4


class Reason(IntEnum):
    """Why a verdict is what it is; the codes of docs/protocol.md §7."""

    NONE = 0
    STATES_DIFFER = 1
    NON_FINITE = 2
    WITHHELD = 3
    MARGIN_MEAN = 5
    MARGIN_MAX = 6
    OUTSIDE_NUCLEUS = 7
    LENGTH = 8
    AFTER_END = 9
    TASK_MISMATCH_INFERENCER = 10
    OUTPUT_MISMATCH = 11
    TRACE_DIFFERS = 12
    TASK_DIFFERS = 13
    RECEIPT_DIFFERS = 14
    OUT_OF_BOUNDS = 15
    NO_CLIQUE = 20
    DIVIDED = 21
    TOO_FEW_POSITIONS = 22
    PROFILE_MISSING = 23
    EVIDENCE_MISSING = 24
    TASK_MISMATCH = 25
    HEAD_MISSING = 26
    NOT_SEALED = 30
    BEACON_LOST = 31
    NOT_COMPARED = 32


ATTESTED: Final = frozenset(range(Reason.MARGIN_MEAN, Reason.OUTPUT_MISMATCH + 1))
"""Reasons that the chain cannot recompute: a committee's majority attests them."""
