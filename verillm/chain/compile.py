"""Compiling the contracts from Python, with the very compiler that Hardhat and forge use.

For whoever wants to check that the shipped bytecode is what the sources say. Needs a source tree
with `npm ci` done, and py-solc-x; both are development tools.
"""

import importlib
import re
import shutil
from pathlib import Path
from typing import Any, Final

from verillm.chain.artifacts import CONTRACTS, Artifact, parse_artifact
from verillm.errors import ConfigError, MissingTool

_IMPORT: Final = re.compile(r'^\s*import\s[^;]*?"([^"]+)"\s*;', re.MULTILINE)
# Equal to hardhat.config.js and foundry.toml.
SETTINGS: Final[dict[str, Any]] = {
    "evmVersion": "prague",
    "optimizer": {"enabled": True, "runs": 200},
    "viaIR": True,
    "metadata": {"bytecodeHash": "none"},
    "outputSelection": {"*": {"*": ["abi", "evm.bytecode.object"]}},
}


def compile_contracts(root: Path) -> dict[str, Artifact]:
    """Compile `contracts/src` under `root`; returns the contracts that the package ships."""
    try:
        solcx = importlib.import_module("solcx")
    except ImportError as error:
        raise MissingTool("py-solc-x", "pip install py-solc-x") from error
    if shutil.which("node") is None:
        raise MissingTool("node", "the compiler runs on Node.js 20 or newer")
    source = {"language": "Solidity", "sources": _sources(root), "settings": SETTINGS}
    try:
        output = solcx.compile_standard(source, solc_binary=root / "tools" / "solc")
    except solcx.exceptions.SolcError as error:
        raise ConfigError(f"the contracts do not compile: {error}") from error
    found = (
        name_and_contract
        for unit in output["contracts"].values()
        for name_and_contract in unit.items()
    )
    return {name: _artifact(name, contract) for name, contract in found if name in CONTRACTS}


def _artifact(name: str, contract: dict[str, Any]) -> Artifact:
    bytecode = contract["evm"]["bytecode"]["object"]
    return parse_artifact({"contractName": name, "abi": contract["abi"], "bytecode": bytecode})


def _sources(root: Path) -> dict[str, dict[str, str]]:
    """All sources by the unit names that Hardhat gives them, imports included."""
    waiting = [str(p.relative_to(root)) for p in (root / "contracts" / "src").rglob("*.sol")]
    sources: dict[str, dict[str, str]] = {}
    while waiting:
        unit = waiting.pop()
        if unit in sources:
            continue
        path = root / unit if unit.startswith("contracts/") else root / "node_modules" / unit
        content = path.read_text()
        sources[unit] = {"content": content}
        waiting += [_resolve(unit, target) for target in _IMPORT.findall(content)]
    return sources


def _resolve(unit: str, target: str) -> str:
    if not target.startswith("."):
        return target
    parts = unit.split("/")[:-1]
    for step in target.split("/"):
        if step == "..":
            parts.pop()
        elif step != ".":
            parts.append(step)
    return "/".join(parts)
