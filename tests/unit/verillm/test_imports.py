import subprocess
import sys

import pytest

PROTOCOL = (
    "verillm, verillm.codec, verillm.draw, verillm.evidence, verillm.head, verillm.model, "
    "verillm.records, verillm.request, verillm.sampling, verillm.signing, verillm.statistics, "
    "verillm.task, verillm.tokens, verillm.trace, verillm.verdict"
)
HEAVY = {"torch", "transformers", "web3", "fastapi", "pydantic", "starlette", "uvicorn"}


@pytest.mark.parametrize("modules", ["verillm", PROTOCOL], ids=["package", "protocol"])
def test_the_protocol_imports_neither_torch_nor_web3_nor_a_web_framework(modules: str) -> None:
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY <= ({"pydantic"} if modules is PROTOCOL else set())
