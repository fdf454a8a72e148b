"""What a dry run finds out, by calls alone: has the chain what the contracts need, what does each
step cost, and which code will stand where, immutables included.

Each step is simulated as if those before it were done: `eth_call` and `eth_estimateGas` take the
code of the contracts before it as state overrides. A creation is simulated from an address
that never sent anything, so that it collides with nothing that stands already; what a constructor
derives from its own address (OpenZeppelin's EIP712 keeps two such values) is then put right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import encode as abi_encode
from eth_utils.address import to_canonical_address, to_checksum_address

from verillm.chain import artifacts, rpc
from verillm.chain.contract import Call, Chain, Fees
from verillm.chain.deployment import ZERO_ADDRESS
from verillm.chain.plan import Plan, Step, created_address
from verillm.chain.refused import FeatureMissing, FundsTooLow, NotAToken
from verillm.errors import ChainUnreachable, MalformedError, TransactionFailed, VeriLLMError
from verillm.hashing import keccak
from verillm.signing import Domain
from verillm.types import ChecksumAddress

HISTORY: Final = to_checksum_address("0x0000f90827f1c53a10cb7a02335b175320002935")
"""EIP-2935's history of block hashes, as BeaconLib asks it."""
CALL_LIMIT: Final = 15_000_000
"""Gas that the dearest calls of a public round need, so a block must hold it."""
STRANGER: Final = to_checksum_address(keccak(b"verillm: who never sends")[12:])
# push0 push0 push0 mcopy; mstore(0, 1); return(0, 32): EIP-3855 and EIP-5656, which solc emits.
_PROBE: Final = bytes.fromhex("5f5f5f5e60015f5260205ff3")

Overrides = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Token:
    """What the fee token says of itself."""

    symbol: str
    decimals: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known before anything is sent; gas limits and codes in the order of the steps."""

    block: int
    block_gas: int
    base_fee: int
    fees: Fees
    balance: int
    token: Token | None
    gas: tuple[int, ...]
    limits: tuple[int, ...]
    codes: tuple[bytes | None, ...]
    standing: tuple[bool, ...]

    @property
    def cost(self) -> int:
        """Wei of what is still to be sent, at the newest block's fee."""
        return sum(self._left(self.gas)) * (self.base_fee + self.fees.tip)

    @property
    def reserve(self) -> int:
        """Wei that the account must hold, so that every step can be sent while fees double."""
        return sum(self._left(self.limits)) * self.fees.maximum

    def _left(self, gas: Sequence[int]) -> list[int]:
        return [each for each, done in zip(gas, self.standing, strict=True) if not done]


def survey(chain: Chain, plan: Plan) -> Survey:
    """Look at everything; raises what stands against a deployment, FundsTooLow last of all."""
    _require_features(chain)
    block = rpc.record(chain.request("eth_getBlockByNumber", "latest", False), "block")
    fees = chain.fees()
    codes, gas, standing = _simulate(chain, plan)
    limits = tuple(each + each // 4 + 10_000 if each else 0 for each in gas)
    found = Survey(
        block=rpc.quantity(block.get("number"), "block.number"),
        block_gas=rpc.quantity(block.get("gasLimit"), "block.gasLimit"),
        base_fee=rpc.quantity(block.get("baseFeePerGas"), "block.baseFeePerGas", 128),
        fees=fees,
        balance=chain.balance(plan.deployer),
        token=None if _is_new(plan, plan.config.token) else token_of(chain, plan.config.token),
        gas=gas,
        limits=limits,
        codes=codes,
        standing=standing,
    )
    if found.block_gas < max(*limits, CALL_LIMIT):
        needed = max(*limits, CALL_LIMIT)
        raise FeatureMissing("block gas", f"a block holds {found.block_gas}, a call needs {needed}")
    if found.balance < found.reserve:
        raise FundsTooLow(plan.deployer, found.balance, found.reserve)
    return found


def expected_codes(chain: Chain, steps: Sequence[Step]) -> tuple[bytes | None, ...]:
    """The code that each creation must leave, in order, whatever stands now; None for calls."""
    overrides: Overrides = {}
    found = []
    for step in steps:
        code = None if step.address is None else _created(chain, step, overrides)
        found.append(code)
        if step.address is not None and code is not None:
            overrides[step.address] = {"code": "0x" + code.hex()}
    return tuple(found)


def code_at(chain: Chain, address: ChecksumAddress) -> bytes:
    """The code that stands at an address, empty if none does."""
    return rpc.data(chain.request("eth_getCode", address, "latest"), "code")


def token_of(chain: Chain, address: ChecksumAddress) -> Token:
    """What an ERC-20 says of itself; raises NotAToken."""
    if address == ZERO_ADDRESS or not code_at(chain, address):
        raise NotAToken(address, "no contract stands there")
    try:
        decimals = _read(chain, address, "decimals")
        _read(chain, address, "totalSupply")
        _read(chain, address, "balanceOf", STRANGER)
    except (TransactionFailed, MalformedError) as error:
        raise NotAToken(address, f"it answers no ERC-20 call ({error})") from error
    try:
        symbol = str(_read(chain, address, "symbol"))
    except (TransactionFailed, MalformedError):  # optional in ERC-20, and some give bytes32
        symbol = "?"
    return Token(symbol, int(decimals))


def _read(chain: Chain, token: ChecksumAddress, name: str, *values: object) -> Any:
    entry = artifacts.functions("DevToken")[name]
    answer = chain.simulate(Call(name, token, entry.encode(*values)), STRANGER)
    (value,) = artifacts.decode(entry.outputs, answer)
    return value


def _is_new(plan: Plan, address: ChecksumAddress) -> bool:
    return any(step.address == address for step in plan.steps)


# ── The chain ────────────────────────────────────────────────────────────────────────────────────
def _require_features(chain: Chain) -> None:
    if not code_at(chain, HISTORY):
        raise FeatureMissing("EIP-2935", f"no history of block hashes at {HISTORY}")
    head = rpc.record(chain.request("eth_getBlockByNumber", "latest", False), "block")
    number = rpc.quantity(head.get("number"), "block.number")
    if "baseFeePerGas" not in head:
        raise FeatureMissing("EIP-1559", "blocks name no base fee")
    if number > 0:
        asked = Call("history", HISTORY, abi_encode(["uint256"], [number - 1]))
        if chain.simulate(asked, STRANGER) != rpc.hash32(head.get("parentHash"), "parentHash"):
            raise FeatureMissing("EIP-2935", f"it does not know the hash of block {number - 1}")
    try:
        answer = chain.simulate(Call("probe", None, _PROBE), STRANGER)
    except VeriLLMError as error:
        raise FeatureMissing("EIP-3855, EIP-5656", f"PUSH0 or MCOPY fails ({error})") from error
    if answer != bytes(31) + b"\x01":
        raise FeatureMissing("EIP-3855, EIP-5656", "PUSH0 or MCOPY does something else")


# ── Simulation ───────────────────────────────────────────────────────────────────────────────────
def _simulate(
    chain: Chain, plan: Plan
) -> tuple[tuple[bytes | None, ...], tuple[int, ...], tuple[bool, ...]]:
    overrides: Overrides = {}
    codes = expected_codes(chain, plan.steps)
    gas, standing = [], []
    mined = chain.nonce(plan.deployer)
    for step, code in zip(plan.steps, codes, strict=True):
        done = step.nonce < mined
        gas.append(0 if done else _gas(chain, plan, step, overrides))
        standing.append(done)
        if step.address is not None and code is not None:
            overrides[step.address] = {"code": "0x" + code.hex()}
    return codes, tuple(gas), tuple(standing)


def _gas(chain: Chain, plan: Plan, step: Step, overrides: Overrides) -> int:
    sender = STRANGER if step.address is not None else plan.deployer
    answer = _request(chain, "eth_estimateGas", _message(step, sender), overrides)
    return rpc.quantity(answer, "gas")


def _created(chain: Chain, step: Step, overrides: Overrides) -> bytes:
    answer = _request(chain, "eth_call", _message(step, STRANGER), overrides)
    simulated = created_address(STRANGER, 0)
    code = rpc.data(answer, "code")
    if step.address is None or not code:
        raise FeatureMissing("simulation", f"the server gives no code of {step.name}")
    chain_id = chain.deployment.chain_id
    for old, new in (
        (Domain(chain_id, simulated).separator, Domain(chain_id, step.address).separator),
        (to_canonical_address(simulated), to_canonical_address(step.address)),
    ):
        code = code.replace(old, new)
    return code


def _message(step: Step, sender: ChecksumAddress) -> dict[str, str]:
    message = {"from": sender, "data": "0x" + step.call.data.hex()}
    return message if step.call.to is None else message | {"to": step.call.to}


def _request(chain: Chain, method: str, message: object, overrides: Overrides) -> object:
    extra = [overrides] if overrides else []
    try:
        return chain.request(method, message, "latest", *extra)
    except ChainUnreachable as error:
        if extra and isinstance(error.__cause__, rpc.RpcRefused):
            raise FeatureMissing("state overrides", f"the RPC server: {error.problem}") from error
        raise
