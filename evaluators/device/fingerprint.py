"""The fingerprint of a device: model, versions and clocks that a measurement was taken with."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from evaluators.device.placement import (
    compute_device_id,
    describe_software,
    read_driver_version,
    read_processor_model,
)
from evaluators.device.timing_conditions import read_last_level_cache_bytes
from store.errors import DeviceUnavailable

# Bits of NVML's throttle reasons: slowdown by hardware or heat, thermal and power brake. A clock at
# the power limit is no such reason: it is the normal state of a busy GPU.
_SLOWDOWNS = 0x08 | 0x20 | 0x40 | 0x80
# Compute capabilities whose multiprocessors have 64 float32 lanes and not 128.
_HALF_AS_WIDE = {(7, 0), (7, 2), (7, 5), (8, 0)}


def read_fingerprint(device: str) -> dict[str, Any]:
    """Return the `devices` row of this process's `cpu` or `cuda`. Raises DeviceUnavailable."""
    if device != "cuda":
        model = read_processor_model()
        row = {
            "name": shorten_name(model),
            "kind": "cpu",
            "model": model,
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "l2_bytes": read_last_level_cache_bytes(),
        }
    elif torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        row = {
            "name": shorten_name(properties.name),
            "kind": "cuda",
            "model": properties.name,
            "cores": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": int(properties.L2_cache_size),
            "gpu_uuid": str(getattr(properties, "uuid", "")) or None,
            "driver": read_driver_version(),
            "cuda": torch.version.cuda,
        }
    else:
        hint = "Judge on the CPU with --on cpu."
        if torch.version.cuda is None and any(Path("/dev").glob("nvidia[0-9]*")):
            hint = (
                "This torch has no CUDA; install a build that has (pytorch.org/get-started names "
                "the command), or judge on the CPU with --on cpu."
            )
        raise DeviceUnavailable(f"no CUDA device is visible to torch {torch.__version__}", hint)
    row |= describe_software(torch.__version__)
    return {
        "device_id": compute_device_id(row),
        **row,
        "host": socket.gethostname(),
        "created_at": datetime.now(UTC).isoformat(),
    }


def find_architecture(device: str) -> str | None:
    """Return what extensions are compiled for on this process's GPU, such as 9.0."""
    given = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if device != "cuda" or given:
        return given
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    # Workers take it from the environment, so that those without a GPU build the same.
    os.environ["TORCH_CUDA_ARCH_LIST"] = arch = f"{major}.{minor}"
    return arch


def shorten_name(model: str) -> str:
    """Return the short name of a model, which tables use.

    >>> shorten_name("NVIDIA H100 80GB HBM3"), shorten_name("NVIDIA GeForce RTX 3090")
    ('H100', 'RTX 3090')
    >>> shorten_name("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz")
    'Intel Xeon E5-2670'
    """
    gpu = re.search(r"\b(RTX \w+(?: Ti)?|[A-Z]{1,2}\d{2,4}[A-Z]?)\b", model)
    if model.startswith(("NVIDIA", "Tesla")) and gpu:
        return gpu[1]
    plain = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|@.*|\b\d+-Core\b|\b0\b", " ", model)
    # A name is printable ASCII (store.schema.catalog).
    return " ".join(re.findall("[!-~]+", plain)) or "CPU"


@dataclass(frozen=True)
class Reading:
    """State of a GPU at one moment, as NVML reports it."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    slowed: bool
    """Whether the hardware holds its clocks down: heat, or too little power."""


class Clocks:
    """Reads the state of a GPU from NVML; every method returns None without NVML."""

    def __init__(self, device: str) -> None:
        self._nvml: Any = None
        if device == "cuda":
            with contextlib.suppress(Exception):  # the library is optional, and so is the driver
                nvml = importlib.import_module("pynvml")
                nvml.nvmlInit()
                uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
                self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                self._nvml = nvml

    def read(self) -> Reading | None:
        """Return clocks, temperature, power, and whether the hardware slows itself down."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
            return Reading(
                sm_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
                memory_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
                temperature_c=int(
                    nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)
                ),
                power_w=nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                slowed=bool(reasons & _SLOWDOWNS),
            )
        except nvml.NVMLError:
            return None

    def read_bandwidth(self) -> float | None:
        """Return the GPU memory's peak in bytes per second: clock, both edges, bus width."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            mhz = int(nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_MEM))
            bits = int(nvml.nvmlDeviceGetMemoryBusWidth(self._handle))
        except nvml.NVMLError:
            return None
        return mhz * 1e6 * 2 * bits / 8 or None  # some drivers report 0

    def read_float_peak(self) -> float | None:
        """Return the peak of float32 operations per second without tensor cores, an FMA as two."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            mhz = int(nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_SM))
        except nvml.NVMLError:
            return None
        properties = torch.cuda.get_device_properties(0)
        lanes = 64 if (properties.major, properties.minor) in _HALF_AS_WIDE else 128
        return mhz * 1e6 * 2 * lanes * properties.multi_processor_count
