"""What stands above every table: where and when it was measured."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version


def machine_line(*packages: str) -> str:
    """Return date, cores, Python and package versions in one line."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} missing")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    when = datetime.now(UTC).date().isoformat()
    parts = [when, f"{cores} cores {platform.machine()}", f"Python {platform.python_version()}"]
    return ", ".join([*parts, *found])
