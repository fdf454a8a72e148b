"""The shipped bytecode is what the sources compile to, by whichever tool."""

import subprocess
import sys

import pytest

from tests.chain.conftest import ROOT
from verillm.chain import artifacts
from verillm.chain.compile import compile_contracts


def test_the_shipped_files_are_hardhats() -> None:
    command = [sys.executable, str(ROOT / "tools" / "export_abi.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_python_and_hardhat_compile_to_the_same_bytecode() -> None:
    compiled = compile_contracts(ROOT)
    assert set(compiled) == set(artifacts.CONTRACTS)
    for name, found in compiled.items():
        assert found.bytecode == artifacts.artifact(name).bytecode, name
        assert found.entries("function") == artifacts.artifact(name).entries("function")
