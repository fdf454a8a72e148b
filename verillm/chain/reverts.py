"""What a refusal of the RPC server means: a custom error, decoded, or the server's own word."""

from collections.abc import Callable
from typing import Any, Final

from verillm.chain import artifacts
from verillm.chain.rpc import RpcRefused
from verillm.errors import (
    BeaconLost,
    ChainError,
    ChainUnreachable,
    DeadlinePassedError,
    DepositTooSmall,
    MalformedError,
    QuoteExpiredError,
    ReplayError,
    SignatureError,
    TransactionFailed,
    UnknownModel,
    VeriLLMError,
)

_PANIC: Final = bytes.fromhex("4e487b71")
_ERROR: Final = bytes.fromhex("08c379a0")
_WORDS: Final[dict[bytes, tuple[str, tuple[artifacts.Component, ...]]]] = {
    _PANIC: ("Panic", ({"name": "code", "type": "uint256"},)),
    _ERROR: ("Error", ({"name": "message", "type": "string"},)),
}

# Facts that a caller of the SDK or the node meets elsewhere too: the same fact is the same error.
_TYPED: Final[dict[str, Callable[..., VeriLLMError]]] = {
    "DepositInsufficient": DepositTooSmall,
    "QuoteExpired": QuoteExpiredError,
    "DeadlinePassed": DeadlinePassedError,
    "NonceUsed": lambda client, nonce: ReplayError(f"{client} used nonce {nonce} before"),
    "SignatureInvalid": lambda expected: SignatureError(f"not signed by {expected}"),
    "ModelUnknown": lambda model: UnknownModel("0x" + model.hex()),
    "BeaconUnavailable": BeaconLost,
}


def decode_revert(data: bytes) -> tuple[str, tuple[Any, ...]]:
    """Name and values of a custom error, `Error(string)` or `Panic(uint256)`; else the raw hex."""
    selector, body = data[:4], data[4:]
    if selector in _WORDS:
        name, inputs = _WORDS[selector]
    elif (entry := artifacts.errors().get(selector)) is not None:
        name, inputs = entry.name, entry.inputs
    else:
        return "UnknownError", ("0x" + data.hex(),)
    try:
        return name, artifacts.decode(inputs, body)
    except MalformedError:
        return name, ("0x" + body.hex(),)


def explain(refusal: RpcRefused, server: str) -> VeriLLMError:
    """The error of ours that a refusal is."""
    if refusal.data:
        name, values = decode_revert(refusal.data)
        return _TYPED[name](*values) if name in _TYPED else TransactionFailed(name, values)
    if "revert" in refusal.message.lower() or refusal.code == 3:
        return TransactionFailed("Reverted", (refusal.message,))
    if "insufficient funds" in refusal.message.lower():
        return TransactionFailed("InsufficientFundsForGas", (refusal.message,))
    if is_nonce_used(refusal):
        return TransactionFailed("NonceTooLow", (refusal.message,))
    return ChainUnreachable(server, f"refuses ({refusal.code}): {refusal.message}")


def is_known(refusal: RpcRefused) -> bool:
    """The server has this very transaction already."""
    return "already known" in refusal.message.lower() or "already imported" in refusal.message


def is_underpriced(refusal: RpcRefused) -> bool:
    """The server holds another transaction of this nonce and wants more for replacing it."""
    return "underpriced" in refusal.message.lower()


def is_nonce_used(refusal: RpcRefused) -> bool:
    """A transaction of this nonce is mined."""
    return "nonce too low" in refusal.message.lower()


def reverted(error: VeriLLMError) -> bool:
    """Whether an error is the contract's refusal, not the connection's."""
    lost = isinstance(error, ChainError) and not isinstance(error, TransactionFailed | BeaconLost)
    return not lost
