"""The devices of this host without torch: where a run judges and compiles, and what they are."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.errors import DeviceUnavailable
from store.ids import content_id

_MOST_TIMING_CORES = 4
_FEWEST_CORES = 3
"""Cores for each GPU from which on some are kept for timing, and others compile meanwhile."""
_BUILDERS_PER_CORE = 0.75  # most builds run two compilers at first and one at the end
_PROBE_LOOPS = 10_000


@dataclass(frozen=True)
class Place:
    """One device with the processor cores of its judge."""

    device: str
    """cpu, cuda:0, cuda:1 …, or auto where only torch can tell."""
    cores: tuple[int, ...]
    timing_cores: tuple[int, ...] = ()
    """Cores on which it times kernels of a GPU, and on which nothing else runs; none: the same."""


@dataclass(frozen=True)
class Layout:
    """The devices of a run, and the cores on which candidates are compiled ahead."""

    places: tuple[Place, ...]
    builders: tuple[tuple[int, ...], ...]
    """Cores of each builder, shared by all; no builders where compiling would disturb the timing,
    as on the processor."""


def count_threads(cores: int | None = None) -> int:
    """Return the number of threads of every worker, the same for kernel and baseline.

    cores: Cores of the worker (default: those that this process may use).

    One core is left to the judge and the system: a parallel loop ends with its slowest thread, so
    that a single interruption of one core would otherwise count as time of the kernel.
    """
    return max(1, min((cores or len(os.sched_getaffinity(0))) - 1, 4))


def divide_machine(device: str, workers: int = 1) -> Layout:
    """Return the devices and cores of a run on this machine.

    Args:
        device: auto (every GPU where there is one, else the processor), cpu, cuda (every GPU), or
            names separated by commas: cuda:0,cuda:1.
        workers: Judges on the processor, each with its own cores, or on each GPU. Those of GPUs
            share all cores but some that each GPU has for timing. They take turns: one that times
            a kernel has its GPU and those cores alone.

    Raises DeviceUnavailable: an unknown name, no worker, or more workers than cores.
    """
    cores = tuple(sorted(os.sched_getaffinity(0)))
    names = _read_names(device)
    if not 1 <= workers <= len(cores):
        raise DeviceUnavailable(
            f"there are {len(cores)} cores for {workers} workers",
            f"Each worker needs a core of its own: give --workers from 1 to {len(cores)}.",
        )
    if names in (["cpu"], ["auto"]):
        size = len(cores) // workers
        parts = [cores[index * size : (index + 1) * size] for index in range(workers)]
        # A single judge keeps every core, including those that a division would leave over.
        places = [Place(names[0], cores if workers == 1 else part) for part in parts]
        return Layout(tuple(places), ())
    each = len(cores) // len(names)
    # The judge and its worker have one each; more than two, because cores differ in speed.
    kept = min(_MOST_TIMING_CORES, max(2, each // 4)) if each >= _FEWEST_CORES else 0
    shared = cores[kept * len(names) :]
    places = [
        Place(name, shared, cores[index * kept : (index + 1) * kept])
        for index, name in enumerate(names)
    ] * workers
    # Builders share the cores: with cores of their own, most would wait for the longest build.
    count = math.ceil(len(shared) * _BUILDERS_PER_CORE) if kept else 0
    builders = (shared,) * count
    return Layout(tuple(places), builders)


def choose_place(device: str) -> Place:
    """Return the one place that a command uses, with all cores: of several GPUs the first.

    device: auto, cpu, cuda, or the name of one GPU.

    Raises DeviceUnavailable: an unknown name, or several.
    """
    if "," in device:
        raise DeviceUnavailable(
            f'"{device}" names several devices, and this command uses one', "Name one of them."
        )
    return Place(divide_machine(device).places[0].device, tuple(sorted(os.sched_getaffinity(0))))


def pick_fast_cores(cores: Sequence[int], *, seconds: float = 0.05) -> tuple[int, ...] | None:
    """Return the two fastest cores, fastest first; None where this thread cannot be pinned to them.

    Cores of one host may differ in speed, up to 1.9 times, for seconds. A loop of a third of a
    millisecond runs on every core in turn for some time in all, and the best time of each core
    counts. Threads that share a core of the hardware with a faster one come last.
    """
    best_ns: dict[int, float] = dict.fromkeys(cores, math.inf)
    end_ns = time.perf_counter_ns() + int(seconds * 1e9)
    try:
        while math.inf in best_ns.values() or time.perf_counter_ns() < end_ns:
            for core in cores:
                best_ns[core] = min(best_ns[core], time_loop(core))
    except OSError:
        return None
    fastest: list[int] = []
    shared: list[int] = []
    for core in sorted(best_ns, key=best_ns.__getitem__):
        # The threads that share a core of the hardware with this one, such as 0,8 or 0-1.
        siblings: set[int] = set()
        file = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        with contextlib.suppress(OSError, ValueError):
            for first, _, last in (part.partition("-") for part in file.read_text().split(",")):
                siblings |= {*range(int(first), int(last or first) + 1)}
        (shared if siblings & {*fastest} else fastest).append(core)
    return (*fastest, *shared)[:2]


def time_loop(core: int) -> int:
    """Return the nanoseconds of a loop of this thread on a core. Raises OSError.

    The thread then runs on the cores that it had.
    """
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
        start_ns = time.perf_counter_ns()
        for _ in range(_PROBE_LOOPS):
            pass
        return time.perf_counter_ns() - start_ns
    finally:
        os.sched_setaffinity(0, allowed)


def list_gpus() -> list[str]:
    """Return the GPUs that this process may use, as cuda:0, cuda:1 …"""
    return _known_gpus() or []


def list_visible_devices() -> list[str] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES: numbers or UUIDs; None if it is not set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    names = [name.strip() for name in visible.split(",")]
    return [name for name in names if name and name != "-1"]


def identify_gpu(index: int) -> str:
    """Return the UUID of a GPU of this process, or its name where nvidia-smi does not tell."""
    visible = list_visible_devices()
    name = visible[index] if visible and index < len(visible) else str(index)
    uuids = _read_uuids() or []
    if name.isdigit():
        return uuids[int(name)] if int(name) < len(uuids) else name
    matching = [uuid for uuid in uuids if uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else name


def find_whole_gpu(device: str) -> str | None:
    """Return the UUID of a GPU such as cuda:0, or None if it may be a part of one, or unknown."""
    if device not in list_gpus() or re.search(r"^\s+MIG ", _list_gpus_and_parts() or "", re.M):
        return None
    uuid = identify_gpu(int(device.removeprefix("cuda:")))
    return uuid if uuid in (_read_uuids() or []) else None


def _known_gpus() -> list[str] | None:
    """Return the GPUs that this process may use; None where only torch can tell."""
    names = list_visible_devices()
    if names is None:
        names = _read_uuids()
    return None if names is None else [f"cuda:{index}" for index in range(len(names))]


@functools.cache
def _list_gpus_and_parts() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    return subprocess.run([command, "-L"], capture_output=True, text=True, check=False).stdout


def _read_uuids() -> list[str] | None:
    """Return the UUIDs of the machine's GPUs in the order of nvidia-smi; None without it."""
    listed = _list_gpus_and_parts()
    if listed is None:
        return None
    return re.findall(r"^GPU .*\(UUID: ([^)]+)\)", listed, re.MULTILINE)


def _read_names(device: str) -> list[str]:
    if device == "auto":
        # Where nvidia-smi is missing, only torch can tell; the judge process asks it.
        # Device files of a GPU: of Linux, of WSL, or of a Jetson.
        files = any(next(Path("/dev").glob(name), None) for name in ("nvidia*", "dxg", "nvhost*"))
        is_unknown = shutil.which("nvidia-smi") is None and files
        return list_gpus() or (["auto"] if is_unknown else ["cpu"])
    if device == "cpu":
        return ["cpu"]
    if device == "cuda":
        return list_gpus() or ["cuda:0"]
    names = [name.strip() for name in device.split(",")]
    for name in names:
        if name in ("auto", "cpu", "cuda"):
            raise DeviceUnavailable(
                f'"{device}" lists {name} beside other devices',
                "Name it alone, or list GPUs such as cuda:0,cuda:1.",
            )
        kind, _, number = name.partition(":")
        known = _known_gpus()
        is_gpu = kind == "cuda" and number.isdigit()
        if not is_gpu or (known is not None and name not in known):
            if known is None:
                hint = "Choose auto, cpu, cuda, or GPUs such as cuda:0,cuda:1."
            elif not known:
                hint = "This machine has no GPU that this process may use. Choose cpu."
            else:
                listed = ", ".join(["cpu", *known])
                hint = f"This machine has {listed}. auto and cuda take every GPU."
            raise DeviceUnavailable(f'no device "{name}"', hint)
    if len(set(names)) < len(names):
        raise DeviceUnavailable(
            f"{device} names a device twice",
            "Name each GPU once: it times one kernel at a time.",
        )
    return names


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
    uuid = find_whole_gpu(place.device)
    if uuid is None:
        return None
    # Model and multiprocessors are those of the GPU with this UUID.
    told = {"kind": "cuda", "gpu_uuid": uuid.removeprefix("GPU-"), "cuda": cuda}
    return {**told, "driver": read_driver_version(), **software}
