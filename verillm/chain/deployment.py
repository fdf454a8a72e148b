"""What a deployment is: its configuration and its addresses, as a file that everyone reads."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from eth_utils.address import to_checksum_address

from verillm import api
from verillm.chain import artifacts
from verillm.errors import ConfigError, MalformedError
from verillm.files import write_atomically
from verillm.signing import Domain
from verillm.types import ChecksumAddress, Hash32

ZERO_ADDRESS: Final = to_checksum_address("0x" + "00" * 20)
NOTHING: Final = Hash32(bytes(32))
MINUTE, HOUR, DAY = 60, 3_600, 86_400
UNIT: Final = 10**18


@dataclass(frozen=True, slots=True)
class Config:
    """What a deployment fixes for good: IVeriLLM.Config; seconds, basis points, token units.

    The defaults are for a network of people; `devnet` shortens what a demonstration waits for.
    """

    token: ChecksumAddress = ZERO_ADDRESS
    adjudicator: ChecksumAddress = ZERO_ADDRESS
    prover: ChecksumAddress = ZERO_ADDRESS
    recourse: ChecksumAddress = ZERO_ADDRESS
    seal_window: int = HOUR
    claim_window: int = HOUR
    dispute_window: int = DAY
    opening_window: int = DAY
    unbonding: int = 28 * DAY
    unlock_delay: int = 2 * DAY
    key_grace: int = 7 * DAY
    job_window: int = DAY
    kappa_bps: int = 20_000
    forced_every: int = 0
    reserve_bps: int = 7_500
    inferencer_bps: int = 7_500
    committee_bps: int = 1_500
    scheduler_bps: int = 1_000
    caller_fee: int = 0
    claim_bond: int = UNIT // 10
    challenge_bond: int = UNIT // 10
    answer_fee: int = UNIT // 100
    reverify_bond: int = UNIT

    @classmethod
    def devnet(cls, dispute_window: int = 10) -> Self:
        """Short windows, for one machine whose parties are all awake."""
        return cls(
            seal_window=5 * MINUTE,
            claim_window=5 * MINUTE,
            dispute_window=dispute_window,
            opening_window=MINUTE,
            unbonding=2 * HOUR + 6 * dispute_window,  # the longest path holds six of them
            unlock_delay=10 * MINUTE,
            key_grace=HOUR,
            job_window=10 * MINUTE,
        )

    def to_json(self) -> dict[str, object]:
        """By the contract's names; amounts are decimal strings, as deploy.js reads and writes."""
        return {
            part["name"]: str(value) if part["type"] == "uint96" else value
            for part, value in zip(_terms(), artifacts.to_abi(_struct(), self), strict=True)
        }

    @classmethod
    def from_json(cls, value: object, where: str = "config") -> Self:
        """Parse what `to_json` gives; raises MalformedError."""
        fields = api.Fields(value, where)
        values: dict[str, Any] = {}
        for part in _terms():
            name, kind = part["name"], part["type"]
            if kind == "address":
                values[artifacts.snake(name)] = fields.address(name)
            elif kind == "uint96":
                values[artifacts.snake(name)] = fields.amount(name)
            else:
                values[artifacts.snake(name)] = fields.number(name, int(kind[4:]))
        fields.end()
        return cls(**values)


def _struct() -> artifacts.Component:
    """`Config` as the contract's own ABI describes it."""
    constructor = next(e for e in artifacts.artifact("VeriLLM").abi if e["type"] == "constructor")
    found: artifacts.Component = constructor["inputs"][0]
    return found


def _terms() -> list[artifacts.Component]:
    return list(_struct()["components"])


CODED: Final = ("VeriLLM", *artifacts.EXTENSIONS, "Adjudicator", "Prover")
"""The contracts whose code an addresses file names, in its order."""


@dataclass(frozen=True, slots=True)
class Made:
    """How a deployment was made: enough to find every contract and to know its code again.

    `extensions` in the order of `artifacts.EXTENSIONS`; `code_hashes` in that of `CODED`, keccak of
    the code as it stands, immutables included.
    """

    version: str
    deployer: ChecksumAddress
    extensions: tuple[ChecksumAddress, ...]
    config: Config
    code_hashes: tuple[Hash32, ...]

    def to_json(self) -> dict[str, object]:
        """As the addresses file holds it."""
        hashes = map(api.to_hex, self.code_hashes)
        return {
            "version": self.version,
            "deployer": self.deployer,
            "extensions": dict(zip(artifacts.EXTENSIONS, self.extensions, strict=True)),
            "config": self.config.to_json(),
            "codeHashes": dict(zip(CODED, hashes, strict=True)),
        }

    @classmethod
    def from_json(cls, value: object, where: str = "made") -> Self:
        """Parse what `to_json` gives; raises MalformedError."""
        fields = api.Fields(value, where)
        extensions = api.Fields(fields.take("extensions", _any), f"{where}.extensions")
        hashes = api.Fields(fields.take("codeHashes", _any), f"{where}.codeHashes")
        made = cls(
            version=fields.text("version"),
            deployer=fields.address("deployer"),
            extensions=tuple(map(extensions.address, artifacts.EXTENSIONS)),
            config=fields.take("config", Config.from_json),
            code_hashes=tuple(map(hashes.hash, CODED)),
        )
        for each in (fields, extensions, hashes):
            each.end()
        return made


def _any(value: object, _path: str) -> object:
    return value


@dataclass(frozen=True, slots=True)
class Deployment:
    """One VeriLLM contract and what belongs to it; `block` is where its history starts.

    `made` is None in a file from before it was written, or by hand.
    """

    chain_id: int
    contract: ChecksumAddress
    adjudicator: ChecksumAddress
    prover: ChecksumAddress
    token: ChecksumAddress
    block: int
    transaction: Hash32
    made: Made | None = None

    @property
    def domain(self) -> Domain:
        """Where signatures for this deployment count."""
        return Domain(self.chain_id, self.contract)

    def to_json(self) -> dict[str, object]:
        """The addresses file's content."""
        made = {} if self.made is None else {"made": self.made.to_json()}
        return {
            "chainId": self.chain_id,
            "contract": self.contract,
            "adjudicator": self.adjudicator,
            "prover": self.prover,
            "token": self.token,
            "block": self.block,
            "transaction": api.to_hex(self.transaction),
            **made,
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse the addresses file's content; raises MalformedError."""
        fields = api.Fields(value, "deployment")
        has_made = isinstance(value, dict) and "made" in value
        deployment = cls(
            chain_id=fields.number("chainId", 64),
            contract=fields.address("contract"),
            adjudicator=fields.address("adjudicator"),
            prover=fields.address("prover"),
            token=fields.address("token"),
            block=fields.number("block", 64),
            transaction=fields.hash("transaction"),
            made=fields.take("made", Made.from_json) if has_made else None,
        )
        fields.end()
        return deployment

    def save(self, path: Path) -> None:
        """Write the addresses file whole or not at all."""
        write_atomically(path, (json.dumps(self.to_json(), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an addresses file; raises ConfigError."""
        try:
            return cls.from_json(api.loads(path.read_bytes(), "deployment"))
        except OSError as error:
            raise ConfigError(f"no deployment file at {path}: {error.strerror}") from error
        except MalformedError as error:
            raise ConfigError(f"{path} is no deployment file: {error}") from error
