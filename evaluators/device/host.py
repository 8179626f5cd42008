"""The part of a device's fingerprint that this host tells without torch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import platform
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any


def read_processor_model() -> str:
    """Return the model of the processor, as the system names it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def read_driver_version() -> str | None:
    """Return the version of NVIDIA's driver, or None without it."""
    with contextlib.suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text()
        found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
        return found[1] if found else None
    return None


def describe_software(torch_version: str) -> dict[str, Any]:
    """Return the columns of `devices` about the software that measures."""
    return {
        "torch": torch_version,
        "triton": _find_version("triton"),
        "compiler": _read_compiler_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def read_torch_versions() -> tuple[str, str | None] | None:
    """Return the versions of torch and of its CUDA without importing it; None without torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        versions = runpy.run_path(str(Path(found.origin).with_name("version.py")))
        return versions["__version__"], versions["cuda"]
    except (OSError, KeyError):
        return None


def _read_compiler_version() -> str | None:
    path = shutil.which("c++") or shutil.which("g++")
    if path is None:
        return None
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout.splitlines() or [None])[0]


def _find_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
