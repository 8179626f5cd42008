"""What limits a kernel: a share of own code, a bottleneck and a text, computed from a profile.

The profile comes from the candidate's process and is read as foreign data. It yields an analysis, a
flag and a share in the row; no verdict rests on it.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from store.commandline.escape import escape_terminal
from store.ids import uuid7

if TYPE_CHECKING:
    from evaluators.device.roofline import Floor

_NAMED = 0.1
"""Least share of the time at which a cause is named; the view profiles has the same number."""
_DOMINATES = 0.3
"""Share of the time from which on a cause dominates, and pipelines state it."""
_COPIED = 128 << 20
_MATRIX = 1024
_TRIES = 3

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
)
# Names of kernels of torch and its libraries, including those that torch.compile writes.
_LIBRARY = re.compile(
    r"at::|at_cuda|c10::|cub::|thrust::|cublas|cudnn|cutlass|cufft|cusparse|cusolver|curand|nccl"
    r"|^Mem(cpy|set)\b|nvjet|xmma|cask|fmha|flash_(fwd|bwd)|multi_tensor"
    r"|^(void )?(maxwell|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_"
    r"|(^|void )[sdch]gemm_(largek|\d)|scal_kernel<|memcpy32_post"
    r"|gemv2[TN]_|gemvNSP|gemmSN|gemmk1|splitKreduce|dot_kernel|reduce_1Block"
    r"|implicit_convolve|winograd|im2col|conv\w*_(fprop|dgrad|wgrad)|(fprop|dgrad|wgrad)_"
    r"|(RNN|LSTM|GRU)_|elemWiseRNN|(vector|regular)_fft"
    r"|\(anonymous namespace\)::(softmax|cunn_|elementwise|indexSelect|CatArray)"
    r"|^triton_(poi|red|per|tem|for|spl)_fused"
)


@dataclass(frozen=True)
class ProfiledKernel:
    """A kernel of the device, or an operator on the processor, over all its calls."""

    name: str
    ns: int
    calls: int


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A worker's profile of one call (`profile.gather`)."""

    kernels: tuple[ProfiledKernel, ...]
    busy_ns: int
    wall_ns: int
    launches: int
    waits: int
    own_code: bool


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peaks of a device: bytes per second, and float32 operations per second."""

    bandwidth: float | None
    float_peak: float | None


def read_profile(answer: Mapping[str, Any]) -> Profile:
    """Return the profile in a worker's answer."""
    numbers = dict(answer)
    kernels = (ProfiledKernel(escape_terminal(name), *own) for name, *own in numbers.pop("kernels"))
    return Profile(kernels=tuple(kernels), **numbers)


def share(profile: Profile, device: str) -> float | None:
    """Return the share of the time in the kernel's own code; None where the profile is empty.

    On a GPU, this is a share of the device's time, by the names of kernels. On a processor, it is
    the share of the call outside of torch's operators, including Python, and zero without native
    code of its own.
    """
    if device == "cuda":
        total_ns = sum(kernel.ns for kernel in profile.kernels)
        own_ns = sum(k.ns for k in profile.kernels if not _LIBRARY.search(k.name))
        return own_ns / total_ns if total_ns else None
    if not profile.own_code:
        return 0.0
    aten_ns = sum(k.ns for k in profile.kernels if k.name.startswith("aten::"))
    return max(0.0, 1 - aten_ns / profile.wall_ns) if profile.wall_ns else None


@functools.cache
def measure_peaks() -> Peaks:
    """Measure a copy and a matrix product on the processor."""
    import torch

    source = torch.zeros(_COPIED, dtype=torch.uint8)
    target = torch.zeros_like(source)
    matrix = torch.ones(_MATRIX, _MATRIX)
    copy_s, product_s = [], []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        target.copy_(source)
        copy_s.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        torch.mm(matrix, matrix)
        product_s.append(time.perf_counter() - begin)
    return Peaks(bandwidth=2 * _COPIED / min(copy_s), float_peak=2 * _MATRIX**3 / min(product_s))


def analysis(
    profile: Profile, time_ms: float, work: Floor, peaks: Peaks, *, device: str
) -> dict[str, Any]:
    """Return a row of `analyses` without kernel_id and author: text and bottleneck.

    The bottleneck is the largest of three shares of the time: moving the task's bytes at full
    bandwidth, its operations at peak, idle time of the device. The share is the confidence. Below
    10 % the bottleneck is unknown.

    time_ms: Time of a call, measured without the profiler.
    """
    cuda = device == "cuda"
    total_ns = sum(kernel.ns for kernel in profile.kernels)
    memory = _compute_part(work.moved_bytes, peaks.bandwidth, time_ms)
    compute = _compute_part(work.operations, peaks.float_peak, time_ms)
    # The device cannot be that fast, so the kernel does fewer operations than the reference.
    fewer = compute is not None and compute > 1
    gaps = None
    if cuda and total_ns:
        gaps = max(0.0, 1 - profile.busy_ns / 1e6 / time_ms)
    elif not cuda and not profile.own_code and profile.wall_ns:
        gaps = max(0.0, 1 - total_ns / profile.wall_ns)
    waiting = "synchronisation" if profile.waits else "launch_overhead"
    causes = {"memory_bandwidth": memory, "compute": None if fewer else compute, waiting: gaps}
    named = max(causes, key=lambda cause: causes[cause] or 0.0)
    explained = causes[named] or 0.0
    bottleneck = named if explained >= _NAMED else "unknown"
    confidence = min(explained, 1.0) if explained >= _NAMED else None
    body = render_template(
        "diagnosis.j2",
        **vars(work),
        **vars(peaks),
        profile=profile,
        time_ms=time_ms,
        total_ns=max(total_ns, 1),
        cuda=cuda,
        share=share(profile, device),
        memory=memory,
        compute=compute,
        fewer=fewer,
        gaps=gaps,
        bottleneck=bottleneck,
        confidence=confidence,
        dominates=_DOMINATES,
    )
    return {
        "analysis_id": uuid7(),
        "kind": "profiler",
        "body": body,
        "bottleneck": bottleneck,
        "confidence": confidence,
        "memory_share": memory,
        "compute_share": compute,
        "idle_share": gaps,
    }


def _compute_part(amount: int, per_second: float | None, time_ms: float) -> float | None:
    return 1000 * amount / per_second / time_ms if amount and per_second else None


def render_template(name: str, **values: Any) -> str:
    """Return the text of an analysis."""
    return _TEMPLATES.get_template(name).render(values)
