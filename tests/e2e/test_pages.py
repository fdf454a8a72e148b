"""The documentation's Python, run as it stands, and the auditor on whole networks."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from verillm.api import to_hex
from verillm_node.devnet import UNIT
from verillm_verifier import cli
from verillm_verifier.audit import Exit

from .conftest import Town

pytestmark = pytest.mark.slow

SDK = Path(__file__).parents[2] / "docs" / "sdk.md"
_RUN = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_sdk_page_runs_as_it_stands(honest_town: Town) -> None:
    names: dict[str, Any] = {
        "RPC": honest_town.network.anvil.url,
        "DEPLOYMENT": honest_town.network.deployment_file,
        "SCHEDULER": honest_town.network.scheduler_url,
        "ACCOUNT": honest_town.network.client,
    }
    said = io.StringIO()
    blocks = _RUN.findall(SDK.read_text())
    assert len(blocks) == 5
    with contextlib.redirect_stdout(said):
        for block in blocks:
            exec(compile(block, str(SDK), "exec"), names)
    assert "ACCEPT" in said.getvalue()


def test_the_auditor_agrees_with_a_network_and_needs_only_what_it_publishes(
    honest_town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bundle from the endpoint that the scheduler published; one's own run added."""
    network = honest_town.network
    honest_town.client.deposit(network.scheduler, 10 * UNIT)  # the page has unlocked all there was
    handle = honest_town.buy()
    handle.read()
    honest_town.final(handle)
    where = ["--rpc", network.anvil.url, "--deployment", str(network.deployment_file)]
    model = ["--model", str(network.model), "--rerun", "--engine", "tiny"]
    code = cli.main(["verify", to_hex(handle.job_id), *where, *model, "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (code, said["standing"]) == (Exit.ACCEPT, "agrees"), said
    assert not said["opinion"]["objects"]
    assert cli.main(["show", to_hex(handle.job_id)[:12], *where, *model[:2]]) == 0
    assert cli.main(["jobs", *where, "--json"]) == 0
