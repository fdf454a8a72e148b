"""The demonstration on the default model: two workers on vLLM, three on torch, one of them int4."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_PYTHON = ROOT / ".venv" / "bin" / "python"
"""The environment without vLLM: what a worker runs in is its operator's choice."""


@pytest.mark.anvil
@pytest.mark.model
@pytest.mark.timeout(900)
def test_a_mixed_network_pays_the_honest_and_slashes_the_cheater(tmp_path: Path) -> None:
    python = TORCH_PYTHON if TORCH_PYTHON.exists() else Path(sys.executable)
    folder = tmp_path / "devnet"
    command = [str(python), "-m", "verillm_node.cli", "devnet", "--demo", "--dir", str(folder)]
    command += ["--vllm-workers", "2", "--vllm-python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840, check=False)
    logs = "\n".join(path.read_text()[-2000:] for path in (folder / "logs").glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert "worker3, and only worker3, lost stake" in done.stdout
    assert "WRONG" not in done.stdout
    assert commitments(folder / "logs" / "worker4.log") + commitments(
        folder / "logs" / "worker5.log"
    )


def commitments(log: Path) -> int:
    """Number of tasks that a worker ended by committing."""
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(
        event.get("event") == "task_ended" and event["kind"] == "commitment" for event in events
    )
