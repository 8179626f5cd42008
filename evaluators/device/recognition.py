"""Recognizes the devices of this host among those of a lake, without torch and without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.device import host, placement
from evaluators.device.identity import compute_class_id
from evaluators.device.placement import Place


def recognize_devices(
    known: Sequence[dict[str, Any]], places: Sequence[Place]
) -> list[dict[str, Any]]:
    """Return the rows of the devices at these places, or none if one is not recognized.

    A known device is not always recognized: of some devices only torch can tell what they are.
    """
    rows = [_recognize(known, _describe(place)) for place in places]
    found = [row for row in rows if row is not None]
    return found if len(found) == len(places) else []


def _recognize(
    known: Sequence[dict[str, Any]], told: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    if told is None:
        return None
    matching = [row for row in known if all(row[name] == told[name] for name in told)]
    # Rows that differ in what the host does not tell leave open which of them it is.
    return matching[0] if len({compute_class_id(row) for row in matching}) == 1 else None


def _describe(place: Place) -> dict[str, Any] | None:
    """Return the columns that identify the device at a place, or None where they are not known."""
    versions = host.read_torch_versions()
    if versions is None:
        return None
    torch_version, cuda = versions
    software = host.describe_software(torch_version)
    if place.device == "cpu":
        model, cores = host.read_processor_model(), len(place.cores)
        return {"kind": "cpu", "model": model, "cores": cores, **software}
    uuid = placement.find_whole_gpu(place.device)
    if uuid is None:
        return None
    # Model and multiprocessors are those of the GPU with this UUID.
    told = {"kind": "cuda", "gpu_uuid": uuid.removeprefix("GPU-"), "cuda": cuda}
    return {**told, "driver": host.read_driver_version(), **software}
