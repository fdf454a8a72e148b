"""What a deployment sends, in order, and where each contract will stand, before anything is sent.

A contract's address follows from its sender and the sender's nonce (CREATE), so the whole plan,
with every constructor's arguments, is a pure function of terms, deployer and first nonce. Hardhat's
`contracts/scripts/deploy.js` makes the same plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from eth_utils.address import to_canonical_address, to_checksum_address

from verillm.chain import artifacts
from verillm.chain.calls import Call, Calls
from verillm.chain.deployment import NOTHING, ZERO_ADDRESS, Config, Deployment
from verillm.hashing import keccak
from verillm.model import ModelSpec
from verillm.types import ChecksumAddress, Hash32

SUPPLY: Final = 10**27
"""Of a new DevToken, in its units: the deployer's."""
DEV_CHAINS: Final = frozenset({1_337, 31_337})
"""Chains of one machine: a DevToken will do, and nothing has to be confirmed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction; `address` is of what it creates, None for a call."""

    name: str
    nonce: int
    call: Call
    address: ChecksumAddress | None = None
    spec: ModelSpec | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All transactions of a deployment, the first of them with `first_nonce`."""

    chain_id: int
    deployer: ChecksumAddress
    first_nonce: int
    config: Config
    contract: ChecksumAddress
    extensions: tuple[ChecksumAddress, ...]
    steps: tuple[Step, ...]

    @property
    def digest(self) -> Hash32:
        """Names this plan: any other chain, deployer, nonce, byte of code or term has another."""
        head = f"{self.chain_id} {self.deployer} {self.first_nonce}".encode()
        parts = (keccak(step.name.encode() + b"\0" + step.call.data) for step in self.steps)
        return keccak(head + b"".join(parts))


def created_address(sender: ChecksumAddress, nonce: int) -> ChecksumAddress:
    """Where CREATE puts a contract: the last 20 bytes of `keccak(rlp([sender, nonce]))`."""
    number = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
    if len(number) != 1 or number[0] >= 0x80:
        number = bytes([0x80 + len(number)]) + number
    body = b"\x94" + to_canonical_address(sender) + number
    return to_checksum_address(keccak(bytes([0xC0 + len(body)]) + body)[12:])


def make_plan(
    chain_id: int,
    deployer: ChecksumAddress,
    first_nonce: int,
    terms: Config,
    *,
    specs: Sequence[ModelSpec] = (),
    supply: int = SUPPLY,
) -> Plan:
    """Plan VeriLLM with all its contracts, then the models.

    A new DevToken where `terms` name no token; a new adjudicator and prover where they name none;
    `terms.recourse` is always new.
    """
    steps: list[Step] = []

    def send(name: str, call: Call, spec: ModelSpec | None = None) -> ChecksumAddress:
        nonce = first_nonce + len(steps)
        address = created_address(deployer, nonce)
        steps.append(Step(name, nonce, call, None if call.to else address, spec))
        return address

    def create(name: str, *values: object) -> ChecksumAddress:
        data = artifacts.artifact(name).constructor(*values)
        return send(name, Call(f"deploy {name}", None, data))

    token, adjudicator, prover = terms.token, terms.adjudicator, terms.prover
    if token == ZERO_ADDRESS:
        token = create("DevToken")
        mint = artifacts.functions("DevToken")["mint"].encode(deployer, supply)
        send("mint", Call("mint", token, mint))
    adjudicator = create("Adjudicator") if adjudicator == ZERO_ADDRESS else adjudicator
    prover = create("Prover") if prover == ZERO_ADDRESS else prover
    shared = replace(terms, token=token, adjudicator=adjudicator, prover=prover)
    shared = replace(shared, recourse=ZERO_ADDRESS)
    extensions: list[ChecksumAddress] = []
    for name in reversed(artifacts.EXTENSIONS):
        following = extensions[0] if extensions else ZERO_ADDRESS
        extensions.insert(0, create(name, shared, following))
    config = replace(shared, recourse=extensions[0])
    contract = create("VeriLLM", config)
    nowhere = Deployment(chain_id, contract, adjudicator, prover, token, 0, NOTHING)
    for spec in specs:
        send(f"register {spec.name}", Calls(nowhere).register_model(spec), spec)
    return Plan(chain_id, deployer, first_nonce, config, contract, tuple(extensions), tuple(steps))
