"""Which device this is, without torch and without a GPU: its id, and devices that are alike."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import platform
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators.device import placement
from evaluators.device.placement import Place
from store.ids import content_id

# Host name and memory describe a machine without changing what it measures.
_COLUMNS = (
    "kind",
    "model",
    "cores",
    "gpu_uuid",
    "driver",
    "cuda",
    "torch",
    "triton",
    "compiler",
    "python",
    "system",
)


def compute_device_id(device: Mapping[str, Any]) -> str:
    """Return the id of a device: the hash of its hardware and of the software that runs on it."""
    return _hash(device, _COLUMNS)


def compute_class_id(device: Mapping[str, Any]) -> str:
    """Return an id that alike devices share: GPUs of one model with the same software."""
    return _hash(device, [name for name in _COLUMNS if name != "gpu_uuid"])


def select_alike(
    known: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return the ids of some devices and of those among the known ones that are alike."""
    given = list(devices)
    classes = {compute_class_id(device) for device in given}
    alike = [device for device in known if compute_class_id(device) in classes]
    return sorted({str(device["device_id"]) for device in (*given, *alike)})


def _hash(device: Mapping[str, Any], columns: Iterable[str]) -> str:
    values = (device.get(name) for name in columns)
    return content_id(*(None if value is None else str(value) for value in values))


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
    triton = compiler = None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        triton = importlib.metadata.version("triton")
    if path := shutil.which("c++") or shutil.which("g++"):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        compiler = next(iter(told.stdout.splitlines()), None)
    return {
        "torch": torch_version,
        "triton": triton,
        "compiler": compiler,
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


def recognize_devices(
    known: Sequence[dict[str, Any]], places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return the rows of the devices at these places, or none if one is not recognized.

    A known device is not always recognized: of some devices only torch can tell what they are.
    """
    rows: list[dict[str, Any]] = []
    for told in map(_describe, places):
        matching = [row for row in known if told and all(row[name] == told[name] for name in told)]
        # Rows that differ in what the host does not tell leave open which of them it is.
        if len({compute_class_id(row) for row in matching}) != 1:
            return []
        rows.append(matching[0])
    return rows


def _describe(place: Place) -> dict[str, Any] | None:
    """Return the columns that identify the device at a place, or None where they are not known."""
    versions = read_torch_versions()
    if versions is None:
        return None
    torch_version, cuda = versions
    software = describe_software(torch_version)
    if place.device == "cpu":
        model, cores = read_processor_model(), len(place.cores)
        return {"kind": "cpu", "model": model, "cores": cores, **software}
    uuid = placement.find_whole_gpu(place.device)
    if uuid is None:
        return None
    # Model and multiprocessors are those of the GPU with this UUID.
    told = {"kind": "cuda", "gpu_uuid": uuid.removeprefix("GPU-"), "cuda": cuda}
    return {**told, "driver": read_driver_version(), **software}
