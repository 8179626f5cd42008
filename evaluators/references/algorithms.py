"""Other algorithms by which eager may compute a task, and the error of an eager answer.

Eager takes one algorithm of several: cuDNN's heuristics choose another one than its benchmark does,
with TF32 or without, and a library splits a sum where it likes. Which one it takes is no property
of the task, so the error of a single run is no measure of what the precision allows, and what eager
may do, a kernel may do as well. A task's module therefore runs once under each algorithm that
concerns its operations. All change flags of this process and put them back, except that cuDNN's
benchmark may keep a plan.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from evaluators.references.recorded_operations import OperationMode, is_step

RELATIVE_LEVELS = (1e-3, 1e-2, 1e-1)
"""Relative errors whose shares are bounded, ascending."""
_CHUNK = 1 << 23


@dataclass(frozen=True)
class EagerError:
    """The eager reference's own error in the floating elements of an answer."""

    scaled: float
    """Largest error over the root mean square of the answer."""
    shares: tuple[float, ...]
    """Share of elements with a relative error above each of `RELATIVE_LEVELS`."""
    relative: float = 0.0
    """Norm of the error over the norm of the answer."""

    @classmethod
    def merge(
        cls,
        one: EagerError | None,
        other: EagerError | None,
        choose: Callable[[float, float], float] = max,
    ) -> EagerError | None:
        """Return the larger of each figure, or the smaller with min."""
        if one is None or other is None:
            return one or other
        shares = tuple(map(choose, one.shares, other.shares))
        relative = choose(one.relative, other.relative)
        return cls(choose(one.scaled, other.scaled), shares, relative)

    @classmethod
    def measure(
        cls, value: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor | None = None
    ) -> EagerError | None:
        """Measure the error of a floating answer, of its finite elements; None for zeros.

        slack: Error of each element that a rounding step explains (`recorded_operations`).
        """
        largest = squares = size_squares = 0.0
        finite, large = 0, [0] * len(RELATIVE_LEVELS)
        tiny = torch.finfo(value.dtype).tiny
        flat = [_flatten(tensor) for tensor in (value, exact)]
        spared = None if slack is None else _flatten(slack)
        for start in range(0, flat[0].numel(), _CHUNK):
            v, x = (t[start : start + _CHUNK].to(exact.device, torch.float64) for t in flat)
            is_finite = v.isfinite() & x.isfinite()
            error = torch.where(is_finite, (v - x).abs(), 0.0)
            size = torch.where(is_finite, x.abs(), 0.0)
            if spared is not None:
                error = (error - spared[start : start + _CHUNK].to(error.device)).clamp_(min=0.0)
            largest = max(largest, float(error.max()))
            squares += float(error.square().sum())
            size_squares += float(size.square().sum())
            finite += int(is_finite.sum())
            for number, level in enumerate(RELATIVE_LEVELS):
                large[number] += int(((error > level * size) & (size >= tiny)).sum())
        if not 0 < size_squares < math.inf or not squares < math.inf:
            return None
        return cls(
            largest / math.sqrt(size_squares / finite),
            tuple(count / finite for count in large),
            math.sqrt(squares / size_squares),
        )


def measure_errors(
    values: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor | None],
    slack: Sequence[torch.Tensor | None],
) -> list[EagerError | None]:
    """Return the error of each floating tensor of an answer; None for others."""
    triples = zip(values, exact, slack, strict=True)
    return [
        None
        if x is None or not (v.is_floating_point() or v.is_complex())
        else EagerError.measure(v, x, s)
        for v, x, s in triples
    ]


def _flatten(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


Kind: TypeAlias = Literal["convolution", "product", "attention", "sum", "step", "half"]
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
_TF32_DROPPED_BITS = 13
_HALVES = (torch.float16, torch.bfloat16)
_PARTS: dict[str, tuple[Kind, ...]] = {
    "convolution": ("convolution",),
    "mm": ("product",),
    "addmm": ("product",),
    "bmm": ("product",),
    "baddbmm": ("product",),
    "mv": ("product",),
    "addmv": ("product",),
    "dot": ("product",),
    "rnn": ("product",),
    "lstm": ("product",),
    "gru": ("product",),
    "attention": ("attention", "product"),
    "sum": ("sum",),
    "mean": ("sum",),
    "var": ("sum",),
    "norm": ("sum",),
    "softmax": ("sum",),
}
"""Kinds of an operation, by a part of its name."""


class _Kinds(OperationMode):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[Kind] = set()

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = str(func).removeprefix("aten.")
        for part, kinds in _PARTS.items():
            if part in name:
                self.kinds.update(kinds)
        if any(isinstance(a, torch.Tensor) and a.dtype in _HALVES for a in args):
            self.kinds.add("half")
        if is_step(func, args, kwargs):
            self.kinds.add("step")
        return func(*args, **kwargs)


def find_kinds(call: Callable[[], Any]) -> set[Kind]:
    """Return the kinds of the operations of a call."""
    with _Kinds() as recorder:
        call()
    return recorder.kinds


def iterate_algorithms(
    device: str, precision: str, kinds: set[Kind]
) -> Iterator[AbstractContextManager[Any]]:
    """Yield the other algorithms that a precision allows for operations of some kinds.

    Those with the largest errors come first, since the time for all of them is limited.
    """
    if device == "cuda":
        if precision != "fp32_strict" and "convolution" in kinds:
            yield RoundedFactors(("convolution",))
        if precision == "allow_tf32" and kinds & {"product", "convolution"}:
            yield RoundedFactors(("convolution", *_PRODUCTS))
            yield _allow_tf32()
    if kinds & {"product", "convolution", "sum"}:
        yield _SplitSums()
    if device != "cuda":
        if kinds & {"product", "convolution", "sum"}:
            threads = torch.get_num_threads()
            yield _call_with(torch.set_num_threads, 1 if threads > 1 else 2, threads)
        # Without oneDNN, convolutions and products in half precision take 100 times as long.
        if "product" in kinds and not kinds & {"convolution", "half"}:
            switch = torch.backends.mkldnn.set_flags
            yield _call_with(switch, False, torch.backends.mkldnn.enabled)
        return
    cudnn = torch.backends.cudnn
    if "convolution" in kinds:
        yield _set(cudnn, "deterministic", True)
        yield _set(cudnn, "benchmark", True)
    if "product" in kinds:
        choose = torch.backends.cuda.preferred_blas_library
        for library in ("cublas", "cublaslt"):
            yield _call_with(choose, library, choose())
    if "attention" in kinds:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        yield sdpa_kernel(SDPBackend.MATH)


class RoundedFactors(OperationMode):
    """Rounds the factors of float32 products to TF32, whether the library would do so or not.

    cuDNN takes TF32 for some shapes and not for others, and its benchmark decides by times.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = _get_name(func)
        factors = (1, 2) if name in ("addmm", "baddbmm") else (0, 1)
        if name in self._names and all(args[number].dtype == torch.float32 for number in factors):
            args = list(args)
            for number in factors:
                args[number] = _round_to_tf32(args[number])
        return func(*args, **kwargs)


class _SplitSums(OperationMode):
    """Computes products and sums in two halves, which are added in the element type."""

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = _get_name(func)
        if name in _PRODUCTS and func._overloadname == "default":
            # Both halves of the product along its common dimension.
            *summand, a, b = args[: 3 if name.startswith(("addmm", "baddbmm")) else 2]
            half = a.shape[-1] // 2
            a_parts, b_parts = a.tensor_split([half], -1), b.tensor_split([half], -2)
            scale = kwargs.get("alpha", 1)
            multiply = torch.mm if name in ("mm", "addmm") else torch.bmm
            head = func(*summand, a_parts[0], b_parts[0], **kwargs)
            return head + scale * multiply(a_parts[1], b_parts[1])
        if name == "convolution" and args[8] == 1 and args[1].shape[0 if args[6] else 1] > 1:
            x, weight, bias, *others = args
            dim = 0 if args[6] else 1
            half = weight.shape[dim] // 2
            x_parts = x.tensor_split([half], 1 if x.dim() == weight.dim() else 0)
            weights = weight.tensor_split([half], dim)
            first = func(x_parts[0], weights[0], bias, *others)
            return first + func(x_parts[1], weights[1], None, *others)
        if str(func) == "aten.sum.dim_IntList" and args[1] and args[0].is_floating_point():
            parts = args[0].tensor_split(2, args[1][0])
            return func(parts[0], *args[1:], **kwargs) + func(parts[1], *args[1:], **kwargs)
        return func(*args, **kwargs)


def _get_name(func: Any) -> str:
    return str(func).removeprefix("aten.").partition(".")[0]


def _round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    half = 1 << (_TF32_DROPPED_BITS - 1)
    bits = tensor.contiguous().view(torch.int32)
    rounded = (bits + half & -(1 << _TF32_DROPPED_BITS)).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded.view(tensor.shape), tensor)


@contextlib.contextmanager
def _set(holder: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextlib.contextmanager
def _allow_tf32() -> Generator[None]:
    backends = torch.backends
    with _set(backends.cudnn, "allow_tf32", True), _set(backends.cuda.matmul, "allow_tf32", True):
        yield


@contextlib.contextmanager
def _call_with(change: Callable[[Any], Any], value: Any, before: Any) -> Generator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)
