"""Which measurements are of one device, and which devices are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
